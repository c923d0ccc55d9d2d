//! A transfer that data nodes carry out: this process has the file open, divides the work, and completes the store.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::error::DataError;
use data::job::{TransferControl, TransferReport};
use data::rate::RateLimit;
use data::served::{ServedBytes, ServedSink};
use data::store::Sink;
use data::store::root::FileIdentity;
use parking_lot::Mutex;
use proto::command::{DataType, TransferMode};
use proto::ranges::RangeSet;
use proto::server::{
    CompletedTransfer, FileError, FileErrorKind, StoreDisposition, TransferError, TransferKind,
    TransferRequest,
};
use proto::stripes::{Stripe, StripeAddresses};
use tokio::sync::mpsc;
use tune::Evidence;
use tune::limiter::Role;

use super::error::transfer_error;
use super::{
    DataAddresses, FinishedTransfer, LocalHandles, TransferOrder, TransferSummary, WorkerEvent,
    progress, worker,
};
use crate::files::{
    OpenedSource, OpenedStore, OpenedTransfer, UploadClient, transfer_error_of_file,
};
use crate::secure::NodeSecurity;
use crate::session_files::SessionFiles;
use crate::stripes::{
    AliveTerms, DealtOrder, FrontMessage, LEASE, NodeAccess, NodeFailure, NodeFile, NodeMessage,
    NodeOrder, NodePart, PartProgress, PartReport, RangeDealer, RateShares, StripeSet, WireRanges,
};
use crate::transfer_log::LoggedTransferKind;

/// Bytes that each stripe begins with: a second's work of a slow one.
const FIRST_DEAL: u64 = 4 << 20;
/// A node reports several times a second. One that is silent for this time is lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// A node whose file system does not answer for this time, while that of another node does, is given up.
const STORE_LIMIT: Duration = Duration::from_secs(8);
/// A file system that has answered within this time answers.
const SLOW_ANSWER: Duration = Duration::from_secs(2);
/// Interval at which cancelling and silence are noticed.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// The same while a node waits for ranges: it is told soon when there are no more.
const ORDER_INTERVAL: Duration = Duration::from_millis(10);
/// Interval at which a limit of the rate is dealt anew.
const DEAL_INTERVAL: Duration = Duration::from_secs(1);
/// A limit whose budget is owed more than this time is overdrawn. Nodes report several times a second what they have moved already.
const OVERDRAWN: Duration = Duration::from_millis(500);
/// Longest wait for stopped nodes to report what they have stored.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// With which nodes a transfer is carried out.
#[derive(Debug)]
pub(crate) struct StripedWork {
    /// The nodes of the front end.
    pub(crate) access: NodeAccess,
    /// Those that listen (SPAS); `None`: nodes are to connect to the targets (SPOR).
    pub(crate) listening: Option<StripeSet>,
    /// The session's root, below that of the server.
    pub(crate) root: PathBuf,
    /// Protection of the data connections.
    pub(crate) security: Option<NodeSecurity>,
}

/// Bytes that each stripe has moved.
pub(crate) type StripeBytes = Arc<Mutex<Vec<u64>>>;

/// Why a transfer cannot be divided among nodes; `None`: it can.
pub(crate) fn obstacle(request: &TransferRequest) -> Option<&'static str> {
    let whole_file = match &request.kind {
        TransferKind::Retrieve { .. } => true,
        TransferKind::Store { disposition, .. } => !matches!(
            disposition,
            StoreDisposition::Append | StoreDisposition::Unique
        ),
        _ => false,
    };
    if request.mode != TransferMode::Extended || request.type_ != DataType::Image {
        return Some("stripes need MODE E and TYPE I");
    }
    if request.buffers.sizing.needs_peer_support() {
        return Some("stripes have no right-sizing channel");
    }
    (!whole_file).then_some("only RETR, ERET, STOR and ESTO of a file can have stripes")
}

