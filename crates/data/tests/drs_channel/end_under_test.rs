//! One end of a transfer under test; the test is the other end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::drs::DrsEndpoint;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::options::TransferOptions;
use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::Source;
use data::store::memory::{MemorySink, MemorySource};
use proto::command::TransferMode;
use proto::drs::Nonce;
use proto::ranges::RangeSet;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use units::splitmix;

pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Longer than anything in these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// More than the buffers between two ends hold: a transfer lasts until the test lets it end.
pub(crate) const MUCH: usize = 8 << 20;

pub(crate) type EndResult = Result<TransferReport, DataError>;

pub(crate) fn settings(mode: TransferMode, drs: Option<&Arc<DrsEndpoint>>) -> TransferSettings {
    TransferSettings {
        options: TransferOptions {
            buffers: SocketBuffers::sized_by(BufferSizing::Drs),
            block: 64 << 10,
            stall: LONG,
            ..TransferOptions::default()
        },
        mode,
        connect_timeout: LONG,
        drs: drs.map(Arc::clone),
        ..TransferSettings::default()
    }
}

pub(crate) fn listen() -> (SessionDataChannel, SocketAddr) {
    let channel = SessionDataChannel::listen(&ListenOptions {
        ip: HERE,
        ports: None,
        accept: AllowedPeers::Any,
        buffers: SocketBuffers::sized_by(BufferSizing::Drs),
    })
    .unwrap();
    let address = channel.local_addr().unwrap();
    (channel, address)
}

/// The listening end of the DRS channel.
pub(crate) fn listening() -> Arc<DrsEndpoint> {
    Arc::new(DrsEndpoint::listen(HERE, None).unwrap())
}

/// A connecting end, and the listener that it connects to.
pub(crate) fn connecting() -> (Arc<DrsEndpoint>, TcpListener) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let nonce = Nonce::new([7; 16]);
    let endpoint = DrsEndpoint::connect(listener.local_addr().unwrap(), nonce);
    (Arc::new(endpoint), listener)
}

/// Bytes in which every block differs from every other.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    splitmix::bytes(1, len)
}

pub(crate) fn memory(bytes: Vec<u8>) -> Arc<dyn Source> {
    Arc::new(MemorySource::new(bytes, "source"))
}

pub(crate) fn plan(len: usize) -> SendPlan {
    let mut ranges = RangeSet::new();
    ranges.insert(0, len as u64);
    SendPlan::new(ranges, 0)
}

pub(crate) const ANY: ReceivePlan = ReceivePlan {
    origin: 0,
    stream_start: 0,
    limit: None,
};

/// An end under test in MODE S, and the test's data connection to it.
pub(crate) struct EndUnderTest {
    pub(crate) control: Arc<TransferControl>,
    pub(crate) data: TcpStream,
    thread: JoinHandle<EndResult>,
    begin: Instant,
}

impl EndUnderTest {
    /// An end that sends `bytes`.
    pub(crate) fn sender(bytes: Vec<u8>, drs: &Arc<DrsEndpoint>) -> Self {
        let settings = settings(TransferMode::Stream, Some(drs));
        Self::new(move |channel, control| {
            let plan = plan(bytes.len());
            data::send::run(channel, &memory(bytes), &plan, &settings, control)
        })
    }

    /// An end that stores what it receives.
    pub(crate) fn receiver(sink: MemorySink, drs: &Arc<DrsEndpoint>) -> Self {
        let settings = settings(TransferMode::Stream, Some(drs));
        Self::new(move |channel, control| {
            data::recv::run(channel, &(Arc::new(sink) as _), &ANY, &settings, control)
        })
    }

    fn new(
        run: impl FnOnce(&mut SessionDataChannel, &Arc<TransferControl>) -> EndResult + Send + 'static,
    ) -> Self {
        let (mut channel, address) = listen();
        let control = Arc::new(TransferControl::new());
        let begin = Instant::now();
        let thread = {
            let control = Arc::clone(&control);
            std::thread::spawn(move || run(&mut channel, &control))
        };
        let data = TcpStream::connect(address).unwrap();
        Self {
            control,
            data,
            thread,
            begin,
        }
    }

    /// Reads everything that a sender sends. The sender must succeed.
    pub(crate) fn drain(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.data.read_to_end(&mut bytes).unwrap();
        self.end();
        bytes
    }

    /// Sends the rest to a receiver. The receiver must succeed.
    pub(crate) fn feed(mut self, bytes: &[u8]) {
        self.data.write_all(bytes).unwrap();
        self.end();
    }

    fn end(self) {
        drop(self.data);
        self.thread.join().unwrap().unwrap();
        assert!(self.begin.elapsed() < LONG, "{:?}", self.begin.elapsed());
        assert_eq!(self.control.streams(), 0);
    }
}

/// The test's end of a DRS channel.
pub(crate) struct DrsTestPeer(BufReader<TcpStream>);

impl DrsTestPeer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Connects from an address to the endpoint's listener, and sends `words`.
    pub(crate) fn from(ip: IpAddr, to: &DrsEndpoint, words: &str) -> Self {
        let kind = (socket2::Domain::IPV4, socket2::Type::STREAM);
        let socket = socket2::Socket::new(kind.0, kind.1, None).unwrap();
        socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
        socket.connect(&to.address().socket.into()).unwrap();
        let mut voice = Self::new(socket.into());
        voice.say(words);
        voice
    }

    /// Connects and greets as the peer.
    pub(crate) fn peer(to: &DrsEndpoint) -> Self {
        Self::from(HERE, to, &greeting(to))
    }

    /// Sends `words`. The other end may have closed already.
    pub(crate) fn say(&mut self, words: &str) {
        let _ = self.0.get_mut().write_all(words.as_bytes());
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn hang_up(&self) {
        self.0.get_ref().shutdown(Shutdown::Both).unwrap();
    }

    /// Waits until the other end closes; ignores what it sends until then.
    pub(crate) fn hears_end(&mut self) {
        let mut ignored = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut ignored) {
            // Bytes that the other end did not read make its close a reset.
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}

pub(crate) fn greeting(endpoint: &DrsEndpoint) -> String {
    format!("DRS {}\r\n", endpoint.address().nonce.to_hex())
}
