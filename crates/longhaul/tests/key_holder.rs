//! `longhaul serve` with a certificate: the private key is in a process of its own, and the server is
//! confined.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use security::x509::CertifiedKey;
use tempfile::TempDir;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of memory examined at once.
const MEMORY_STEP: usize = 1 << 20;

fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env_remove("RUST_LOG");
    command
}

/// A confined server with TLS.
struct ConfinedServer {
    place: TempDir,
    child: Child,
    address: SocketAddr,
    credential: CertifiedKey,
}

impl ConfinedServer {
    fn start() -> Self {
        Self::start_with(&["--tls", "required"], Stdio::inherit())
    }

    fn start_with(options: &[&str], errors: impl Into<Stdio>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir(path("root")).unwrap();
        std::fs::write(path("root/f"), "content").unwrap();
        std::fs::create_dir(path("private")).unwrap();
        let day = Duration::from_secs(24 * 3600);
        let credential = CertifiedKey::self_signed(&["127.0.0.1".to_owned()], day).unwrap();
        std::fs::write(path("cert.pem"), credential.leaf().to_pem().unwrap()).unwrap();
        let key = credential.key().private_key_to_pem_pkcs8().unwrap();
        std::fs::write(path("private/key.pem"), key).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path("private/key.pem"), mode).unwrap();
        let mut child = longhaul()
            .args(["serve", "--listen", "127.0.0.1:0", "--anonymous", "ro"])
            .args(options)
            .args(["--sandbox", "required", "--root"])
            .arg(path("root"))
            .arg("--cert")
            .arg(path("cert.pem"))
            .arg("--key")
            .arg(path("private/key.pem"))
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut ready).unwrap();
        let address = ready.trim().strip_prefix("listening on ").unwrap();
        Self {
            address: address.parse().unwrap(),
            place,
            child,
            credential,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Copies a file over TLS.
    fn copy(&self) -> Output {
        longhaul()
            .args(["cp", "-q", "--retries", "0", "--ca"])
            .arg(self.path("cert.pem"))
            .arg(format!("ftps://{}/f", self.address))
            .arg(self.path("copy"))
            .output()
            .unwrap()
    }

    fn server(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The child process of the server.
    fn key_holder(&self) -> Pid {
        let parent = self.server().as_raw_nonzero().to_string();
        let begin = Instant::now();
        loop {
            for entry in std::fs::read_dir("/proc").unwrap().flatten() {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                // proc(5): the parent is the second word behind the name in parentheses.
                let behind = stat.rsplit(')').next().unwrap_or_default();
                if behind.split_whitespace().nth(1) == Some(&parent) {
                    let pid = entry.file_name().to_str().unwrap().parse().unwrap();
                    return Pid::from_raw(pid).unwrap();
                }
            }
            assert!(begin.elapsed() < PATIENCE, "no process holds the key");
        }
    }
}

impl Drop for ConfinedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the memory of a process has these bytes. `None`: it may not be read.
fn memory_contains(process: Pid, wanted: &[u8]) -> Option<bool> {
    let folder = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    let maps = std::fs::read_to_string(folder.join("maps")).ok()?;
    let mut memory = std::fs::File::open(folder.join("mem")).ok()?;
    let mut buffer = vec![0; MEMORY_STEP];
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let (start, end) = (
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).ok()?.min(MEMORY_STEP);
            let part = &mut buffer[..length];
            if memory.seek(SeekFrom::Start(at)).is_ok() && memory.read_exact(part).is_ok() {
                let found = part.windows(wanted.len()).any(|window| window == wanted);
                if found {
                    return Some(true);
                }
            }
            // Steps overlap, so that nothing is missed between them.
            let step = if length == MEMORY_STEP {
                length - wanted.len()
            } else {
                length
            };
            at += step as u64;
        }
    }
    Some(false)
}

