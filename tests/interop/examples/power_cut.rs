//! As many power cuts as you like: `cargo run -p interop --example power_cut -- [CUTS] [FIRST SEED]`.
//!
//! Needs root, /dev/fuse and loop devices. Each seed is one cut of a getting client and one of a
//! storing server. Ends with 1 if any file was lost or differs.

use interop::power::machine;
use interop::power::power_cut::{PowerCut, PowerCutVictim};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (cuts, first) = (number(100)?, number(0)?);
    machine::is_supported().map_err(anyhow::Error::msg)?;
    let mut failed = 0;
    for victim in [PowerCutVictim::Client, PowerCutVictim::Server] {
        let (mut right, mut reported, mut moved) = (0, 0, 0);
        for seed in first..first + cuts {
            let cut = PowerCut::new(victim, seed);
            match cut.run() {
                Ok(survived) => {
                    right += 1;
                    reported += u64::from(survived.reported);
                    moved += survived.moved;
                }
                Err(error) => println!("{cut:?}: {error:#}"),
            }
        }
        failed += cuts - right;
        println!(
            "power of the {victim:?} cut: {right} of {cuts} files identical after --resume, {reported} \
             cuts after success was reported, {:.1} MB moved by an average second run",
            moved as f64 / 1e6 / right.max(1) as f64
        );
    }
    std::process::exit(i32::from(failed > 0));
}
