//! The state of the queue over HTTP, to be read only: a page, JSON, metrics in Prometheus' text format, and health.
//!
//! All readers share one answer of the database, which is at most two seconds old.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::store::{QueueError, QueueOverview, TransferQueue};

mod metrics;
mod page;
pub mod report;

/// Age up to which an answer of the database is used again.
const FRESH: Duration = Duration::from_secs(2);
/// Most connections at a time.
const CONNECTIONS: usize = 128;
/// Longest time of a connection; it has one request.
const LONGEST: Duration = Duration::from_secs(30);
/// Longest wait for the header of the request.
const HEADER: Duration = Duration::from_secs(10);
/// Most bytes of the header.
const BUFFER: usize = 16 * 1024;
/// Most fields of the header.
const FIELDS: usize = 64;
/// Pause after a failure to accept a connection: mostly, there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The page has no script, and its style is its own.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

type Seen = Result<Arc<QueueOverview>, String>;

struct QueueView {
    queue: TransferQueue,
    seen: Mutex<LastSeen>,
}

/// The last answer of the database.
#[derive(Default)]
struct LastSeen {
    answer: Option<(Instant, Seen)>,
    /// The tables are there.
    is_prepared: bool,
}

impl QueueView {
    /// The state of the queue, or why it is unknown.
    async fn overview(&self) -> Seen {
        let mut seen = self.seen.lock().await;
        if let Some((at, answer)) = &seen.answer
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = self.ask(&mut seen.is_prepared).await;
        let answer = answer.map(Arc::new).map_err(|error| error.to_string());
        seen.answer = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn ask(&self, is_prepared: &mut bool) -> Result<QueueOverview, QueueError> {
        if !*is_prepared {
            self.queue.prepare().await?;
            *is_prepared = true;
        }
        self.queue.overview().await
    }
}

/// Serves on a socket that listens, until the task is dropped.
pub async fn serve(queue: TransferQueue, listener: TcpListener) {
    let view = Arc::new(QueueView {
        queue,
        seen: Mutex::default(),
    });
    let router = Router::new()
        .route("/", get(show_page))
        .route("/api/v1/overview", get(show_json))
        .route("/metrics", get(show_metrics))
        .route("/health", get(show_health))
        .with_state(view);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // With all places taken, further connections wait in the kernel's queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(LONGEST, answer(stream, router)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_headers(FIELDS)
        .max_buf_size(BUFFER)
        .keep_alive(false);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::trace!("a connection ended: {error}");
    }
}

fn with_fields(response: impl IntoResponse, kind: &'static str) -> Response {
    let mut response = response.into_response();
    let fields = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
    ];
    for (name, value) in fields {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn show_page(State(view): State<Arc<QueueView>>) -> Response {
    let page = page::page(&view.overview().await).into_string();
    with_fields(page, "text/html; charset=utf-8")
}

async fn show_json(State(view): State<Arc<QueueView>>) -> Response {
    const KIND: &str = "application/json";
    match view.overview().await {
        Ok(queue) => with_fields(report::overview(&queue).to_string(), KIND),
        Err(error) => {
            let text = serde_json::json!({ "error": error }).to_string();
            with_fields((StatusCode::SERVICE_UNAVAILABLE, text), KIND)
        }
    }
}

async fn show_metrics(State(view): State<Arc<QueueView>>) -> Response {
    let overview = view.overview().await;
    match metrics::text(overview.ok().as_deref()) {
        Ok(text) => with_fields(text, metrics::KIND),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn show_health(State(view): State<Arc<QueueView>>) -> Response {
    const KIND: &str = "text/plain; charset=utf-8";
    match view.overview().await {
        Ok(_) => with_fields("ok\n", KIND),
        Err(error) => with_fields((StatusCode::SERVICE_UNAVAILABLE, error + "\n"), KIND),
    }
}
