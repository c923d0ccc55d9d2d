//! A part of a transfer, carried out by a thread of its own.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::error::DataError;
use data::job::{TransferControl, TransferSettings};
use data::options::{CongestionChoice, TransferOptions};
use data::rate::RateLimit;
use data::recv::ReceivePlan;
use data::send::{RangeSupply, SendPlan};
use data::served::{ServedBytes, ServedClient, ServedStore};
use data::store::file::{FileSink, FileSource};
use data::store::root::{FileIdentity, Root, StoreError};
use data::store::{Sink, Source};
use data::{recv, send};
use proto::command::{DataType, TransferMode};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{FileError, FileErrorKind, TransferError};
use tokio::sync::mpsc;

use super::PartEvent;
use super::lease::{LeasedSink, WriteLease};
use crate::secure::of_order;
use crate::state::ServerState;
use crate::stripes::{NodeFile, NodeOrder, NodePart};
use crate::transfer::transfer_error;

/// How often a store that may not begin yet looks whether it must stop.
const BEGIN_CHECK: Duration = Duration::from_millis(50);

/// A part on its thread.
pub(super) struct PartWork {
    pub(super) shared: Arc<ServerState>,
    pub(super) order: NodeOrder,
    pub(super) channel: SessionDataChannel,
    pub(super) control: Arc<TransferControl>,
    pub(super) supply: Option<Arc<RangeSupply>>,
    pub(super) lease: Arc<WriteLease>,
    pub(super) rate: Option<RateLimit>,
    /// A store may begin.
    pub(super) begun: std::sync::mpsc::Receiver<()>,
}

/// A text for each part of an object that the store has: the front end completes the object by them. None for files.
pub(super) type StoredParts = Vec<String>;

impl PartWork {
    pub(super) fn carry_out(
        mut self,
        events: &mpsc::Sender<PartEvent>,
    ) -> (SessionDataChannel, Result<StoredParts, TransferError>) {
        let result = match self.order.part.clone() {
            NodePart::Send { ranges, origin, .. } => {
                let sent = self.send(ranges.to_set(), origin, events);
                sent.map(|()| StoredParts::new())
            }
            NodePart::Receive { origin, limit } => {
                let plan = ReceivePlan {
                    origin,
                    stream_start: 0,
                    limit,
                };
                self.receive(plan, events)
            }
        };
        (self.channel, result)
    }

    fn send(
        &mut self,
        ranges: RangeSet,
        origin: u64,
        events: &mpsc::Sender<PartEvent>,
    ) -> Result<(), TransferError> {
        let source = self.source(&ranges)?;
        let plan = SendPlan {
            supply: self.supply.clone(),
            ..SendPlan::new(ranges, origin)
        };
        let settings = self.settings(true)?;
        self.announce(true, events);
        let sent = send::run(&mut self.channel, &source, &plan, &settings, &self.control);
        sent.map(drop).map_err(|error| self.failure_of(&error))
    }

    /// The file, of which these ranges are read first.
    fn source(&self, ranges: &RangeSet) -> Result<Arc<dyn Source>, TransferError> {
        let version = match &self.order.file {
            NodeFile::Version(version) => version,
            NodeFile::Upload(_) => return Err(other("an upload is not read")),
            NodeFile::Inode(inode) => {
                let (root, path) = self.place()?;
                let file = root.open_read(&path).map_err(of_file)?;
                require_same(&file, *inode, &path)?;
                let source = FileSource::new(file, path.to_string());
                let source = source.map_err(|e| of_file(StoreError::from_io("open", &path, &e)))?;
                return Ok(Arc::new(source));
            }
        };
        let (store, path) = self.object()?;
        let file = store.open(&path).map_err(TransferError::File)?;
        if file.version() != Some(version) {
            return Err(other(format!(
                "{path} is another object here than at the front end: it was replaced meanwhile, or one of them has another bucket as its root"
            )));
        }
        file.source(ranges, &self.client())
            .map_err(TransferError::File)
    }

    fn receive(
        &mut self,
        plan: ReceivePlan,
        events: &mpsc::Sender<PartEvent>,
    ) -> Result<StoredParts, TransferError> {
        match self.order.file.clone() {
            NodeFile::Upload(upload) => self.receive_parts(&upload, &plan, events),
            NodeFile::Inode(inode) => {
                let received = self.receive_file(inode, &plan, events);
                received.map(|()| StoredParts::new())
            }
            NodeFile::Version(_) => Err(other("a version of an object is not written")),
        }
    }

    /// Stores parts of an object that the front end has begun.
    fn receive_parts(
        &mut self,
        upload: &str,
        plan: &ReceivePlan,
        events: &mpsc::Sender<PartEvent>,
    ) -> Result<StoredParts, TransferError> {
        let (store, path) = self.object()?;
        let sink = store.join(&path, upload, &self.client());
        let sink = sink.map_err(TransferError::File)?;
        let as_sink: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let settings = self.settings(false)?;
        self.announce(false, events);
        self.wait_for_begin()?;
        let received = recv::run(&mut self.channel, &as_sink, plan, &settings, &self.control);
        received.map_err(|error| self.failure_of(&error))?;
        sink.finish().map_err(TransferError::File)
    }

