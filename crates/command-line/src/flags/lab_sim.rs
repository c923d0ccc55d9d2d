//! Flags of `longhaul lab sim`. Their defaults are the base setting of the paper.

use clap::{Args, ValueEnum};

use super::headings;

/// Simulate parallel TCP connections over a bottleneck
///
/// A server sends to a client over two routers. The link between the routers is the bottleneck and has
/// a drop-tail queue. Each number of connections is one simulation and one line of the table. The
/// defaults are the base setting of Ito, Ohsaki and Imase (2008). The same seed gives the same
/// table.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SimArgs {
    /// Number of parallel connections: a number, a range `1..64`, a list of these, or `auto` (the
    /// number that longhaul would use). `mi`, `mi+` and `aimd` (the modes of the paper) and `probe`
    /// (longhaul's own) find the number while they send a 10 GB file in chunks [default: 1..64]
    #[arg(long, value_name = "N", help_heading = headings::TRAFFIC)]
    pub flows: Option<String>,
    /// Parameters of --flows `mi`, `mi+`, `aimd` and `probe`, such as `eta=0.7,delta=5s`. The keys are
    /// n0, eta, gamma, alpha, beta, delta, rho, most, rtt and optimum [default: those of the paper]
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = headings::TRAFFIC)]
    pub autopar: Option<String>,
    /// Bottleneck rate (`1gbit`; a number below 1000 needs a unit) [default: 100mbit]
    #[arg(long, value_name = "RATE", help_heading = headings::PATH)]
    pub rate: Option<String>,
    /// One-way propagation delay of the bottleneck, a number in milliseconds [default: 10ms]
    #[arg(long, value_name = "TIME", conflicts_with = "rtt", help_heading = headings::PATH)]
    pub delay: Option<String>,
    /// Round-trip time without queueing delay, including the access links; replaces --delay
    #[arg(long, value_name = "TIME", help_heading = headings::PATH)]
    pub rtt: Option<String>,
    /// One-way delay of each of the two access links [default: 1ms]
    #[arg(long, value_name = "TIME", help_heading = headings::PATH)]
    pub access_delay: Option<String>,
    /// Rate of the access links [default: 1gbit]
    #[arg(long, value_name = "RATE", help_heading = headings::PATH)]
    pub access_rate: Option<String>,
    /// Access links: `own` (each connection has its own) or `shared` (all have those of one server and one
    /// client) [default: own]
    #[arg(long, value_name = "NAME", help_heading = headings::PATH)]
    pub access: Option<String>,
    /// Size of the bottleneck queue: `1bdp`, a number of packets, or a SIZE in bytes
    /// [default: 1000 packets]
    #[arg(long, value_name = "QUEUE", help_heading = headings::PATH)]
    pub queue: Option<String>,
    /// Random packet loss after the bottleneck [default: none]
    #[arg(long, value_name = "SHARE", help_heading = headings::PATH)]
    pub loss: Option<String>,
    /// Socket buffer of each connection: a SIZE, or a published formula for the path: `bdp` (rate times round trip)
    /// or `bdp/(p-1)`, where p is the number of connections [default: 64KiB]
    #[arg(long, value_name = "SIZE", help_heading = headings::HOSTS)]
    pub window: Option<String>,
    /// Receive window: `fixed` (all of --window from the start), `drs` (dynamic right-sizing in the kernel, 2003) or `linux`
    /// (autotuning), which grow with the data up to --window [default: fixed]
    #[arg(long, value_name = "NAME", help_heading = headings::HOSTS)]
    pub receiver: Option<String>,
    /// Congestion control: `newreno` or `cubic` [default: newreno]
    #[arg(long, value_name = "NAME", help_heading = headings::HOSTS)]
    pub cc: Option<String>,
    /// Loss recovery: `sack`, `sack-timer` (a repeated segment that is lost again waits for the timer), or `ns2-reno` (Reno of
    /// ns-2, without SACK) [default: sack]
    #[arg(long, value_name = "NAME", help_heading = headings::HOSTS)]
    pub sender: Option<String>,
    /// Initial congestion window in segments [default: 2, as in ns-2; 10 with --bytes, except for
    /// transfers in chunks]
    #[arg(long, value_name = "N", help_heading = headings::HOSTS)]
    pub initial_window: Option<u32>,
    /// Acknowledge every second segment instead of each one
    #[arg(long, help_heading = headings::HOSTS)]
    pub delayed_ack: bool,
    /// Size of the IP packet of a full segment in bytes [default: 1500]
    #[arg(long, value_name = "SIZE", help_heading = headings::HOSTS)]
    pub packet: Option<String>,
    /// Duration of the measurement after the warm-up, a number in seconds [default: 60s]; with --bytes, time limit of the
    /// transfer [default: 1h]
    #[arg(long, value_name = "TIME", help_heading = headings::MEASUREMENT)]
    pub time: Option<String>,
    /// Simulated time before the measurement, a number in seconds [default: 20s]
    #[arg(long, value_name = "TIME", help_heading = headings::MEASUREMENT)]
    pub warm_up: Option<String>,
    /// Transfer one file of this size over all connections
    #[arg(long, value_name = "SIZE", help_heading = headings::TRAFFIC)]
    pub bytes: Option<String>,
    /// Simulate so many transfers over the bottleneck together, which send without end; fairness is that between them. Each
    /// finds its number of connections as --flows says, with `auto` as `longhaul cp` does while data moves
    #[arg(long, value_name = "N", help_heading = headings::TRAFFIC)]
    pub sessions: Option<u32>,
    /// Time from the start of one of the --sessions to the next, a number in seconds [default: 0]
    #[arg(long, value_name = "TIME", help_heading = headings::TRAFFIC)]
    pub stagger: Option<String>,
    /// Cross traffic over the bottleneck; it does not react to loss [default: none]
    #[arg(long, value_name = "RATE", help_heading = headings::TRAFFIC)]
    pub cross_traffic: Option<String>,
    /// Maximum random delay that the sending host adds to each packet [default: none]
    #[arg(long, value_name = "TIME", help_heading = headings::HOSTS)]
    pub jitter: Option<String>,
    /// Seed of random events. It has no effect on a file transfer without --jitter, --loss and
    /// --cross-traffic [default: 1]
    #[arg(long, value_name = "N", help_heading = headings::MEASUREMENT)]
    pub seed: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = SimOutputFormat::Text, help_heading = headings::MEASUREMENT)]
    pub format: SimOutputFormat,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimOutputFormat {
    /// A table.
    Text,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object.
    Json,
}
