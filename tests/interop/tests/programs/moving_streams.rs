//! Data connections that come and go in mid-transfer, as a sender in MODE E may have them (GFD.20
//! §3.4): the receiver takes connections for as long as the transfer lasts, some of which end early,
//! and learns their number with an EOF that comes last. By hand, so that each step happens.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::need;
use interop::peer::globus_gridftp_server;

const CLOSE: u8 = 0x04;
const EOD: u8 = 0x08;
const EOF: u8 = 0x40;

/// Longer than anything here takes, on however busy a machine.
const LIMIT: Duration = Duration::from_secs(60);

/// One part of what is sent.
const PART: usize = 300_000;

/// A control connection.
struct ModeEClient(BufReader<TcpStream>);

impl ModeEClient {
    /// An anonymous one, in MODE E.
    fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut session = Self(BufReader::new(stream));
        session.reply()?;
        for command in ["USER anonymous", "PASS a@b", "TYPE I", "MODE E"] {
            session.say(command)?;
            session.reply()?;
        }
        Ok(session)
    }

    fn say(&mut self, command: &str) -> Result<()> {
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

    /// Where the server listens.
    fn passive(&mut self) -> Result<SocketAddr> {
        self.say("PASV")?;
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

    /// A transfer begins, over `first` among others. (Some servers answer once a connection is there.)
    fn begin(
        &mut self,
        path: &str,
        first: impl FnOnce() -> Result<ModeEConnection>,
    ) -> Result<ModeEConnection> {
        self.say(&format!("STOR {path}"))?;
        let lane = first()?;
        let reply = self.reply()?;
        ensure!(reply.starts_with('1'), "{reply}");
        Ok(lane)
    }

    /// The end of a transfer.
    fn end(&mut self) -> Result<()> {
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

/// A data connection.
struct ModeEConnection(TcpStream);

impl ModeEConnection {
    fn join(server: SocketAddr) -> Result<Self> {
        Ok(Self(TcpStream::connect(server)?))
    }

    fn block(&mut self, flags: u8, offset: u64, data: &[u8]) -> Result<()> {
        let mut block = vec![flags];
        block.extend((data.len() as u64).to_be_bytes());
        block.extend(offset.to_be_bytes());
        block.extend(data);
        self.0.write_all(&block).context("data connection")
    }

    /// The part with this number; it is stored before anything else happens.
    fn part(&mut self, file: &Path, bytes: &[u8], number: usize) -> Result<()> {
        let offset = number * PART;
        let part = &bytes[offset..offset + PART];
        self.block(0, offset as u64, part)?;
        let begun = Instant::now();
        let mut stored = vec![0; PART];
        loop {
            let read = File::open(file).and_then(|f| f.read_exact_at(&mut stored, offset as u64));
            if read.is_ok() && stored == part {
                return Ok(());
            }
            ensure!(begun.elapsed() < LIMIT, "part {number} is not stored");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Leaves while others go on.
    fn retire(mut self) -> Result<()> {
        self.block(EOD | CLOSE, 0, &[])?;
        self.0.shutdown(Shutdown::Write)?;
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }
}

/// Two transfers over connections that come and go.
fn come_and_go(
    server: SocketAddr,
    store: &TestStore,
    served: &dyn Fn(&str) -> String,
) -> Result<()> {
    let bytes: Vec<u8> = (0..=250).cycle().take(6 * PART).collect();
    let path = store.path("up/first");
    let mut session = ModeEClient::open(server)?;
    let at = session.passive()?;

    let mut first = session.begin(&served("up/first"), || ModeEConnection::join(at))?;
    first.part(&path, &bytes, 0)?;
    let mut second = ModeEConnection::join(at)?;
    second.part(&path, &bytes, 1)?;
    second.retire()?;
    first.part(&path, &bytes, 2)?;
    let mut third = ModeEConnection::join(at)?;
    third.part(&path, &bytes, 4)?;
    third.block(EOD, 0, &[])?;
    first.part(&path, &bytes, 3)?;
    first.part(&path, &bytes, 5)?;
    first.block(EOF | EOD, 3, &[])?;
    session.end()?;
    ensure!(std::fs::read(&path)? == bytes, "differs");

    // One was kept that leaves at once, and one that stays; another joins and has the last word.
    let path = store.path("up/second");
    let first = session.begin(&served("up/second"), || Ok(first))?;
    first.retire()?;
    third.part(&path, &bytes, 0)?;
    let mut fourth = ModeEConnection::join(at)?;
    for (number, other) in [(1, 2), (3, 4)] {
        third.part(&path, &bytes, number)?;
        fourth.part(&path, &bytes, other)?;
    }
    fourth.part(&path, &bytes, 5)?;
    third.block(EOD, 0, &[])?;
    fourth.block(EOF | EOD, 3, &[])?;
    session.end()?;
    ensure!(std::fs::read(&path)? == bytes, "differs");
    Ok(())
}

#[test]
fn globus_takes_connections_that_come_and_go() {
    let _ = need!(globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = globus_gridftp_server::start(&store).unwrap();
    let served = |path: &str| store.path(path).display().to_string();
    let passed = come_and_go(server.address(), &store, &served);
    passed.unwrap_or_else(|e| panic!("{e:#}\n{}", server.log()));
}

#[test]
fn longhaul_takes_connections_that_come_and_go() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let served = |path: &str| format!("/{path}");
    let passed = server.explain(come_and_go(server.address(), &store, &served));
    passed.unwrap();
}