/// Carries out an order with data nodes and reports events, as [`worker::run`] does in this process.
pub(super) async fn run(
    order: TransferOrder,
    handles: LocalHandles,
    work: StripedWork,
    control: Arc<TransferControl>,
    bytes: StripeBytes,
    reports: mpsc::Sender<WorkerEvent>,
) {
    // Those of an earlier transfer may have gone, or have another file.
    let is_fresh = |set: &StripeSet| set.is_intact() && set.is_within(&work.access);
    let set = match (work.listening.filter(is_fresh), &order.connections) {
        (Some(set), _) => Ok(set),
        (None, DataAddresses::Targets(targets)) => {
            StripeSet::for_stripes(&work.access, targets.as_slice().len()).await
        }
        (None, _) => Err(io::Error::other("no data connection")),
    };
    let set = match set {
        Ok(set) => set,
        Err(error) => {
            // This process can do the same, if slower.
            tracing::warn!(%error, "a striped transfer runs without data nodes");
            let run = move || worker::run(order, handles, &control, &reports);
            let _ = tokio::task::spawn_blocking(run).await;
            return;
        }
    };
    let LocalHandles {
        files,
        control_socket,
        channel,
        permit,
        rate,
        ..
    } = handles;
    let has_quota = files.has_quota();
    let started_at = Instant::now();
    let mut summary = TransferSummary::of(&order.request, order.settings(None, None));
    *bytes.lock() = vec![0; set.nodes().len()];
    let mut transfer = StripedTransfer {
        sink: None,
        has_begun: false,
        has_file_system: true,
        stored_parts: Vec::new(),
        paid_to: if has_quota { 0 } else { u64::MAX },
        limit: rate.map(|limit| DealtLimit::new(limit, set.nodes().len())),
        client: UploadClient {
            uploader: order.uploader.clone(),
            control_socket,
            control: Arc::clone(&control),
            bytes: ServedBytes::None,
        },
        root: work.root.as_os_str().as_bytes().to_vec(),
        security: work.security,
        parts: set.nodes().iter().map(|_| StripePart::default()).collect(),
        order,
        set,
        control: Arc::clone(&control),
        bytes: Arc::clone(&bytes),
        reports: reports.clone(),
        summary: &mut summary,
    };
    let result = transfer.carry_out(files).await;
    if result.is_ok() {
        transfer.set.note_success();
    }
    let StripedTransfer { set, parts, .. } = transfer;
    summary.elapsed = started_at.elapsed();
    summary.evidence = evidence(&summary, &control, &parts);
    // After a failure a node may still have connections of this transfer.
    let stripes = result.is_ok().then_some(set);
    drop(permit);
    let last = progress(&control, &bytes);
    let result = result.map(|()| CompletedTransfer {
        progress: last.clone(),
        remarks: summary.limiter.client_remark.clone(),
    });
    let finished = FinishedTransfer {
        result,
        last,
        channel,
        stripes,
        summary,
    };
    let _ = reports.send(WorkerEvent::Ended(Box::new(finished))).await;
}

/// The progress of one stripe.
#[derive(Debug, Default)]
struct StripePart {
    /// Whether data connections are used again, and when the node reported that.
    opened: Option<(bool, Duration)>,
    report: Option<PartReport>,
    /// `None` until the first message.
    heard: Option<Instant>,
    /// When the node was told last that the transfer goes on. It may write for [`LEASE`] from then at most.
    renewed: Option<Instant>,
    /// When it had moved more bytes.
    moved: Option<Instant>,
    /// For how long its file system has not answered, by its last report.
    store_wait: Duration,
}

impl StripePart {
    /// Nothing more is to come from it.
    fn is_over(&self) -> bool {
        self.report.is_some()
    }

    /// The node may still write, as far as is known.
    fn may_write(&self) -> bool {
        let is_known = self.report.as_ref().is_some_and(|report| !report.is_lost);
        !is_known && self.renewed.is_some_and(|at| at.elapsed() < LEASE)
    }
}

/// A limit of the rate that the transfer shares with others, and that its nodes share.
struct DealtLimit {
    limit: RateLimit,
    shares: RateShares,
    /// When it was dealt, and what each node had moved by then.
    dealt: (Instant, Vec<u64>),
    is_overdrawn: bool,
}

impl DealtLimit {
    fn new(limit: RateLimit, stripes: usize) -> Self {
        Self {
            shares: RateShares::new(limit.rate(), stripes),
            limit,
            dealt: (Instant::now(), vec![0; stripes]),
            is_overdrawn: false,
        }
    }

    /// Charges what a node has moved.
    fn charge(&mut self, bytes: u64) {
        self.is_overdrawn |= self.limit.take(bytes) > OVERDRAWN;
    }

