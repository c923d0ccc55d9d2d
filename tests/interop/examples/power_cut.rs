//! Runs any number of power cuts: `cargo run -p interop --example power_cut -- [CUTS] [FIRST SEED]`.
//!
//! It needs root, /dev/fuse and loop devices. Each seed gives one power cut of a downloading client and
//! one of a server that stores an upload. The exit code is 1 if any file was lost or differs.

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
            "power cut of the {victim:?}: {right} of {cuts} files identical after --resume, {reported} \
             cuts after success was reported, {:.1} MB moved by the second run on average",
            moved as f64 / 1e6 / right.max(1) as f64
        );
    }
    std::process::exit(i32::from(failed > 0));
}
