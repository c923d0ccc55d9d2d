//! Compares the modes of Ito, Ohsaki and Imase (2008) in the simulator with ns-2 at every point of the
//! reference table, and prints the comparison, which is committed with the table.
//!
//! ```sh
//! cargo run --release -p lab --example ns2-autopar > crates/lab/validation/comparison-autopar.txt
//! ```
//!
//! Exits with an error if a deviation is beyond the tolerance.

use std::fmt::Write;
use std::process::ExitCode;

use lab::LabError;
use lab::simulate;
use lab::simulate::ns2::{self, BURST_TOLERANCE, MODE_COLUMNS, MODE_TOLERANCE};

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
            eprintln!("ns2-autopar: {beyond} points are beyond the tolerance");
        }
        Err(error) => eprintln!("ns2-autopar: {error}"),
    }
    ExitCode::FAILURE
}

/// The comparison's text, and the number of points beyond the tolerance.
fn report() -> Result<(String, usize), LabError> {
    let (mut lines, mut beyond) = (String::new(), 0);
    for reference in ns2::modes()? {
        let report = simulate::run(&reference.request())?;
        for ours in &report.points {
            beyond += usize::from(!reference.agrees(ours));
            let _ = writeln!(lines, "{}", reference.comparison_line(ours));
        }
    }
    let text = format!(
        "Goodput (Mbit/s) of a file and of its last full chunk, the number of connections in that chunk, and \
         the\nseconds until the mode had found it: the simulator, and ns-2 2.35. Tolerated: {:.0} % ({:.0} % \
         at 100 ms and\nat 1 Gbit/s) and one step of the mode (any number for MI with an eta of \
         0.9 or more);\n{beyond} points beyond.\n\n{MODE_COLUMNS}\n{lines}",
        MODE_TOLERANCE * 100.0,
        BURST_TOLERANCE * 100.0
    );
    Ok((text, beyond))
}
