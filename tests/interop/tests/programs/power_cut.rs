//! Power cuts at seeded moments: files reported as done are not lost, and `--resume` completes the others.
//! `cargo run -p interop --example power_cut` runs any number of them.

use interop::cells::MatrixRow;
use interop::power::machine;
use interop::power::power_cut::{PowerCut, PowerCutVictim};
use interop::require;

/// Number of power cuts of each side.
const CUTS: u64 = 4;

fn cuts(victim: PowerCutVictim) {
    require!(machine::is_supported());
    let mut cells = MatrixRow::new(format!("{victim:?}"));
    for seed in 0..CUTS {
        let cut = PowerCut::new(victim, seed);
        cells.check(format!("{cut:?}"), || cut.run().map(|_| ()));
    }
    cells.finish();
}

#[test]
fn a_get_survives_a_power_cut_of_the_client() {
    cuts(PowerCutVictim::Client);
}

#[test]
fn a_put_survives_a_power_cut_of_the_server() {
    cuts(PowerCutVictim::Server);
}

/// Shows that the disk of these tests does lose data.
#[test]
fn without_fsync_a_power_cut_loses_files_that_were_reported_as_done() {
    require!(machine::is_supported());
    let lost = (0..6).find(|&seed| {
        let cut = PowerCut::new(PowerCutVictim::Client, seed).without_syncs();
        cut.run()
            .is_err_and(|error| format!("{error:#}").contains("reported as done"))
    });
    assert!(
        lost.is_some(),
        "six power cuts after copies without fsync lost nothing"
    );
}
