//! One file from this machine to this machine: `file:` URLs, pipes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use data::digest::Digest;
use data::job::Control;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::Algorithm;

use super::meter::{FileMeter, Safe};
use super::put::open;
use super::request::Span;
use super::{Context, Item, Outcome, disk};
use crate::partial::{Partial, Target, local};
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
        Target::File(partial) => partial.open(true, options.sync_policy)?,
    };
    let sum = move_bytes(source, Arc::clone(&sink), span, algorithm, meter).await?;
    let label = match (target, algorithm) {
        (Target::File(partial), Some(algorithm)) => {
            verify(partial, algorithm, &sum, &item.source.display()).await?
        }
        (Target::Direct { .. }, Some(_)) if options.verify != Verify::Auto => {
            let message = "what was written cannot be read again to verify it";
            return Err(Failure::new(Exit::Integrity, message));
        }
        (_, Some(_)) => "size".to_owned(),
        (_, None) => "none".to_owned(),
    };
    disk::finish(target, &sink, facts.modified).await?;
    Ok(Outcome::done(meter.moved(), label, None))
}

async fn verify(
    partial: &Partial,
    algorithm: Algorithm,
    sum: &str,
    shown: &str,
) -> Result<String, Failure> {
    let copy = std::fs::File::open(&partial.path)
        .and_then(|file| FileSource::new(file, partial.path.to_string_lossy()))
        .map_err(|e| local(&partial.path, e))?;
    let copy = sum_local(algorithm, Arc::new(copy), 0, None).await?;
    compare(algorithm, sum, &copy, shown)?;
    Ok(algorithm.name().to_ascii_lowercase())
}

/// Copies on a thread of its own; gives the sum of what was read (of nothing without algorithm).
async fn move_bytes(
    source: Arc<dyn Source>,
    sink: Arc<FileSink>,
    span: Span,
    algorithm: Option<Algorithm>,
    meter: &FileMeter,
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
            source.as_ref(),
            sink.as_ref(),
            span,
            digest.as_mut(),
            &moved,
        )?;
        Ok(digest.map(Digest::finish).unwrap_or_default())
    });
    let mut timer = tokio::time::interval(std::time::Duration::from_millis(100));
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

fn pump(
    source: &dyn Source,
    sink: &dyn Sink,
    span: Span,
    mut digest: Option<&mut Digest>,
    moved: &AtomicU64,
) -> Result<(), Failure> {
    let failed = |name: String, e: io::Error| Failure::new(Exit::Local, format!("{name}: {e}"));
    let mut buffer = vec![0; CHUNK];
    let mut at = 0_u64;
    loop {
        let wanted = span.size.map_or(u64::MAX, |size| size - at);
        let room = usize::try_from(wanted).map_or(CHUNK, |n| n.min(CHUNK));
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
        let before = at;
        at += read as u64;
        let current = moved.compare_exchange(before, at, Ordering::Relaxed, Ordering::Relaxed);
        if current.is_err() {
            return Err(Failure::new(Exit::Interrupted, "interrupted"));
        }
    }
}
