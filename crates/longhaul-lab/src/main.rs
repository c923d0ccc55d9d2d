//! The `longhaul-lab` program: calls the libraries, prints their results and maps them to exit codes. `longhaul lab` runs it.

#![forbid(unsafe_code)]

mod requests;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use command_line::flags::lab::{LabArgs, LabVerb, NetArgs, ReportArgs, RunArgs, TraceArgs};
use command_line::flags::lab_league::LeagueArgs;
use command_line::flags::lab_sim::{SimArgs, SimOutputFormat};
use command_line::output::{print_line, print_to_stderr, unless_reader_gone};
use command_line::programs::prepare_process;
use emulator::{NetReport, NetRequest};
use lab::LabError;
use lab::experiment::RunRequest;
use lab::league::LeagueRequest;
use lab::simulate::SimRequest;
use units::Exit;
use units::show;

// Its description is that of `LabArgs`, which `longhaul` shows too.
#[derive(Debug, Parser)]
#[command(
    name = "longhaul-lab",
    bin_name = "longhaul lab",
    version,
    max_term_width = 100
)]
struct LabProgram {
    #[command(flatten)]
    args: LabArgs,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    prepare_process(&arguments);
    ExitCode::from(run(LabProgram::parse_from(arguments).args.verb))
}

/// Runs a verb of the lab; returns the exit code.
fn run(verb: LabVerb) -> u8 {
    // These verbs run inside a lab and return a program's exit code, as a shell does.
    let runs_program = matches!(verb, LabVerb::Exec(_) | LabVerb::Init { .. });
    if !runs_program && !matches!(verb, LabVerb::Cell { .. }) {
        // Removes what a killed lab left behind. Not inside a lab: that one is still running.
        lab::experiment::remove_leftovers();
        emulator::recover();
    }
    let result = match verb {
        LabVerb::Net(args) => net(&args),
        LabVerb::Exec(args) => {
            emulator::exec(&args.host, &args.command).map(|never| match never {})
        }
        LabVerb::Init { arguments } => emulator::init(&arguments),
        LabVerb::Cell { job } => lab::experiment::cell(&job),
        LabVerb::Sim(args) => simulate(&args),
        LabVerb::League(args) => league(&args),
        LabVerb::List(args) => list(args.json),
        LabVerb::Run(args) => experiment(&args),
        LabVerb::Report(args) => report(&args),
        LabVerb::Trace(args) => trace(&args),
    };
    result.unwrap_or_else(|error| {
        print_to_stderr(&format!("longhaul lab: {error}"));
        let start_failure = runs_program
            .then(|| emulator::start_failure_code(&error))
            .flatten();
        start_failure.unwrap_or_else(|| exit_of(&error) as u8)
    })
}

fn exit_of(error: &LabError) -> Exit {
    match error {
        LabError::Usage(_) => Exit::Usage,
        LabError::Refused(_) => Exit::Refused,
        LabError::NotFound(_) => Exit::NotFound,
        LabError::Busy(_) | LabError::System { .. } => Exit::Local,
        LabError::Program(_) => Exit::Protocol,
    }
}

fn net(args: &NetArgs) -> Result<u8, LabError> {
    let report_file = args.report.as_deref().map(create).transpose()?;
    let outcome = emulator::run(NetRequest {
        topology: requests::topology(args)?,
        first_process: &["init"],
        command: args.command.clone(),
        wait: args.wait.then_some(report_lab_wait as fn(&str)),
    })?;
    if let (Some(file), Some(path)) = (report_file, &args.report) {
        save(file, path, &outcome.report)?;
    }
    if !args.quiet || !outcome.report.invalid.is_empty() {
        print_to_stderr(outcome.report.to_text().trim_end());
    }
    Ok(match outcome.code {
        0 if !outcome.report.invalid.is_empty() => Exit::InvalidRun as u8,
        code => code,
    })
}

/// Prints that this lab waits for another one to end.
fn report_lab_wait(holder: &str) {
    print_to_stderr(&format!(
        "longhaul: waiting for another lab to end ({holder})"
    ));
}

