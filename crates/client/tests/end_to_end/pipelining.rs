//! How often a copy waits for a server: each flight of commands costs a round trip, which on a long
//! path is all that a small file costs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{CopyOptions, Exit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{EndToEndServer, copy, noise, options, streams};

/// Above what is verified together with the transfer's end, below what is summed over a second session.
const LENGTH: usize = 2 << 20;

/// The control connections to a server, read along: what the client sent before it heard the answer.
struct ControlProxy {
    address: SocketAddr,
    flights: Arc<Mutex<Vec<String>>>,
}

impl ControlProxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let flights = Arc::default();
        let seen = Arc::clone(&flights);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(relay(client, server, Arc::clone(&seen)));
            }
        });
        Self { address, flights }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://alice:secret@{}/{path}", self.address)
    }

    /// The verbs of each flight up to the goodbye, which nobody waits for; without the settings that
    /// may come and go.
    async fn flights(&self) -> Vec<String> {
        for _ in 0..6_000 {
            if self
                .flights
                .lock()
                .unwrap()
                .iter()
                .any(|f| f.contains("QUIT"))
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let flights = self.flights.lock().unwrap();
        let verbs = |flight: &String| {
            let verbs = flight.lines().filter_map(|line| line.split(' ').next());
            let kept = verbs.filter(|verb| !matches!(*verb, "OPTS" | "TREV"));
            kept.collect::<Vec<_>>().join(" ")
        };
        flights.iter().map(verbs).collect()
    }
}

/// A new flight begins with what the client says after the server has spoken.
async fn relay(mut client: TcpStream, mut server: TcpStream, flights: Arc<Mutex<Vec<String>>>) {
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    let mut answered = true;
    loop {
        tokio::select! {
            said = client.read(&mut up) => match said {
                Ok(n) if n > 0 => {
                    note(&flights, &up[..n], answered);
                    answered = false;
                    server.write_all(&up[..n]).await.unwrap();
                }
                _ => return,
            },
            said = server.read(&mut down) => match said {
                Ok(n) if n > 0 => {
                    answered = true;
                    // The client may have left.
                    if client.write_all(&down[..n]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

fn note(flights: &Mutex<Vec<String>>, said: &[u8], anew: bool) {
    let text = String::from_utf8_lossy(said);
    let mut flights = flights.lock().unwrap();
    match flights.last_mut() {
        Some(flight) if !anew => flight.push_str(&text),
        _ => flights.push(text.into_owned()),
    }
}

async fn get(options: &CopyOptions) -> Vec<String> {
    let server = EndToEndServer::start().await;
    let bytes = noise(LENGTH);
    server.store("f", &bytes);
    let path = ControlProxy::to(server.address()).await;
    let here = tempfile::tempdir().unwrap();
    let copy_here = here.path().join("copy");
    let (summary, _) = copy(&[&path.url("f")], copy_here.to_str().unwrap(), options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(std::fs::read(&copy_here).unwrap(), bytes);
    path.flights().await
}

async fn put(options: &CopyOptions) -> Vec<String> {
    let server = EndToEndServer::start().await;
    let bytes = noise(LENGTH);
    let path = ControlProxy::to(server.address()).await;
    let here = tempfile::tempdir().unwrap();
    let original = here.path().join("original");
    std::fs::write(&original, &bytes).unwrap();
    let (summary, _) = copy(&[original.to_str().unwrap()], &path.url("f"), options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(server.read("f"), bytes);
    path.flights().await
}

#[tokio::test]
async fn a_get_waits_twice() {
    assert_eq!(
        get(&streams(4)).await,
        [
            "USER PASS FEAT SITE TYPE MLST",
            "MODE PORT RETR CKSM MLST",
            "QUIT"
        ]
    );
    assert_eq!(
        get(&options()).await,
        [
            "USER PASS FEAT SITE TYPE MLST",
            "PASV",
            "RETR CKSM MLST",
            "QUIT"
        ]
    );
}

#[tokio::test]
async fn a_put_waits_four_times() {
    assert_eq!(
        put(&streams(4)).await,
        [
            "USER PASS FEAT SITE TYPE MLST",
            "MODE PASV ALLO",
            "STOR CKSM",
            "MFMT RNFR RNTO",
            "QUIT"
        ]
    );
}

#[tokio::test]
async fn between_servers_each_waits_as_often() {
    let (from, to) = (EndToEndServer::start().await, EndToEndServer::start().await);
    from.store("f", &noise(LENGTH));
    let source = ControlProxy::to(from.address()).await;
    let destination = ControlProxy::to(to.address()).await;
    let (summary, _) = copy(&[&source.url("f")], &destination.url("g"), &streams(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(
        source.flights().await,
        [
            "USER PASS FEAT SITE TYPE MLST",
            "MODE",
            "PORT RETR CKSM MLST",
            "QUIT"
        ]
    );
    assert_eq!(
        destination.flights().await,
        [
            "USER PASS FEAT SITE TYPE MLST",
            "MODE PASV ALLO",
            "STOR CKSM",
            "MFMT RNFR RNTO",
            "QUIT"
        ]
    );
}
