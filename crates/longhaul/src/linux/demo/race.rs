//! The part of the demo that runs inside the lab: two copies at the same time, shown live, and their
//! result.

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use copy::Exit;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;
use units::show;

use super::{DemoHost, DemoServer, longhaul_command_on};
use crate::output::print_line;

/// Receive window of stock FTP: the largest without window scaling (RFC 7323), and for decades the
/// usual socket buffer.
const STOCK_WINDOW: &str = "64Ki";
/// [`STOCK_WINDOW`] in bytes. TCP transfers at most one window per round trip.
const STOCK_WINDOW_BYTES: f64 = 65_536.0;
/// Stock FTP copies as much of the file as it can in about this time.
const STOCK_SECONDS: f64 = 25.0;
/// Share of the rate of the window from which on the window is the bottleneck: slow start and the end take some round trips.
const WINDOW_SHARE: f64 = 0.7;
/// Interval of progress lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(4);

/// File in the demo's folder for the result line, which [`super::wan`] prints.
pub(super) const RESULT_FILE: &str = "last-line";

/// Bytes that stock FTP copies in [`STOCK_SECONDS`] over a path of this round-trip time, at least 1 MB.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and the cast saturates"
)]
fn stock_bytes(rtt: Duration) -> u64 {
    // At least 1 ms: --rtt may be 0.
    let rate = STOCK_WINDOW_BYTES / rtt.as_secs_f64().max(0.001);
    ((rate * STOCK_SECONDS) as u64).max(1_000_000)
}

/// One of the two copies.
struct RaceCopy {
    name: &'static str,
    child: Child,
    bytes: u64,
    total: u64,
    summary: Option<Value>,
}

/// The bottleneck of stock FTP at a rate, bits per second. A window that is sent once each round trip explains its rate better
/// than samples of a busy machine.
fn stock_bottleneck(rate: f64, rtt: Duration, reported: Option<&str>) -> String {
    let of_window = STOCK_WINDOW_BYTES * 8.0 / rtt.as_secs_f64().max(0.001);
    match reported {
        Some("receive window") => "its 64 KB receive window".to_owned(),
        _ if rate >= WINDOW_SHARE * of_window => "its 64 KB receive window".to_owned(),
        Some(other) if other != "unknown" => format!("the {other}"),
        _ => "something else than its window, which this machine could not tell".to_owned(),
    }
}

