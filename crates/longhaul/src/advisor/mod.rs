//! `longhaul advisor`: the network-advice service and its users.

mod asking;
pub(crate) mod beside_server;
mod enforce;
mod exec;
mod get;
mod hosts;
mod import;
mod keeper;
mod serve;

use anyhow::Result;
use client::Exit;

use crate::args::{AdvisorArgs, AdvisorVerb};
use crate::output::print_to_stderr;

use asking::AskingFailure;
pub(crate) use asking::TOKEN_FILE;

/// Runs a verb; returns the exit code.
pub(crate) fn run(args: AdvisorArgs) -> Result<u8> {
    let asked = match args.verb {
        AdvisorVerb::Serve(args) => return serve::run(&args).map(|exit| exit as u8),
        AdvisorVerb::Keep(args) => return keeper::run(&args),
        // Its exit code is that of the program.
        AdvisorVerb::Exec(args) => return Ok(exec::run(&args)),
        AdvisorVerb::Get(args) => get::run(&args),
        AdvisorVerb::Import(args) => import::run(&args),
        AdvisorVerb::Enforce(args) => enforce::run(&args),
        AdvisorVerb::Add { client, server } => hosts::add(&client, &server),
        AdvisorVerb::Remove { client, server } => hosts::remove(&client, &server),
        AdvisorVerb::List { json, server } => hosts::list(json, &server),
        AdvisorVerb::Test {
            client,
            test,
            server,
        } => hosts::test(&client, &test, &server),
    };
    let exit = match asked {
        Ok(()) => Exit::Done,
        Err(AskingFailure::Output(error)) => return Err(error.into()),
        Err(failure) => {
            print_to_stderr(&format!("longhaul advisor: {failure}"));
            failure.exit()
        }
    };
    Ok(exit as u8)
}
