//! A data node: it carries out what its front ends order, and has no sessions of its own.

mod lease;
mod work;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::channel::{ListenOptions, SessionDataChannel};
use data::job::TransferControl;
use data::rate::RateLimit;
use data::send::RangeSupply;
use data::transport::{ControlTransport, tls_error};
use proto::ranges::RangeSet;
use proto::server::TransferError;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::lease::{WriteLease, boot_time};
use self::work::{PartWork, StoredParts};
use crate::limits::SessionSlot;
use crate::state::ServerState;
use crate::stripes::{
    AliveTerms, FrontMessage, MeteredPart, NodeConnection, NodeFailure, NodeListen, NodeLoad,
    NodeMessage, NodeOrder, NodePart, PartProgress, PartReport, VERSION, WireRanges,
};
use crate::transfer::{ControlAddresses, file_error};

/// Interval of progress reports. A front end takes a node that is silent for some seconds for lost.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a stripe asks for work.
const WORK_AHEAD: Duration = Duration::from_secs(1);
/// Least and most bytes that it asks for.
const WANTED_BYTES: (u64, u64) = (2 << 20, 1 << 30);
/// A front end that is silent for this time has given up the transfer. Shorter than the time after which it does.
const SILENCE_LIMIT: Duration = Duration::from_secs(4);
/// Most parts of an object that one message names.
const STORED_AT_ONCE: usize = 1000;
/// Events of a part that wait for the connection's task.
const QUEUE: usize = 8;

/// Serves one connection of a front end.
pub(crate) async fn run(
    shared: Arc<ServerState>,
    transport: ControlTransport,
    ends: ControlAddresses,
    slot: SessionSlot,
) {
    let peer = ends.peer;
    let limit = shared.config.login_timeout;
    let identified = match timeout(limit, identify(&shared, transport)).await {
        Ok(identified) => identified,
        Err(_) => Err("it did not complete the handshake".to_owned()),
    };
    match identified {
        Ok((connection, name)) => {
            tracing::debug!(%peer, name, "a front end has connected");
            let node = NodeSession {
                shared,
                connection,
                own_address: ends.local.ip(),
                channel: None,
                running: None,
                heard: Instant::now(),
            };
            let error = node.serve().await;
            tracing::debug!(%peer, name, %error, "a front end has left");
        }
        Err(error) => tracing::warn!(%peer, error, "no front end of this data node"),
    }
    drop(slot);
}

/// Makes the handshake, and checks that the peer is one of the front ends; the text of a failure is for the log.
async fn identify(
    shared: &ServerState,
    mut transport: ControlTransport,
) -> Result<(NodeConnection, String), String> {
    let in_words = |error: io::Error| match tls_error(&error) {
        Some(error) => error.to_string(),
        None => error.to_string(),
    };
    transport.peer_has_begun().await.map_err(in_words)?;
    let config = shared.material.node_server_config();
    let config = config.map_err(|error| error.to_string())?;
    let started = transport.start_tls(&config, None);
    started.map_err(|error| error.to_string())?;
    transport.complete_handshake().await.map_err(in_words)?;
    let peer = transport.tls().and_then(|engine| engine.peer());
    let name = peer
        .ok_or("it has shown no certificate")?
        .identity
        .to_string();
    if !shared.config.front_ends.contains(&name) {
        return Err(format!("{name} is not in front-end"));
    }
    let mut connection = NodeConnection::new(transport);
    let hello = NodeMessage::Hello {
        version: VERSION,
        load: shared.load_meter.load(Instant::now()),
    };
    connection.send(&hello).await.map_err(in_words)?;
    Ok((connection, name))
}

/// The orders of one connection.
struct NodeSession {
    shared: Arc<ServerState>,
    connection: NodeConnection,
    /// Where the front end has reached this node.
    own_address: IpAddr,
    /// Of the last part: its connections serve the next one.
    channel: Option<SessionDataChannel>,
    running: Option<RunningPart>,
    /// When the front end was heard last.
    heard: Instant,
}