#[test]
fn the_private_key_is_in_the_memory_of_the_key_holder_alone() {
    let server = ConfinedServer::start();
    let copied = server.copy();
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(std::fs::read(server.path("copy")).unwrap(), b"content");
    // OpenSSL keeps numbers as words of 64 bits, the lowest first.
    let key = server.credential.key().ec_key().unwrap();
    let mut number = key.private_key().to_vec_padded(32).unwrap();
    number.reverse();
    let Some(held) = memory_contains(server.key_holder(), &number) else {
        eprintln!("SKIPPED: only root may read the memory of a process that forbids it");
        return;
    };
    assert!(held, "the key holder has the key");
    assert_eq!(memory_contains(server.server(), &number), Some(false));
}

/// The rights of a filtered process are tested in the server's crate.
#[test]
fn every_thread_of_a_confined_server_and_its_key_holder_is_filtered() {
    let server = ConfinedServer::start();
    assert!(server.copy().status.success());
    for process in [server.server(), server.key_holder()] {
        let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
        let tasks: Vec<_> = std::fs::read_dir(tasks).unwrap().flatten().collect();
        assert!(!tasks.is_empty());
        for task in tasks {
            // A thread that has just ended has no status.
            let Ok(status) = std::fs::read_to_string(task.path().join("status")) else {
                continue;
            };
            // proc(5): 2 is a filter.
            assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
            assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        }
    }
}

#[test]
fn a_key_holder_that_was_stopped_for_a_while_serves_on() {
    let server = ConfinedServer::start();
    let holder = server.key_holder();
    assert!(server.copy().status.success());
    kill_process(holder, Signal::STOP).unwrap();
    assert!(!server.copy().status.success());
    kill_process(holder, Signal::CONT).unwrap();
    let copied = server.copy();
    assert!(copied.status.success(), "{copied:?}");
}

/// A download in the clear that goes on for as long as the returned connections are open.
fn endless_download(server: &ConfinedServer) -> (BufReader<TcpStream>, TcpStream) {
    let large = std::fs::File::create(server.path("root/large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let control = TcpStream::connect(server.address).unwrap();
    control.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut control = BufReader::new(control);
    let mut answer = String::new();
    let mut ask = |line: &str, code: &str| {
        control.get_mut().write_all(line.as_bytes()).unwrap();
        answer.clear();
        while !answer.starts_with(&format!("{code} ")) {
            answer.clear();
            assert!(control.read_line(&mut answer).unwrap() > 0, "after {line}");
        }
        answer.clone()
    };
    ask("", "220");
    ask("USER anonymous\r\n", "331");
    ask("PASS x@\r\n", "230");
    let reply = ask("EPSV\r\n", "229");
    let port = reply.split('|').nth(3).unwrap().parse().unwrap();
    let data = TcpStream::connect((server.address.ip(), port)).unwrap();
    ask("RETR large\r\n", "150");
    (control, data)
}

fn health(monitor: SocketAddr) -> String {
    let mut connection = TcpStream::connect(monitor).unwrap();
    connection
        .write_all(b"GET /health HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_server_whose_key_holder_dies_says_so_and_ends_with_an_error() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let options = ["--tls", "optional", "--metrics", "127.0.0.1:0"];
    let mut server = ConfinedServer::start_with(&options, log.reopen().unwrap());
    let said = || std::fs::read_to_string(log.path()).unwrap();
    let begin = Instant::now();
    let monitor = loop {
        let text = said();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("metrics at http://"));
        if let Some(address) = line.and_then(|line| line.strip_suffix("/metrics")) {
            break address.parse().unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(health(monitor).contains("\"status\":\"ok\""));
    let download = endless_download(&server);
    kill_process(server.key_holder(), Signal::KILL).unwrap();
    // The running download goes on meanwhile.
    let begin = Instant::now();
    loop {
        let now = health(monitor);
        if now.starts_with("HTTP/1.1 503 ") {
            assert!(now.contains("private key has ended"), "{now}");
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{now}");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(download);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(7), "{}", said());
    let last = said().lines().last().unwrap().to_owned();
    assert!(
        last.contains("private key has ended") && last.contains("start it again"),
        "{last}"
    );
}
