//! Flags of `longhaul lab`: emulator, simulator, experiments and their report.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{headings, values};

/// WAN lab: a network emulator, a TCP simulator and repeatable experiments
#[derive(Debug, Args)]
pub struct LabArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: LabVerb,
}

/// The lab's verbs.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    Net(Box<NetArgs>),
    Exec(ExecArgs),
    Sim(Box<super::lab_sim::SimArgs>),
    League(super::lab_league::LeagueArgs),
    List(ListArgs),
    Run(RunArgs),
    Report(ReportArgs),
    Trace(TraceArgs),
    /// First process of a lab's PID namespace; started by `lab net`
    #[command(hide = true)]
    Init {
        /// Arguments from `lab net`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// One measurement inside a lab; started by `lab run`
    #[command(hide = true)]
    Cell {
        /// Description of the measurement.
        job: PathBuf,
    },
}

/// Run a command in an emulated wide-area network
///
/// The lab connects two hosts, `a` and `b`, by a path with the given round-trip time, rate, loss and
/// queue. Rate, loss and queue apply to each direction. A topology file can define more hosts and a
/// path for each pair. COMMAND finds the hosts' addresses in LAB_A, LAB_B, ... and runs a program on
/// a host with `longhaul lab exec a -- PROGRAM`. When COMMAND ends, the lab ends all processes that
/// it started.
///
///   longhaul lab net --rtt 100ms --rate 1gbit --loss 0.1% -- sh -c '
///       longhaul lab exec b -- iperf3 -s -1 -D
///       longhaul lab exec a -- iperf3 -c $LAB_B'
///
/// It needs root or permission to create user namespaces. At the end it reports what the network
/// did. If the machine was the limit (the emulator could not keep up, or other programs were busy),
/// it marks the run INVALID and, unless COMMAND itself failed, exits with 9.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "longhaul lab net [OPTIONS] -- COMMAND..."
)]
pub struct NetArgs {
    /// Round-trip time without queueing delay (`100ms`), a number in milliseconds [default: 0]
    #[arg(long, value_name = "TIME", help_heading = headings::PATH)]
    pub rtt: Option<String>,
    /// Bottleneck rate of each direction (`1gbit`, `56kbit`; a number below 1000 needs a unit)
    /// [default: no limit]
    #[arg(long, value_name = "RATE", help_heading = headings::PATH)]
    pub rate: Option<String>,
    /// Random packet loss (`0.5%`) [default: none]
    #[arg(long, value_name = "SHARE", help_heading = headings::PATH)]
    pub loss: Option<String>,
    /// Size of the bottleneck queue: `1bdp`, a number of packets, or a SIZE in bytes [default: 1bdp]
    #[arg(long, value_name = "QUEUE", help_heading = headings::PATH)]
    pub queue: Option<String>,
    /// Rate, round-trip time and loss over time: a CSV file (seconds,rate,rtt,loss), or the built-in
    /// trace `drsftp-path` or `drsftp-wan`
    #[arg(long, value_name = "FILE", help_heading = headings::PATH)]
    pub trace: Option<String>,
    /// Number of routers on each path. They are `r1`, `r2`, ... from the earlier host, decrement the time to
    /// live and answer traceroute [default: 0]
    #[arg(long, value_name = "N", help_heading = headings::PATH)]
    pub routers: Option<String>,
    /// Link of the path that has the rate and the queue; 1 is the link to the first router [default: 2]
    #[arg(long, value_name = "N", help_heading = headings::PATH)]
    pub bottleneck_link: Option<String>,
    /// File with hosts and paths. The options above override it for all paths
    #[arg(long, value_name = "FILE.toml", help_heading = headings::PATH)]
    pub topology: Option<PathBuf>,
    /// Seed of random events; the same seed repeats them [default: 1]
    #[arg(long, value_name = "N", help_heading = headings::RUN)]
    pub seed: Option<u64>,
    /// Kernel setting of every host (`net.ipv4.tcp_rmem='4096 87380 1048576'`)
    #[arg(long = "sysctl", value_name = "KEY=VALUE", help_heading = headings::HOSTS)]
    pub sysctls: Vec<String>,
    /// TCP congestion control of every host
    #[arg(long, value_name = "NAME", help_heading = headings::HOSTS)]
    pub cc: Option<String>,
    /// Disable segmentation offload: the hosts send single packets instead of bursts. Slower
    #[arg(long, help_heading = headings::HOSTS)]
    pub no_offload: bool,
    /// Write the report on the network to FILE as JSON
    #[arg(long, value_name = "FILE.json", help_heading = headings::RUN)]
    pub report: Option<PathBuf>,
    /// If another lab is running on this machine, wait until it ends. Without --wait, exit with 7
    #[arg(long, help_heading = headings::RUN)]
    pub wait: bool,
    /// Print no report at the end unless the run is invalid
    #[arg(short = 'q', long, help_heading = headings::RUN)]
    pub quiet: bool,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Run a program on a lab host (inside `lab net` only)
#[derive(Debug, Args)]
#[command(override_usage = "longhaul lab exec HOST -- PROGRAM [ARGUMENTS]...")]
pub struct ExecArgs {
    /// Name of the host, as in LAB_HOSTS
    pub host: String,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// List the built-in experiments
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Run an experiment and save its results
///
/// NAME is an experiment from `longhaul lab list`, the path of an experiment file, or `all`. Each
/// measurement uses a new network and new servers. The programs under test take turns; programs that
/// are not installed are skipped with a notice. A cell is one program with one combination of
/// parameters. The results are saved after each cell, in DIR/NAME-quick.json or NAME-full.json and
/// in a .csv file (one line per run). Cells that are not measured again keep their results. To
/// continue an interrupted run, use --resume.
///
///   longhaul lab run all --budget 2h --resume
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct RunArgs {
    /// Name or file of an experiment, or `all`
    pub name: String,
    /// Use the published parameters, file sizes and repetitions (takes hours)
    #[arg(long, conflicts_with = "quick", help_heading = headings::MEASUREMENT)]
    pub full: bool,
    /// Use a few parameter values and smaller files (takes minutes). This is the default
    #[arg(long, help_heading = headings::MEASUREMENT)]
    pub quick: bool,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "lab-results", help_heading = headings::RUN)]
    pub out: PathBuf,
    /// Runs of each program for each combination of parameters [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = headings::MEASUREMENT)]
    pub repetitions: Option<u32>,
    /// Seed of random events [default: the experiment's]
    #[arg(long, value_name = "N", help_heading = headings::MEASUREMENT)]
    pub seed: Option<u64>,
    /// Measure only these parameter values
    #[arg(long, value_name = "AXIS=VALUE[,VALUE]", help_heading = headings::MEASUREMENT)]
    pub only: Vec<String>,
    /// Measure only this program; may be repeated
    #[arg(long = "program", value_name = "KEY", help_heading = headings::MEASUREMENT)]
    pub programs: Vec<String>,
    /// Measure only cells that are missing or incomplete in the saved results
    #[arg(long, conflicts_with = "fresh", help_heading = headings::RUN)]
    pub resume: bool,
    /// Rename the saved results to NAME-quick.json~ or NAME-full.json~ and start over
    #[arg(long, help_heading = headings::RUN)]
    pub fresh: bool,
    /// If another lab is running on this machine, wait until it ends. Without --wait, exit with 7
    #[arg(long, help_heading = headings::RUN)]
    pub wait: bool,
    /// If other programs use too much of this machine for valid runs, wait until they do not. Without --wait-quiet,
    /// the run says so and begins
    #[arg(long, help_heading = headings::RUN)]
    pub wait_quiet: bool,
    /// Time limit for `all` (`90min`, `8h`). To meet it, longhaul reduces repetitions, then skips
    /// experiments
    #[arg(long, value_name = "TIME", value_parser = values::parse_budget, help_heading = headings::MEASUREMENT)]
    pub budget: Option<Duration>,
    /// Print the plan and the expected duration, and run nothing
    #[arg(long, help_heading = headings::RUN)]
    pub dry_run: bool,
}

/// Write an HTML report with tables and figures, next to the published numbers
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directory with saved results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    pub results: PathBuf,
    /// Directory for the report (index.html), its figures (SVG) and its tables (CSV)
    #[arg(long, value_name = "DIR", default_value = "lab-report")]
    pub out: PathBuf,
}

/// Print a built-in trace as CSV, to edit and pass to --trace
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// `drsftp-path` or `drsftp-wan`
    pub name: String,
}
