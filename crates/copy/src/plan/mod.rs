//! The plan of a copy, by the rules of cp(1).
//!
//! - If the destination is an existing directory, or ends in `/`, the sources keep their names
//!   below it. Several sources require this.
//! - A directory requires `-r`. It becomes `DESTINATION/NAME` if the destination exists, otherwise
//!   `DESTINATION`.
//! - A pattern in the last component of a source stands for all matching names.
//!
//! [`PlanOutline`] examines the arguments, [`list_sources`] lists trees into a [`CopyPlan`], and a [`PlanReader`] reads it, also
//! while it grows. Unfinished files of earlier copies, and their journals, are skipped inside trees and patterns. One that is
//! named as a source is copied. A conflict between files refuses the whole plan.

pub(crate) mod batch_journal;
mod conflicts;
mod copy_plan;
mod create;
mod earlier_run;
mod entries;
mod expand;
mod hard_links;
mod listing;
mod name_pattern;
mod outline;
pub(crate) mod pairs;
mod paths;
mod places;
mod reader;
mod selecting;
pub(crate) mod side_files;

pub(crate) use conflicts::check_conflicts;
pub(crate) use copy_plan::CopyPlan;
pub(crate) use create::{make_directories, make_link, make_with_parents};
pub(crate) use entries::{
    NewEntry, PartInPlace, PlanTop, PlannedEntry, PlannedFile, PlannedHardLink, PlannedLink,
};
pub(crate) use expand::{FoundSource, examine_source, is_directory};
pub(crate) use hard_links::HardLinkNames;
pub(crate) use listing::{PlanFiller, list_source, list_sources, walk_tree};
pub(crate) use name_pattern::NamePattern;
pub(crate) use outline::{PlanOutline, PlannedDestination};
pub(crate) use paths::{
    is_inside, is_same_file, join_location, last_component, trim_trailing_slashes,
};
pub(crate) use reader::{NextEntry, PlanReader};
pub(crate) use selecting::SelectedEntries;

#[cfg(test)]
mod tests;
