//! Holds the simulator against ns-2 at every point of the reference table, and prints the comparison
//! that is kept beside it.
//!
//! ```sh
//! cargo run --release -p lab --example ns2-comparison > crates/lab/validation/comparison.txt
//! ```
//!
//! Fails if a point is beyond tolerance.

use std::fmt::Write;
use std::process::ExitCode;

use lab::LabError;
use lab::simulate::reference::{self, COLUMNS, GOODPUT_TOLERANCE, RTT_TOLERANCE, Reference};
use lab::simulate::{self, Flows, SimRequest};

/// The comparison, and whether it is good.
#[derive(Default)]
struct Comparison {
    lines: String,
    /// Largest deviation in goodput.
    goodput: f64,
    /// Largest deviation in the mean round trip.
    rtt: f64,
    beyond: usize,
}

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program"
)]
fn main() -> ExitCode {
    match report() {
        Ok((text, beyond)) => {
            print!("{text}");
            if beyond == 0 {
                return ExitCode::SUCCESS;
            }
            eprintln!("ns2-comparison: {beyond} points are beyond tolerance");
        }
        Err(error) => eprintln!("ns2-comparison: {error}"),
    }
    ExitCode::FAILURE
}

/// The text to be kept; how many points are beyond tolerance.
fn report() -> Result<(String, usize), LabError> {
    let table = reference::ns2()?;
    let mut lines = String::new();
    let mut summary = String::new();
    let mut beyond = 0;
    for overhead in [120, 0] {
        let mut all = Comparison::default();
        for seed in 1..=3 {
            let part: Vec<&Reference> = table
                .iter()
                .filter(|r| r.overhead_us == overhead && r.seed == seed)
                .collect();
            all.add(&part)?;
        }
        lines += &all.lines;
        beyond += all.beyond;
        let _ = writeln!(
            summary,
            "host {overhead:>3}: goodput within {:.2} %, mean round trip within {:.2} %",
            all.goodput * 100.0,
            all.rtt * 100.0
        );
    }
    let text = format!(
        "Goodput (Mbit/s) and mean round trip (ms) of N connections: the simulator, and ns-2 2.35.\n\
         Largest deviations (tolerated: {:.0} % and {:.0} %):\n\n{summary}\n{COLUMNS}\n{lines}",
        GOODPUT_TOLERANCE * 100.0,
        RTT_TOLERANCE * 100.0
    );
    Ok((text, beyond))
}

impl Comparison {
    /// Simulates a part of the table, which differs in nothing but the number of connections.
    fn add(&mut self, part: &[&Reference]) -> Result<(), LabError> {
        let Some(first) = part.first() else {
            return Ok(());
        };
        let report = simulate::run(&SimRequest {
            flows: Flows::Counts(part.iter().map(|r| r.connections).collect()),
            ..first.request()
        })?;
        for (reference, ours) in part.iter().zip(&report.points) {
            let (goodput, rtt) = reference.deviations(ours);
            self.goodput = self.goodput.max(goodput.abs());
            self.rtt = self.rtt.max(rtt.abs());
            self.beyond += usize::from(!reference.agrees(ours));
            let _ = writeln!(self.lines, "{}", reference.beside(ours));
        }
        Ok(())
    }
}
