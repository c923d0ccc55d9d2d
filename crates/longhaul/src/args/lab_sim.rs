//! Flags of `longhaul lab sim`. Their defaults are the base setting of the paper.

use clap::{Args, ValueEnum};
use lab::LabError;
use lab::simulate::SimRequest;

use super::headings;
use crate::output::{print_line, print_to_stderr};

/// Simulate parallel TCP connections over a bottleneck
///
/// A server sends to a client over two routers. The link between the routers is the bottleneck and has
/// a drop-tail queue. Each number of connections is one simulation and one line of the table. The
/// defaults are the base setting of Ito, Ohsaki and Imase (2008). The same seed gives the same
/// table.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SimArgs {
    /// Number of parallel connections: a number, a range `1..64`, a list of these, or `auto` (the
    /// number that longhaul would use). `mi`, `mi+` and `aimd` (the modes of the paper) and `probe`
    /// (longhaul's own) find the number while they send a 10 GB file in chunks [default: 1..64]
    #[arg(long, value_name = "N", help_heading = headings::TRAFFIC)]
    flows: Option<String>,
    /// Parameters of --flows `mi`, `mi+`, `aimd` and `probe`, such as `eta=0.7,delta=5s`. The keys are
    /// n0, eta, gamma, alpha, beta, delta, rho, most, rtt and optimum [default: those of the paper]
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = headings::TRAFFIC)]
    autopar: Option<String>,
    /// Bottleneck rate (`1gbit`; a number below 1000 needs a unit) [default: 100mbit]
    #[arg(long, value_name = "RATE", help_heading = headings::PATH)]
    rate: Option<String>,
    /// One-way propagation delay of the bottleneck, a number in milliseconds [default: 10ms]
    #[arg(long, value_name = "TIME", conflicts_with = "rtt", help_heading = headings::PATH)]
    delay: Option<String>,
    /// Round-trip time without queueing delay, including the access links; replaces --delay
    #[arg(long, value_name = "TIME", help_heading = headings::PATH)]
    rtt: Option<String>,
    /// One-way delay of each of the two access links [default: 1ms]
    #[arg(long, value_name = "TIME", help_heading = headings::PATH)]
    access_delay: Option<String>,
    /// Rate of the access links [default: 1gbit]
    #[arg(long, value_name = "RATE", help_heading = headings::PATH)]
    access_rate: Option<String>,
    /// Size of the bottleneck queue: `1bdp`, a number of packets, or a SIZE in bytes
    /// [default: 1000 packets]
    #[arg(long, value_name = "QUEUE", help_heading = headings::PATH)]
    queue: Option<String>,
    /// Random packet loss after the bottleneck [default: none]
    #[arg(long, value_name = "SHARE", help_heading = headings::PATH)]
    loss: Option<String>,
    /// Socket buffer of each connection [default: 64KiB]
    #[arg(long, value_name = "SIZE", help_heading = headings::HOSTS)]
    window: Option<String>,
    /// Congestion control: `newreno` or `cubic` [default: newreno]
    #[arg(long, value_name = "NAME", help_heading = headings::HOSTS)]
    cc: Option<String>,
    /// Initial congestion window in segments [default: 2, as in ns-2; 10 with --bytes, except for
    /// transfers in chunks]
    #[arg(long, value_name = "N", help_heading = headings::HOSTS)]
    initial_window: Option<u32>,
    /// Acknowledge every second segment instead of each one
    #[arg(long, help_heading = headings::HOSTS)]
    delayed_ack: bool,
    /// Size of the IP packet of a full segment in bytes [default: 1500]
    #[arg(long, value_name = "SIZE", help_heading = headings::HOSTS)]
    packet: Option<String>,
    /// Duration of the measurement after the warm-up, a number in seconds [default: 60s]; with --bytes, time limit of the
    /// transfer [default: 1h]
    #[arg(long, value_name = "TIME", help_heading = headings::MEASUREMENT)]
    time: Option<String>,
    /// Simulated time before the measurement, a number in seconds [default: 20s]
    #[arg(long, value_name = "TIME", help_heading = headings::MEASUREMENT)]
    warm_up: Option<String>,
    /// Transfer one file of this size over all connections
    #[arg(long, value_name = "SIZE", help_heading = headings::TRAFFIC)]
    bytes: Option<String>,
    /// Cross traffic over the bottleneck; it does not react to loss [default: none]
    #[arg(long, value_name = "RATE", help_heading = headings::TRAFFIC)]
    cross_traffic: Option<String>,
    /// Maximum random delay that the sending host adds to each packet [default: none]
    #[arg(long, value_name = "TIME", help_heading = headings::HOSTS)]
    jitter: Option<String>,
    /// Seed of random events. It has no effect on a file transfer without --jitter, --loss and
    /// --cross-traffic [default: 1]
    #[arg(long, value_name = "N", help_heading = headings::MEASUREMENT)]
    seed: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = SimOutputFormat::Text, help_heading = headings::MEASUREMENT)]
    format: SimOutputFormat,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SimOutputFormat {
    /// A table.
    Text,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object.
    Json,
}

impl SimArgs {
    /// Runs the simulation and prints its table; returns the exit code.
    pub(crate) fn run(&self) -> Result<u8, LabError> {
        let format = self.format;
        // The request has a default seed, so an explicit one must be noted before.
        let seeded = self.seed.is_some();
        let request = SimRequest::from_options(&self.options())?;
        if seeded && !request.is_random() {
            print_to_stderr(
                "longhaul lab sim: --seed changes nothing: without --jitter, --loss and \
                 --cross-traffic a file transfer has no random events",
            );
        }
        let report = lab::simulate::run(&request)?;
        let text = match format {
            SimOutputFormat::Text => report.to_text(),
            SimOutputFormat::Csv => report.to_csv(),
            SimOutputFormat::Json => report.to_json(),
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
