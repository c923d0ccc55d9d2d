//! One file from this machine to this machine: `file:` URLs, pipes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data::digest::Digest;
use data::job::Control;
use data::rate::RateLimit;
use data::store::file::FileSink;
use data::store::{Sink, Source};
use proto::checksum::Algorithm;

use super::meter::{FileMeter, Safe};
use super::put::open;
use super::request::Span;
use super::{Context, Item, Outcome, disk};
use crate::journal;
use crate::partial::{Target, local};
use crate::verify::{compare, sum_local};
use crate::{Exit, Failure, Verify};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// What [`Verify::Auto`] sums with: the cheapest.
const ALGORITHM: Algorithm = Algorithm::CHEAPEST_FIRST[0];

/// Copies through this process; `--resume` starts over, because reading what is there costs as
/// much as writing it.
pub(super) async fn copy(
    ctx: &Context,
    item: &Item,
    target: &Target,
    meter: &FileMeter,
) -> Result<Outcome, Failure> {
    let (source, facts) = open(&item.source)?;
    let options = &ctx.options;
    let facts = facts.unwrap_or_default();
    let span = Span::of(
        options.offset,
        options.length,
        facts,
        &item.source.display(),
    )?;
    ctx.started(item, span.size, 0);
    let algorithm = match options.verify {
        Verify::None => None,
        Verify::Auto => Some(ALGORITHM),
        Verify::With(algorithm) => Some(algorithm),
    };
    let sink = match target {
        Target::Direct { sink } => Arc::clone(sink),
        Target::File(partial) => ctx.own(partial)?,
    };
    let owned = Owned {
        target,
        sink: Arc::clone(&sink),
    };
    owned.start_over().await?;
    let pace = ctx.options.transfer.rate.clone();
    let sum = move_bytes(source, Arc::clone(&sink), span, algorithm, (meter, pace)).await?;
    let label = match (target, algorithm) {
        (Target::File(_), Some(algorithm)) => {
            match verify(&sink, algorithm, &sum, &item.source.display()).await {
                Err(mismatch) if mismatch.exit == Exit::Integrity => {
                    return Err(disk::refused_or(mismatch, target, &sink).await);
                }
                label => label?,
            }
        }
        (Target::Direct { .. }, Some(_)) if options.verify != Verify::Auto => {
            let message = "what was written cannot be read again to verify it";
            return Err(Failure::new(Exit::Integrity, message));
        }
        (_, Some(_)) => "size".to_owned(),
        (_, None) => "none".to_owned(),
    };
    disk::settle(target, &sink, facts.modified).await?;
    disk::put_in_place(target, &sink).await?;
    Ok(Outcome::done(meter.moved(), label, None))
}

/// The destination while it is written.
struct Owned<'a> {
    target: &'a Target,
    sink: Arc<FileSink>,
}

impl Owned<'_> {
    /// Empties the file; a journal of an earlier get would be about what it no longer holds.
    async fn start_over(&self) -> Result<(), Failure> {
        let Target::File(partial) = self.target else {
            return Ok(());
        };
        let journal = partial.journal.clone();
        disk::blocking(move || journal::discard(&journal).map_err(|e| local(&journal, e))).await?;
        partial.start_over(&self.sink)
    }
}

impl Drop for Owned<'_> {
    /// A copy that stored nothing leaves nothing.
    fn drop(&mut self) {
        if let Target::File(partial) = self.target {
            partial.abandon(&self.sink);
        }
    }
}

async fn verify(
    sink: &FileSink,
    algorithm: Algorithm,
    sum: &str,
    shown: &str,
) -> Result<String, Failure> {
    let unreadable = || {
        Failure::new(
            Exit::Local,
            format!("{}: cannot be read again", sink.name()),
        )
    };
    let written = sink.reread().ok_or_else(unreadable)?;
    let copy = sum_local(algorithm, written, 0, None).await?;
    compare(algorithm, sum, &copy, shown)?;
    Ok(algorithm.name().to_ascii_lowercase())
}

