//! `longhaul doctor` finds what limits the rate or the security of this machine, of a server that a URL names,
//! or of the files that a server would use.

mod authorities;
mod finding;
mod machine;
mod remote;
mod server_files;
mod user;

use anyhow::Result;
use client::Exit;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::output::{print_line, print_to_stderr};
use finding::{Finding, FindingLevel, worst};
use machine::MachineSettings;

/// Everything that the doctor reports.
#[derive(Default)]
struct DoctorReport {
    /// The settings of this machine, where they are asked for.
    machine: Option<MachineSettings>,
    findings: Vec<Finding>,
    /// The server cannot be reached.
    unreachable: bool,
}

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
        let Some(examined) = crate::until_interrupted(target.examine())? else {
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

impl DoctorReport {
    fn exit(&self) -> Exit {
        match worst(&self.findings) {
            _ if self.unreachable => Exit::Unreachable,
            FindingLevel::Problem => Exit::Refused,
            _ => Exit::Done,
        }
    }

    fn text(&self) -> String {
        let machine = self.machine.iter().map(MachineSettings::text);
        let findings = self.findings.iter().map(Finding::line);
        machine.chain(findings).collect::<Vec<_>>().join("\n")
    }

    fn json(&self) -> Value {
        let mut report = self
            .machine
            .as_ref()
            .map_or(json!({}), MachineSettings::json);
        report["findings"] = self.findings.iter().map(Finding::json).collect();
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Finding>) -> DoctorReport {
        DoctorReport {
            findings,
            ..DoctorReport::default()
        }
    }

    #[test]
    fn the_exit_code_follows_the_worst_finding() {
        let good = report(vec![
            Finding::good("a", "b"),
            Finding::warning("a", "b", "c"),
        ]);
        assert_eq!(good.exit(), Exit::Done);
        let mut bad = report(vec![
            Finding::problem("a", "b", "c"),
            Finding::good("a", "b"),
        ]);
        assert_eq!(bad.exit(), Exit::Refused);
        bad.unreachable = true;
        assert_eq!(bad.exit(), Exit::Unreachable);
    }

    #[test]
    fn findings_are_lines_and_objects() {
        let report = report(vec![Finding::problem("names", "none", "get some")]);
        assert_eq!(report.text(), "problem  names: none; get some");
        let json = report.json();
        assert_eq!(json["findings"][0]["level"], "problem");
        assert_eq!(json["findings"][0]["advice"], "get some");
    }
}