    /// Deals the limit anew when it is time; `moved`: bytes of each node.
    fn deal(&mut self, moved: &[u64]) {
        let (at, before) = &self.dealt;
        let seconds = at.elapsed().as_secs_f64();
        if at.elapsed() < DEAL_INTERVAL {
            return;
        }
        let rates = moved.iter().zip(before).map(|(now, before)| {
            let bytes = u32::try_from(now.saturating_sub(*before) >> 10).unwrap_or(u32::MAX);
            f64::from(bytes) * 1024.0 / seconds
        });
        let rates: Vec<f64> = rates.collect();
        self.shares
            .deal(self.limit.rate(), &rates, self.is_overdrawn);
        self.is_overdrawn = false;
        self.dealt = (Instant::now(), moved.to_vec());
    }
}

struct StripedTransfer<'s> {
    order: TransferOrder,
    set: StripeSet,
    parts: Vec<StripePart>,
    client: UploadClient,
    root: Vec<u8>,
    security: Option<NodeSecurity>,
    /// The file of a store, which is changed when every node has opened it.
    sink: Option<Arc<dyn Sink>>,
    /// Every node has opened the file.
    has_begun: bool,
    /// The nodes wait for the disks of a file system, and not for a bucket, on which each has limits of its own.
    has_file_system: bool,
    /// Parts of an object that nodes have stored.
    stored_parts: Vec<String>,
    /// File offset up to which the quota is charged.
    paid_to: u64,
    limit: Option<DealtLimit>,
    control: Arc<TransferControl>,
    bytes: StripeBytes,
    reports: mpsc::Sender<WorkerEvent>,
    summary: &'s mut TransferSummary,
}

