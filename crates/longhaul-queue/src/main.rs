//! The `longhaul-queue` program: jobs of a fleet, and the worker that carries them out. `longhaul queue` and `longhaul worker` run it.

#![forbid(unsafe_code)]

mod asking;
mod guarding;
mod jobs;
mod limits;
mod submitting;
mod working;

use std::process::ExitCode;

use clap::Parser;
use command_line::flags::queue::{QueueArgs, QueueVerb};
use command_line::output::{is_reader_gone, print_to_stderr};
use command_line::programs::prepare_process;
use data::os::core_dumps::forbid_core_dumps;
use units::Exit;

use asking::QueueFailure;

// Its description is that of `QueueArgs`, which `longhaul` shows too.
#[derive(Debug, Parser)]
#[command(
    name = "longhaul-queue",
    bin_name = "longhaul queue",
    version,
    max_term_width = 100
)]
struct QueueProgram {
    #[command(flatten)]
    args: QueueArgs,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    prepare_process(&arguments);
    let program = QueueProgram::parse_from(arguments);
    // It may hold the database's password, and tokens.
    if let Err(error) = forbid_core_dumps() {
        print_to_stderr(&format!("longhaul: cannot forbid core dumps: {error}"));
    }
    let ended = match program.args.verb {
        QueueVerb::Submit(args) => submitting::run(&args),
        QueueVerb::List(args) => jobs::list(&args),
        QueueVerb::Show(args) => jobs::show(&args),
        QueueVerb::Cancel(args) => jobs::cancel(&args),
        QueueVerb::Retry(args) => jobs::retry(&args),
        QueueVerb::Limit(args) => limits::run(&args),
        QueueVerb::Serve(args) => working::serve(&args),
        QueueVerb::Worker(args) => working::work(*args),
        QueueVerb::Guard(args) => guarding::run(&args),
    };
    let exit = match ended {
        Ok(exit) => exit,
        Err(QueueFailure::Output(error)) if is_reader_gone(&error) => Exit::Done,
        Err(failure) => {
            print_to_stderr(&format!("longhaul queue: {failure}"));
            failure.exit()
        }
    };
    ExitCode::from(exit as u8)
}
