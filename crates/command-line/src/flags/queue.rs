//! Flags of `longhaul queue` and `longhaul worker`: a fleet's copies.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{headings, values};
use crate::log::LogFormat;

/// Environment variable with the URL of the database.
pub const DATABASE: &str = "LONGHAUL_QUEUE";

/// Exit codes of the verbs that ask the database.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    some of the jobs are not there, or not in a state for this
  2    usage error: invalid arguments, or a job that cannot be queued
  4    no such job
  5    the database cannot be reached, or refused
  7    local file or system error";

/// Copy by a fleet of machines: jobs in a PostgreSQL database, which workers carry out
///
/// A job is one command of cp or sync. Jobs survive the death of any worker, never run twice at the same time, obey limits
/// of endpoints over the whole fleet, and are repeated after failures. `longhaul worker` runs them.
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: QueueVerb,
}

/// The verbs of `longhaul queue`.
#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    #[command(
        override_usage = "longhaul queue submit [OPTIONS] SRC... DST [-- OPTIONS OF cp]",
        after_help = EXIT_CODES,
        after_long_help = EXIT_CODES
    )]
    Submit(Box<QueueSubmitArgs>),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    List(QueueListArgs),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Show(QueueShowArgs),
    /// Cancel jobs
    ///
    /// A job that runs is told to end; parts of files that it has copied stay, so that a later copy continues them.
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Cancel(QueueJobsArgs),
    /// Have jobs run again that failed or were cancelled, and jobs run now that wait for their next attempt
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Retry(QueueJobsArgs),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Limit(QueueLimitArgs),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Serve(QueueServeArgs),
    /// Run as `longhaul worker`
    #[command(hide = true)]
    Worker(Box<WorkerArgs>),
    /// Watch over a program for a worker, which starts this itself
    #[command(hide = true)]
    Guard(QueueGuardArgs),
}

/// The database.
#[derive(Debug, Clone, Args)]
pub struct QueueDatabaseArgs {
    /// The database, `postgres://USER@HOST/NAME` [default: that of LONGHAUL_QUEUE]. A password is best kept in
    /// ~/.pgpass or PGPASSFILE
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
}

/// Add jobs to the queue
///
/// SRC and DST are URLs, or absolute paths that every worker has. Options of cp (or of sync, with
/// --sync) follow behind `--`, each with its value behind `=`: `-- -r --verify=sha256`. URLs with a
/// password are refused: name a credential of the workers, or keep the password in their ~/.netrc.
/// Prints the numbers of the jobs, one a line.
///
///   longhaul queue submit gsiftp://store/run7/ /archive/run7/ -- -r
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct QueueSubmitArgs {
    /// One or more sources, then the destination
    #[arg(required_unless_present = "from", num_args = 2.., value_names = ["SRC", "DST"])]
    pub places: Vec<String>,
    /// One job for each line of FILE: source and destination, separated by a tab (`-`: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "places")]
    pub from: Option<PathBuf>,
    /// Run sync instead of cp
    #[arg(long)]
    pub sync: bool,
    /// Whose job it is; owners take turns [default: the user of this process]
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
    /// Most files at a time, each over its own session, which counts at the limits of endpoints
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64), help_heading = headings::SPEED)]
    pub sessions: u32,
    /// Maximum rate of the job in bits per second
    #[arg(long, value_name = "RATE", value_parser = values::parse_positive_rate, help_heading = headings::SPEED)]
    pub limit_rate: Option<units::Rate>,
    /// Credential that the worker uses, by its name in the workers' --credentials
    #[arg(long, value_name = "NAME")]
    pub credential: Option<String>,
    /// How often a failed attempt is repeated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000), help_heading = headings::RELIABILITY)]
    pub retries: u32,
    /// Start after this time: `90s`, `2h`
    #[arg(long, value_name = "TIME", value_parser = values::parse_budget)]
    pub after: Option<Duration>,
    /// Print one JSON object per job
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
    /// Options of cp or sync
    #[arg(last = true, allow_hyphen_values = true, value_name = "OPTIONS OF cp")]
    pub options: Vec<String>,
}

/// List jobs, the latest first
#[derive(Debug, Args)]
pub struct QueueListArgs {
    /// Only jobs in this state: `waiting`, `running`, `done`, `failed`, `cancelled`; may be repeated
    #[arg(long, value_name = "STATE")]
    pub state: Vec<String>,
    /// Only jobs of this owner
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
    /// Only jobs with numbers below this one: the next part of a long list
    #[arg(long, value_name = "JOB")]
    pub below: Option<i64>,
    /// Most jobs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub most: u32,
    /// Print one JSON object per job
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
}

