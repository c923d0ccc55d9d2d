//! Both ends of a transfer, and the bytes they move.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::options::TransferOptions;
use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::memory::{MemorySink, MemorySource};
use data::store::{Sink, Source};
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;
use units::splitmix;

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Longer than anything in these tests takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition is true.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(
            started.elapsed() < PATIENCE,
            "it never comes to this: {what}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a transfer that no timeout ends; a regression must not block the suite.
pub(crate) fn bounded(act: impl FnOnce() + Send + 'static) {
    let (done_sender, done) = mpsc::channel();
    let running = std::thread::spawn(move || {
        act();
        // The waiting thread may have given up.
        let _ = done_sender.send(());
    });
    // A panic inside after its own timeout is more specific.
    match done.recv_timeout(2 * PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("it never ends"),
        _ => running
            .join()
            .unwrap_or_else(|failure| std::panic::resume_unwind(failure)),
    }
}

pub(crate) fn listen(accept: AllowedPeers) -> (SessionDataChannel, SocketAddr) {
    let channel = SessionDataChannel::listen(&ListenOptions {
        ip: LOCALHOST,
        ports: None,
        accept,
        buffers: SocketBuffers::sized_by(proto::sizing::BufferSizing::Kernel),
    })
    .unwrap();
    let address = channel.local_addr().unwrap();
    (channel, address)
}

/// A passive receiver, and the active sender that connects to it.
pub(crate) fn pair() -> (SessionDataChannel, SessionDataChannel) {
    let (receiver, address) = listen(AllowedPeers::Only(LOCALHOST));
    (
        SessionDataChannel::connect_to(vec![address], None),
        receiver,
    )
}

pub(crate) fn settings(mode: TransferMode) -> TransferSettings {
    TransferSettings {
        options: TransferOptions {
            block: 64 << 10,
            stall: PATIENCE,
            ..TransferOptions::default()
        },
        mode,
        connect_timeout: PATIENCE,
        ..TransferSettings::default()
    }
}

/// Bytes in which every block differs from every other.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    splitmix::bytes(1, len)
}

pub(crate) fn memory(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(MemorySource::new(bytes.to_vec(), "source"))
}

pub(crate) fn whole_plan(len: u64) -> SendPlan {
    let mut ranges = RangeSet::new();
    ranges.insert(0, len);
    SendPlan::new(ranges, 0)
}

pub(crate) const ANY: ReceivePlan = ReceivePlan {
    origin: 0,
    stream_start: 0,
    limit: None,
};

pub(crate) type PumpResult = Result<TransferReport, DataError>;

/// The parameters of one transfer over loopback.
pub(crate) struct LoopbackTransfer {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) send: SendPlan,
    pub(crate) receive: ReceivePlan,
    pub(crate) sender: TransferSettings,
    pub(crate) receiver: TransferSettings,
}

impl LoopbackTransfer {
    /// All of `bytes` into `sink`.
    pub(crate) fn new(bytes: &[u8], sink: Arc<dyn Sink>, mode: TransferMode) -> Self {
        Self {
            source: memory(bytes),
            sink,
            send: whole_plan(bytes.len() as u64),
            receive: ANY,
            sender: settings(mode),
            receiver: settings(mode),
        }
    }

    /// Runs both ends.
    pub(crate) fn run(
        &self,
        sender: &mut SessionDataChannel,
        receiver: &mut SessionDataChannel,
    ) -> (PumpResult, PumpResult) {
        let controls = [(); 2].map(|()| Arc::new(TransferControl::new()));
        self.run_with(sender, receiver, &controls)
    }

    /// Runs both ends with the given handles of sender and receiver.
    pub(crate) fn run_with(
        &self,
        sender: &mut SessionDataChannel,
        receiver: &mut SessionDataChannel,
        [at_sender, at_receiver]: &[Arc<TransferControl>; 2],
    ) -> (PumpResult, PumpResult) {
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                data::send::run(sender, &self.source, &self.send, &self.sender, at_sender)
            });
            let received = data::recv::run(
                receiver,
                &self.sink,
                &self.receive,
                &self.receiver,
                at_receiver,
            );
            (sending.join().unwrap(), received)
        })
    }

    /// Runs both ends over new channels. Both must succeed.
    pub(crate) fn succeed(&self) -> (TransferReport, TransferReport) {
        let (mut sender, mut receiver) = pair();
        let (sent, received) = self.run(&mut sender, &mut receiver);
        (sent.unwrap(), received.unwrap())
    }
}

pub(crate) fn sink() -> (MemorySink, Arc<dyn Sink>) {
    let sink = MemorySink::new(64 << 20, "sink");
    (sink.clone(), Arc::new(sink))
}
