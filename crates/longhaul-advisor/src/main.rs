//! The `longhaul-advisor` program: the network-advice service and its users. `longhaul advisor` runs it.

#![forbid(unsafe_code)]

mod asking;
mod enforce;
mod exec;
mod get;
mod hosts;
mod import;
mod keeper;
mod program_arguments;
mod qos;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use command_line::flags::advisor::{AdvisorArgs, AdvisorVerb};
use command_line::output::{is_reader_gone, print_to_stderr};
use command_line::programs::{error_in_one_line, prepare_process};
use data::os::core_dumps::forbid_core_dumps;
use enable::advice::QosQuestion;
use units::{Exit, Rate};

use asking::AskingFailure;

// Its description is that of `AdvisorArgs`, which `longhaul` shows too.
#[derive(Debug, Parser)]
#[command(
    name = "longhaul-advisor",
    bin_name = "longhaul advisor",
    version,
    max_term_width = 100
)]
struct AdvisorProgram {
    #[command(flatten)]
    args: AdvisorArgs,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    prepare_process(&arguments);
    let cli = AdvisorProgram::parse_from(arguments);
    // It may hold a token.
    if let Err(error) = forbid_core_dumps() {
        print_to_stderr(&format!("longhaul: cannot forbid core dumps: {error}"));
    }
    let code = run(cli.args.verb).unwrap_or_else(|error| {
        print_to_stderr(&format!("longhaul: {}", error_in_one_line(&error)));
        Exit::Local as u8
    });
    ExitCode::from(code)
}

/// Runs a verb; returns the exit code.
fn run(verb: AdvisorVerb) -> Result<u8> {
    let asked = match verb {
        AdvisorVerb::Serve(args) => return serve::run(&args).map(|exit| exit as u8),
        AdvisorVerb::Keep(args) => return keeper::run(&args),
        AdvisorVerb::Check { config } => return Ok(serve::check(&config) as u8),
        // Its exit code is that of the program.
        AdvisorVerb::Exec(args) => return Ok(exec::run(&args)),
        AdvisorVerb::Get(args) => get::run(&args),
        AdvisorVerb::Import(args) => import::run(&args),
        AdvisorVerb::Enforce(args) => enforce::run(&args),
        AdvisorVerb::Add { client, server } => hosts::add(&client, &server),
        AdvisorVerb::Remove { client, server } => hosts::remove(&client, &server),
        AdvisorVerb::List { json, server } => hosts::list(json, &server),
        AdvisorVerb::Choose {
            client,
            tests,
            server,
        } => hosts::choose(&client, &tests, &server),
        AdvisorVerb::Qos {
            client,
            purpose,
            rate,
            json,
            server,
        } => {
            let question = QosQuestion {
                client,
                purpose: Some(purpose),
                rate_bps: rate.map(Rate::as_bits_per_second),
            };
            qos::run(&question, json, &server)
        }
        AdvisorVerb::Test {
            client,
            test,
            result_within,
            server,
        } => hosts::test(&client, &test, result_within, &server),
    };
    let exit = match asked {
        Ok(()) => Exit::Done,
        Err(AskingFailure::Output(error)) if is_reader_gone(&error) => Exit::Done,
        Err(AskingFailure::Output(error)) => return Err(error.into()),
        Err(failure) => {
            print_to_stderr(&format!("longhaul advisor: {failure}"));
            failure.exit()
        }
    };
    Ok(exit as u8)
}
