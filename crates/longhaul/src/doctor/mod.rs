//! `longhaul doctor` finds what limits the rate or the security of this machine, of a server that a URL names,
//! or of the files that a server would use.

mod authorities;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "macos")]
mod macos;
mod remote;
mod report;
#[cfg(target_os = "linux")]
mod server_files;
mod user;

use anyhow::Result;
use copy::Exit;

use crate::args::DoctorArgs;
use crate::output::{print_line, print_to_stderr};
use crate::terminal::until_interrupted;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
use report::DoctorReport;

/// Examines what the arguments name, and prints the report.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit> {
    let server = match system::examine_server_files(args) {
        Ok(server) => server,
        Err(problem) => {
            print_to_stderr(&format!("longhaul doctor: {problem}"));
            return Ok(Exit::Usage);
        }
    };
    let is_of_server = server.is_some();
    let mut report = DoctorReport {
        findings: server.unwrap_or_default(),
        ..DoctorReport::default()
    };
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
    if !is_of_server && args.url.is_none() {
        report.machine = system::examine_machine(args);
        report.findings.extend(user::examine());
        report.findings.extend(system::examine_kernel());
    }
    let text = match args.json {
        true => report.json().to_string(),
        false => report.text(),
    };
    // A closed pipe (`longhaul doctor | head`) is not an error.
    let _ = print_line(&text);
    Ok(report.exit())
}
