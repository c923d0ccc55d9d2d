//! Assessment of a run: combines the engine's report with the conditions on the machine.

use super::cpu_load::CpuShares;
use crate::engine::EngineReport;
use crate::report::NetReport;

/// CPU share of other programs above which the report has a note.
const OTHER_PROGRAMS_NOTED: f64 = 0.10;
/// CPU share of other programs above which the run is invalid: the hosts' programs wait too long for
/// a processor.
const OTHER_PROGRAMS_MAX: f64 = 0.40;
/// CPU share of the hypervisor above which the report has a note.
const STOLEN_NOTED: f64 = 0.02;
/// CPU share of the hypervisor above which the run is invalid.
const STOLEN_MAX: f64 = 0.10;

/// Conditions of a run outside of the engine.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunConditions {
    pub(super) load: CpuShares,
    /// Packets that hosts dropped before the emulator read them.
    pub(super) overruns: u64,
    /// The signal that ended the run early.
    pub(super) signal: Option<u8>,
}

/// The run's report.
pub(super) fn assess(engine: EngineReport, conditions: RunConditions) -> NetReport {
    let RunConditions {
        load,
        overruns,
        signal,
    } = conditions;
    let mut invalid = engine.invalid;
    let mut notes = engine.notes;
    if overruns > 0 {
        invalid.push(format!(
            "{overruns} packets were lost between a host and the emulator, because it read too slowly"
        ));
    }
    if let Some(signal) = signal {
        invalid.push(format!("the run was interrupted by signal {signal}"));
    }
    // Short runs are not judged: their CPU shares consist of a few ticks.
    if load.is_reliable {
        judge_load(&load, &mut notes, &mut invalid);
    }
    NetReport {
        seconds: engine.seconds,
        emulator_cpu: if engine.seconds > 0.0 {
            // CPU time and wall-clock time are read one after the other, so the ratio may exceed
            // 1.
            (engine.cpu_seconds / engine.seconds).clamp(0.0, 1.0)
        } else {
            0.0
        },
        foreign_cpu: load.other_programs,
        stolen_cpu: load.stolen,
        overruns,
        invalid,
        notes,
        directions: engine.directions,
    }
}

/// The reason why a run under this load is invalid; `None`: it is not.
pub(super) fn load_problem(load: &CpuShares) -> Option<String> {
    let (mut notes, mut invalid) = (Vec::new(), Vec::new());
    judge_load(load, &mut notes, &mut invalid);
    (!invalid.is_empty()).then(|| invalid.join("; "))
}

fn judge_load(load: &CpuShares, notes: &mut Vec<String>, invalid: &mut Vec<String>) {
    judge(
        load.other_programs,
        "programs outside the lab used",
        (OTHER_PROGRAMS_NOTED, OTHER_PROGRAMS_MAX),
        notes,
        invalid,
    );
    judge(
        load.stolen,
        "the host of this virtual machine took",
        (STOLEN_NOTED, STOLEN_MAX),
        notes,
        invalid,
    );
}

fn judge(
    share: f64,
    who: &str,
    (noted, most): (f64, f64),
    notes: &mut Vec<String>,
    invalid: &mut Vec<String>,
) {
    let sentence = format!("{who} {:.0} % of the processors", 100.0 * share);
    if share > most {
        invalid.push(sentence);
    } else if share > noted {
        notes.push(sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> EngineReport {
        EngineReport {
            seconds: 10.0,
            cpu_seconds: 2.5,
            directions: Vec::new(),
            invalid: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_load_is_a_problem_where_it_makes_a_run_invalid() {
        let load = |other_programs, stolen| CpuShares {
            other_programs,
            stolen,
            is_reliable: false,
        };
        assert_eq!(load_problem(&load(0.39, 0.09)), None);
        let both = "programs outside the lab used 41 % of the processors; \
             the host of this virtual machine took 20 % of the processors";
        assert_eq!(load_problem(&load(0.41, 0.2)).as_deref(), Some(both));
    }

    fn with_load(other_programs_share: f64, stolen: f64, is_reliable_run: bool) -> NetReport {
        let load = CpuShares {
            other_programs: other_programs_share,
            stolen,
            is_reliable: is_reliable_run,
        };
        assess(
            engine(),
            RunConditions {
                load,
                ..RunConditions::default()
            },
        )
    }

    #[test]
    fn a_run_on_an_idle_machine_is_valid() {
        let report = with_load(0.05, 0.01, true);
        assert_eq!((report.invalid.len(), report.notes.len()), (0, 0));
        assert!((report.emulator_cpu - 0.25).abs() < 1e-9);
    }

    #[test]
    fn moderate_load_gives_a_note_and_high_load_makes_the_run_invalid() {
        let noted = with_load(0.2, 0.03, true);
        assert_eq!((noted.invalid.len(), noted.notes.len()), (0, 2));
        let invalid_report = with_load(0.5, 0.2, true);
        assert_eq!(
            (invalid_report.invalid.len(), invalid_report.notes.len()),
            (2, 0)
        );
        assert!(
            invalid_report.invalid[0].contains("50 %"),
            "{:?}",
            invalid_report.invalid
        );
    }

    #[test]
    fn load_is_ignored_in_a_short_run() {
        let report = with_load(0.9, 0.9, false);
        assert!(report.invalid.is_empty() && report.notes.is_empty());
        assert!((report.foreign_cpu - 0.9).abs() < 1e-9);
    }

    #[test]
    fn overruns_a_signal_and_the_engines_reasons_make_the_run_invalid() {
        let report = assess(
            EngineReport {
                invalid: vec!["late".into()],
                ..engine()
            },
            RunConditions {
                overruns: 3,
                signal: Some(2),
                ..RunConditions::default()
            },
        );
        assert_eq!(report.invalid.len(), 3);
        assert_eq!(report.invalid[0], "late");
        assert!(report.invalid[1].starts_with("3 packets"));
        assert!(report.invalid[2].contains("signal 2"));
    }
}
