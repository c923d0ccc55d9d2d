//! `longhaul advisor exec`: runs a program with the advice as its flags.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use enable::client::EnableClient;
use enable::emit::Program;
use proto::printable::shell_word;
use units::Exit;

use super::asking::question;
use super::get::is_known;
use super::program_arguments::transfer::ToldTransfer;
use super::program_arguments::{data_server, insertion};
use command_line::flags::advisor::AdvisorExecArgs;
use command_line::output::print_to_stderr;

/// Exit codes of a program that cannot run, as of env(1).
const CANNOT_EXECUTE: u8 = 126;
const NO_SUCH_PROGRAM: u8 = 127;

/// Replaces this process with the program. Returns an exit code only if that fails.
pub(crate) fn run(args: &AdvisorExecArgs) -> u8 {
    let Some((program, arguments)) = args.command.split_first() else {
        return Exit::Usage as u8;
    };
    let name = program.to_string_lossy().into_owned();
    let advised = match advised_arguments(args, program, arguments) {
        Ok(advised) => advised,
        Err(reason) => {
            print_to_stderr(&format!(
                "longhaul advisor: {name} runs without advice: {reason}"
            ));
            arguments.to_vec()
        }
    };
    let error = Command::new(program).args(advised).exec();
    print_to_stderr(&format!("longhaul advisor: cannot run {name}: {error}"));
    match error.kind() {
        io::ErrorKind::NotFound => NO_SUCH_PROGRAM,
        _ => CANNOT_EXECUTE,
    }
}

/// The arguments with the flags of the advice.
///
/// # Errors
/// One line: why there is no advice.
fn advised_arguments(
    args: &AdvisorExecArgs,
    program: &OsStr,
    arguments: &[OsString],
) -> Result<Vec<OsString>, String> {
    let file_name = Path::new(program).file_name().unwrap_or(program);
    let known = file_name.to_str().and_then(Program::from_name);
    let program = known
        .filter(|program| !matches!(program, Program::Sysctl | Program::Route))
        .ok_or("it is no program whose flags are known; `longhaul help advisor get` lists them")?;
    let found = || data_server::of_arguments(program, arguments);
    let named = args.server.as_deref().map(data_server::of_name);
    let server = named.or_else(found).ok_or_else(|| {
        let words = arguments.iter().filter_map(|word| word.to_str());
        let bucket = words
            .into_iter()
            .find(|word| data_server::names_bucket(word));
        match bucket {
            Some(url) => format!("{url} names a bucket and no data server; use --server HOST"),
            None => "its arguments name no data server; use --server HOST".to_owned(),
        }
    })?;
    let transfer = ToldTransfer::of_arguments(program, arguments);
    let bytes = args.bytes.or_else(|| transfer.bytes());
    let client = EnableClient::new(&server, args.wait.timeout).map_err(|e| e.to_string())?;
    let advice = client
        .advice(&program.question(question(None, bytes, transfer.direction)))
        .map_err(|e| e.to_string())?;
    if !is_known(&advice) {
        return Err(advice.why);
    }
    let flags = program.flags(&advice);
    let shown: Vec<String> = flags.iter().map(|word| shell_word(word)).collect();
    let advised = insertion::insert(program, flags, arguments)?;
    if !args.quiet {
        let what = match shown.is_empty() {
            true => "the advice needs no flags".to_owned(),
            false => format!("the advice is {}", shown.join(" ")),
        };
        print_to_stderr(&format!("longhaul advisor: {what}: {}", advice.why));
    }
    Ok(advised)
}
