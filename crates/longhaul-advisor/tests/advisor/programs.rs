//! The program under test, started as a user would.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Limit for every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The `longhaul` of the same build, which runs the program of this crate.
///
/// # Panics
/// It was not built: `cargo test --workspace` builds it.
pub(crate) fn longhaul(arguments: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_longhaul-advisor")).with_file_name("longhaul");
    assert!(path.is_file(), "cargo build -p longhaul");
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("ENABLE_TOKEN_FILE");
    command
}

pub(crate) fn advisor(arguments: &[&str]) -> Output {
    longhaul(&["advisor"]).args(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Waits until `probe` finds what it looks for.
pub(crate) fn wait_for<T>(sought: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not within a minute: {sought}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The response to a request over HTTP: its head, and its body. An error if nothing answers.
pub(crate) fn http(address: SocketAddr, request: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    // A service that ends closes a connection that it has not served yet.
    let no_head = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(no_head)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// Lines of a stream as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

/// A server of the program that has printed its ready line.
pub(crate) struct RunningServer {
    child: Child,
    pub(crate) address: SocketAddr,
    messages: Receiver<String>,
}

impl RunningServer {
    /// An advice server on a free port, with a database in `place` and these further settings.
    pub(crate) fn advisor(place: &Path, settings: &str) -> Self {
        let config = place.join("advisor.toml");
        write_settings(place, settings);
        let config = config.to_str().unwrap();
        Self::start(longhaul(&["advisor", "serve", "--config", config]))
    }

    /// Starts a command that prints `listening on ADDRESS`.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let messages = lines(child.stderr.take().unwrap());
        let ready = lines(child.stdout.take().unwrap());
        let Ok(line) = ready.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            panic!("no ready line: {:?}", messages.iter().collect::<Vec<_>>());
        };
        let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
        Self {
            child,
            address,
            messages,
        }
    }

    /// The first process of the server.
    pub(crate) fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.process(), signal).unwrap();
    }

    /// Waits for a message that contains `text`.
    pub(crate) fn wait_for_message(&self, text: &str) -> String {
        loop {
            let line = self.messages.recv_timeout(PATIENCE).unwrap();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until every process that writes messages has ended.
    pub(crate) fn wait_for_end(&self) {
        while self.messages.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Disconnected) {}
    }

    /// Ends the server as systemd does.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().unwrap()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the settings file of [`RunningServer::advisor`].
pub(crate) fn write_settings(place: &Path, settings: &str) {
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"sqlite://{}/paths.sqlite\"\n{settings}",
        place.display()
    );
    std::fs::write(place.join("advisor.toml"), text).unwrap();
}
