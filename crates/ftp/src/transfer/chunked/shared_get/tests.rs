//! Gets over several sessions from a plain FTP server with selectable faults. The sessions wait for events, not
//! for times: the first one sends its second half when the others have asked for their ranges.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use data::checksum::ChecksumHasher;
use data::job::TransferControl;
use data::store::memory::MemorySink;
use proto::checksum::ChecksumAlgorithm;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::location::{Scheme, Server};
use crate::session::ClientSession;
use crate::session::scripted_server::ScriptedAction::{
    ExpectLine, ExpectPassiveAndReply, SendLine,
};
use crate::session::scripted_server::{ScriptedFtpServer, login_script};
use crate::transfer::tests::spec;
use crate::transfer::{Chunking, TransferAttempt, TransferSpec, get};
use crate::{Credential, Failure, FailureKind};

const SIZE: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server of the file `/f`, and what it does wrong.
#[derive(Default)]
struct SharedServer {
    /// Sessions that are accepted; the others get 421. 0: all.
    most_sessions: usize,
    /// The session with this number, from 0, closes both connections after 2 MiB of its first range.
    loses: Option<usize>,
    /// REST is refused.
    refuses_rest: bool,
    /// REST is accepted and has no effect.
    ignores_rest: bool,
    sessions: AtomicUsize,
    /// RETR commands so far.
    retrievals: AtomicUsize,
    refusals: AtomicUsize,
    changed: Notify,
    /// RETR commands, or refusals, for which the first session waits in the middle of the file.
    awaited: usize,
    has_lost: AtomicBool,
    /// Bytes sent.
    sent: AtomicUsize,
}

static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::with_capacity(SIZE);
    for n in 0..SIZE as u64 / 8 {
        bytes.extend_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes
});

