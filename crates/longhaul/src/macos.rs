//! Verbs that this program has on Linux alone.

use std::ffi::OsString;

use anyhow::Result;
use copy::Exit;

use crate::args::LinuxVerb;
use crate::output::print_to_stderr;

/// A verb that this program has not on macOS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`longhaul {0}` needs Linux: on macOS longhaul is a client alone")]
struct NeedsLinux(&'static str);

/// Says that the verb needs Linux; returns the exit code.
pub(crate) fn run(verb: LinuxVerb) -> Result<u8> {
    Ok(refuse(verb.into_word()) as u8)
}

/// Says that the programs of longhaul beside this one need Linux.
pub(crate) fn become_program_of(verb: &'static str, _words: &[OsString]) -> Result<Exit> {
    Ok(refuse(verb))
}

fn refuse(verb: &'static str) -> Exit {
    print_to_stderr(&format!("longhaul: {}", NeedsLinux(verb)));
    Exit::Local
}
