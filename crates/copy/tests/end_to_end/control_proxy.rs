//! Stands between the client and a server, and may change or cut what they say on the control connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Sees each line, may change it, and returns `false` to close the connection instead of passing it on.
type LineFilter = dyn Fn(&mut Vec<u8>) -> bool + Send + Sync;

/// Passes control connections on to `server`. Returns its port.
pub(crate) async fn control_proxy(
    server: SocketAddr,
    commands: impl Fn(&mut Vec<u8>) -> bool + Send + Sync + 'static,
    replies: impl Fn(&mut Vec<u8>) -> bool + Send + Sync + 'static,
) -> u16 {
    let filters: [Arc<LineFilter>; 2] = [Arc::new(commands), Arc::new(replies)];
    proxy(server, move || filters.clone()).await
}

/// Passes control connections on to `server`. Once for each of `commands`, the server gets one that begins so, and the connection
/// ends before the reply. Returns the port, and the commands that are still to come.
pub(crate) async fn losing_proxy(
    server: SocketAddr,
    commands: &[&'static str],
) -> (u16, Arc<Mutex<Vec<&'static str>>>) {
    let to_come = Arc::new(Mutex::new(commands.to_vec()));
    let left = Arc::clone(&to_come);
    let port = proxy(server, move || {
        let (left, is_lost) = (Arc::clone(&left), Arc::new(AtomicBool::new(false)));
        let was_lost = Arc::clone(&is_lost);
        let commands = move |line: &mut Vec<u8>| {
            let mut left = left.lock().unwrap();
            if let Some(at) = left
                .iter()
                .position(|verb| line.starts_with(verb.as_bytes()))
            {
                left.remove(at);
                is_lost.store(true, Ordering::SeqCst);
            }
            true
        };
        let replies = move |_: &mut Vec<u8>| !was_lost.load(Ordering::SeqCst);
        [Arc::new(commands) as Arc<LineFilter>, Arc::new(replies)]
    });
    (port.await, to_come)
}

/// Passes control connections on to `server`, each with filters of its own for commands and replies.
async fn proxy(
    server: SocketAddr,
    filters: impl Fn() -> [Arc<LineFilter>; 2] + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let [commands, replies] = filters();
            let (from_client, to_client) = client.into_split();
            let server = TcpStream::connect(server).await.unwrap();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(async move {
                // Each ends the other.
                tokio::select! {
                    () = pass_lines(from_client, to_server, &*commands) => {}
                    () = pass_lines(from_server, to_client, &*replies) => {}
                }
            });
        }
    });
    port
}

async fn pass_lines(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    filter: &LineFilter,
) {
    let mut lines = BufReader::new(from).split(b'\n');
    while let Ok(Some(mut line)) = lines.next_segment().await {
        line.push(b'\n');
        if !filter(&mut line) || to.write_all(&line).await.is_err() {
            return;
        }
    }
}
