//! Copies of files and trees between storages, as a library; the `longhaul` binary is a thin shell around it.
//!
//! [`copy`] plans a batch (which file goes where), moves several files at a time over pooled sessions, verifies each file
//! and renames it to its final name; [`sync`] makes one tree like another. The verbs ([`list`], [`stat`], ...) use one
//! session each. The crate `ftp` speaks with FTP servers.
//!
//! Its rooms, each of which uses only those before it: `local`, the files of this machine; `options` and `events`;
//! `storage`, the contract of all storages and its implementations, and `storage_access`, which opens them; `tree`,
//! listings of trees; `sums`, checksum files; `batch`, what all files of a copy share; `plan`, which file goes where;
//! `file`, the copy of one; `small_files`, many at a time; `work`, what is left to move, and how it moves; `nodes`, other machines
//! that move it; `run`, the whole; `sync`; `verbs`.

#![forbid(unsafe_code)]

mod batch;
mod events;
mod file;
mod local;
mod nodes;
mod options;
mod plan;
mod run;
mod small_files;
mod storage;
mod storage_access;
mod sums;
mod sync;
mod tree;
mod verbs;
mod work;

pub use events::{
    AwayPeer, CopyEvent, CopyForecast, CopyObserver, CopyProgress, CopySummary, ForecastSource,
    MovingFile, PathForecast, SafeBytes,
};
pub use ftp::{
    ConnectionSecurity, Credential, DataProtectionChoice, DelegationChoice, Exit, Failure,
    FailureKind, ModeChoice, SecurityOptions, TlsUse,
};
pub use nodes::{NodeBeginning, NodeLines, decline_as_node, serve_node};
pub use options::{
    AdviceOptions, AdvisorChoice, BatchJournalLocation, CopyInterrupt, CopyNode, CopyNodes,
    CopyOptions, FileOptions, NodeLink, Parallelism, Preserve, PreservedTimes, RemoteOptions,
    RetryOptions, Selection, SparseFiles, StreamOptions, SymlinkPolicy, SyncOptions, TreeOptions,
    VerifyMode, WriteSums, without_byte_order_mark,
};
pub use plan::pairs::PairSource;
pub use plan::side_files::{CopiedPlaces, check_log_file};
pub use run::{copy, copy_pairs};
pub use storage::optional::UnfinishedUpload;
pub use storage::s3::served::ServedBucket;
pub use storage::sftp::sftp_extensions;
pub use sums::{
    CheckTotals, CheckedFile, CheckedSum, ReceiptOutline, check_sums, escape_sums_name,
    read_receipt,
};
pub use sync::sync;
pub use verbs::*;
