//! Data connections that are opened and closed during a transfer, which MODE E allows to the sender (GFD.20
//! section 3.4). The receiver must accept connections during the whole transfer. Some end early, and the
//! EOF with their number comes last. The test sends each block itself, so that every step happens.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::peer::globus_gridftp_server;
use interop::require;

const CLOSE: u8 = 0x04;
const EOD: u8 = 0x08;
const EOF: u8 = 0x40;

/// Time limit for every wait, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Size of a part of the file, bytes.
const PART: usize = 300_000;

/// A control connection.
struct ModeEClient(BufReader<TcpStream>);

impl ModeEClient {
    /// Opens an anonymous session in MODE E.
    fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut session = Self(BufReader::new(stream));
        session.reply()?;
        for command in ["USER anonymous", "PASS a@b", "TYPE I", "MODE E"] {
            session.send(command)?;
            session.reply()?;
        }
        Ok(session)
    }

    fn send(&mut self, command: &str) -> Result<()> {
        write!(self.0.get_mut(), "{command}\r\n").context("control connection")
    }

    /// The last line of the next reply.
    fn reply(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "the server hung up");
            if line.as_bytes().get(3) == Some(&b' ') {
                return Ok(line);
            }
        }
    }

    /// Sends PASV; returns the server's data address.
    fn passive(&mut self) -> Result<SocketAddr> {
        self.send("PASV")?;
        let reply = self.reply()?;
        let numbers = reply.split(['(', ')']).nth(1).context(reply.clone())?;
        let numbers: Vec<u8> = numbers
            .split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [a, b, c, d, high, low] = numbers[..] else {
            bail!("{reply}");
        };
        Ok(([a, b, c, d], u16::from_be_bytes([high, low])).into())
    }

    /// Starts a transfer with the data connection from `first`. Some servers reply only after a
    /// connection has been opened.
    fn start_transfer(
        &mut self,
        path: &str,
        first: impl FnOnce() -> Result<ModeEConnection>,
    ) -> Result<ModeEConnection> {
        self.send(&format!("STOR {path}"))?;
        let connection = first()?;
        let reply = self.reply()?;
        ensure!(reply.starts_with('1'), "{reply}");
        Ok(connection)
    }

    /// Waits for the final reply of a transfer.
    fn wait_for_end(&mut self) -> Result<()> {
        loop {
            let reply = self.reply()?;
            match reply.as_bytes()[0] {
                b'1' => {}
                b'2' => return Ok(()),
                _ => bail!("{reply}"),
            }
        }
    }
}

/// A data connection of the sender.
struct ModeEConnection(TcpStream);

impl ModeEConnection {
    fn connect(server: SocketAddr) -> Result<Self> {
        Ok(Self(TcpStream::connect(server)?))
    }

    fn send_block(&mut self, flags: u8, offset: u64, data: &[u8]) -> Result<()> {
        let mut send_block = vec![flags];
        send_block.extend((data.len() as u64).to_be_bytes());
        send_block.extend(offset.to_be_bytes());
        send_block.extend(data);
        self.0.write_all(&send_block).context("data connection")
    }

    /// Sends the part with this number, and waits until the server has stored it.
    fn send_part(&mut self, file: &Path, bytes: &[u8], number: usize) -> Result<()> {
        let offset = number * PART;
        let send_part = &bytes[offset..offset + PART];
        self.send_block(0, offset as u64, send_part)?;
        let start = Instant::now();
        let mut stored = vec![0; PART];
        loop {
            let read = File::open(file).and_then(|f| f.read_exact_at(&mut stored, offset as u64));
            if read.is_ok() && stored == send_part {
                return Ok(());
            }
            ensure!(start.elapsed() < LIMIT, "part {number} was not stored");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends this connection while others continue.
    fn close(mut self) -> Result<()> {
        self.send_block(EOD | CLOSE, 0, &[])?;
        self.0.shutdown(Shutdown::Write)?;
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }
}

/// Two transfers with data connections that are opened and closed during the transfer.
fn transfer_with_changing_connections(
    server: SocketAddr,
    store: &TestStore,
    served: &dyn Fn(&str) -> String,
) -> Result<()> {
    let bytes: Vec<u8> = (0..=250).cycle().take(6 * PART).collect();
    let path = store.path("up/first");
    let mut session = ModeEClient::open(server)?;
    let at = session.passive()?;

    let mut first = session.start_transfer(&served("up/first"), || ModeEConnection::connect(at))?;
    first.send_part(&path, &bytes, 0)?;
    let mut second = ModeEConnection::connect(at)?;
    second.send_part(&path, &bytes, 1)?;
    second.close()?;
    first.send_part(&path, &bytes, 2)?;
    let mut third = ModeEConnection::connect(at)?;
    third.send_part(&path, &bytes, 4)?;
    third.send_block(EOD, 0, &[])?;
    first.send_part(&path, &bytes, 3)?;
    first.send_part(&path, &bytes, 5)?;
    first.send_block(EOF | EOD, 3, &[])?;
    session.wait_for_end()?;
    ensure!(std::fs::read(&path)? == bytes, "differs");

    // The second transfer reuses two connections: one ends immediately, the other stays. A new connection
    // joins and sends EOF.
    let path = store.path("up/second");
    let first = session.start_transfer(&served("up/second"), || Ok(first))?;
    first.close()?;
    third.send_part(&path, &bytes, 0)?;
    let mut fourth = ModeEConnection::connect(at)?;
    for (number, other) in [(1, 2), (3, 4)] {
        third.send_part(&path, &bytes, number)?;
        fourth.send_part(&path, &bytes, other)?;
    }
    fourth.send_part(&path, &bytes, 5)?;
    third.send_block(EOD, 0, &[])?;
    fourth.send_block(EOF | EOD, 3, &[])?;
    session.wait_for_end()?;
    ensure!(std::fs::read(&path)? == bytes, "differs");
    Ok(())
}

#[test]
fn globus_accepts_connections_that_open_and_close_during_a_transfer() {
    let _ = require!(globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = globus_gridftp_server::start(&store).unwrap();
    let served = |path: &str| store.path(path).display().to_string();
    let passed = transfer_with_changing_connections(server.address(), &store, &served);
    passed.unwrap_or_else(|e| panic!("{e:#}\n{}", server.log()));
}

#[test]
fn longhaul_accepts_connections_that_open_and_close_during_a_transfer() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let served = |path: &str| format!("/{path}");
    let passed = server.explain(transfer_with_changing_connections(
        server.address(),
        &store,
        &served,
    ));
    passed.unwrap();
}
