//! Clients that misbehave during the transfer of another client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::{self, TestStore};
use interop::net;
use interop::seeded_random::SeededRandom;
use interop::test_files;
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

/// A control connection that sends arbitrary bytes.
struct RawControlConnection {
    reader: BufReader<TcpStream>,
}

impl RawControlConnection {
    fn connect(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut control = Self {
            reader: BufReader::new(stream),
        };
        control.reply("220")?;
        Ok(control)
    }

    fn login(server: SocketAddr) -> Result<Self> {
        let mut control = Self::connect(server)?;
        control.send(b"USER anonymous\r\n")?;
        control.reply("3")?;
        control.send(b"PASS x\r\n")?;
        control.reply("230")?;
        Ok(control)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader
            .get_mut()
            .write_all(bytes)
            .context("the server ended the session")
    }

    /// Sends a line of random bytes and reads the error reply. Returns whether the session continues.
    fn send_junk(&mut self, random: &mut SeededRandom) -> Result<bool> {
        let mut line = vec![0; usize::try_from(random.below(40))?];
        random.fill(&mut line);
        for byte in &mut line {
            // The server removes Telnet commands (RFC 854), and CR or LF would give two lines.
            if [0xff, b'\r', b'\n'].contains(byte) {
                *byte = b'x';
            }
        }
        line.extend_from_slice(b"\r\n");
        self.send(&line)?;
        let reply = self.reply("")?;
        ensure!(
            reply.starts_with(['4', '5']),
            "{line:?} was answered {reply:?}"
        );
        Ok(!reply.starts_with("421"))
    }

    /// The last line of the next reply; fails unless its code begins with `code`.
    fn reply(&mut self, code: &str) -> Result<String> {
        loop {
            let mut line = String::new();
            let count = self.reader.read_line(&mut line).context("no reply")?;
            ensure!(count > 0, "the session ended instead of {code}");
            if line.as_bytes().get(3) == Some(&b' ') && line.as_bytes()[0].is_ascii_digit() {
                ensure!(line.starts_with(code), "wanted {code}, got {line:?}");
                return Ok(line);
            }
        }
    }
}

/// Runs `mischief` while a client downloads the large file at 40 MB/s, then compares the file.
fn during_a_transfer(mischief: impl FnOnce(&LonghaulServer) -> Result<()>) -> Result<()> {
    let store = TestStore::new()?;
    let mut server = ServeCommand::anonymous(store.root()).start()?;
    let local = store.local();
    let url = server.url(&format!("src/{}", test_files::name(test_files::LARGE)));
    let arguments = [
        "--retries",
        "0",
        "-p",
        "4",
        "--limit-rate",
        "320M",
        &url,
        &path_argument(&local),
    ];
    let mut copy = RunningCopy::start(copy::command(&arguments)?)?;
    copy.wait_until_safe(5_000_000)?;
    let result = mischief(&server);
    server.explain(result)?;
    let status = copy.wait_for_end()?;
    ensure!(
        status.success(),
        "the transfer ended with {status}\n{}",
        server.log()
    );
    ensure!(
        server.guard().wait(Duration::ZERO)?.is_none(),
        "the server ended\n{}",
        server.log()
    );
    matrix::check_and_remove(&test_files::shared(test_files::LARGE)?, &local)
}

#[test]
fn a_transfer_survives_100_000_invalid_lines_of_another_client() {
    during_a_transfer(|server| {
        let mut random = SeededRandom::new(5);
        let mut left: u32 = 100_000;
        while left > 0 {
            // The server may end a session with many errors; the test then opens the next one.
            let mut control = RawControlConnection::login(server.address())?;
            while left > 0 && control.send_junk(&mut random)? {
                left -= 1;
            }
        }
        let mut control = RawControlConnection::login(server.address())?;
        control.send(b"NOOP\r\n")?;
        control.reply("200").map(drop)
    })
    .unwrap();
}