    fn receive_file(
        &mut self,
        inode: u64,
        plan: &ReceivePlan,
        events: &mpsc::Sender<PartEvent>,
    ) -> Result<(), TransferError> {
        let (root, path) = self.place()?;
        // The front end has made it, and holds its lock.
        let file = root.open_existing(&path).map_err(of_file)?;
        require_same(&file, inode, &path)?;
        let sink = FileSink::new(file, path.to_string());
        let sink = sink.map_err(|error| of_file(StoreError::from_io("open", &path, &error)))?;
        let policy = self.shared.config.sync_policy;
        let sink = Arc::new(LeasedSink {
            file: sink.with_policy(policy, None),
            lease: Arc::clone(&self.lease),
            control: Arc::clone(&self.control),
        });
        let as_sink: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let settings = self.settings(false)?;
        self.announce(false, events);
        self.wait_for_begin()?;
        let received = recv::run(&mut self.channel, &as_sink, plan, &settings, &self.control);
        let sync = || match &received {
            // Other machines read the file, and some file systems tell of a full disk only now.
            Ok(_) => sink.file.file().sync_data(),
            // The file may be another transfer's already.
            Err(DataError::Write { .. }) if self.lease.is_valid() => {
                sink.file.forget_unsynced(false)
            }
            Err(_) => Ok(()),
        };
        let synced = match &received {
            Ok(_) => self.control.checkpoint(sync),
            Err(_) => sync(),
        };
        received.map_err(|error| self.failure_of(&error))?;
        synced.map_err(|source| {
            let what = path.to_string();
            transfer_error(&DataError::Write { what, source })
        })
    }

    /// Counts a part that a bound of this node has ended.
    fn failure_of(&self, error: &DataError) -> TransferError {
        if matches!(error, DataError::TooManyStreams { .. }) {
            self.shared.load_meter.count_refusal();
        }
        transfer_error(error)
    }

    /// Waits until the front end says that every node has opened the file.
    fn wait_for_begin(&self) -> Result<(), TransferError> {
        loop {
            match self.begun.recv_timeout(BEGIN_CHECK) {
                Ok(()) => return Ok(()),
                Err(_) if self.control.is_cancelled() => return Err(TransferError::Aborted),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(TransferError::Aborted);
                }
            }
        }
    }

    /// The store that is served, and the object in it.
    fn object(&self) -> Result<(Arc<dyn ServedStore>, VPath), TransferError> {
        let store = self.shared.config.served_store.clone();
        let store = store.ok_or_else(|| {
            other("the root of the front end is a bucket, and that of this data node a directory")
        })?;
        Ok((store, self.path()?))
    }

    /// For whom an object is read or written.
    fn client(&self) -> ServedClient {
        ServedClient {
            name: self.order.client.clone(),
            control: Arc::clone(&self.control),
            may_wait: true,
            bytes: ServedBytes::Some,
        }
    }

    fn path(&self) -> Result<VPath, TransferError> {
        let path = VPath::root().resolve(&self.order.path);
        path.map_err(|error| other(error.to_string()))
    }

    /// The session's root and the file in it.
    fn place(&self) -> Result<(Arc<Root>, VPath), TransferError> {
        let main = self.shared.authenticator.root();
        let main = main.ok_or_else(|| {
            other("the root of the front end is a directory, and that of this data node a bucket")
        })?;
        let below = Path::new(std::ffi::OsStr::from_bytes(&self.order.root));
        let root = if below.as_os_str().is_empty() {
            Arc::clone(main)
        } else {
            let opened = main.open_below(below);
            Arc::new(opened.map_err(|error| other(error.to_string()))?)
        };
        Ok((root, self.path()?))
    }

    fn settings(&self, sends: bool) -> Result<TransferSettings, TransferError> {
        let security = self.order.security.as_ref();
        let security = security.map(|order| of_order(order, &self.shared.material));
        let security = security
            .transpose()
            .map_err(|error| other(error.to_string()))?;
        let config = &self.shared.config;
        let [streams, min, max] = self.order.streams;
        Ok(TransferSettings {
            security: security.map(Arc::new),
            options: TransferOptions {
                buffers: self.order.buffers.clone().into(),
                congestion: match sends {
                    true => CongestionChoice::parse(&self.order.congestion),
                    false => CongestionChoice::System,
                },
                rate: self.rate.clone(),
                ..config.transfer.clone()
            },
            mode: TransferMode::Extended,
            type_: DataType::Image,
            streams: streams as usize,
            max_streams: max as usize,
            min_streams: min as usize,
            max_connections: config.max_streams_per_transfer as usize,
            adapt: sends && max > min,
            connect_timeout: config.transfer.stall,
            ..TransferSettings::default()
        })
    }

    fn announce(&self, sending: bool, events: &mpsc::Sender<PartEvent>) {
        let reused = self.channel.has_cached(sending);
        let _ = events.blocking_send(PartEvent::Opened { reused });
    }
}

/// Fails unless the front end has this file open.
fn require_same(file: &std::fs::File, inode: u64, path: &VPath) -> Result<(), TransferError> {
    let identity = FileIdentity::of(file);
    let identity = identity.map_err(|e| of_file(StoreError::from_io("open", path, &e)))?;
    if identity.inode.1 == inode {
        return Ok(());
    }
    Err(other(format!(
        "{path} is another file here than at the front end: both must have their root on one shared file system"
    )))
}

fn of_file(error: StoreError) -> TransferError {
    TransferError::File(error.into())
}

fn other(text: impl Into<String>) -> TransferError {
    TransferError::File(FileError::new(FileErrorKind::Other, text))
}
