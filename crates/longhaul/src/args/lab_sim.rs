//! `longhaul lab sim`: flags over the setting of the paper.

use clap::{Args, ValueEnum};
use lab::LabError;
use lab::simulate::SimRequest;

use crate::output::{print_line, print_to_stderr};

/// Simulate parallel TCP connections over a bottleneck
///
/// A server sends to a client over two routers; the link between them is the bottleneck, with a
/// drop-tail queue before it. Every number of connections is one simulation and one line of the
/// table. The defaults are the base setting of Ito, Ohsaki and Imase (2008). The same seed gives the
/// same table.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SimArgs {
    /// Parallel connections: a number, a range `1..64`, a list of either, `auto` (what longhaul
    /// opens on this path), or how the number is found while a file of 10 GB is sent in chunks: `mi`,
    /// `mi+`, `aimd` (the modes of the paper), `probe` (longhaul's own) [default: 1..64]
    #[arg(long, value_name = "N")]
    flows: Option<String>,
    /// Only with these --flows: parameters of `mi`, `mi+`, `aimd` and `probe`, such as `eta=0.7,delta=5s`: n0, eta, gamma,
    /// alpha, beta, delta, rho, most, rtt, optimum [default: the paper's]
    #[arg(long, value_name = "KEY=VALUE,...")]
    autopar: Option<String>,
    /// Bottleneck rate (`1gbit`; numbers below 1000 need a unit) [default: 100mbit]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// One-way propagation delay of the bottleneck [default: 10ms]
    #[arg(long, value_name = "TIME", conflicts_with = "rtt")]
    delay: Option<String>,
    /// Round trip without queues, access links included; instead of --delay
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// One-way delay of each of the two access links [default: 1ms]
    #[arg(long, value_name = "TIME")]
    access_delay: Option<String>,
    /// Rate of the access links [default: 1gbit]
    #[arg(long, value_name = "RATE")]
    access_rate: Option<String>,
    /// Queue before the bottleneck: `1bdp`, a number of packets, or a SIZE [default: 1000 packets]
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Packets lost at random behind the bottleneck [default: none]
    #[arg(long, value_name = "SHARE")]
    loss: Option<String>,
    /// Socket buffer of each connection [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    window: Option<String>,
    /// Congestion control: `newreno` or `cubic` [default: newreno]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Initial congestion window in segments [default: 2, as in ns-2; 10 with --bytes, but not
    /// in chunks]
    #[arg(long, value_name = "N")]
    initial_window: Option<u32>,
    /// The receiver acknowledges every other segment instead of each
    #[arg(long)]
    delayed_ack: bool,
    /// IP packet of a full segment [default: 1500]
    #[arg(long, value_name = "SIZE")]
    packet: Option<String>,
    /// Measured time after the warm-up [default: 60s], or the longest that a file may take
    /// [default: 1h]
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Time before measurements begin [default: 20s]
    #[arg(long, value_name = "TIME")]
    warm_up: Option<String>,
    /// Transfer one file of this size over all connections together
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// Cross traffic over the bottleneck that does not react to loss [default: none]
    #[arg(long, value_name = "RATE")]
    cross_traffic: Option<String>,
    /// The sending host holds each packet back for a random time up to this [default: none]
    #[arg(long, value_name = "TIME")]
    jitter: Option<String>,
    /// Random events repeat with the same seed; a file without --jitter, --loss and --cross-traffic
    /// meets none [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How the result is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// `--format`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Text,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object.
    Json,
}

impl SimArgs {
    /// Simulates and prints.
    pub(crate) fn run(&self) -> Result<u8, LabError> {
        let format = self.format;
        let seeded = self.seed.is_some();
        let request = SimRequest::of_options(&self.options())?;
        if seeded && !request.is_random() {
            print_to_stderr(
                "longhaul lab sim: --seed changes nothing here: without --jitter, --loss and \
                 --cross-traffic nothing that happens to a file is random",
            );
        }
        let report = lab::simulate::run(&request)?;
        let text = match format {
            Format::Text => report.to_text(),
            Format::Csv => report.to_csv(),
            Format::Json => report.to_json(),
        };
        print_line(text.trim_end())
            .map_err(|e| LabError::system("cannot write to standard output", e))?;
        Ok(0)
    }

    /// The options that were given, by their names without dashes; a flag has an empty value.
    fn options(&self) -> Vec<(String, String)> {
        let initial_window = self.initial_window.map(|segments| segments.to_string());
        let seed = self.seed.map(|seed| seed.to_string());
        let delayed_ack = self.delayed_ack.then(String::new);
        let options = [
            ("flows", &self.flows),
            ("rate", &self.rate),
            ("delay", &self.delay),
            ("rtt", &self.rtt),
            ("access-delay", &self.access_delay),
            ("access-rate", &self.access_rate),
            ("queue", &self.queue),
            ("loss", &self.loss),
            ("window", &self.window),
            ("cc", &self.cc),
            ("initial-window", &initial_window),
            ("delayed-ack", &delayed_ack),
            ("packet", &self.packet),
            ("time", &self.time),
            ("warm-up", &self.warm_up),
            ("bytes", &self.bytes),
            ("cross-traffic", &self.cross_traffic),
            ("autopar", &self.autopar),
            ("jitter", &self.jitter),
            ("seed", &seed),
        ];
        let given = options
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)));
        given
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}
