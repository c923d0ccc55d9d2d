//! The load of the machine before a run.

use std::time::Duration;

use super::assessment;
use super::cpu_load::CpuTimes;
use crate::LabError;

/// Observes the machine for `time` and returns the reason why a run would be invalid now; `None`: it is quiet enough. The
/// bounds are those of a run's report. The processes of a running lab count as others.
///
/// # Errors
/// The counters of the kernel cannot be read.
pub fn machine_load_problem(time: Duration) -> Result<Option<String>, LabError> {
    let start = CpuTimes::now()?;
    std::thread::sleep(time);
    let shares = CpuTimes::now()?.since(&start);
    Ok(assessment::load_problem(&shares))
}
