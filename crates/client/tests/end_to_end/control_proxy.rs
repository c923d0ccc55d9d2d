//! Stands between the client and a server, and may change or cut what they say on the control connection.

use std::net::SocketAddr;
use std::sync::Arc;

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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (commands, replies): (Arc<LineFilter>, Arc<LineFilter>) =
        (Arc::new(commands), Arc::new(replies));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (commands, replies) = (Arc::clone(&commands), Arc::clone(&replies));
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
