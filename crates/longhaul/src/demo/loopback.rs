//! `longhaul demo --loopback`: the main job on this machine, by the program itself, as a user would
//! run it.
//!
//! Two servers and a client on loopback move a real file over one stream, over several, back, and
//! from server to server; every copy is verified, timed and explained.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use units::show;

use super::{DemoFolder, DemoServer, write_random};
use crate::args::DemoArgs;
use crate::output::print_line;

/// Runs the demo; prints a table and what it means.
pub(super) fn run(args: &DemoArgs) -> Result<()> {
    let size = args.size.unwrap_or(1_000_000_000);
    let place = DemoFolder::create(args.dir.as_deref())?;
    print_line(
        "longhaul demo: two servers and a client on this machine, one real file, every copy verified.",
    )?;
    let from = place.root.join("a");
    let to = place.root.join("b");
    let here = place.root.join("here");
    for dir in [&from, &to, &here] {
        std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    print_line(&format!("making a file of {} ...", show::bytes(size)))?;
    write_random(&from.join("big.dat"), size)?;
    let a = DemoServer::start(&from, None)?;
    let b = DemoServer::start(&to, None)?;
    print_line(&format!(
        "server A on {}, server B on {}\n",
        a.address, b.address
    ))?;

    let local = here.join("big.dat").display().to_string();
    let (on_a, on_b) = (a.url("big.dat"), b.url("big.dat"));
    let (copy_on_b, back_on_a) = (b.url("from-a.dat"), a.url("back.dat"));
    let steps: [(&str, &[&str]); 5] = [
        ("download from A, 1 stream", &["-p", "1", &on_a, &local]),
        ("download from A, 4 streams", &["-p", "4", &on_a, &local]),
        ("upload to B, 4 streams", &["-p", "4", &local, &on_b]),
        ("A to B directly, 1 stream", &["-p", "1", &on_a, &copy_on_b]),
        (
            "B to A directly, 4 streams",
            &["-p", "4", &on_b, &back_on_a],
        ),
    ];
    print_line(&format!(
        "{:28} {:>9} {:>13}  verified by",
        "what", "seconds", "rate"
    ))?;
    let mut rates = Vec::new();
    let mut whys = Vec::new();
    for (what, arguments) in steps {
        // What an earlier step left to be written back must not slow this one down.
        sync_files(&[&from, &to, &here])?;
        let summary = copy(arguments).with_context(|| format!("'{what}' failed"))?;
        let rate = summary["goodput_bps"].as_f64().unwrap_or(0.0);
        print_line(&format!(
            "{what:28} {:9.2} {:>13}  {}",
            summary["seconds"].as_f64().unwrap_or(0.0),
            show::rate(rate),
            summary["verified"].as_str().unwrap_or("?"),
        ))?;
        rates.push(rate);
        whys.push((what, summary["why"].as_str().unwrap_or_default().to_owned()));
    }
    print_line("\nWhy this fast:")?;
    for (what, why) in whys {
        print_line(&format!("  {what}: {why}"))?;
    }
    print_explanation(rates[0], rates[1])
}

/// Waits until the files in these directories are on the disk.
fn sync_files(directories: &[&Path]) -> Result<()> {
    for directory in directories {
        for entry in std::fs::read_dir(directory)? {
            File::open(entry?.path())?.sync_all()?;
        }
    }
    Ok(())
}

/// Result of the two downloads, in plain words.
fn print_explanation(one: f64, four: f64) -> Result<()> {
    let ratio = if one > 0.0 { four / one } else { 0.0 };
    print_line(&format!(
        "\nFour streams were {ratio:.1} times as fast as one. There is no distance on this machine, so \
         nothing but\nits processors, memory and disk sets the pace. Streams pay on long paths, where one \
         connection's\nbuffers, or a lost packet now and then, hold it back."
    ))?;
    Ok(())
}

/// Runs `longhaul cp --json`; the summary line.
fn copy(arguments: &[&str]) -> Result<serde_json::Value> {
    let output = Command::new(std::env::current_exe()?)
        .args(["cp", "--json"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
    if !output.status.success() {
        bail!(
            "{}",
            summary["error"].as_str().unwrap_or("longhaul cp failed")
        );
    }
    Ok(summary)
}
