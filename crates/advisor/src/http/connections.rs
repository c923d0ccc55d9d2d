//! Connections: who may have one, how long it may take, and how it ends.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use enable::xmlrpc::MAX_BODY;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::limits::ConnectionPlace;
use super::live;
use super::operations::CallRefused;
use super::shared::{Caller, Shared, stopped};

/// Pause after a failure to accept a connection: mostly, there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Most header fields of a request.
const MAX_FIELDS: usize = 64;
/// Most bytes of a request's header, and of what waits in a connection's buffer.
const BUFFER: usize = 16 * 1024;
/// Time after which a connection ends whose peer takes no bytes.
const UNREAD: Duration = Duration::from_secs(30);
/// Longest wait for requests that are answered when the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// The response to a connection for which there is no place.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Rules for the browser for everything but the page.
const NOTHING_ALLOWED: &str = "default-src 'none'; frame-ancestors 'none'";

/// Serves connections until the server stops.
pub(super) async fn accept(
    listener: TcpListener,
    router: Router,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Some((place, has_displaced)) = shared.peers.connect(peer.ip(), Instant::now()) else {
            shared.requests.refused_connection();
            // A new connection has room for these bytes; if not, nothing is lost.
            let _ = stream.try_write(NO_PLACE);
            continue;
        };
        if has_displaced {
            shared.requests.refused_connection();
        }
        let caller = Caller(peer.ip());
        connections.spawn(serve(
            stream,
            caller,
            place,
            router.clone(),
            Arc::clone(&shared),
        ));
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, ended).await;
}

async fn serve(
    stream: TcpStream,
    caller: Caller,
    place: ConnectionPlace,
    router: Router,
    shared: Arc<Shared>,
) {
    let place = Arc::new(place);
    // A refusal costs nothing but the feature.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let mut stopping = shared.stopping.clone();
    let header_time = shared.limits.header_time;
    let held = Arc::clone(&place);
    let answer = service_fn(move |request| {
        let (router, shared, place) = (router.clone(), Arc::clone(&shared), Arc::clone(&held));
        respond(request, caller, router, shared, place)
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_headers(MAX_FIELDS)
        .max_buf_size(BUFFER);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = place.displaced() => return,
    };
    if let Err(error) = result {
        tracing::trace!("connection of {}: {error}", caller.0);
    }
}

async fn respond(
    request: Request<Incoming>,
    caller: Caller,
    router: Router,
    shared: Arc<Shared>,
    place: Arc<ConnectionPlace>,
) -> Result<Response<Body>, Infallible> {
    let mut response = if may_ask(&shared, caller.0) {
        let mut request = request.map(|body| ArrivingBody::new(body, Arc::clone(&place)));
        request.extensions_mut().insert(caller);
        TowerToHyperService::new(router).call(request).await?
    } else {
        let text = "too many requests; try again later\n";
        (
            StatusCode::TOO_MANY_REQUESTS,
            [(header::RETRY_AFTER, "1")],
            text,
        )
            .into_response()
    };
    // Live updates are an answer without an end.
    if response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind != live::CONTENT)
    {
        place.wait_for_client();
    }
    let headers = response.headers_mut();
    let fields = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fields {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(NOTHING_ALLOWED));
    Ok(response)
}

fn may_ask(shared: &Shared, caller: IpAddr) -> bool {
    let may_ask = shared.peers.request(caller, Instant::now());
    if !may_ask {
        shared.requests.refused_request();
    }
    may_ask
}

/// The body of a request. Once it is here, the server is to answer.
struct ArrivingBody {
    body: Incoming,
    place: Arc<ConnectionPlace>,
}

impl ArrivingBody {
    fn new(body: Incoming, place: Arc<ConnectionPlace>) -> Self {
        match body.is_end_stream() {
            true => place.begin_answer(),
            false => place.wait_for_client(),
        }
        Self { body, place }
    }
}

impl hyper::body::Body for ArrivingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.place.begin_answer();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a body, chunked or plain.
pub(super) async fn read_body(body: Body, time: Duration) -> Result<Bytes, CallRefused> {
    match tokio::time::timeout(time, to_bytes(body, MAX_BODY)).await {
        Err(_) => Err(CallRefused::TooSlow),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_long(&error) => Err(CallRefused::TooLong(MAX_BODY)),
        Ok(Err(error)) => Err(CallRefused::Malformed(error.to_string())),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        // The type is not reachable by name without a further crate.
        if error.to_string() == "length limit exceeded" {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_beyond_the_bound_is_told_from_others() {
        let time = Duration::from_secs(60);
        let fits = read_body(Body::from(vec![0; MAX_BODY]), time).await;
        assert_eq!(fits.map(|body| body.len()), Ok(MAX_BODY));
        let long = read_body(Body::from(vec![0; MAX_BODY + 1]), time).await;
        assert_eq!(long, Err(CallRefused::TooLong(MAX_BODY)));
    }
}