impl SharedServer {
    async fn start(self) -> (Server, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            scheme: Scheme::Ftp,
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            credential: Credential::password("joe", "secret"),
            query: None,
            security: Arc::default(),
        };
        let shared = Arc::new(self);
        let running = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((control, _)) = listener.accept().await {
                let number = running.sessions.fetch_add(1, Ordering::SeqCst);
                let running = Arc::clone(&running);
                tokio::spawn(async move { running.serve(control, number, &CONTENT).await });
            }
        });
        (server, shared)
    }

    fn note(&self, counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    async fn wait_for_others(&self) {
        loop {
            let changed = self.changed.notified();
            let seen =
                self.retrievals.load(Ordering::SeqCst) + self.refusals.load(Ordering::SeqCst);
            if seen >= self.awaited {
                return;
            }
            changed.await;
        }
    }

    async fn wait_for_loss(&self) {
        loop {
            let changed = self.changed.notified();
            if self.has_lost.load(Ordering::SeqCst) {
                return;
            }
            changed.await;
        }
    }

    /// One session. An error means that the client has closed a connection.
    async fn serve(
        &self,
        control: TcpStream,
        number: usize,
        content: &[u8],
    ) -> std::io::Result<()> {
        let mut control = BufReader::new(control);
        if self.most_sessions > 0 && number >= self.most_sessions {
            control.write_all(b"421 too many\r\n").await?;
            self.note(&self.refusals);
            return Ok(());
        }
        control.write_all(b"220 fake\r\n").await?;
        let (mut passive, mut from) = (None, 0);
        loop {
            let mut line = String::new();
            if control.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let (verb, argument) = line
                .trim_end()
                .split_once(' ')
                .unwrap_or((line.trim_end(), ""));
            let reply = match verb {
                "USER" => "331 pw".to_owned(),
                "PASS" => "230 in".to_owned(),
                "FEAT" => "211-x\r\n REST STREAM\r\n SIZE\r\n211 End".to_owned(),
                "PASV" | "EPSV" => {
                    let listener = TcpListener::bind("127.0.0.1:0").await?;
                    let port = listener.local_addr()?.port();
                    passive = Some(listener);
                    match verb {
                        "PASV" => format!("227 ok (127,0,0,1,{},{})", port >> 8, port & 255),
                        _ => format!("229 ok (|||{port}|)"),
                    }
                }
                "REST" if self.refuses_rest => "502 no".to_owned(),
                "QUIT" if self.refuses_rest => {
                    // The session that was refused has given its range back.
                    self.note(&self.refusals);
                    "221 bye".to_owned()
                }
                "SIZE" => format!("213 {}", content.len()),
                "CWD" => "550 no".to_owned(),
                "REST" => {
                    from = argument.parse().unwrap_or(0);
                    "350 ok".to_owned()
                }
                "RETR" => {
                    control.write_all(b"150 go\r\n").await?;
                    let listener = passive.take().ok_or(std::io::ErrorKind::NotConnected)?;
                    let (data, _) = listener.accept().await?;
                    let start = if self.ignores_rest { 0 } else { from };
                    from = 0;
                    match self.send(data, number, start, content).await {
                        Ok(None) => "226 done".to_owned(),
                        Ok(Some(data)) => return self.lose(control, data).await,
                        Err(_) => "426 closed".to_owned(),
                    }
                }
                _ => "200 ok".to_owned(),
            };
            control.write_all(reply.as_bytes()).await?;
            control.write_all(b"\r\n").await?;
        }
    }

    /// Sends the file from `start` on. Returns the connection if the session is to be lost.
    async fn send(
        &self,
        mut data: TcpStream,
        number: usize,
        start: usize,
        content: &[u8],
    ) -> std::io::Result<Option<TcpStream>> {
        self.note(&self.retrievals);
        let mut at = start;
        while at < content.len() {
            // The middle of the first session's share, which the others leave to it.
            if number == 0 && at - start >= 1 << 20 {
                self.wait_for_others().await;
            }
            if let Some(loses) = self.loses
                && at - start >= 2 << 20
                && !self.has_lost.load(Ordering::SeqCst)
            {
                if loses == number {
                    return Ok(Some(data));
                }
                // Nothing is left to a session that has ended before.
                self.wait_for_loss().await;
            }
            let end = content.len().min(at + (64 << 10));
            data.write_all(&content[at..end]).await?;
            self.sent.fetch_add(end - at, Ordering::SeqCst);
            at = end;
        }
        data.shutdown().await?;
        Ok(None)
    }

    /// Closes both connections of a session, and waits until the client has seen it.
    async fn lose(
        &self,
        mut control: BufReader<TcpStream>,
        mut data: TcpStream,
    ) -> std::io::Result<()> {
        control.shutdown().await?;
        data.shutdown().await?;
        let closed = data.read_u8().await;
        self.has_lost.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        closed.map(|_| ())
    }
}

fn shared_spec(streams: u32) -> TransferSpec {
    TransferSpec {
        size: Some(SIZE as u64),
        streams,
        max_streams: streams,
        chunks: Some(Chunking::Probe),
        checksum: Some(ChecksumAlgorithm::Adler32),
        ..spec()
    }
}

async fn fetch(
    server: &Server,
    sink: &MemorySink,
    spec: &TransferSpec,
) -> Result<TransferAttempt, Failure> {
    let mut session = ClientSession::open(server, TIMEOUT).await.unwrap();
    let control = Arc::new(TransferControl::new());
    let attempt = get(&mut session, b"/f", Arc::new(sink.clone()), spec, &control).await;
    session.close().await;
    attempt
}

fn sink() -> MemorySink {
    MemorySink::new(SIZE, "memory")
}

