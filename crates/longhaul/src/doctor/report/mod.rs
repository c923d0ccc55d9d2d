//! The report of the doctor: the settings of this machine, and findings.

use copy::Exit;
use serde_json::{Value, json};

mod finding;

pub(crate) use finding::{Finding, FindingLevel, SERVER_RENEWAL, USER_RENEWAL, show_time, worst};

/// The settings of this machine.
pub(crate) struct MachineReport {
    /// Lines for people, without a newline at the end.
    pub(crate) text: String,
    /// The same as an object.
    pub(crate) json: Value,
}

/// Everything that the doctor reports.
#[derive(Default)]
pub(crate) struct DoctorReport {
    /// The settings of this machine, where they are asked for.
    pub(crate) machine: Option<MachineReport>,
    /// Everything that was examined.
    pub(crate) findings: Vec<Finding>,
    /// The server cannot be reached.
    pub(crate) unreachable: bool,
}

impl DoctorReport {
    /// The exit code: that of the worst finding.
    pub(crate) fn exit(&self) -> Exit {
        match worst(&self.findings) {
            _ if self.unreachable => Exit::Unreachable,
            FindingLevel::Problem => Exit::Refused,
            _ => Exit::Done,
        }
    }

    /// The lines for people.
    pub(crate) fn text(&self) -> String {
        let machine = self.machine.iter().map(|machine| machine.text.clone());
        let findings = self.findings.iter().map(Finding::line);
        machine.chain(findings).collect::<Vec<_>>().join("\n")
    }

    /// The report as an object.
    pub(crate) fn json(&self) -> Value {
        let machine = self.machine.as_ref();
        let mut report = machine.map_or(json!({}), |machine| machine.json.clone());
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
