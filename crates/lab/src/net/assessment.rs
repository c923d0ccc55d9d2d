//! Whether a run can be believed.

use super::cpu_load::CpuShares;
use super::engine::EngineReport;
use super::report::NetReport;

/// Other programs' share of the processors that is worth a note.
const FOREIGN_NOTED: f64 = 0.10;
/// Other programs' share of the processors with which hosts no longer get their turn in time.
const FOREIGN_MOST: f64 = 0.40;
/// The hypervisor's share that is worth a note.
const STOLEN_NOTED: f64 = 0.02;
/// The hypervisor's share that spoils a run.
const STOLEN_MOST: f64 = 0.10;

/// Facts about a run besides the engine's own account.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunConditions {
    pub(super) load: CpuShares,
    /// Packets that hosts dropped before the emulator saw them.
    pub(super) overruns: u64,
    /// The signal that ended the run early.
    pub(super) signal: Option<u8>,
}

/// The run's report.
pub(super) fn assess(engine: EngineReport, circumstances: RunConditions) -> NetReport {
    let RunConditions {
        load,
        overruns,
        signal,
    } = circumstances;
    let mut invalid = engine.invalid;
    let mut notes = engine.notes;
    if overruns > 0 {
        invalid.push(format!(
            "{overruns} packets were lost between a host and the emulator, which read too slowly"
        ));
    }
    if let Some(signal) = signal {
        invalid.push(format!("it was interrupted by signal {signal}"));
    }
    if load.is_reliable {
        judge(
            load.other_programs,
            "programs outside the lab used",
            (FOREIGN_NOTED, FOREIGN_MOST),
            &mut notes,
            &mut invalid,
        );
        judge(
            load.stolen,
            "the host of this virtual machine took",
            (STOLEN_NOTED, STOLEN_MOST),
            &mut notes,
            &mut invalid,
        );
    }
    NetReport {
        seconds: engine.seconds,
        emulator_cpu: if engine.seconds > 0.0 {
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

    fn with_load(foreign: f64, stolen: f64, sound: bool) -> NetReport {
        let load = CpuShares {
            other_programs: foreign,
            stolen,
            is_reliable: sound,
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
    fn an_undisturbed_run_is_valid() {
        let told = with_load(0.05, 0.01, true);
        assert_eq!((told.invalid.len(), told.notes.len()), (0, 0));
        assert!((told.emulator_cpu - 0.25).abs() < 1e-9);
    }

    #[test]
    fn load_is_noted_then_spoils() {
        let noted = with_load(0.2, 0.03, true);
        assert_eq!((noted.invalid.len(), noted.notes.len()), (0, 2));
        let spoilt = with_load(0.5, 0.2, true);
        assert_eq!((spoilt.invalid.len(), spoilt.notes.len()), (2, 0));
        assert!(spoilt.invalid[0].contains("50 %"), "{:?}", spoilt.invalid);
    }

    #[test]
    fn a_short_run_is_not_judged_by_load() {
        let told = with_load(0.9, 0.9, false);
        assert!(told.invalid.is_empty() && told.notes.is_empty());
        assert!((told.foreign_cpu - 0.9).abs() < 1e-9);
    }

    #[test]
    fn overruns_interruption_and_the_engines_reasons_spoil() {
        let told = assess(
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
        assert_eq!(told.invalid.len(), 3);
        assert_eq!(told.invalid[0], "late");
        assert!(told.invalid[1].starts_with("3 packets"));
        assert!(told.invalid[2].contains("signal 2"));
    }
}
