//! The load of the machine before the first run of an experiment.

use std::time::{Duration, Instant};

use crate::LabError;

/// The time for which the machine is observed. The kernel counts in ticks of 10 ms.
const OBSERVED: Duration = Duration::from_secs(1);

/// The time between two looks while a busy machine is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(4);

/// The circumstances of a look at the machine.
pub(crate) struct QuietWait<'a> {
    /// Whether runs tell by themselves that the machine was too busy: those over the emulator.
    pub(crate) notices: bool,
    /// Whether a busy machine is waited for.
    pub(crate) waits: bool,
    /// The time at which the wait ends, whatever the load.
    pub(crate) until: Option<Instant>,
    /// Whether the user wants to stop.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

/// Looks at the machine: a busy one is told through `print`, and waited for if the user asked for that.
///
/// # Errors
/// The machine's load cannot be read.
pub(crate) fn look(wait: &QuietWait<'_>, print: &mut dyn FnMut(&str)) -> Result<(), LabError> {
    let mut problem = || emulator::machine_load_problem(OBSERVED);
    wait_for_quiet(wait, &mut problem, &mut std::thread::sleep, print)
}

/// As [`look`], with the machine's `problem` (the reason why a run would be invalid) and `sleep` as arguments.
fn wait_for_quiet(
    wait: &QuietWait<'_>,
    problem: &mut dyn FnMut() -> Result<Option<String>, LabError>,
    sleep: &mut dyn FnMut(Duration),
    print: &mut dyn FnMut(&str),
) -> Result<(), LabError> {
    let Some(reason) = problem()? else {
        return Ok(());
    };
    if !wait.waits {
        let consequence = match wait.notices {
            true => "Such runs are INVALID and are repeated",
            false => "Nothing marks such runs, and their results are of little use",
        };
        print(&format!(
            "the machine is busy: {reason}. {consequence}; --wait-quiet waits until the machine is quiet"
        ));
        return Ok(());
    }
    print(&format!("waiting for a quiet machine: {reason}"));
    let is_over = || {
        let is_late = wait.until.is_some_and(|until| Instant::now() >= until);
        is_late || (wait.is_stopped)()
    };
    while !is_over() {
        if problem()?.is_none() {
            print("the machine is quiet");
            break;
        }
        // Short sleeps: a signal ends an experiment within two seconds.
        for _ in 0..LOOK_AGAIN.as_secs() {
            if !is_over() {
                sleep(Duration::from_secs(1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The lines that are printed on a machine that is busy at the first `busy` looks, and the number of looks.
    fn printed(waits: bool, busy: usize, stops_after: usize) -> (Vec<String>, usize) {
        let looks = Cell::new(0);
        let mut problem = || {
            looks.set(looks.get() + 1);
            Ok((looks.get() <= busy).then(|| "programs used 98 %".to_owned()))
        };
        let is_stopped = || looks.get() >= stops_after;
        let wait = QuietWait {
            notices: true,
            waits,
            until: None,
            is_stopped: &is_stopped,
        };
        let mut lines = Vec::new();
        let mut print = |line: &str| lines.push(line.to_owned());
        wait_for_quiet(&wait, &mut problem, &mut |_| (), &mut print).unwrap();
        (lines, looks.get())
    }

    #[test]
    fn a_quiet_machine_is_neither_told_nor_waited_for() {
        assert_eq!(printed(false, 0, 99), (Vec::new(), 1));
        assert_eq!(printed(true, 0, 99), (Vec::new(), 1));
    }

    #[test]
    fn a_busy_machine_is_told_with_its_reason_and_the_way_to_wait() {
        let (lines, looks) = printed(false, 9, 99);
        assert_eq!((lines.len(), looks), (1, 1));
        for part in ["programs used 98 %", "INVALID", "--wait-quiet"] {
            assert!(lines[0].contains(part), "{lines:?}");
        }
    }

    #[test]
    fn a_busy_machine_is_waited_for_until_it_is_quiet_or_the_user_stops() {
        let (lines, looks) = printed(true, 5, 99);
        assert_eq!(looks, 6);
        assert_eq!(lines[1], "the machine is quiet");
        let (lines, looks) = printed(true, 99, 3);
        assert_eq!((lines.len(), looks), (1, 3));
    }

    #[test]
    fn a_wait_ends_when_the_time_is_used_up() {
        let looks = Cell::new(0);
        let mut problem = || {
            looks.set(looks.get() + 1);
            Ok(Some("busy".to_owned()))
        };
        let wait = QuietWait {
            notices: false,
            waits: true,
            until: Some(Instant::now()),
            is_stopped: &|| false,
        };
        wait_for_quiet(&wait, &mut problem, &mut |_| (), &mut |_| ()).unwrap();
        assert_eq!(looks.get(), 1);
    }
}