/// Show a job: progress, estimate of its end, and its attempts
#[derive(Debug, Args)]
pub struct QueueShowArgs {
    /// Number of the job
    pub job: i64,
    /// Print JSON: the job, then each attempt
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
}

/// The jobs of a verb.
#[derive(Debug, Args)]
pub struct QueueJobsArgs {
    /// Numbers of the jobs
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<i64>,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
}

/// Show or change the limits of endpoints over the whole fleet
///
/// ENDPOINT is a host as it stands in URLs, or `*` for each host without limits of its own. A limit
/// that is not named stays as it is; `off` removes it. Without an endpoint, all limits are listed.
///
///   longhaul queue limit store.example --sessions 16 --rate 2G
///   longhaul queue limit store.example --hours 20:00-06:00 --time-zone Europe/Berlin
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, group = clap::ArgGroup::new("change").multiple(true))]
pub struct QueueLimitArgs {
    /// The host, or `*`
    #[arg(requires = "change")]
    pub endpoint: Option<String>,
    /// Most sessions of all jobs together; 0 stops the start of jobs
    #[arg(long, value_name = "N|off", group = "change", requires = "endpoint")]
    pub sessions: Option<String>,
    /// Rate of all jobs together in bits per second; running jobs share it
    #[arg(long, value_name = "RATE|off", group = "change", requires = "endpoint")]
    pub rate: Option<String>,
    /// When jobs may run, `HH:MM-HH:MM`; at the end those that run stop, and wait
    #[arg(
        long,
        value_name = "HOURS|off",
        group = "change",
        requires = "endpoint"
    )]
    pub hours: Option<String>,
    /// Time zone of --hours: `UTC`, `Europe/Berlin`
    #[arg(long, value_name = "ZONE", group = "change", requires = "endpoint")]
    pub time_zone: Option<String>,
    /// Print one JSON object per endpoint
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
}

/// Show the state of the queue over HTTP: a page, JSON, metrics
///
/// `/` is a page, `/api/v1/overview` JSON, `/metrics` for Prometheus, `/health` says whether the database answers.
/// All of it can be read by whoever reaches the port, and changed by nobody. When it is ready, it prints the line
/// `listening on HOST:PORT` on standard output. SIGTERM ends it.
#[derive(Debug, Args)]
pub struct QueueServeArgs {
    /// Address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2813")]
    pub listen: SocketAddr,
    /// Format of the messages on standard error
    #[arg(long, value_name = "text|json", default_value = "text")]
    pub log: LogFormat,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
}

/// Carry out the jobs of a queue
///
/// Runs until SIGTERM; then the copies that run are told to end, and their jobs go back into the queue. The first
/// line on standard output is `ready`. Settings of the copies are those of this account: ~/.netrc, the
/// configuration file, the environment.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Jobs at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub jobs: u16,
    /// Time for which a job belongs to this worker without a word from it. Another one takes the job after it; the
    /// database may be away for three quarters of it before a copy is interrupted. 2s to 24h
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = values::parse_timeout, help_heading = headings::RELIABILITY)]
    pub lease: Duration,
    /// Time after which the worker looks for jobs also without a notice from the database
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = values::parse_timeout, help_heading = headings::RELIABILITY)]
    pub poll: Duration,
    /// Name of the worker, for people [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// State directory, on a local disk and for this worker alone [default: $STATE_DIRECTORY, or
    /// ~/.local/state/longhaul/worker]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// File with the credentials that jobs may name (TOML)
    #[arg(long, value_name = "FILE.toml")]
    pub credentials: Option<PathBuf>,
    /// Also show the state of the queue over HTTP, as `longhaul queue serve` does
    #[arg(long, value_name = "HOST:PORT", help_heading = headings::MONITORING)]
    pub listen: Option<SocketAddr>,
    /// Format of the messages on standard error
    #[arg(long, value_name = "text|json", default_value = "text", help_heading = headings::MONITORING)]
    pub log: LogFormat,
    #[command(flatten)]
    pub database: QueueDatabaseArgs,
}

/// A program that is watched.
#[derive(Debug, Args)]
pub struct QueueGuardArgs {
    /// Become the program, which ends with the process of this ID
    #[arg(
        long,
        value_name = "PID",
        conflicts_with = "lock",
        required_unless_present = "lock"
    )]
    pub parent: Option<u32>,
    /// File that is locked while the program runs
    #[arg(long, value_name = "FILE", requires = "stop_at", requires = "kill_at")]
    pub lock: Option<PathBuf>,
    /// When the program is told to end, milliseconds since the machine started
    #[arg(long, value_name = "MS")]
    pub stop_at: Option<u64>,
    /// When it is killed
    #[arg(long, value_name = "MS")]
    pub kill_at: Option<u64>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}