fn assert_is_whole(sink: &MemorySink) {
    assert!(sink.bytes() == *CONTENT, "the copy differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sessions_fetch_a_file_and_their_checksums_combine() {
    let server = SharedServer {
        awaited: 4,
        ..SharedServer::default()
    };
    let (server, shared) = server.start().await;
    let sink = sink();
    let attempt = fetch(&server, &sink, &shared_spec(4)).await.unwrap();
    assert_is_whole(&sink);
    let mut whole = ChecksumHasher::new(ChecksumAlgorithm::Adler32);
    whole.update(&CONTENT);
    assert_eq!(attempt.report.checksum, Some(whole.finish()));
    assert!(shared.retrievals.load(Ordering::SeqCst) >= 4);
    assert!(attempt.streams >= 2, "{}", attempt.streams);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_a_second_session_sends_the_whole_file_over_one() {
    let server = SharedServer {
        most_sessions: 1,
        awaited: 4,
        ..SharedServer::default()
    };
    let (server, shared) = server.start().await;
    let sink = sink();
    let attempt = fetch(&server, &sink, &shared_spec(4)).await.unwrap();
    assert_is_whole(&sink);
    assert!(attempt.report.checksum.is_some());
    assert_eq!(shared.retrievals.load(Ordering::SeqCst), 1);
    assert_eq!(shared.sent.load(Ordering::SeqCst), SIZE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lost_in_mid_range_leaves_the_rest_to_the_others() {
    for lost in [1, 0] {
        let server = SharedServer {
            loses: Some(lost),
            awaited: 2,
            ..SharedServer::default()
        };
        let (server, shared) = server.start().await;
        let sink = sink();
        let fetched = fetch(&server, &sink, &shared_spec(2)).await;
        assert!(shared.has_lost.load(Ordering::SeqCst), "session {lost}");
        fetched.unwrap();
        assert_is_whole(&sink);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_rest_sends_the_whole_file_over_the_first_session() {
    let server = SharedServer {
        refuses_rest: true,
        awaited: 2,
        ..SharedServer::default()
    };
    let (server, shared) = server.start().await;
    let sink = sink();
    fetch(&server, &sink, &shared_spec(2)).await.unwrap();
    assert_is_whole(&sink);
    assert_eq!(shared.retrievals.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_rest_is_found_out_without_a_checksum() {
    let ignoring = || SharedServer {
        ignores_rest: true,
        awaited: 2,
        ..SharedServer::default()
    };
    let spec = TransferSpec {
        checksum: None,
        ..shared_spec(2)
    };
    let (server, _) = ignoring().start().await;
    let failure = fetch(&server, &sink(), &spec).await.unwrap_err();
    assert!(failure.may_retry(), "{failure}");
    // Nor do ranges count that the server has confirmed.
    assert!(spec.confirmation.has_misplaced());
    // The last byte shows it where every session was relieved of the end of its range.
    let mut middle = TransferSpec {
        part: Some((1 << 20, 8 << 20)),
        size: Some(8 << 20),
        ..spec.clone()
    };
    middle.confirmation = Arc::default();
    let (server, _) = ignoring().start().await;
    let failure = fetch(&server, &sink(), &middle).await.unwrap_err();
    assert!(failure.may_retry(), "{failure}");
    let (server, _) = SharedServer::default().start().await;
    let sink = sink();
    fetch(&server, &sink, &middle).await.unwrap();
    assert!(sink.bytes()[..8 << 20] == CONTENT[1 << 20..9 << 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_get_over_several_sessions_has_stored_is_not_fetched_again() {
    let server = SharedServer {
        // More than come, so that the first session stops in the middle.
        awaited: usize::MAX,
        ..SharedServer::default()
    };
    let (server, _) = server.start().await;
    let sink = sink();
    let control = Arc::new(TransferControl::new());
    let mut session = ClientSession::open(&server, TIMEOUT).await.unwrap();
    let spec = shared_spec(4);
    let fetching = get(&mut session, b"/f", Arc::new(sink.clone()), &spec, &control);
    let others_done = async {
        // Three quarters of the file, and what the first session has sent.
        while control.bytes() < SIZE as u64 / 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = fetching => panic!("the first session has not sent everything"),
        () = others_done => {}
    }
    control.cancel();
    drop(session);
    let stored = control.stored();
    let (server, shared) = SharedServer::default().start().await;
    let rest = TransferSpec {
        checksum: None,
        completed_ranges: stored.clone(),
        ..shared_spec(2)
    };
    fetch(&server, &sink, &rest).await.unwrap();
    assert_is_whole(&sink);
    assert!(shared.retrievals.load(Ordering::SeqCst) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_the_file_is_reported() {
    let script = [
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("550 No such file"),
        ],
    ];
    let peer = ScriptedFtpServer::start_session(script.concat()).await;
    let failure = fetch(&peer.server, &sink(), &shared_spec(1))
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
}
