//! Flags that more than one program knows: `longhaul` has the manual, the man pages and the completions of all.

#![allow(
    missing_docs,
    reason = "clap takes the documentation of a verb from its arguments, and that of a variant would hide it"
)]

pub mod advisor;
pub mod headings;
pub mod lab;
pub mod lab_league;
pub mod lab_sim;
pub mod queue;
pub mod values;
