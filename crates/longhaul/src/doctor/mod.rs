//! `longhaul doctor` finds what limits the rate or the security of this machine, of a server that a URL names,
//! or of the files that a server would use.

mod authorities;
mod remote;
mod report;
mod server_files;
mod user;

use anyhow::Result;
use copy::Exit;

use crate::args::DoctorArgs;
use crate::output::{print_line, print_to_stderr};
use crate::terminal::until_interrupted;
use report::{DoctorReport, MachineSettings};

/// Examines what the arguments name, and prints the report.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit> {
    let server = match args.server_config() {
        Ok(server) => server,
        Err(problem) => {
            print_to_stderr(&format!("longhaul doctor: {problem}"));
            return Ok(Exit::Usage);
        }
    };
    let mut report = DoctorReport::default();
    if let Some(config) = &server {
        report.findings.extend(server_files::examine(config));
    }
    if let Some(url) = &args.url {
        let target = match remote::RemoteTarget::parse(url, args) {
            Ok(target) => target,
            Err(failure) => {
                print_to_stderr(&format!("longhaul doctor: {failure}"));
                return Ok(failure.exit());
            }
        };
        let Some(examined) = until_interrupted(target.examine())? else {
            return Ok(Exit::Interrupted);
        };
        report.unreachable = examined.unreachable;
        report.findings.extend(examined.findings);
    }
    if server.is_none() && args.url.is_none() {
        report.machine = Some(MachineSettings::read(args));
        report.findings.extend(user::examine());
    }
    let text = match args.json {
        true => report.json().to_string(),
        false => report.text(),
    };
    // A closed pipe (`longhaul doctor | head`) is not an error.
    let _ = print_line(&text);
    Ok(report.exit())
}
