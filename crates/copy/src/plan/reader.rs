//! Reads the entries of a plan in order, while others still add to it.

use std::io;

use super::copy_plan::CopyPlan;
use super::entries::{PlannedEntry, PlannedFile, PlannedHardLink, PlannedLink};
use super::paths::{entry_path, join_location};
use super::places::RecordedPlaces;
use crate::plan::batch_journal::{GroupPosition, PlanRecord};
use ftp::Failure;
use ftp::location::Location;

/// The answer of a reader.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(crate) enum NextEntry {
    Entry(PlannedEntry),
    /// Nothing now; the plan may grow.
    Pending,
    End,
}

/// A reader of a [`CopyPlan`].
#[derive(Debug)]
pub(crate) struct PlanReader {
    /// After the records that wait.
    at: GroupPosition,
    waiting: std::vec::IntoIter<PlanRecord>,
    /// Number of the next entry.
    entry: u32,
    places: RecordedPlaces,
    /// Source and destination of the last top.
    tops: Option<(Location, Location)>,
    with_done: bool,
}

impl PlanReader {
    /// A reader that begins with the first entry.
    pub(crate) fn of(plan: &CopyPlan) -> Self {
        let at = plan.listing();
        Self {
            at,
            waiting: Vec::new().into_iter(),
            entry: at.entry,
            places: RecordedPlaces::default(),
            tops: None,
            with_done: false,
        }
    }

    /// A reader of all entries that an earlier run may have done, before they are taken over.
    pub(crate) fn of_marks(plan: &CopyPlan, relist: bool) -> Self {
        let at = plan.marks(relist);
        Self {
            at,
            entry: at.entry,
            ..Self::of_all(plan)
        }
    }

    /// A reader of all entries, also of those that are done.
    pub(crate) fn of_all(plan: &CopyPlan) -> Self {
        Self {
            with_done: true,
            ..Self::of(plan)
        }
    }

    /// The next entry; one that is done only if all were asked for.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(crate) fn next(&mut self, plan: &CopyPlan) -> io::Result<NextEntry> {
        loop {
            let Some(record) = self.waiting.next() else {
                let (group, ended) = plan.read_group(self.at)?;
                match group {
                    Some((records, next)) => {
                        self.waiting = records.into_iter();
                        self.at = next;
                        continue;
                    }
                    None if ended => return Ok(NextEntry::End),
                    None => return Ok(NextEntry::Pending),
                }
            };
            self.places.follow(&record);
            if matches!(record, PlanRecord::Top { .. }) {
                self.tops = self.places.here().and_then(|here| plan.locate(&here));
            }
            if !record.is_entry() {
                continue;
            }
            let entry = self.entry;
            self.entry += 1;
            if !self.with_done && plan.is_done(entry) {
                continue;
            }
            let found = self.planned(record, entry);
            return found.map(NextEntry::Entry).ok_or_else(|| {
                io::Error::other("the batch journal names a place that is unknown")
            });
        }
    }

    /// The next file of a plan to which nothing is added any more.
    ///
    /// # Errors
    /// `Local`: the plan cannot be read.
    pub(crate) fn next_file(&mut self, plan: &CopyPlan) -> Result<Option<PlannedFile>, Failure> {
        loop {
            let next = self.next(plan).map_err(|error| {
                Failure::local(format!("the plan of the copy cannot be read: {error}"))
            })?;
            match next {
                NextEntry::Entry(PlannedEntry::File(item)) => return Ok(Some(item)),
                NextEntry::Entry(_) => {}
                NextEntry::Pending | NextEntry::End => return Ok(None),
            }
        }
    }

    fn planned(&self, record: PlanRecord, entry: u32) -> Option<PlannedEntry> {
        let (source, destination) = self.tops.as_ref()?;
        let directory = self.places.here()?.directory;
        let ends = |name: &[u8]| {
            let relative = entry_path(directory, name);
            (
                join_location(source, &relative),
                join_location(destination, &relative),
            )
        };
        Some(match record {
            PlanRecord::File { name, facts } => {
                let (source, destination) = ends(&name);
                PlannedEntry::File(PlannedFile {
                    source,
                    destination,
                    facts,
                    entry,
                    part: None,
                    upload: None,
                    takes_over: false,
                })
            }
            PlanRecord::HardLink { name, facts, first } => {
                let (from, to) = ends(&name);
                PlannedEntry::HardLink(PlannedHardLink {
                    file: PlannedFile {
                        source: from,
                        destination: to,
                        facts,
                        entry,
                        part: None,
                        upload: None,
                        takes_over: false,
                    },
                    first: join_location(destination, &first),
                })
            }
            PlanRecord::Link { name, target } => {
                let (source, path) = ends(&name);
                PlannedEntry::Link(PlannedLink {
                    source,
                    path,
                    target,
                    entry,
                })
            }
            PlanRecord::Unlisted { name, is_directory } => {
                let (source, destination) = ends(&name);
                PlannedEntry::Unlisted {
                    source,
                    destination,
                    is_directory,
                }
            }
            PlanRecord::NewDirectory { facts, .. } => PlannedEntry::Directory {
                at: ends(b"").1,
                facts,
                entry,
            },
            // No entry.
            _ => return None,
        })
    }
}
