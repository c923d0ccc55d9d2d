//! The inner half: two copies at the same time, live, and what came of them.

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use client::Exit;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;
use units::show;

use super::{DemoHost, DemoServer, longhaul_command_on};
use crate::output::print_line;

/// Window that a stock FTP client asks of its socket, and that stock systems gave for decades.
const STOCK_WINDOW: &str = "64Ki";
/// Its bytes: one window crosses the path in a round trip.
const STOCK_WINDOW_BYTES: f64 = 65_536.0;
/// Stock FTP moves as much of the file as it can in about this time.
const STOCK_SECONDS: f64 = 25.0;
/// Without a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(4);

/// Where the outer half finds the line that sums it up.
pub(super) const RESULT_FILE: &str = "last-line";

/// Bytes that stock FTP moves over a path of this round trip in its time, at least a megabyte.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and the cast saturates"
)]
fn stock_bytes(rtt: Duration) -> u64 {
    let pace = STOCK_WINDOW_BYTES / rtt.as_secs_f64().max(0.001);
    ((pace * STOCK_SECONDS) as u64).max(1_000_000)
}

/// One of the two copies.
struct RaceCopy {
    name: &'static str,
    child: Child,
    bytes: u64,
    total: u64,
    summary: Option<Value>,
}

/// Runs both copies on the hosts of the surrounding lab.
pub(super) fn run(place: &Path, rtt: Duration) -> Result<Exit> {
    let served = place.join("served");
    let size = std::fs::metadata(served.join("big.dat"))
        .context("the demo's file is gone")?
        .len();
    let stock_part = size.min(stock_bytes(rtt));
    let stock_server = DemoServer::start(&served, Some(&DemoHost::named("b")?))?;
    let server = DemoServer::start(&served, Some(&DemoHost::named("d")?))?;
    let to = |name: &str| place.join(name).display().to_string();
    let (events, heard) = mpsc::channel();
    let part = stock_part.to_string();
    let (stock_url, url) = (stock_server.url("big.dat"), server.url("big.dat"));
    let (stock_copy, copy) = (to("stock.dat"), to("longhaul.dat"));
    let mut stock = vec!["-p", "1", "--mode", "s", "--verify", "none"];
    stock.extend(["--buffer", STOCK_WINDOW, "--length", &part]);
    stock.extend([stock_url.as_str(), &stock_copy]);
    let tuned = [url.as_str(), &copy];
    let mut lanes = [
        RaceCopy::start(0, "stock FTP", "a", &stock, stock_part, &events)?,
        RaceCopy::start(1, "longhaul", "c", &tuned, size, &events)?,
    ];
    drop(events);
    show_progress(&mut lanes, &heard)?;
    for lane in &mut lanes {
        lane.wait()?;
    }
    let last_line = print_result(&lanes[0], &lanes[1], size)?;
    std::fs::write(place.join(RESULT_FILE), last_line).context("cannot keep the result")?;
    Ok(Exit::Done)
}

impl RaceCopy {
    fn start(
        number: usize,
        name: &'static str,
        host: &'static str,
        arguments: &[&str],
        total: u64,
        events: &Sender<(usize, Value)>,
    ) -> Result<Self> {
        let mut child = longhaul_command_on(Some(&DemoHost::named(host)?))?
            .args(["cp", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the copy of {name}"))?;
        let out = child.stdout.take().context("no output to read")?;
        let events = events.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            for event in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if events.send((number, event)).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            name,
            child,
            bytes: 0,
            total,
            summary: None,
        })
    }

    fn handle_event(&mut self, event: Value) {
        match event["event"].as_str() {
            Some("progress") => self.bytes = event["bytes"].as_u64().unwrap_or(self.bytes),
            Some("summary") => {
                self.bytes = event["bytes"].as_u64().unwrap_or(self.bytes);
                self.summary = Some(event);
            }
            _ => {}
        }
    }

    fn wait(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let error = self.summary.as_ref().and_then(|s| s["error"].as_str());
        bail!("{}: {}", self.name, error.unwrap_or("longhaul cp failed"))
    }

    fn summary_field(&self, key: &str) -> &Value {
        self.summary.as_ref().map_or(&Value::Null, |s| &s[key])
    }