#[test]
fn a_transfer_survives_an_endless_line_of_another_client() {
    during_a_transfer(|server| {
        let mut control = RawControlConnection::connect(server.address())?;
        let block = vec![b'x'; 1 << 16];
        // 16 MB: the server replies 500 or ends the session, and must not store the whole line.
        for _ in 0..256 {
            if control.send(&block).is_err() {
                break;
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_transfer_survives_a_client_that_never_reads() {
    during_a_transfer(|server| {
        let mut control = RawControlConnection::login(server.address())?;
        let commands = b"HELP\r\n".repeat(10_000);
        control
            .reader
            .get_mut()
            .set_write_timeout(Some(Duration::from_millis(500)))?;
        // The server stops reading commands while its replies are not read. The connection stays open.
        let end = Instant::now() + Duration::from_secs(2);
        while control.send(&commands).is_ok() && Instant::now() < end {}
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_transfer_survives_clients_that_never_log_in() {
    during_a_transfer(|server| {
        let idle: Vec<TcpStream> = (0..50)
            .map(|_| TcpStream::connect(server.address()))
            .collect::<std::io::Result<_>>()?;
        RawControlConnection::login(server.address())?.send(b"QUIT\r\n")?;
        drop(idle);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_transfer_survives_a_scan_of_the_data_ports() {
    let store = TestStore::new().unwrap();
    let first = net::free_ports(50).unwrap();
    let range = format!("{first}-{}", first + 49);
    let server = ServeCommand::anonymous(store.root())
        .option("--data-ports", &range)
        .start()
        .unwrap();
    let local = store.local();
    let url = server.url(&format!("src/{}", test_files::name(test_files::LARGE)));
    let arguments = [
        "--retries",
        "0",
        "--mode",
        "s",
        "--limit-rate",
        "320M",
        &url,
        &path_argument(&local),
    ];
    let mut copy = RunningCopy::start(copy::command(&arguments).unwrap()).unwrap();
    copy.wait_until_safe(5_000_000).unwrap();
    for _ in 0..20 {
        for port in first..first + 50 {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
            }
        }
    }
    assert!(copy.wait_for_end().unwrap().success(), "{}", server.log());
    matrix::check_and_remove(&test_files::shared(test_files::LARGE).unwrap(), &local).unwrap();
}

#[test]
fn a_data_connection_from_another_host_is_refused_and_the_transfer_continues() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut control = RawControlConnection::login(server.address()).unwrap();
    control.send(b"TYPE I\r\nPASV\r\n").unwrap();
    control.reply("200").unwrap();
    let passive = control.reply("227").unwrap();
    let port = net::passive_address(&passive).unwrap().port();
    control.send(b"RETR /src/f65536\r\n").unwrap();
    let stranger = from_other_address(port).unwrap();
    let mut allowed_client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut content = Vec::new();
    allowed_client.read_to_end(&mut content).unwrap();
    assert_eq!(
        content,
        std::fs::read(test_files::shared(65_536).unwrap()).unwrap()
    );
    control.reply("150").unwrap();
    control.reply("226").unwrap();
    let mut nothing = Vec::new();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    // The connection may be closed or reset, but must not carry data.
    let _ = (&stranger).read_to_end(&mut nothing);
    assert!(
        nothing.is_empty(),
        "the stranger got {} bytes",
        nothing.len()
    );
}

/// A client sends STOR and disconnects before the server reads it. The restarted client may have stored
/// the file again meanwhile, so the stale command must not truncate it.
#[test]
fn a_stor_of_a_disconnected_client_changes_nothing() {
    let store = TestStore::new().unwrap();
    let victim = store.root().join("victim");
    std::fs::write(&victim, "acknowledged").unwrap();
    let mut server = ServeCommand::anonymous(store.root()).start().unwrap();
    for command in ["STOR victim", "STOR new", "APPE victim", "ESTO A 0 victim"] {
        let mut control = RawControlConnection::login(server.address()).unwrap();
        control.send(b"TYPE I\r\nPASV\r\n").unwrap();
        control.reply("200").unwrap();
        control.reply("227").unwrap();
        server.guard().signal(Signal::STOP).unwrap();
        control.send(format!("{command}\r\n").as_bytes()).unwrap();
        drop(control);
        server.guard().signal(Signal::CONT).unwrap();
    }
    // After the server has ended, it has processed all commands.
    server.guard().signal(Signal::TERM).unwrap();
    let ended = server.guard().wait(PATIENCE).unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "acknowledged");
    assert!(!store.root().join("new").exists());
}

/// Connects to this port of 127.0.0.1 from 127.0.0.9.
fn from_other_address(port: u16) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, socket};
    let address =
        |text: &str, port| -> Result<SocketAddrV4> { Ok(SocketAddrV4::new(text.parse()?, port)) };
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &address("127.0.0.9", 0)?)?;
    connect(&socket, &address("127.0.0.1", port)?)?;
    Ok(socket.into())
}
