//! The HTTP port for monitoring: `/metrics` and `/health`, by GET and HEAD, one request a connection.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::listen;
use crate::state::{ServerPhase, ServerState};
use crate::stripes::NodeState;

/// Most connections at one time. Further ones wait in the listen queue.
const MAX_CONNECTIONS: usize = 16;
/// Longest head of a request, bytes.
const MAX_HEAD: usize = 8 << 10;
/// Limit for a request and its response.
const LIMIT: Duration = Duration::from_secs(10);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// A response: status, content type, body.
type Response = (&'static str, &'static str, String);

/// Answers requests for as long as the task runs.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<ServerState>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return;
        };
        let (stream, peer) = listen::accept_stream(&listener).await;
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _permit = permit;
            match timeout(LIMIT, answer(stream, &shared)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no answer to a monitor"),
                Err(_) => tracing::debug!(%peer, "a monitor was too slow"),
            }
        });
    }
}

/// Reads one request and answers it.
async fn answer(mut stream: TcpStream, shared: &ServerState) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let (method, (status, kind, body)) = respond(&head, shared);
    let length = body.len();
    let mut message = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        message.push_str(&body);
    }
    stream.write_all(message.as_bytes()).await?;
    stream.shutdown().await?;
    // A connection that closes while bytes wait to be read is reset, and the answer may be lost.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Reads up to the empty line after the header fields.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(io::Error::other("the request is too long"));
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The method of a request, and its response.
fn respond<'h>(head: &'h str, shared: &ServerState) -> (&'h str, Response) {
    let mut words = head.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let text = |status, text: &str| (status, TEXT, format!("{text}\n"));
    let response = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let nodes = shared.node_directory.states(Instant::now());
            let sessions = shared.session_limits.sessions();
            match shared.metrics.text(sessions, &nodes) {
                Ok(body) => ("200 OK", OPEN_METRICS, body),
                Err(_) => text("500 Internal Server Error", "the metrics cannot be written"),
            }
        }
        ("GET" | "HEAD", "/health") => health(shared),
        ("GET" | "HEAD", _) => text("404 Not Found", "there are /metrics and /health"),
        _ => text("405 Method Not Allowed", "use GET"),
    };
    (method, response)
}

/// 200 while sessions are accepted, 503 while the server drains.
fn health(shared: &ServerState) -> Response {
    const UNAVAILABLE: &str = "503 Service Unavailable";
    let lost = shared.lost_process();
    let (status, word) = match *shared.subscribe_phase().borrow() {
        _ if lost.is_some() => (UNAVAILABLE, "failed"),
        ServerPhase::Serving => ("200 OK", "ok"),
        ServerPhase::Draining | ServerPhase::Terminating => (UNAVAILABLE, "draining"),
    };
    let sessions = shared.session_limits.sessions();
    let mut body = serde_json::json!({ "status": word, "sessions": sessions });
    let nodes = shared.node_directory.states(Instant::now());
    if !nodes.is_empty() {
        body["nodes"] = nodes.iter().map(node_in_json).collect();
    }
    if let Some(lost) = lost {
        body["problem"] = lost.to_string().into();
    }
    (status, JSON, format!("{body}\n"))
}

/// A data node; without a load if it does not answer.
fn node_in_json(node: &NodeState) -> serde_json::Value {
    let mut shown = serde_json::json!({ "node": &node.name, "up": node.is_up });
    if let Some(load) = node.load {
        shown["parts"] = load.running.into();
        shown["bytes_per_second"] = load.bytes_per_second.into();
        shown["refused"] = load.refused.into();
    }
    shown
}