    fn rate(&self) -> f64 {
        self.summary_field("goodput_bps").as_f64().unwrap_or(0.0)
    }
}

impl Drop for RaceCopy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Shows both until both have ended.
fn show_progress(lanes: &mut [RaceCopy; 2], heard: &mpsc::Receiver<(usize, Value)>) -> Result<()> {
    let display = RaceDisplay::new(lanes);
    let start = Instant::now();
    let mut next_line = LINE_EVERY;
    loop {
        match heard.recv_timeout(Duration::from_millis(200)) {
            Ok((number, event)) => lanes[number].handle_event(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let seconds = start.elapsed();
        match &display {
            RaceDisplay::Bars(bars) => {
                for (bar, lane) in bars.iter().zip(lanes.iter()) {
                    bar.set_position(lane.bytes);
                    bar.set_message(progress_text(lane, seconds));
                }
            }
            RaceDisplay::Lines if seconds >= next_line => {
                next_line = seconds + LINE_EVERY;
                let [stock, tuned] = lanes;
                print_line(&format!(
                    "{:4.0} s   {}: {}   {}: {}",
                    seconds.as_secs_f64(),
                    stock.name,
                    progress_text(stock, seconds),
                    tuned.name,
                    progress_text(tuned, seconds)
                ))?;
            }
            RaceDisplay::Lines => {}
        }
    }
    if let RaceDisplay::Bars(bars) = display {
        bars.iter().for_each(ProgressBar::finish);
    }
    Ok(())
}

/// Bytes so far and the mean rate, or the rate it ended with.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn progress_text(lane: &RaceCopy, elapsed: Duration) -> String {
    let rate = match &lane.summary {
        Some(_) => lane.rate(),
        None => lane.bytes as f64 * 8.0 / elapsed.as_secs_f64().max(0.001),
    };
    let done = if lane.summary.is_some() { ", done" } else { "" };
    format!("{}, {}{done}", show::bytes(lane.bytes), show::rate(rate))
}

/// Two bars on a terminal, lines elsewhere.
enum RaceDisplay {
    Bars([ProgressBar; 2]),
    Lines,
}

impl RaceDisplay {
    fn new(lanes: &[RaceCopy; 2]) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines;
        }
        let all = MultiProgress::new();
        Self::Bars(std::array::from_fn(|i| {
            let bar = all.add(ProgressBar::new(lanes[i].total));
            let style = ProgressStyle::with_template("{prefix:>10} {bar:30} {msg}");
            if let Ok(style) = style {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(lanes[i].name);
            bar
        }))
    }
}

/// Says what it came to; the line that sums it up is left to who knows whether it can be believed.
fn print_result(stock: &RaceCopy, tuned: &RaceCopy, size: u64) -> Result<String> {
    let (slow, fast) = (stock.rate(), tuned.rate());
    if slow <= 0.0 || fast <= 0.0 {
        bail!("a copy did not say how fast it was");
    }
    #[allow(clippy::cast_precision_loss, reason = "whole seconds are shown")]
    let whole = size as f64 * 8.0 / slow;
    print_line(&format!(
        "\nstock FTP moved the first {} in {:.0} s; the whole file would take it {:.0} min {:.0} s.\n\
         longhaul moved all of it in {:.0} s over {} streams, verified by {}. {}",
        show::bytes(stock.bytes),
        stock.summary_field("seconds").as_f64().unwrap_or(0.0),
        (whole / 60.0).floor(),
        whole % 60.0,
        tuned.summary_field("seconds").as_f64().unwrap_or(0.0),
        tuned.summary_field("streams_max"),
        tuned.summary_field("verified").as_str().unwrap_or("?"),
        tuned.summary_field("why").as_str().unwrap_or_default(),
    ))?;
    let cause = match stock.summary_field("limited_by").as_str() {
        Some("receive window") => "its 64 KB receive window".to_owned(),
        Some(other) => format!("the {other}"),
        None => "nothing that it could name".to_owned(),
    };
    Ok(format!(
        "stock {:.1} Mb/s, longhaul {:.0} Mb/s: {:.0}x (stock was limited by {cause})",
        slow / 1e6,
        fast / 1e6,
        fast / slow
    ))
}
