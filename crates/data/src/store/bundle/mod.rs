//! The files of a bundle as one source, or as one sink ([`proto::bundle`]): the content of the files, one directly
//! after the other.
//!
//! A file that cannot be read or written does not end the transfer: it travels as zeros, or is dropped, and is named at
//! the end.

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex;
use proto::bundle::BundleFailure;
use proto::timestamp::Timestamp;

mod directories;
mod shared_sync;
mod sink;
mod source;
mod sums;

pub use directories::OpenDirectories;
pub use sink::{BundleSink, BundleTarget};
pub use source::BundleSource;

/// Size and modification time with which a file was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleMember {
    /// Size, bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Option<Timestamp>,
}

/// Where each file of a bundle begins and ends.
#[derive(Debug)]
struct BundleLayout {
    /// End of each file, ascending, bytes.
    ends: Vec<u64>,
}

/// The part of a block that is in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemberPart {
    index: usize,
    /// Offset in the file, bytes.
    offset: u64,
    /// Start and end in the block, bytes.
    start: usize,
    end: usize,
    /// It is the whole file.
    is_whole: bool,
}

impl BundleLayout {
    fn new(members: &[BundleMember]) -> Self {
        let mut end = 0_u64;
        let ends = members.iter().map(|member| {
            end = end.saturating_add(member.size);
            end
        });
        Self {
            ends: ends.collect(),
        }
    }

    /// Bytes of all files.
    fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn start_of(&self, index: usize) -> u64 {
        match index {
            0 => 0,
            after => self.ends[after - 1],
        }
    }

    /// The parts of `length` bytes at `offset`, up to the end of the bundle. Empty files have none.
    fn parts(&self, offset: u64, length: usize) -> impl Iterator<Item = MemberPart> + '_ {
        let first = self.ends.partition_point(|end| *end <= offset);
        let end = offset.saturating_add(length as u64).min(self.total());
        (first..self.ends.len())
            .map_while(move |index| {
                let (starts, ends) = (self.start_of(index), self.ends[index]);
                let (from, to) = (starts.max(offset), ends.min(end));
                (starts < end).then(|| MemberPart {
                    index,
                    offset: from - starts,
                    start: distance(offset, from),
                    end: distance(offset, to.max(from)),
                    is_whole: from == starts && to == ends,
                })
            })
            .filter(|part| part.start < part.end)
    }
}

/// Bytes from `start` to `end`, which are in one block.
fn distance(start: u64, end: u64) -> usize {
    usize::try_from(end - start).unwrap_or(usize::MAX)
}

/// The files that failed, each with its first reason.
#[derive(Debug, Default)]
struct MemberFailures(Mutex<BTreeMap<usize, String>>);

impl MemberFailures {
    fn note(&self, index: usize, error: &io::Error) {
        let mut failures = self.0.lock();
        failures.entry(index).or_insert_with(|| error.to_string());
    }

    fn contains(&self, index: usize) -> bool {
        self.0.lock().contains_key(&index)
    }

    fn reason(&self, index: usize) -> Option<String> {
        self.0.lock().get(&index).cloned()
    }

    fn list(&self) -> Vec<BundleFailure> {
        let failures = self.0.lock();
        let failure = |(index, reason): (&usize, &String)| BundleFailure {
            index: *index,
            reason: reason.clone(),
        };
        failures.iter().map(failure).collect()
    }
}

#[cfg(test)]
mod tests;
