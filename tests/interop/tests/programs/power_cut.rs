//! Power cuts at seeded moments: nothing that was reported is lost, and `--resume` ends with the
//! identical file. `cargo run -p interop --example power_cut` runs as many as you like.

use interop::cells::MatrixRow;
use interop::need;
use interop::power::machine;
use interop::power::power_cut::{PowerCut, PowerCutVictim};

/// Cuts of each victim.
const CUTS: u64 = 4;

fn cuts(victim: PowerCutVictim) {
    need!(machine::is_supported());
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

/// Shows that the disk of these tests has teeth.
#[test]
fn without_syncs_a_power_cut_takes_back_what_was_reported() {
    need!(machine::is_supported());
    let lost = (0..6).find(|&seed| {
        let cut = PowerCut::new(PowerCutVictim::Client, seed).without_syncs();
        cut.run()
            .is_err_and(|error| format!("{error:#}").contains("reported as done"))
    });
    assert!(
        lost.is_some(),
        "six cuts after copies that synced nothing lost nothing"
    );
}