impl StripedTransfer<'_> {
    async fn carry_out(&mut self, files: SessionFiles) -> Result<(), TransferError> {
        let (request, client) = (self.order.request.clone(), self.client.clone());
        let open = move || {
            files
                .open(&request, &client)
                .map_err(transfer_error_of_file)
        };
        match blocking(open).await? {
            OpenedTransfer::Send(sending) => self.send(sending).await,
            OpenedTransfer::Receive(storing) => self.receive(storing).await,
            OpenedTransfer::SendBundle(_) | OpenedTransfer::ReceiveBundle(_) => {
                Err(other_error("bundles have no stripes"))
            }
        }
    }

    async fn send(&mut self, sending: OpenedSource) -> Result<(), TransferError> {
        let DataAddresses::Targets(targets) = self.order.connections.clone() else {
            return Err(other_error(
                "in MODE E the sender connects; use SPOR or PORT",
            ));
        };
        let OpenedSource {
            source,
            plan,
            path,
            object,
            checksum: _,
        } = sending;
        self.summary.path = path;
        let identity = source.fd().map(FileIdentity::of);
        let piece = object.as_ref().map_or(1, |(_, piece)| *piece);
        let file = node_file(identity, object.map(|(version, _)| version))?;
        // The inode stays that of the file while it is open.
        let _open = source;
        let layout = self.order.request.layout;
        let mut dealer = RangeDealer::new(
            layout,
            plan.ranges.clone(),
            stripe_count(&targets),
            Instant::now(),
        )
        .in_pieces(piece);
        for (stripe, target) in targets.iter() {
            let (mut ranges, last) = dealer.first(stripe, FIRST_DEAL);
            let part = NodePart::Send {
                target,
                ranges: WireRanges::take_from(&mut ranges),
                last,
                origin: plan.origin,
            };
            self.start(stripe, file.clone(), part);
        }
        let planned = plan.ranges.byte_count();
        self.follow(Some(dealer)).await?;
        // Whatever was lost on the way: nobody may take the file for complete.
        if self.control.bytes() != planned {
            let sent = self.control.bytes();
            let text = format!("{sent} of {planned} bytes were sent");
            return Err(TransferError::Broken(text));
        }
        Ok(())
    }

    async fn receive(&mut self, storing: OpenedStore) -> Result<(), TransferError> {
        self.summary.path = storing.path.clone();
        let identity = storing.sink.fd().map(FileIdentity::of);
        let shared = storing.shared.clone();
        let file = match shared.clone() {
            Some(sink) => {
                let algorithm = storing.checksum_algorithm;
                let share = move || sink.share(algorithm).map_err(TransferError::File);
                blocking(share).await.map(NodeFile::Upload)
            }
            None => node_file(identity, None),
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                storing.abandon();
                return Err(error);
            }
        };
        self.sink = Some(Arc::clone(&storing.sink));
        for number in 0..self.set.nodes().len() {
            let part = NodePart::Receive {
                origin: storing.plan.origin,
                limit: storing.plan.limit,
            };
            self.start(self.stripe(number), file.clone(), part);
        }
        let followed = self.follow(None).await;
        let (stored, bytes) = (self.control.stored(), self.control.bytes());
        let control = Arc::clone(&self.control);
        let parts = std::mem::take(&mut self.stored_parts);
        let complete = move || {
            let take_over = |sink: Arc<dyn ServedSink>| sink.take_over(&parts);
            let taken = shared.map_or(Ok(()), take_over);
            if let Err(error) = followed.and(taken.map_err(TransferError::File)) {
                storing.abandon();
                return Err(error);
            }
            let report = TransferReport {
                stored,
                evidence: Evidence {
                    bytes,
                    ..Evidence::for_role(Role::Receiver)
                },
                ..TransferReport::default()
            };
            storing.finish(&report, &mut |_| !control.is_cancelled())
        };
        self.summary.digest = blocking(complete).await?;
        Ok(())
    }

    fn stripe(&self, number: usize) -> Stripe {
        let count = u32::try_from(self.set.nodes().len()).unwrap_or(u32::MAX);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Stripe::new(number, count).unwrap_or(Stripe::SINGLE)
    }

    fn start(&mut self, stripe: Stripe, file: NodeFile, part: NodePart) {
        self.has_file_system = matches!(file, NodeFile::Inode(_));
        let request = &self.order.request;
        let streams = request.streams;
        let order = NodeOrder {
            root: self.root.clone(),
            path: self.summary.path.as_bytes().to_vec(),
            file,
            client: self.client.served().name,
            part,
            streams: [streams.start, streams.min, streams.max],
            buffers: request.buffers.into(),
            rate: self.share(stripe.number() as usize),
            congestion: self.order.terms.congestion.name().to_owned(),
            security: self.security.clone(),
        };
        let run = FrontMessage::Run(Box::new(order));
        self.set.send(stripe.number() as usize, run);
    }

    /// Follows the parts to their end. After the failure of one the others are stopped; what they have stored by then counts. When it returns,
    /// no node writes any more.
    async fn follow(&mut self, mut dealer: Option<RangeDealer>) -> Result<(), TransferError> {
        let mut failure: Option<TransferError> = None;
        let mut stopped_at: Option<Instant> = None;
        let begin = Instant::now();
        let stores = dealer.is_none();
        loop {
            let is_over = self.parts.iter().all(StripePart::is_over);
            let may_write = stores && self.parts.iter().any(StripePart::may_write);
            let has_waited = stopped_at.is_some_and(|at| at.elapsed() >= STOP_LIMIT);
            if (is_over || has_waited) && !may_write {
                break;
            }
            let requests = dealer.as_ref().is_some_and(RangeDealer::has_requests);
            let interval = if requests {
                ORDER_INTERVAL
            } else {
                WATCH_INTERVAL
            };
            let event = tokio::time::timeout(interval, self.set.next_event()).await;
            if let Ok((number, event)) = event {
                let renews = stopped_at.is_none();
                if let Err(error) = self.on_event(number, event, &mut dealer, renews).await {
                    failure.get_or_insert(error);
                }
            }
            if failure.is_none()
                && let Some(dealer) = &mut dealer
                && let Err(error) = self.send_orders(dealer)
            {
                failure = Some(error);
            }
            if failure.is_none()
                && let Some((number, error)) = self.stuck_part(begin)
            {
                self.set.note_failure(number);
                failure = Some(error);
            }
            if self.control.is_cancelled() {
                failure.get_or_insert(TransferError::Aborted);
            }
            if failure.is_some() && stopped_at.is_none() {
                stopped_at = Some(Instant::now());
                for number in 0..self.parts.len() {
                    self.set.send(number, FrontMessage::Stop);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn on_event(
        &mut self,
        number: usize,
        event: Option<NodeMessage>,
        dealer: &mut Option<RangeDealer>,
        renews: bool,
    ) -> Result<(), TransferError> {
        let name = self.set.nodes().get(number).map(|node| node.name.clone());
        let Some(part) = self.parts.get_mut(number) else {
            return Ok(());
        };
        part.heard = Some(Instant::now());
        match event {
            None if part.report.is_none() => {
                part.report = Some(PartReport::lost());
                return Err(self.lost(number));
            }
            None | Some(NodeMessage::Hello { .. } | NodeMessage::Listening(_)) => {}
            Some(NodeMessage::Opened { reused, at }) => {
                part.opened.get_or_insert((reused, at));
                self.begin_if_opened().await?;
            }
            Some(NodeMessage::Progress(progress)) => {
                if let Some(dealer) = dealer {
                    dealer.note_sent(number, progress.bytes, Instant::now());
                }
                self.on_progress(number, &progress, renews).await?;
            }
            Some(NodeMessage::WantsRanges { bytes }) => {
                if let Some(dealer) = dealer {
                    dealer.note_request(number, bytes);
                }
            }
            Some(NodeMessage::GivenBack { ranges }) => {
                if let Some(dealer) = dealer {
                    dealer.note_given_back(number, &ranges.to_set());
                }
            }
            Some(NodeMessage::Stored { parts }) => self.stored_parts.extend(parts),
            Some(NodeMessage::Ended(report)) => {
                let failure = report.failure.clone();
                let bytes = report.bytes;
                self.set.note_load(number, report.load);
                part.report = Some(report);
                self.note_progress(number, bytes, &RangeSet::new());
                if let Some(failure) = failure {
                    let name = name.unwrap_or_default();
                    return Err(NodeFailure::at(failure, &name).into());
                }
            }
        }
        Ok(())
    }

    /// Sends the nodes what they are to be told about their ranges now.
    fn send_orders(&self, dealer: &mut RangeDealer) -> Result<(), TransferError> {
        for order in dealer.orders(Instant::now()) {
            let (number, message) = match order {
                DealtOrder::Send {
                    stripe,
                    mut ranges,
                    last,
                } => {
                    let ranges = WireRanges::take_from(&mut ranges);
                    (stripe, FrontMessage::Ranges { ranges, last })
                }
                DealtOrder::TakeBack { stripe, bytes } => {
                    tracing::debug!(node = self.name(stripe), bytes, "a data node gives back");
                    (stripe, FrontMessage::TakeBack { bytes })
                }
            };
            if !self.set.send(number, message) {
                return Err(self.lost(number));
            }
        }
        Ok(())
    }

    async fn on_progress(
        &mut self,
        number: usize,
        progress: &PartProgress,
        renews: bool,
    ) -> Result<(), TransferError> {
        self.note_progress(number, progress.bytes, &progress.safe.to_set());
        self.set.note_load(number, progress.load);
        if let Some(part) = self.parts.get_mut(number) {
            part.store_wait = progress.store_wait;
        }
        if !renews {
            return Ok(());
        }
        if progress.wants_to > self.paid_to
            && let Some(sink) = self.sink.clone()
        {
            let end = progress.wants_to;
            blocking(move || sink.begin(end).map_err(store_error)).await?;
            self.paid_to = end;
        }
        if let Some(limit) = &mut self.limit {
            limit.deal(&self.bytes.lock());
        }
        let terms = self.terms(number, progress.at);
        self.set.send(number, FrontMessage::Alive(terms));
        Ok(())
    }

    /// The rights of a node that has reported `at`. Whether they are sent or not, they may arrive.
    fn terms(&mut self, number: usize, at: Duration) -> AliveTerms {
        if let Some(part) = self.parts.get_mut(number) {
            part.renewed = Some(Instant::now());
        }
        AliveTerms {
            at,
            paid_to: self.paid_to,
            rate: self.share(number),
        }
    }

    fn share(&self, number: usize) -> Option<u64> {
        self.limit.as_ref().map(|limit| limit.shares.of(number))
    }

    fn note_progress(&mut self, number: usize, bytes: u64, safe: &RangeSet) {
        let mut all = self.bytes.lock();
        if let Some(stripe) = all.get_mut(number) {
            let more = bytes.saturating_sub(*stripe);
            *stripe = bytes.max(*stripe);
            if let Some(part) = self.parts.get_mut(number).filter(|_| more > 0) {
                part.moved = Some(Instant::now());
            }
            self.control.note_elsewhere(more, safe);
            if let Some(limit) = &mut self.limit {
                limit.charge(more);
            }
        }
    }

    /// Begins when every node has opened the file: a store then changes it, and the session hears of it.
    async fn begin_if_opened(&mut self) -> Result<(), TransferError> {
        let opened: Option<Vec<_>> = self.parts.iter().map(|part| part.opened).collect();
        let Some(opened) = opened.filter(|_| !self.has_begun) else {
            return Ok(());
        };
        self.has_begun = true;
        if let Some(sink) = self.sink.clone() {
            blocking(move || sink.begin(0).map_err(store_error)).await?;
            for (number, (_, at)) in opened.iter().enumerate() {
                let terms = self.terms(number, *at);
                if !self.set.send(number, FrontMessage::Begin(terms)) {
                    return Err(self.lost(number));
                }
            }
        }
        let event = WorkerEvent::Opened {
            reused: opened.iter().all(|(reused, _)| *reused),
            unique_name: None,
            stripes: self.parts.len(),
        };
        let _ = self.reports.send(event).await;
        Ok(())
    }

    /// A node that has said nothing for too long, or whose file system keeps it while others go on, with the error.
    fn stuck_part(&self, begin: Instant) -> Option<(usize, TransferError)> {
        let running = || {
            let all = self.parts.iter().enumerate();
            all.filter(|(_, part)| part.report.is_none())
        };
        let is_silent = |part: &StripePart| part.heard.unwrap_or(begin).elapsed() >= SILENCE_LIMIT;
        if let Some((number, _)) = running().find(|(_, part)| is_silent(part)) {
            return Some((number, self.lost(number)));
        }
        if !self.has_file_system {
            return None;
        }
        let opens_long = |part: &StripePart| {
            let others = self.parts.iter().any(|other| other.opened.is_some());
            part.opened.is_none() && others && begin.elapsed() >= STORE_LIMIT
        };
        // Where all wait, all have the same file system, which may come back.
        let waits_long = |part: &StripePart| {
            let answers = |other: &StripePart| {
                let has_moved = other.moved.is_some_and(|at| at.elapsed() < part.store_wait);
                has_moved && other.store_wait < SLOW_ANSWER
            };
            part.store_wait >= STORE_LIMIT && self.parts.iter().any(answers)
        };
        let (number, _) = running().find(|(_, part)| opens_long(part) || waits_long(part))?;
        let name = self.name(number);
        let seconds = STORE_LIMIT.as_secs();
        let text = format!(
            "the file system of data node {name} has not answered for {seconds} s; the transfer can be resumed"
        );
        Some((number, TransferError::Broken(text)))
    }

    fn name(&self, number: usize) -> &str {
        let node = self.set.nodes().get(number);
        node.map_or("", |node| node.name.as_str())
    }

    fn lost(&self, number: usize) -> TransferError {
        let name = self.name(number);
        // Of an upload to a bucket nothing is left.
        let advice = match self.has_file_system || self.sink.is_none() {
            true => "; the transfer can be resumed",
            false => "",
        };
        TransferError::Broken(format!("data node {name} is lost{advice}"))
    }
}

/// The evidence of all parts together.
fn evidence(
    summary: &TransferSummary,
    control: &TransferControl,
    parts: &[StripePart],
) -> Evidence {
    let reports = || parts.iter().filter_map(|part| part.report.as_ref());
    let role = match summary.direction {
        LoggedTransferKind::Store => Role::Receiver,
        LoggedTransferKind::Retrieve | LoggedTransferKind::List => Role::Sender,
    };
    let rtts = reports().map(|report| report.min_rtt);
    Evidence {
        bytes: control.bytes(),
        elapsed: summary.elapsed,
        streams: reports().map(|report| report.streams).sum(),
        final_streams: reports().map(|report| report.final_streams).sum(),
        retransmits: reports().map(|report| report.retransmits).sum(),
        min_rtt: rtts.filter(|rtt| !rtt.is_zero()).min().unwrap_or_default(),
        congestion_control: reports().find_map(|report| report.congestion.clone()),
        ..Evidence::for_role(role)
    }
}

fn stripe_count(targets: &StripeAddresses) -> u32 {
    u32::try_from(targets.as_slice().len()).unwrap_or(u32::MAX)
}

/// By what nodes know that they have the same file.
fn node_file(
    identity: Option<io::Result<FileIdentity>>,
    version: Option<String>,
) -> Result<NodeFile, TransferError> {
    match (identity, version) {
        (Some(Ok(identity)), _) => Ok(NodeFile::Inode(identity.inode.1)),
        (Some(Err(error)), _) => Err(store_error(error)),
        (None, Some(version)) => Ok(NodeFile::Version(version)),
        (None, None) => Err(other_error(
            "the store tells no versions, by which data nodes would have the same one",
        )),
    }
}

/// The error of the file as the sink has it.
fn store_error(source: io::Error) -> TransferError {
    let what = "the file of a striped transfer".to_owned();
    transfer_error(&DataError::Write { what, source })
}

fn other_error(text: impl Into<String>) -> TransferError {
    TransferError::File(FileError::new(FileErrorKind::Other, text))
}

/// Runs what may wait for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(other_error("internal error")))
}
