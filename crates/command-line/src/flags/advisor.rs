//! Flags of `longhaul advisor`: the network-advice service and its users.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use enable::emit::Program;

use super::values;
use crate::log::LogFormat;

/// Environment variable that names the file with the token.
pub const TOKEN_FILE: &str = "ENABLE_TOKEN_FILE";

/// Exit codes of the verbs that ask a server.
const EXIT_CODES: &str = "\
Exit codes:
  0    the server answered
  2    usage error: invalid arguments or settings
  3    the token is missing or wrong
  4    the client is not monitored
  5    no advice server answers
  7    local file or system error
  8    the server refused for another reason, or is no advice server";

/// Exit codes of `test`.
const TEST_EXIT_CODES: &str = "\
Exit codes:
  0    the test has a result; with --wait 0: the server took the order
  1    the test ended without a result, or has none yet
  2    usage error: invalid arguments or settings
  3    the token is missing or wrong
  4    the client is not monitored
  5    no advice server answers
  7    local file or system error
  8    the server refused for another reason, or is no advice server";

/// Exit codes of `exec`.
const EXEC_EXIT_CODES: &str = "\
Exit codes: those of PROGRAM, or
  2    usage error: invalid arguments
  126  PROGRAM cannot be executed
  127  there is no PROGRAM";

/// Give advice on network paths, and use it
///
/// An advice server runs beside a data server. It measures the paths to the clients and tells any
/// program which buffer, how many streams and which speed to expect (Enable; Tierney et al., HPDC
/// 2001).
#[derive(Debug, Args)]
pub struct AdvisorArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: AdvisorVerb,
}

/// The verbs of `longhaul advisor`.
#[derive(Debug, Subcommand)]
pub enum AdvisorVerb {
    Serve(AdvisorServeArgs),
    /// Keep the server running beside `longhaul serve`, which starts this itself
    #[command(hide = true)]
    Keep(AdvisorKeepArgs),
    /// Check the settings of a server, for `longhaul serve --check`
    #[command(hide = true)]
    Check {
        /// Settings file (TOML)
        config: PathBuf,
    },
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Get(AdvisorGetArgs),
    /// Have a client monitored
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Add {
        /// The client, an address or a name
        client: String,
        #[command(flatten)]
        server: AdvisorServerArgs,
    },
    /// Stop monitoring a client, and forget what was measured
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Remove {
        /// The client, an address or a name
        client: String,
        #[command(flatten)]
        server: AdvisorServerArgs,
    },
    /// List the monitored clients
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    List {
        /// Print one JSON object per client
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: AdvisorServerArgs,
    },
    /// Have a test of the path to a client run now, and show its result
    #[command(after_help = TEST_EXIT_CODES, after_long_help = TEST_EXIT_CODES)]
    Test {
        /// The client, an address or a name
        client: String,
        /// The test: `ping`, `bottleneck`, `route`, or another one of the server's settings
        test: String,
        /// Longest wait for the result; 0: do not wait
        #[arg(long = "wait", value_name = "TIME", default_value = "60s", value_parser = values::parse_wait)]
        result_within: Duration,
        #[command(flatten)]
        server: AdvisorServerArgs,
    },
    /// Choose the tests of a client that run at intervals
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Choose {
        /// The client, an address or a name
        client: String,
        /// The tests: `NAME`, or `NAME=INTERVAL` (`bottleneck=10min`). Others do not run at intervals. Without any, those of the
        /// server's settings run
        #[arg(value_name = "TEST[=INTERVAL]")]
        tests: Vec<String>,
        #[command(flatten)]
        server: AdvisorServerArgs,
    },
    /// Ask which service class (DSCP) transfers should have, and whether a reservation of bandwidth would help
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Qos {
        /// Ask for the path to another client (address or name) than this host
        #[arg(long, value_name = "HOST")]
        client: Option<String>,
        /// The kind of traffic: `background`, `bulk`, `interactive` or `streaming`
        #[arg(long, value_name = "KIND", default_value = "bulk")]
        purpose: String,
        /// Rate that is wanted, bit/s: `800M`
        #[arg(long, value_name = "RATE", value_parser = values::parse_positive_rate)]
        rate: Option<units::Rate>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: AdvisorServerArgs,
    },
    #[command(after_help = EXEC_EXIT_CODES, after_long_help = EXEC_EXIT_CODES)]
    Exec(AdvisorExecArgs),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Import(AdvisorImportArgs),
    #[command(after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
    Enforce(AdvisorEnforceArgs),
}

/// Run an advice server in the foreground
///
/// When the server is ready, it prints the line `listening on HOST:PORT` on standard output. SIGTERM ends it.
/// SIGHUP reads the settings file again and adds new clients of it; other settings need a new start.
#[derive(Debug, Clone, Args)]
pub struct AdvisorServeArgs {
    /// Settings file (TOML) [default: all settings have their defaults]
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Address and port to listen on; port 0 selects a free port [default: 127.0.0.1:2812]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<SocketAddr>,
    /// Check the settings, and what they name on this machine, and end. Exit code 2: the server would not start; 7: it
    /// would start and do less than they say
    #[arg(long)]
    pub check: bool,
    /// Format of the messages on standard error
    #[arg(long, value_name = "text|json", default_value = "text")]
    pub log: LogFormat,
    /// Follow this transfer log of longhaul, too; `longhaul serve` gives it
    #[arg(long, hide = true, value_name = "FILE")]
    pub learn_from: Option<PathBuf>,
    /// Become this account first
    #[arg(long, hide = true, value_name = "USER")]
    pub run_as: Option<String>,
    /// End when standard input ends, and read the settings file again for each line of it
    #[arg(long, hide = true)]
    pub end_with_stdin: bool,
}

