//! Series from a plain FTP server that falls silent. The session ends after the time limit, the files go on over another one,
//! and none of them moves twice.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copy::Exit;

use crate::support::{copy, options};

const FILES: usize = 40;
/// Files that the session which falls silent has moved before: enough for commands to go ahead.
const MOVED_BEFORE: usize = 10;

/// How the server falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// One session answers nothing any more after some files. Its connections stay open.
    OneSession,
    /// Commands that arrive while another one is carried out are discarded.
    CommandsAhead,
}

/// A server of the directory `/t` with files `0`, `1`, ... whose content is their name.
struct SilentServer {
    silence: Silence,
    sessions: AtomicUsize,
    /// Sessions that have fallen silent.
    silent: AtomicUsize,
    /// Bytes of commands that were discarded.
    discarded: AtomicUsize,
    /// Files that were sent completely.
    sent: Mutex<Vec<String>>,
}

impl SilentServer {
    fn start(silence: Silence) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Self {
            silence,
            sessions: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            discarded: AtomicUsize::new(0),
            sent: Mutex::default(),
        });
        let running = Arc::clone(&server);
        std::thread::spawn(move || {
            for control in listener.incoming().flatten() {
                running.sessions.fetch_add(1, Ordering::SeqCst);
                let running = Arc::clone(&running);
                // An error means that the client has closed a connection.
                std::thread::spawn(move || running.serve(control));
            }
        });
        (address, server)
    }

    fn serve(&self, control: TcpStream) -> std::io::Result<()> {
        let mut control = BufReader::new(control);
        control.get_mut().write_all(b"220 here\r\n")?;
        let mut passive: Option<TcpListener> = None;
        let mut moved = 0;
        loop {
            let mut line = String::new();
            if control.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let (verb, path) = line
                .trim_end()
                .split_once(' ')
                .unwrap_or((line.trim_end(), ""));
            let reply = match verb {
                "USER" => "331 pw".to_owned(),
                "PASS" => "230 in".to_owned(),
                "FEAT" => "211-x\r\n SIZE\r\n MLST type*;size*;\r\n211 End".to_owned(),
                "MLST" if path == "/t" => "250-x\r\n type=dir; /t\r\n250 End".to_owned(),
                "TYPE" | "MODE" | "STRU" => "200 ok".to_owned(),
                "PASV" => {
                    let listener = TcpListener::bind("127.0.0.1:0")?;
                    let port = listener.local_addr()?.port();
                    passive = Some(listener);
                    format!("227 (127,0,0,1,{},{})", port >> 8, port & 255)
                }
                "MLSD" | "RETR" => {
                    let mut data = passive.take().unwrap().accept()?.0;
                    control.get_mut().write_all(b"150 comes\r\n")?;
                    let name = path.trim_start_matches("/t/").to_owned();
                    let text = match verb {
                        "MLSD" => (0..FILES)
                            .map(|n| format!("type=file;size={}; {n}\r\n", n.to_string().len()))
                            .collect(),
                        _ => name.clone(),
                    };
                    data.write_all(text.as_bytes())?;
                    drop(data);
                    if verb == "RETR" {
                        moved += 1;
                        self.sent.lock().unwrap().push(name);
                    }
                    "226 done".to_owned()
                }
                "SIZE" => format!("213 {}", path.trim_start_matches("/t/").len()),
                "QUIT" => "221 bye".to_owned(),
                _ => "502 no".to_owned(),
            };
            match self.silence {
                Silence::CommandsAhead => self.discard(&mut control)?,
                Silence::OneSession => {}
            }
            control
                .get_mut()
                .write_all(format!("{reply}\r\n").as_bytes())?;
            if self.silence == Silence::OneSession
                && moved == MOVED_BEFORE
                && self.silent.fetch_add(1, Ordering::SeqCst) == 0
            {
                // To the end of the session: the client's.
                let _ = control.read_to_end(&mut Vec::new());
                return Ok(());
            }
        }
    }

    /// Discards what the client has sent.
    fn discard(&self, control: &mut BufReader<TcpStream>) -> std::io::Result<()> {
        let mut count = control.buffer().len();
        control.consume(count);
        control.get_ref().set_nonblocking(true)?;
        let mut bytes = [0; 4096];
        while let Ok(more @ 1..) = control.get_mut().read(&mut bytes) {
            count += more;
        }
        self.discarded.fetch_add(count, Ordering::SeqCst);
        control.get_ref().set_nonblocking(false)
    }
}

async fn copy_from_silent(silence: Silence) -> Arc<SilentServer> {
    let (address, server) = SilentServer::start(silence);
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("to");
    let mut options = options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
        o.retry.retries = 8;
    });
    options.streams.transfer.stall = Duration::from_secs(2);
    let url = format!("ftp://{address}/t");
    let (summary, _) = copy(&[&url], to.to_str().unwrap(), &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.files, summary.failed), (FILES as u64, 0));
    for n in 0..FILES {
        let name = n.to_string();
        assert_eq!(fs::read_to_string(to.join(&name)).unwrap(), name);
    }
    let left = fs::read_dir(&to).unwrap().count();
    assert_eq!(left, FILES, "no unfinished files");
    server
}

/// Files that were sent more than once.
fn repeated(server: &SilentServer) -> Vec<String> {
    let mut sent = server.sent.lock().unwrap().clone();
    sent.sort();
    let runs = sent.chunk_by(|a, b| a == b).filter(|run| run.len() > 1);
    runs.map(|run| run[0].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_series_go_on_over_another_session_when_the_server_falls_silent() {
    let server = copy_from_silent(Silence::OneSession).await;
    assert!(server.silent.load(Ordering::SeqCst) >= 1);
    assert_eq!(repeated(&server), [""; 0]);
    // The listing has one, perhaps.
    let sessions = server.sessions.load(Ordering::SeqCst);
    assert!((2..=3).contains(&sessions), "{sessions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_discards_commands_ahead_gets_one_at_a_time() {
    let server = copy_from_silent(Silence::CommandsAhead).await;
    assert!(server.discarded.load(Ordering::SeqCst) > 0);
    assert_eq!(repeated(&server), [""; 0]);
    // A session for each step back, not one for each file.
    let sessions = server.sessions.load(Ordering::SeqCst);
    assert!(sessions < FILES / 4, "{sessions}");
}