/// A part that runs on a thread of its own. Dropping it stops the thread.
struct RunningPart {
    control: Arc<TransferControl>,
    supply: Option<Arc<RangeSupply>>,
    lease: Arc<WriteLease>,
    /// Counts it in the load of this node.
    metered: MeteredPart,
    /// This node's share of a limit.
    rate: Option<RateLimit>,
    events: mpsc::Receiver<PartEvent>,
    /// Safe ranges that the front end knows.
    reported: RangeSet,
    begin: Instant,
    /// Tells the thread of a store to begin.
    may_store: std::sync::mpsc::Sender<()>,
    /// No range may begin before it.
    origin: u64,
}

impl Drop for RunningPart {
    fn drop(&mut self) {
        self.control.cancel();
    }
}

enum PartEvent {
    Opened {
        reused: bool,
    },
    RunsLow,
    /// A write waits for room in the quota.
    WantsRoom,
    Ended(Box<SessionDataChannel>, Result<StoredParts, TransferError>),
}

impl NodeSession {
    /// Serves until the connection ends; returns why.
    async fn serve(mut self) -> io::Error {
        let mut tick = interval(REPORT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                message = self.connection.receive() => match message {
                    Ok(message) => self.on_message(message).await,
                    Err(error) => Err(error),
                },
                event = next_event(&mut self.running) => self.on_event(event).await,
                _ = tick.tick(), if self.running.is_some() => self.on_tick().await,
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    /// Reports progress. A part whose front end is silent ends: that one may have given the file to another transfer.
    async fn on_tick(&mut self) -> io::Result<()> {
        if self.heard.elapsed() >= SILENCE_LIMIT
            && let Some(part) = &self.running
        {
            part.control.cancel();
        }
        self.report_progress(false).await
    }

    async fn on_message(&mut self, message: FrontMessage) -> io::Result<()> {
        self.heard = Instant::now();
        match message {
            FrontMessage::Alive(terms) => {
                if let Some(part) = &self.running {
                    part.follow(&terms);
                }
                Ok(())
            }
            FrontMessage::Begin(terms) => {
                if let Some(part) = &self.running {
                    part.follow(&terms);
                    let _ = part.may_store.send(());
                }
                Ok(())
            }
            FrontMessage::Listen(listen) => {
                self.channel = None;
                let address = self.listen(listen).await;
                self.connection.send(&NodeMessage::Listening(address)).await
            }
            FrontMessage::Run(order) => {
                if let Err(failure) = self.start(*order) {
                    let report = PartReport {
                        failure: Some(failure),
                        ..PartReport::default()
                    };
                    self.connection.send(&NodeMessage::Ended(report)).await?;
                }
                Ok(())
            }
            FrontMessage::Ranges { ranges, last } => {
                if let Some(part) = &self.running
                    && let Some(supply) = &part.supply
                {
                    let ranges = ranges.to_set();
                    if ranges.iter().any(|range| range.start < part.origin) {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    supply.hand_in(&ranges);
                    if last {
                        supply.end();
                    }
                }
                Ok(())
            }
            FrontMessage::TakeBack { bytes } => {
                let mut ranges = RangeSet::new();
                if let Some(part) = &self.running
                    && let Some(supply) = &part.supply
                {
                    ranges = supply.take_back(bytes);
                }
                self.give_back(ranges).await
            }
            FrontMessage::Stop => {
                if let Some(part) = &self.running {
                    part.control.cancel();
                }
                Ok(())
            }
        }
    }

    /// Tells the front end which ranges this part will not send. What exceeds a message is sent after all.
    async fn give_back(&mut self, mut taken: RangeSet) -> io::Result<()> {
        let ranges = WireRanges::take_from(&mut taken);
        if let Some(part) = &self.running
            && let Some(supply) = &part.supply
            && !taken.is_empty()
        {
            supply.hand_in(&taken);
        }
        let given = NodeMessage::GivenBack { ranges };
        self.connection.send(&given).await
    }

    /// Listens for data connections; returns the address for clients.
    async fn listen(&mut self, listen: NodeListen) -> Result<std::net::SocketAddr, NodeFailure> {
        let config = &self.shared.config;
        // Data may come by another network than orders do.
        let any: IpAddr = match self.own_address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let options = ListenOptions {
            ip: any,
            ports: config.data_ports.map(|(low, high)| low..=high),
            accept: listen.accept.into(),
            buffers: listen.buffers.into(),
        };
        let opened = tokio::task::spawn_blocking(move || SessionDataChannel::listen(&options));
        let opened = opened
            .await
            .map_err(|error| NodeFailure::other(error.to_string()))?;
        let mut channel = opened.map_err(|error| NodeFailure::file(file_error(&error)))?;
        channel.set_budget(self.shared.stream_budget.clone());
        let mut address = channel
            .local_addr()
            .ok_or_else(|| NodeFailure::other("no listener"))?;
        address.set_ip(match config.public_address {
            Some(public) if public.is_ipv4() == self.own_address.is_ipv4() => public,
            _ => self.own_address,
        });
        self.channel = Some(channel);
        Ok(address)
    }

    /// Starts the thread of a part.
    fn start(&mut self, order: NodeOrder) -> Result<(), NodeFailure> {
        if self.running.is_some() {
            return Err(NodeFailure::other("another part is running"));
        }
        let channel = match &order.part {
            NodePart::Receive { .. } => self.channel.take(),
            NodePart::Send { target, .. } => {
                let known = self
                    .channel
                    .take()
                    .filter(|channel| channel.targets() == [*target]);
                known.or_else(|| {
                    let mut channel = SessionDataChannel::connect_to(vec![*target], None);
                    channel.set_budget(self.shared.stream_budget.clone());
                    Some(channel)
                })
            }
        };
        let channel = channel.ok_or_else(|| NodeFailure::other("nothing listens for this part"))?;
        let origin = match &order.part {
            NodePart::Send { origin, .. } | NodePart::Receive { origin, .. } => *origin,
        };
        let (may_store, begun) = std::sync::mpsc::channel();
        let control = Arc::new(TransferControl::new());
        let (sender, events) = mpsc::channel(QUEUE);
        let supply = match &order.part {
            NodePart::Send { last: false, .. } => {
                let asking = sender.clone();
                // A full queue has such an event already, or the part is at its end.
                let ask = move || drop(asking.try_send(PartEvent::RunsLow));
                Some(Arc::new(RangeSupply::new(ask)))
            }
            _ => None,
        };
        let asking = sender.clone();
        let ask = move || drop(asking.try_send(PartEvent::WantsRoom));
        let lease = Arc::new(WriteLease::new(ask));
        let rate = order.rate.map(RateLimit::new);
        let work = PartWork {
            lease: Arc::clone(&lease),
            rate: rate.clone(),
            shared: Arc::clone(&self.shared),
            order,
            channel,
            control: Arc::clone(&control),
            supply: supply.clone(),
            begun,
        };
        let span = tracing::Span::current();
        let thread = std::thread::Builder::new().name("transfer".to_owned());
        let started = thread.spawn(move || {
            span.in_scope(|| {
                let (channel, result) = work.carry_out(&sender);
                let _ = sender.blocking_send(PartEvent::Ended(Box::new(channel), result));
            });
        });
        started.map_err(|error| {
            self.shared.load_meter.count_refusal();
            NodeFailure::other(format!("it has no thread: {error}"))
        })?;
        self.running = Some(RunningPart {
            control,
            supply,
            lease,
            metered: self.shared.load_meter.part_begins(),
            rate,
            events,
            reported: RangeSet::new(),
            begin: Instant::now(),
            may_store,
            origin,
        });
        Ok(())
    }

    async fn on_event(&mut self, event: Option<PartEvent>) -> io::Result<()> {
        match event {
            Some(PartEvent::Opened { reused }) => {
                let at = boot_time();
                let opened = NodeMessage::Opened { reused, at };
                self.connection.send(&opened).await
            }
            Some(PartEvent::WantsRoom) => self.report_progress(false).await,
            Some(PartEvent::RunsLow) => {
                let bytes = self.running.as_ref().map_or(0, RunningPart::wanted_bytes);
                self.connection
                    .send(&NodeMessage::WantsRanges { bytes })
                    .await
            }
            Some(PartEvent::Ended(channel, result)) => {
                self.channel = result.is_ok().then_some(*channel);
                self.end(result).await
            }
            None => {
                let lost = TransferError::Broken("internal error".to_owned());
                self.end(Err(lost)).await
            }
        }
    }

    async fn end(&mut self, result: Result<StoredParts, TransferError>) -> io::Result<()> {
        self.report_progress(true).await?;
        for parts in result.iter().flat_map(|parts| parts.chunks(STORED_AT_ONCE)) {
            let parts = parts.to_vec();
            self.connection.send(&NodeMessage::Stored { parts }).await?;
        }
        let Some(part) = self.running.take() else {
            return Ok(());
        };
        let evidence = part.control.evidence();
        tracing::info!(bytes = part.control.bytes(), "a part has ended");
        let mut report = PartReport {
            failure: result.err().map(NodeFailure::from),
            bytes: part.control.bytes(),
            streams: evidence.streams,
            final_streams: evidence.final_streams,
            retransmits: evidence.retransmits,
            min_rtt: evidence.min_rtt,
            congestion: evidence.congestion_control.clone(),
            load: NodeLoad::default(),
            is_lost: false,
        };
        // It does not run any more.
        drop(part);
        report.load = self.shared.load_meter.load(Instant::now());
        self.connection.send(&NodeMessage::Ended(report)).await
    }

    /// Tells the front end what has become safe; `all`: in as many messages as that takes.
    async fn report_progress(&mut self, all: bool) -> io::Result<()> {
        let Some(part) = &mut self.running else {
            return Ok(());
        };
        let mut new = RangeSet::new();
        for range in part.control.safe().iter() {
            new.extend(&part.reported.gaps(range.start, range.end));
        }
        part.metered.note(part.control.bytes(), Instant::now());
        loop {
            let safe = WireRanges::take_from(&mut new);
            part.reported.extend(&safe.to_set());
            let progress = PartProgress {
                at: boot_time(),
                bytes: part.control.bytes(),
                safe,
                store_wait: part.control.store_wait(),
                wants_to: part.lease.wants_to(),
                load: self.shared.load_meter.load(Instant::now()),
            };
            let progress = NodeMessage::Progress(progress);
            self.connection.send(&progress).await?;
            if new.is_empty() || !all {
                return Ok(());
            }
        }
    }
}

impl RunningPart {
    /// Takes over what the front end has answered.
    fn follow(&self, terms: &AliveTerms) {
        self.lease.renew(terms);
        if let (Some(limit), Some(rate)) = (&self.rate, terms.rate) {
            limit.set_rate(rate);
        }
    }

    /// Bytes that this part could send in the next seconds.
    fn wanted_bytes(&self) -> u64 {
        let elapsed = self.begin.elapsed().as_millis().max(1);
        let ahead = u128::from(self.control.bytes()) * WORK_AHEAD.as_millis() / elapsed;
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        ahead.clamp(WANTED_BYTES.0, WANTED_BYTES.1)
    }
}

/// The next event of the running part; waits for ever if there is none. Cancel-safe.
async fn next_event(running: &mut Option<RunningPart>) -> Option<PartEvent> {
    match running {
        Some(part) => part.events.recv().await,
        None => std::future::pending().await,
    }
}
