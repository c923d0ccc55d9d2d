//! Number of round trips of a copy. On a long path they are most of the cost of a small file.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copy::{CopyOptions, Exit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{EndToEndServer, copy, options, random_bytes, streams};

/// Above what is verified together with the transfer's end, below what is checksummed over a second
/// session.
const LENGTH: usize = 2 << 20;

/// A proxy of control connections to a server. It records what the client sends before it gets a
/// reply.
struct ControlProxy {
    address: SocketAddr,
    pipelines: Arc<Mutex<Vec<String>>>,
}

impl ControlProxy {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pipelines = Arc::default();
        let recorded = Arc::clone(&pipelines);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(relay(client, server, Arc::clone(&recorded)));
            }
        });
        Self { address, pipelines }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://alice:secret@{}/{path}", self.address)
    }

    /// The verbs of each pipeline up to QUIT, for whose reply nobody waits; without optional
    /// settings.
    async fn pipelines(&self) -> Vec<String> {
        for _ in 0..6_000 {
            if self
                .pipelines
                .lock()
                .unwrap()
                .iter()
                .any(|f| f.contains("QUIT"))
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pipelines = self.pipelines.lock().unwrap();
        let verbs = |pipeline: &String| {
            let verbs = pipeline.lines().filter_map(|line| line.split(' ').next());
            let kept = verbs.filter(|verb| !matches!(*verb, "OPTS" | "TREV"));
            kept.collect::<Vec<_>>().join(" ")
        };
        pipelines.iter().map(verbs).collect()
    }
}

/// A new pipeline begins with what the client sends after the server has replied.
async fn relay(mut client: TcpStream, mut server: TcpStream, pipelines: Arc<Mutex<Vec<String>>>) {
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    let mut answered = true;
    loop {
        tokio::select! {
            said = client.read(&mut up) => match said {
                Ok(n) if n > 0 => {
                    note(&pipelines, &up[..n], answered);
                    answered = false;
                    server.write_all(&up[..n]).await.unwrap();
                }
                _ => return,
            },
            said = server.read(&mut down) => match said {
                Ok(n) if n > 0 => {
                    answered = true;
                    // The client may have closed the connection.
                    if client.write_all(&down[..n]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

fn note(pipelines: &Mutex<Vec<String>>, said: &[u8], starts_pipeline: bool) {
    let text = String::from_utf8_lossy(said);
    let mut pipelines = pipelines.lock().unwrap();
    match pipelines.last_mut() {
        Some(pipeline) if !starts_pipeline => pipeline.push_str(&text),
        _ => pipelines.push(text.into_owned()),
    }
}

async fn get(options: &CopyOptions) -> Vec<String> {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(LENGTH);
    server.store("f", &bytes);
    let path = ControlProxy::to(server.address()).await;
    let workdir = tempfile::tempdir().unwrap();
    let copy_here = workdir.path().join("copy");
    let (summary, _) = copy(&[&path.url("f")], copy_here.to_str().unwrap(), options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(std::fs::read(&copy_here).unwrap(), bytes);
    path.pipelines().await
}

async fn put(options: &CopyOptions) -> Vec<String> {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(LENGTH);
    let path = ControlProxy::to(server.address()).await;
    let workdir = tempfile::tempdir().unwrap();
    let original = workdir.path().join("original");
    std::fs::write(&original, &bytes).unwrap();
    let (summary, _) = copy(&[original.to_str().unwrap()], &path.url("f"), options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(server.read("f"), bytes);
    path.pipelines().await
}

#[tokio::test]
async fn a_get_waits_for_two_round_trips() {
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
async fn a_put_waits_for_four_round_trips() {
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
async fn a_third_party_copy_takes_as_many_round_trips() {
    let (from, to) = (EndToEndServer::start().await, EndToEndServer::start().await);
    from.store("f", &random_bytes(LENGTH));
    let source = ControlProxy::to(from.address()).await;
    let destination = ControlProxy::to(to.address()).await;
    let (summary, _) = copy(&[&source.url("f")], &destination.url("g"), &streams(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(
        source.pipelines().await,
        [
            "USER PASS FEAT SITE TYPE MLST",
            "MODE",
            "PORT RETR CKSM MLST",
            "QUIT"
        ]
    );
    assert_eq!(
        destination.pipelines().await,
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
async fn a_server_that_checksums_while_it_sends_reads_a_large_file_once() {
    let server = EndToEndServer::start().await;
    // A server that must read the file again gets a second session for that at this size.
    server.store("f", &random_bytes(65 << 20));
    let path = ControlProxy::to(server.address()).await;
    let workdir = tempfile::tempdir().unwrap();
    let copy_here = workdir.path().join("copy");
    let (summary, _) = copy(&[&path.url("f")], copy_here.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    let pipelines = path.pipelines().await;
    let logins = pipelines.iter().filter(|sent| sent.contains("USER"));
    assert_eq!(logins.count(), 1, "{pipelines:?}");
}