/// Creates the report file. This happens before the run, so that an unwritable path costs no run.
fn create(path: &Path) -> Result<File, LabError> {
    File::create(path).map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

fn save(mut file: File, path: &Path, report: &NetReport) -> Result<(), LabError> {
    serde_json::to_writer_pretty(&mut file, report)
        .map_err(std::io::Error::from)
        .and_then(|()| file.write_all(b"\n"))
        .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

fn list(json: bool) -> Result<u8, LabError> {
    let catalog = lab::experiment::catalog();
    let width = catalog.iter().map(|e| e.name.len()).max().unwrap_or(0);
    for e in catalog {
        let line = if json {
            serde_json::json!({"name": e.name, "title": e.title, "source": e.source}).to_string()
        } else {
            format!("{:width$}  {}", e.name, e.title)
        };
        check_printed(print_line(&line))?;
    }
    Ok(0)
}

fn experiment(args: &RunArgs) -> Result<u8, LabError> {
    let request = requests::run_request(args)?;
    if requests::is_all(args) {
        return all(args, &request);
    }
    if args.dry_run {
        check_printed(print_line(&lab::experiment::plan(&request)?.to_text()))?;
        return Ok(0);
    }
    let saved = lab::experiment::run(&request, &mut |line| print_to_stderr(line))?;
    check_printed(print_line(&saved.json.display().to_string()))?;
    check_printed(print_line(&saved.csv.display().to_string()))?;
    report_spoiled(saved.spoiled);
    Ok(exit_of_spoiled(saved.spoiled) as u8)
}

/// Says how many cells have no valid run, if there are any.
fn report_spoiled(cells: usize) {
    if cells > 0 {
        print_to_stderr(&format!(
            "longhaul lab: only INVALID runs: {}; repeat on a quiet machine",
            show::count(cells, "cell")
        ));
    }
}

/// The exit code of experiments that ran to their end and left so many cells without a valid run.
fn exit_of_spoiled(cells: usize) -> Exit {
    match cells {
        0 => Exit::Done,
        _ => Exit::InvalidRun,
    }
}

/// Runs every experiment. The exit code is that of the first failed one, otherwise
/// [`Exit::InvalidRun`] if all runs of some cell were invalid.
fn all(args: &RunArgs, request: &RunRequest) -> Result<u8, LabError> {
    if args.dry_run {
        let planned = lab::experiment::plan_all(request, args.budget)?;
        check_printed(print_line(&planned))?;
        return Ok(0);
    }
    let result = lab::experiment::run_all(request, args.budget, &mut |line| print_to_stderr(line))?;
    for saved in &result.saved {
        check_printed(print_line(&saved.json.display().to_string()))?;
    }
    for name in &result.not_begun {
        print_to_stderr(&format!(
            "longhaul lab: {name} was not started: the time limit was reached"
        ));
    }
    report_spoiled(result.spoiled);
    let exit = match result.failed.first() {
        Some((_, error)) => exit_of(error),
        None => exit_of_spoiled(result.spoiled),
    };
    Ok(exit as u8)
}

fn report(args: &ReportArgs) -> Result<u8, LabError> {
    let written = lab::report::write(&args.results, &args.out)?;
    for skipped in &written.skipped {
        print_to_stderr(&format!("longhaul lab report: {skipped}"));
    }
    check_printed(print_line(&written.page.display().to_string()))?;
    Ok(0)
}

/// Runs the simulation and prints its table; returns the exit code.
fn simulate(args: &SimArgs) -> Result<u8, LabError> {
    let format = args.format;
    // The request has a default seed, so an explicit one must be noted before.
    let seeded = args.seed.is_some();
    let request = SimRequest::from_options(&requests::simulation_options(args))?;
    if seeded && !request.is_random() {
        print_to_stderr(
            "longhaul lab sim: --seed changes nothing: without --jitter, --loss and \
             --cross-traffic a file transfer has no random events",
        );
    }
    let report = lab::simulate::run(&request)?;
    let text = match format {
        SimOutputFormat::Text => report.to_text(),
        SimOutputFormat::Csv => report.to_csv(),
        SimOutputFormat::Json => report.to_json(),
    };
    check_printed(print_line(text.trim_end()))?;
    Ok(0)
}

/// Runs a league, or one path of it, and prints its report; returns the exit code.
fn league(args: &LeagueArgs) -> Result<u8, LabError> {
    if let Some(path_seed) = args.only {
        let text = lab::league::trace(path_seed, args.history);
        check_printed(print_line(text.trim_end()))?;
        return Ok(0);
    }
    let file = args.json.as_deref().map(create).transpose()?;
    let report = lab::league::run(&LeagueRequest {
        paths: args.paths as usize,
        seed: args.seed,
        history: args.history,
    });
    if let (Some(mut file), Some(path)) = (file, &args.json) {
        file.write_all(report.to_json().as_bytes())
            .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))?;
    }
    check_printed(print_line(report.to_text().trim_end()))?;
    Ok(0)
}

fn trace(args: &TraceArgs) -> Result<u8, LabError> {
    let trace = link::trace::built_in_trace(&args.name).ok_or_else(|| {
        LabError::Usage(format!(
            "unknown trace '{}'; use drsftp-path or drsftp-wan",
            args.name
        ))
    })?;
    check_printed(print_line(trace.to_csv().trim_end()))?;
    Ok(0)
}

/// A reader that has enough (`longhaul lab list | head`) is no error.
fn check_printed(result: std::io::Result<()>) -> Result<(), LabError> {
    unless_reader_gone(result)
        .map_err(|error| LabError::system("cannot write to standard output", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_without_a_valid_run_are_exit_code_9() {
        assert_eq!(exit_of_spoiled(0), Exit::Done);
        assert_eq!(exit_of_spoiled(3) as u8, 9);
    }
}