/// Copies on a thread of its own; gives the sum of what was read (of nothing without algorithm).
async fn move_bytes(
    source: Arc<dyn Source>,
    sink: Arc<FileSink>,
    span: Span,
    algorithm: Option<Algorithm>,
    (meter, rate): (&FileMeter, Option<RateLimit>),
) -> Result<String, Failure> {
    let moved = Arc::new(AtomicU64::new(0));
    let written = Arc::clone(&moved);
    let safe = Safe::told(move || match written.load(Ordering::Relaxed) {
        STOP => 0,
        bytes => bytes,
    });
    meter.attempt(Arc::new(Control::new()), safe);
    let counter = Progress(Arc::clone(&moved));
    let mut work = tokio::task::spawn_blocking(move || {
        let mut digest = algorithm.map(Digest::new);
        pump(
            (source.as_ref(), sink.as_ref()),
            span,
            digest.as_mut(),
            &Pace { moved, rate },
        )?;
        Ok(digest.map(Digest::finish).unwrap_or_default())
    });
    let mut timer = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            done = &mut work => {
                meter.report(counter.bytes());
                return done.unwrap_or_else(|e| Err(Failure::new(Exit::Local, e.to_string())));
            }
            _ = timer.tick() => meter.report(counter.bytes()),
        }
    }
}

/// Set in the counter to stop the thread.
const STOP: u64 = u64::MAX;

/// Stops the pump when it is dropped.
struct Progress(Arc<AtomicU64>);

impl Progress {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.store(STOP, Ordering::Relaxed);
    }
}

/// Shared with the pump: how far it has come, whether it shall stop, and how fast it may be.
struct Pace {
    moved: Arc<AtomicU64>,
    rate: Option<RateLimit>,
}

impl Pace {
    /// `bytes` more were moved; sleeps as long as the limit demands.
    fn add(&self, bytes: u64) -> Result<(), Failure> {
        let stopped = || Failure::new(Exit::Interrupted, "interrupted");
        let add = |at| (at != STOP).then(|| at + bytes);
        let relaxed = Ordering::Relaxed;
        self.moved
            .fetch_update(relaxed, relaxed, add)
            .map_err(|_| stopped())?;
        let mut left = self.rate.as_ref().map_or(Duration::ZERO, |r| r.take(bytes));
        while !left.is_zero() {
            if self.moved.load(relaxed) == STOP {
                return Err(stopped());
            }
            let nap = left.min(Duration::from_millis(50));
            std::thread::sleep(nap);
            left -= nap;
        }
        Ok(())
    }
}

fn pump(
    (source, sink): (&dyn Source, &dyn Sink),
    span: Span,
    mut digest: Option<&mut Digest>,
    pace: &Pace,
) -> Result<(), Failure> {
    let failed = |name: String, e: io::Error| Failure::new(Exit::Local, format!("{name}: {e}"));
    let step = pace.rate.as_ref().map_or(CHUNK, RateLimit::step);
    let mut buffer = vec![0; step.min(CHUNK)];
    let mut at = 0_u64;
    loop {
        let wanted = span.size.map_or(u64::MAX, |size| size - at);
        let room = usize::try_from(wanted).map_or(buffer.len(), |n| n.min(buffer.len()));
        if room == 0 {
            return Ok(());
        }
        let read = source
            .read_at(span.origin() + at, &mut buffer[..room])
            .map_err(|e| failed(source.name(), e))?;
        if read == 0 {
            return match span.size {
                Some(size) => Err(Failure::new(
                    Exit::Integrity,
                    format!("{} became shorter: {at} of {size} bytes", source.name()),
                )),
                None => Ok(()),
            };
        }
        let bytes = &buffer[..read];
        if let Some(digest) = digest.as_deref_mut() {
            digest.update(bytes);
        }
        sink.write_at(at, bytes)
            .map_err(|e| failed(sink.name(), e))?;
        at += read as u64;
        pace.add(read as u64)?;
    }
}