/// Runs both copies on the hosts of the surrounding lab and prints their result.
pub(super) fn run(folder: &Path, rtt: Duration) -> Result<Exit> {
    let served = folder.join("served");
    let size = std::fs::metadata(served.join("big.dat"))
        .context("the demo's file is gone")?
        .len();
    let stock_part = size.min(stock_bytes(rtt));
    // Each copy has its own server, path and client host, so that they do not compete.
    let stock_server = DemoServer::start(&served, Some(&DemoHost::named("b")?))?;
    let server = DemoServer::start(&served, Some(&DemoHost::named("d")?))?;
    let to = |name: &str| folder.join(name).display().to_string();
    let (events, events_received) = mpsc::channel();
    let stock_length = stock_part.to_string();
    let (stock_url, url) = (stock_server.url("big.dat"), server.url("big.dat"));
    let (stock_copy, copy) = (to("stock.dat"), to("longhaul.dat"));
    // The settings of stock FTP: one stream in MODE S with a 64 KB window, without a checksum.
    let mut stock = vec!["-p", "1", "--mode", "s", "--verify", "none"];
    stock.extend(["--buffer", STOCK_WINDOW, "--length", &stock_length]);
    stock.extend([stock_url.as_str(), &stock_copy]);
    let longhaul = [url.as_str(), &copy];
    let mut copies = [
        RaceCopy::start(0, "stock FTP", "a", &stock, stock_part, &events)?,
        RaceCopy::start(1, "longhaul", "c", &longhaul, size, &events)?,
    ];
    // Without this sender `show_progress` sees a disconnect when both reader threads have ended.
    drop(events);
    show_progress(&mut copies, &events_received)?;
    for copy in &mut copies {
        copy.wait()?;
    }
    let last_line = print_result(&copies[0], &copies[1], size, rtt)?;
    std::fs::write(folder.join(RESULT_FILE), last_line).context("cannot keep the result")?;
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
            // The summary has its failure.
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start the copy by {name}"))?;
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

/// Shows the progress of both copies until both have ended.
fn show_progress(
    copies: &mut [RaceCopy; 2],
    events_received: &mpsc::Receiver<(usize, Value)>,
) -> Result<()> {
    let display = RaceDisplay::new(copies);
    let start = Instant::now();
    let mut next_line = LINE_INTERVAL;
    loop {
        match events_received.recv_timeout(Duration::from_millis(200)) {
            Ok((number, event)) => copies[number].handle_event(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let seconds = start.elapsed();
        match &display {
            RaceDisplay::Bars(bars) => {
                for (bar, copy) in bars.iter().zip(copies.iter()) {
                    bar.set_position(copy.bytes);
                    bar.set_message(progress_text(copy, seconds));
                }
            }
            RaceDisplay::Lines if seconds >= next_line => {
                next_line = seconds + LINE_INTERVAL;
                let [stock, longhaul] = copies;
                print_line(&format!(
                    "{:4.0} s   {}: {}   {}: {}",
                    seconds.as_secs_f64(),
                    stock.name,
                    progress_text(stock, seconds),
                    longhaul.name,
                    progress_text(longhaul, seconds)
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

/// Bytes so far, and the mean rate; after the end, the goodput of the summary.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn progress_text(copy: &RaceCopy, elapsed: Duration) -> String {
    let rate = match &copy.summary {
        Some(_) => copy.rate(),
        None => copy.bytes as f64 * 8.0 / elapsed.as_secs_f64().max(0.001),
    };
    let done = if copy.summary.is_some() { ", done" } else { "" };
    format!("{}, {}{done}", show::bytes(copy.bytes), show::rate(rate))
}

/// How progress is shown: two bars on a terminal, lines elsewhere.
enum RaceDisplay {
    Bars([ProgressBar; 2]),
    Lines,
}

impl RaceDisplay {
    fn new(copies: &[RaceCopy; 2]) -> Self {
        // indicatif draws bars on standard error.
        if !std::io::stderr().is_terminal() {
            return Self::Lines;
        }
        let all = MultiProgress::new();
        Self::Bars(std::array::from_fn(|i| {
            let bar = all.add(ProgressBar::new(copies[i].total));
            let style = ProgressStyle::with_template("{prefix:>10} {bar:30} {msg}");
            if let Ok(style) = style {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(copies[i].name);
            bar
        }))
    }
}

/// Prints the result of both copies, and returns the result line. The part outside the lab prints
/// that line, because only it knows whether the run is valid.
fn print_result(stock: &RaceCopy, longhaul: &RaceCopy, size: u64, rtt: Duration) -> Result<String> {
    let (stock_rate, longhaul_rate) = (stock.rate(), longhaul.rate());
    if stock_rate <= 0.0 || longhaul_rate <= 0.0 {
        bail!("a copy did not report its rate");
    }
    #[allow(clippy::cast_precision_loss, reason = "whole seconds are shown")]
    let whole = size as f64 * 8.0 / stock_rate;
    print_line(&format!(
        "\nstock FTP copied the first {} in {:.0} s; the whole file would take {:.0} min {:.0} s.\n\
         longhaul copied the whole file in {:.0} s over {} streams, verified by {}. {}",
        show::bytes(stock.bytes),
        stock.summary_field("seconds").as_f64().unwrap_or(0.0),
        (whole / 60.0).floor(),
        whole % 60.0,
        longhaul.summary_field("seconds").as_f64().unwrap_or(0.0),
        longhaul.summary_field("streams_max"),
        longhaul.summary_field("verified").as_str().unwrap_or("?"),
        longhaul.summary_field("why").as_str().unwrap_or_default(),
    ))?;
    let reported = stock.summary_field("limited_by").as_str();
    let bottleneck = stock_bottleneck(stock_rate, rtt, reported);
    Ok(format!(
        "stock {:.1} Mb/s, longhaul {:.0} Mb/s: {:.0}x (stock was limited by {bottleneck})",
        stock_rate / 1e6,
        longhaul_rate / 1e6,
        longhaul_rate / stock_rate
    ))
}
