//! `longhaul lab`: the emulator, the simulator, experiments and their report.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lab::experiment::{Mode, RunRequest};
use lab::topology::NetworkOptions;

use super::values;

/// The WAN lab: emulated long paths, a TCP simulator, and experiments that anyone can rerun
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: LabVerb,
}

/// The lab's verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum LabVerb {
    Net(Box<NetArgs>),
    Exec(ExecArgs),
    Sim(Box<super::lab_sim::SimArgs>),
    List(ListArgs),
    Run(RunArgs),
    Report(ReportArgs),
    Trace(TraceArgs),
    /// The first process inside a lab
    #[command(hide = true)]
    Init {
        /// As the lab passes them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// One measurement inside a lab
    #[command(hide = true)]
    Cell {
        /// What to start and to measure.
        job: PathBuf,
    },
}

/// Run a command in an emulated wide-area network
///
/// Two hosts, `a` and `b`, are joined by a path with the given round trip, rate, loss and queue, in
/// both directions; a topology file describes more hosts and a path for each two of them. COMMAND
/// finds their addresses in LAB_A, LAB_B, ..., and runs a program on one of them with
/// `longhaul lab exec a -- PROGRAM`. When COMMAND ends, all that it left running ends too.
///
///   longhaul lab net --rtt 100ms --rate 1gbit --loss 0.1% -- sh -c '
///       longhaul lab exec b -- iperf3 -s -1 -D
///       longhaul lab exec a -- iperf3 -c $LAB_B'
///
/// Works without root where user namespaces are allowed; otherwise as root. What the network did is
/// told at the end, also whether the emulator kept up: if it did not, the run is INVALID and the
/// exit code is 9.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "longhaul lab net [OPTIONS] -- COMMAND..."
)]
pub(crate) struct NetArgs {
    /// Round trip without queues (`100ms`) [default: 0]
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// Bottleneck rate of each direction (`1gbit`, `56kbit`; numbers below 1000 need a unit)
    /// [default: no limit]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Packets lost at random (`0.5%`) [default: none]
    #[arg(long, value_name = "SHARE")]
    loss: Option<String>,
    /// Queue before the bottleneck: `1bdp`, a number of packets, or a SIZE [default: 1bdp]
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Rate, round trip and loss that vary in time: a CSV file (seconds,rate,rtt,loss),
    /// `drsftp-path` or `drsftp-wan`
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Hosts and paths from a file; the options above change what it says for all paths
    #[arg(long, value_name = "FILE.toml")]
    topology: Option<PathBuf>,
    /// Random events repeat with the same seed [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A kernel setting of every host (`net.ipv4.tcp_rmem='4096 87380 1048576'`)
    #[arg(long = "sysctl", value_name = "KEY=VALUE")]
    sysctls: Vec<String>,
    /// TCP congestion control of every host
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Hand every packet over by itself: slower, and no bursts of segments
    #[arg(long)]
    no_offload: bool,
    /// Write what the network did to FILE as JSON
    #[arg(long, value_name = "FILE.json")]
    pub(crate) report: Option<PathBuf>,
    /// Wait for another lab on this machine to end instead of refusing
    #[arg(long)]
    pub(crate) wait: bool,
    /// Say nothing at the end unless the run is invalid
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl NetArgs {
    /// The network that was asked for.
    pub(crate) fn topology(&self) -> Result<lab::topology::Topology, lab::LabError> {
        let shorthand = NetworkOptions {
            rtt: self.rtt.clone(),
            rate: self.rate.clone(),
            loss: self.loss.clone(),
            queue: self.queue.clone(),
            trace: self.trace.clone(),
            sysctls: self.sysctls.clone(),
            cc: self.cc.clone(),
            seed: self.seed,
            offload: self.no_offload.then_some(false),
        };
        lab::topology::Topology::from_options(self.topology.as_deref(), &shorthand)
    }
}

/// Run a program on a host of the surrounding lab
#[derive(Debug, Args)]
#[command(override_usage = "longhaul lab exec HOST -- PROGRAM [ARGUMENTS]...")]
pub(crate) struct ExecArgs {
    /// The host, as in LAB_HOSTS
    pub(crate) host: String,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// List the experiments that ship with the lab
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run an experiment and keep its results
///
/// NAME is one of `longhaul lab list`, the path of an experiment file, or `all`. Each measurement is
/// a fresh network and fresh servers; programs take turns. Programs that are not installed are left
/// out and named. Results go to OUT/NAME-quick.json and .csv (one line a run), cell by cell: cells
/// that are there and are not measured again stay. A run that was interrupted goes on with --resume.
///
///   longhaul lab run all --budget 2h --resume
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RunArgs {
    /// Experiment, or `all` that ship
    name: String,
    /// The published sweep, file sizes and repetitions (hours)
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// A few points and smaller files (minutes); the default
    #[arg(long)]
    quick: bool,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Runs of every program at every point, instead of the experiment's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Instead of the experiment's own seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only these points of the sweep
    #[arg(long, value_name = "AXIS=VALUE[,VALUE]")]
    only: Vec<String>,
    /// Only these programs
    #[arg(long = "program", value_name = "KEY")]
    programs: Vec<String>,
    /// Run only what the results in OUT lack, cells that were interrupted among it
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Set the results in OUT aside, as NAME-quick.json~, and begin anew
    #[arg(long)]
    fresh: bool,
    /// Wait for another lab on this machine to end instead of refusing
    #[arg(long)]
    wait: bool,
    /// With `all`: how long it may take (`90min`, `8h`); repetitions are trimmed, at last experiments
    /// left out
    #[arg(long, value_name = "TIME", value_parser = values::budget)]
    pub(crate) budget: Option<Duration>,
    /// Say what would be run and how long it would take, and end
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl RunArgs {
    /// Whether every experiment is meant.
    pub(crate) fn is_all(&self) -> bool {
        self.name == "all"
    }

    /// As the library takes it.
    ///
    /// # Errors
    /// Options that do not go with all experiments, or only with them.
    pub(crate) fn request(&self) -> Result<RunRequest, lab::LabError> {
        let refused = |what: &str| Err(lab::LabError::Usage(what.to_owned()));
        if self.is_all() && !(self.only.is_empty() && self.programs.is_empty()) {
            return refused("--only and --program are for one experiment, not for `all`");
        }
        if !self.is_all() && self.budget.is_some() {
            return refused("--budget is for `lab run all`; one experiment has --repetitions");
        }
        let mode = if self.full { Mode::Full } else { Mode::Quick };
        Ok(RunRequest {
            repetitions: self.repetitions,
            seed: self.seed,
            only: self.only.clone(),
            programs: self.programs.clone(),
            resume: self.resume,
            fresh: self.fresh,
            wait: self.wait,
            ..RunRequest::new(&self.name, mode, &self.out)
        })
    }
}

/// Draw results as one HTML page with tables and figures, beside the published numbers
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directory with results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    pub(crate) results: PathBuf,
    /// Directory for the page (index.html) and each figure's SVG and table's CSV
    #[arg(long, value_name = "DIR", default_value = "lab-report")]
    pub(crate) out: PathBuf,
}

/// Print one of the shipped traces as CSV, to be edited and given to --trace
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// `drsftp-path` or `drsftp-wan`
    pub(crate) name: String,
}
