//! Compares the simulator with ns-2 at every point of the reference tables, and prints the comparison,
//! which is committed with them.
//!
//! ```sh
//! cargo run --release -p lab --example ns2-comparison > crates/lab/validation/comparison.txt
//! ```
//!
//! Exits with an error if a deviation is beyond the tolerance.

use std::fmt::Write;
use std::process::ExitCode;

use lab::LabError;
use lab::simulate::ns2::{self, FIXED_COLUMNS, FIXED_TOLERANCE, FixedNs2Run};
use lab::simulate::{self, FlowCounts, SimRequest};

/// The comparison of a part of the tables.
#[derive(Default)]
struct Ns2Comparison {
    /// A line for each point.
    lines: String,
    /// Largest relative deviation of goodput.
    goodput: f64,
    /// Largest relative deviation of the mean RTT.
    rtt: f64,
    /// Number of points beyond the tolerance.
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
            eprintln!("ns2-comparison: {beyond} points are beyond the tolerance");
        }
        Err(error) => eprintln!("ns2-comparison: {error}"),
    }
    ExitCode::FAILURE
}

/// The comparison's text, and the number of points beyond the tolerance.
fn report() -> Result<(String, usize), LabError> {
    let (sweep, losses) = (ns2::sweep()?, ns2::losses()?);
    let with = |overhead| sweep.iter().filter(move |r| r.overhead_us() == overhead);
    let parts = [
        ("host 120", Ns2Comparison::of(with(120))?),
        ("host 0  ", Ns2Comparison::of(with(0))?),
        ("loss    ", Ns2Comparison::of(losses.iter())?),
    ];
    let mut text = format!(
        "Goodput (Mbit/s) and mean round trip (ms) of N connections: the simulator, and ns-2 2.35.\n\
         Largest deviations (tolerated: {:.0} % and {:.0} %):\n\n",
        FIXED_TOLERANCE.0 * 100.0,
        FIXED_TOLERANCE.1 * 100.0
    );
    for (name, part) in &parts {
        let _ = writeln!(
            text,
            "{name}: goodput within {:.2} %, mean round trip within {:.2} %",
            part.goodput * 100.0,
            part.rtt * 100.0
        );
    }
    let _ = writeln!(text, "\n{FIXED_COLUMNS}");
    for (_, part) in &parts {
        text += &part.lines;
    }
    Ok((text, parts.iter().map(|(_, part)| part.beyond).sum()))
}

impl Ns2Comparison {
    fn of<'r>(part: impl Iterator<Item = &'r FixedNs2Run>) -> Result<Self, LabError> {
        // Runs that differ only in the number of connections become one request, whose simulations run in
        // parallel.
        let mut settings: Vec<(SimRequest, Vec<&FixedNs2Run>)> = Vec::new();
        for reference in part {
            let setting = SimRequest {
                flows: FlowCounts::Auto,
                ..reference.request()
            };
            match settings.iter_mut().find(|(known, _)| *known == setting) {
                Some((_, same)) => same.push(reference),
                None => settings.push((setting, vec![reference])),
            }
        }
        let mut comparison = Self::default();
        for (setting, references) in settings {
            comparison.add(&setting, &references)?;
        }
        Ok(comparison)
    }

    fn add(&mut self, setting: &SimRequest, references: &[&FixedNs2Run]) -> Result<(), LabError> {
        let report = simulate::run(&SimRequest {
            flows: FlowCounts::Each(references.iter().map(|r| r.connections()).collect()),
            ..setting.clone()
        })?;
        for (reference, ours) in references.iter().zip(&report.points) {
            let (goodput, rtt) = reference.deviations(ours);
            self.goodput = self.goodput.max(goodput.abs());
            self.rtt = self.rtt.max(rtt.abs());
            self.beyond += usize::from(!reference.agrees(ours));
            let _ = writeln!(self.lines, "{}", reference.comparison_line(ours));
        }
        Ok(())
    }
}
