//! Cost of the tests of many hosts.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::AnyError;
use crate::measured_service::{MeasuredService, host};

/// Tests that run by default.
const TEST_NAMES: [&str; TESTS as usize] = ["ping", "bottleneck", "route"];
const TESTS: u32 = 3;
/// Time in which each test of each host runs once, as in the paper.
const PERIOD: Duration = Duration::from_secs(4 * 3600);
/// Time over which the service is watched when it has nothing to do.
const IDLE: Duration = Duration::from_secs(20);

/// Runs each test of each host twice, and prints the second one's share of four hours.
pub(crate) fn measure(program: &Path, hosts: u32) -> Result<(), AnyError> {
    let directory = tempfile::tempdir()?;
    let mut settings = String::from("workers = 8\nbytes-per-hour = \"1TB\"\nclients = [");
    for n in 0..hosts {
        write!(settings, "\"{}\",", host(n))?;
    }
    settings.push_str("]\n");
    for test in TEST_NAMES {
        // None comes again within the measurement.
        write!(settings, "[tests.{test}]\ninterval = \"400h\"\n")?;
    }
    let service = MeasuredService::start(program, directory.path(), &settings)?;
    let runs = hosts * TESTS;
    // The first tests find a path, which costs more than to confirm it.
    service.wait_for("tests_total", f64::from(runs))?;
    let first = (
        service.cpu()?,
        service.metric("measurements_total")?,
        service.metric("budget_spent_bytes_total")?,
    );
    println!(
        "the first tests: {:.2?} of a processor, {:.0} bytes",
        first.0, first.2
    );
    for n in 0..hosts {
        service.request_tests(host(n), &TEST_NAMES)?;
    }
    let took = service.wait_for("tests_total", f64::from(2 * runs))?;
    let busy = service.cpu()? - first.0;
    let failed = f64::from(runs) - (service.metric("measurements_total")? - first.1);
    let bytes = service.metric("budget_spent_bytes_total")? - first.2;
    std::thread::sleep(IDLE);
    let idle = (service.cpu()? - busy).as_secs_f64() / IDLE.as_secs_f64();
    let period = PERIOD.as_secs_f64();
    let share = busy.as_secs_f64() / period + idle;
    println!("hosts {hosts}, tests {runs} ({failed} without a result) in {took:.0?}");
    println!("time was compressed by {:.0}", period / took.as_secs_f64());
    println!(
        "processor: {:.2?} for the tests, {:.4} % when idle; over 4 h {:.3} % of one processor (paper: 9 % of 500 MHz)",
        busy,
        idle * 100.0,
        share * 100.0
    );
    println!(
        "network: {bytes:.0} bytes; over 4 h {:.1} kbit/s (paper: 130 kbit/s)",
        bytes * 8.0 / period / 1000.0
    );
    let (now, most) = service.memory()?;
    println!("memory: {now:.0} MB, at most {most:.0} MB");
    Ok(())
}
