//! Holds the simulator against ns-2 at every point of the reference table, and prints the comparison
//! that is kept beside it.
//!
//! ```sh
//! cargo run --release -p lab --example ns2-comparison > crates/lab/validation/comparison.txt
//! ```
//!
//! Fails if a point is beyond tolerance.

use std::process::ExitCode;

use lab::LabError;
use lab::simulate;
use lab::simulate::reference::{self, GOODPUT_TOLERANCE, RTT_TOLERANCE, Reference};

/// The largest deviations of a part of the table.
#[derive(Default)]
struct Worst {
    goodput: f64,
    rtt: f64,
    beyond: usize,
}

fn main() -> ExitCode {
    match compare() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(beyond) => {
            eprintln!("ns2-comparison: {beyond} points are beyond tolerance");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("ns2-comparison: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the table; how many points are beyond tolerance.
#[allow(clippy::print_stdout, reason = "this is a program")]
fn compare() -> Result<usize, LabError> {
    println!(
        "Goodput (Mbit/s) and mean round trip (ms) of N connections, here and in ns-2 2.35 (Sack1).\n\
         host: the sending host holds packets back for up to so many microseconds.\n\n\
         {:>4} {:>4}  {:>4}  {:>8} {:>8} {:>7}  {:>8} {:>8} {:>7}  {:>6} {:>6}",
        "N", "host", "seed", "goodput", "ns-2", "", "RTT", "ns-2", "", "drops", "ns-2"
    );
    let table = reference::ns2()?;
    let mut beyond = 0;
    let mut summary = String::new();
    for overhead in [120, 0] {
        let mut worst = Worst::default();
        for reference in table.iter().filter(|r| r.overhead_us == overhead) {
            println!("{}", line(reference, &mut worst)?);
        }
        beyond += worst.beyond;
        summary.push_str(&format!(
            "host {overhead:>3}: goodput within {:.2} %, mean round trip within {:.2} %\n",
            worst.goodput * 100.0,
            worst.rtt * 100.0
        ));
    }
    println!(
        "\nLargest deviations (tolerated: {:.0} % and {:.0} %):\n{summary}",
        GOODPUT_TOLERANCE * 100.0,
        RTT_TOLERANCE * 100.0
    );
    Ok(beyond)
}

fn line(reference: &Reference, worst: &mut Worst) -> Result<String, LabError> {
    let report = simulate::run(&reference.request())?;
    let ours = &report.points[0];
    let (goodput, rtt) = reference.deviations(ours);
    worst.goodput = worst.goodput.max(goodput.abs());
    worst.rtt = worst.rtt.max(rtt.abs());
    worst.beyond += usize::from(!reference.agrees(ours));
    Ok(format!(
        "{:>4} {:>4}  {:>4}  {:>8.3} {:>8.3} {:>+6.2}%  {:>8.3} {:>8.3} {:>+6.2}%  {:>6} {:>6}",
        reference.connections,
        reference.overhead_us,
        reference.seed,
        ours.goodput_mbps,
        reference.goodput_mbps,
        goodput * 100.0,
        ours.mean_rtt_ms.unwrap_or(f64::NAN),
        reference.mean_rtt_ms,
        rtt * 100.0,
        ours.drops,
        reference.drops
    ))
}
