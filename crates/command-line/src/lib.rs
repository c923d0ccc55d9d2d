//! The edge that the programs `longhaul`, `longhaul-advisor`, `longhaul-lab` and `longhaul-queue` share.
//!
//! [`output`] and [`log`] are all that they print. [`flags`] has the values that flags take, and the verbs of the other
//! programs, so that `longhaul` parses, explains and completes them. [`programs`] is how `longhaul advisor`, `longhaul lab` and
//! `longhaul queue` become those programs.

#![forbid(unsafe_code)]

mod argument_memory;
pub mod flags;
pub mod log;
pub mod output;
pub mod programs;

/// Exit codes that scripts may rely on; part of the main help text and of that of `cp`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success; for cp: every byte arrived, was verified (--verify) and is on disk (--sync-policy)
  1    some of several files failed
  2    usage error: invalid arguments
  3    login failed or permission denied
  4    no such file or directory
  5    cannot connect to the peer, or connection lost and all retries failed
  6    integrity error: the data that arrived differs from the source
  7    local file or disk error, destination full, or another copy is writing the destination
  8    protocol error: the peer refused for another reason
  9    lab: the machine was the limit, so the run is invalid
  130  interrupted";
