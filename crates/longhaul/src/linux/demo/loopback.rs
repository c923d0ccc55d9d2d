//! `longhaul demo --loopback`: copies over loopback.
//!
//! Two servers and a client run on this machine, started as a user would start them. They copy a file
//! over one stream and over four, down and up, and from server to server. Each copy is verified and
//! timed, and its bottleneck is named.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use units::show;

use super::{DemoServer, longhaul_command_on, write_random};
use crate::args::DemoArgs;
use crate::output::print_line;

/// Runs the demo: prints a table of the copies and an explanation.
pub(super) fn run(args: &DemoArgs, folder: &Path) -> Result<()> {
    let size = args.size.unwrap_or(1_000_000_000);
    print_line(
        "longhaul demo: two servers and a client on this machine copy one file; each copy is verified.",
    )?;
    let from = folder.join("a");
    let to = folder.join("b");
    let here = folder.join("here");
    for dir in [&from, &to, &here] {
        std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    print_line(&format!("creating a file of {} ...", show::bytes(size)))?;
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
        "copy", "seconds", "rate"
    ))?;
    let mut rates = Vec::new();
    let mut bottlenecks = Vec::new();
    // The steps reuse files of earlier ones, so they run in this order and not in parallel.
    for (name, arguments) in steps {
        // Write-back of an earlier copy would slow this one down and distort the comparison.
        sync_files(&[&from, &to, &here])?;
        let summary = copy(arguments).with_context(|| format!("'{name}' failed"))?;
        let rate = summary["goodput_bps"].as_f64().unwrap_or(0.0);
        print_line(&format!(
            "{name:28} {:9.2} {:>13}  {}",
            summary["seconds"].as_f64().unwrap_or(0.0),
            show::rate(rate),
            summary["verified"].as_str().unwrap_or("?"),
        ))?;
        rates.push(rate);
        bottlenecks.push((name, summary["why"].as_str().unwrap_or_default().to_owned()));
    }
    print_line("\nBottlenecks:")?;
    for (name, why) in bottlenecks {
        print_line(&format!("  {name}: {why}"))?;
    }
    print_explanation(rates[0], rates[1])
}

/// Forces the files in these directories to disk (fsync(2)).
fn sync_files(directories: &[&Path]) -> Result<()> {
    for directory in directories {
        for entry in std::fs::read_dir(directory)? {
            File::open(entry?.path())?.sync_all()?;
        }
    }
    Ok(())
}

/// Prints what the rates of the two downloads mean.
fn print_explanation(one: f64, four: f64) -> Result<()> {
    let ratio = if one > 0.0 { four / one } else { 0.0 };
    print_line(&format!(
        "\nFour streams were {ratio:.1} times as fast as one. Loopback has almost no delay, so only \
         processors,\nmemory and disk limit the rate. Several streams help on long paths, where the \
         buffers of one connection\nor occasional packet loss limit its rate."
    ))?;
    Ok(())
}

/// Runs `longhaul cp --json`; returns its summary line.
fn copy(arguments: &[&str]) -> Result<serde_json::Value> {
    let output = longhaul_command_on(None)?
        .args(["cp", "--json"])
        .args(arguments)
        // The summary has its failure.
        .stderr(Stdio::null())
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
