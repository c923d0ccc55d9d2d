//! The GridFTP and FTP client, as a library; the `longhaul` binary is a thin shell around it.
//!
//! [`copy`] plans a batch (which file goes where), moves several files at a time over pooled
//! sessions, verifies each file and renames it to its final name. The single-file verbs ([`list`],
//! [`stat`], ...) use one session each. Below them, [`session`] is one logged-in control connection
//! and [`transfer`] is one attempt to move one file.

#![forbid(unsafe_code)]

mod advice_options;
mod answers;
mod api;
mod batch;
mod byte_order_mark;
mod copy_progress;
mod credentials;
mod failure;
mod incomplete_listing;
mod interrupt;
mod journal;
mod local_name;
mod local_trees;
pub mod location;
mod lock_file;
mod matching;
mod netrc;
mod network_proxy;
mod partial;
mod preserve_options;
mod private_file;
pub mod protection;
mod reach;
mod remote_api;
mod remotes;
mod removal_preview;
mod remove;
mod replacement;
mod retry;
mod selection;
pub mod session;
mod socket_stats;
mod storage;
mod sums;
#[cfg(test)]
mod test_files;
mod trace;
pub mod transfer;
mod tree;
mod verbs;
mod verify;
mod why;

pub use advice_options::{AdviceOptions, AdvisorChoice};
pub use api::*;
pub use batch::journal_place::BatchJournalLocation;
pub use batch::pairs::PairSource;
pub use batch::side_files::{CopiedPlaces, check_log_file};
pub use byte_order_mark::without_byte_order_mark;
pub use copy_progress::{CopyProgress, MovingFile};
pub use credentials::{Credential, MissingPassword, netrc_warning};
pub use failure::{CopyFailure, Exit, FailureKind};
pub use interrupt::CopyInterrupt;
pub use network_proxy::{NetworkProxy, ProxyChoice, mask_proxy, proxies_of_environment};
pub use preserve_options::{Preserve, PreservedTimes, SparseFiles};
pub use private_file::{exposure_of_file, writers_of_file};
pub use protection::{
    ConnectionSecurity, DataProtectionChoice, DelegationChoice, SecurityOptions, TlsUse,
};
pub use reach::connect_to_server;
pub use remote_api::*;
pub use remotes::{PasswordSource, RemoteLogin, RemoteServer, Remotes};
pub use selection::Selection;
pub use sums::{CheckTotals, CheckedFile, CheckedSum, WriteSums, check_sums, escape_sums_name};