/// The service that is kept running.
#[derive(Debug, Clone, Args)]
pub struct AdvisorKeepArgs {
    /// Format of the messages on standard error
    #[arg(long, value_name = "text|json", default_value = "text")]
    pub log: LogFormat,
    /// The account that the server becomes
    #[arg(long, value_name = "USER")]
    pub run_as: Option<String>,
    /// Flags of `longhaul advisor serve`
    #[arg(last = true)]
    pub service: Vec<OsString>,
}

/// Ask for advice on the path from a data server to this host
///
/// Prints the advice as text, as one JSON object, or as the flags of a program on one line, quoted
/// for the shell: `ncftpget $(longhaul advisor get HOST --emit ncftpget) ...`
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct AdvisorGetArgs {
    /// The data server: a host, or HOST:PORT of its advice server
    pub host: String,
    /// Ask for the path to another client (address or name) than this host
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
    /// Bytes to transfer
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub bytes: Option<u64>,
    /// Ask for transfers from the client to the data server
    #[arg(long)]
    pub upload: bool,
    /// Print the flags of PROGRAM: ncftpget, globus-url-copy, lftp, curl, iperf3, rclone, aria2, sysctl
    /// (settings), or route (words for `ip route change`)
    #[arg(long, value_name = "PROGRAM", value_parser = parse_program, conflicts_with = "json")]
    pub emit: Option<Program>,
    /// Print beside the advice the buffers of the published formulas (BBC WHP 178) for the same path
    #[arg(long, conflicts_with_all = ["emit", "json"])]
    pub explain: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: AdvisorWaitArgs,
}

/// Run a program with the advice as its flags
///
/// The flags come before the other arguments, so that those that you give yourself win. The data server is
/// that of the first URL, or the host where PROGRAM takes one; --server names another. Without
/// advice PROGRAM runs unchanged.
#[derive(Debug, Args)]
pub struct AdvisorExecArgs {
    /// The data server: a host, HOST:PORT of its advice server, or a URL of a file there
    #[arg(long, value_name = "HOST")]
    pub server: Option<String>,
    /// Bytes to transfer
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub bytes: Option<u64>,
    /// Do not say which flags were added
    #[arg(short = 'q', long)]
    pub quiet: bool,
    #[command(flatten)]
    pub wait: AdvisorWaitArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub command: Vec<OsString>,
}

/// Report results of other programs to an advice server
///
/// Reads results of perfSONAR (pscheduler) and `iperf3 --json`, and transfer logs of longhaul, GridFTP, FTP and
/// web servers. Each file is recognised by its content. Reporting needs the server's token. A test that failed is
/// named and left out; so is a result that is not understood, and then the exit code is 7. The others count, each once.
#[derive(Debug, Args)]
pub struct AdvisorImportArgs {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Client of results that do not name one
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Addresses of this host, to tell it from the client in results of perfSONAR
    #[arg(long, value_name = "ADDRESS")]
    pub local: Vec<IpAddr>,
    /// Print the measurements as JSON and report none
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub server: AdvisorServerArgs,
}

/// Give the advice to programs that nobody can change, as metrics of routes (root)
///
/// Adds a host route for each client beside the route that serves it, with the advised initcwnd, initrwnd
/// and congctl (ip-route(8)), and prints the commands. --undo removes all of them. `ip route show proto 201`
/// lists them.
#[derive(Debug, Args)]
pub struct AdvisorEnforceArgs {
    /// The clients [default: all that the server monitors]
    #[arg(value_name = "CLIENT", conflicts_with = "undo")]
    pub clients: Vec<IpAddr>,
    /// Print the commands and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove the routes
    #[arg(long)]
    pub undo: bool,
    /// File with the record of the routes [default: enforced-routes.json in the state directory]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    #[command(flatten)]
    pub server: AdvisorServerArgs,
}

/// How long to wait for an answer.
#[derive(Debug, Clone, Copy, Args)]
pub struct AdvisorWaitArgs {
    /// Longest wait for the answer: `500ms`, `2s`; a number is seconds
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::parse_timeout)]
    pub timeout: Duration,
}

/// The server that is asked, and the right to change something there.
#[derive(Debug, Clone, Args)]
pub struct AdvisorServerArgs {
    /// The advice server: a host, or HOST:PORT
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub server: String,
    /// File with the server's token [default: the file that ENABLE_TOKEN_FILE names]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub wait: AdvisorWaitArgs,
}

fn parse_program(text: &str) -> Result<Program, String> {
    Program::from_name(text).ok_or_else(|| {
        let names = Program::ALL.map(Program::name);
        format!("use one of {}", names.join(" "))
    })
}
