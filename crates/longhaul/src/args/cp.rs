//! Flags of `longhaul cp`, and their translation to [`CopyOptions`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use copy::{
    AdviceOptions, AdvisorChoice, BatchJournalLocation, CopyInterrupt, CopyNodes, CopyOptions,
    Failure, FileOptions, ModeChoice, Parallelism, RetryOptions, StreamOptions, SymlinkPolicy,
    TreeOptions,
};
use data::options::{CongestionChoice, IoMethod, TransferOptions};
use enable::client::EnableClient;
use ftp::protection::WarningSink;
use proto::command::Secret;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use security::token::read_token_file;

use tune::streams::chunked::ChunkTuningMode;
use units::names;

use super::batch::BatchArgs;
use command_line::flags::advisor::TOKEN_FILE;

use super::data_values::{parse_block_size, parse_io_method};
use super::keep::KeepArgs;
use super::known_ports::user_history;
use super::place::place;
use super::rate_setting::{self, RateSetting};
use super::reliability::ReliabilityArgs;
use super::reporting::ReportingArgs;
use super::research::ResearchArgs;
use super::security::SecurityArgs;
use super::selection::SelectionArgs;
use super::{headings, values};

/// Copy files and directory trees
///
/// SRC and DST are paths, `-` (standard input or output), or URLs: `ftp://host/path`,
/// `ftps://host/path` (FTP over TLS), `gsiftp://host/path` (GSI: certificates and proxies),
/// `ssh://host/path` (longhaul at the other end of an ssh login; `/~/` is the home directory there),
/// `sshftp://host/path` (a GridFTP server at the other end, as globus-url-copy does),
/// `sftp://host/path` (SFTP, for accounts that run no programs),
/// `http://host/path`, `https://host/path` (or `dav:`, `davs:`), `s3://bucket/key` (keys from the environment or ~/.aws),
/// `file:///path`. Write `user:password@` before the host to log in; it is safer to keep the password in ~/.netrc or in
/// LONGHAUL_PASSWORD. Between two FTP servers, and between two HTTP servers that can, the data goes directly from one to the other
/// (third-party transfer). The last component of a source may contain the wildcards `*`, `?` and
/// `[]`, and alternatives `{a,b}`.
///
/// As with cp(1), a directory goes into DST if that exists, otherwise it becomes DST, and a slash at the
/// end of SRC means nothing. A DST that ends in a slash is a directory, and is created if it is missing.
///
/// Until a file is complete and verified, its name is NAME.longhaul-partial. To continue an
/// interrupted copy, repeat the command.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CpArgs {
    /// Copy directories and everything in them
    #[arg(short = 'r', short_alias = 'R', long, help_heading = headings::CONTENT)]
    recursive: bool,
    /// Start at this byte of the source
    #[arg(long, value_name = "N", value_parser = units::size, help_heading = headings::CONTENT)]
    offset: Option<u64>,
    /// Copy only this many bytes
    #[arg(long, value_name = "N", value_parser = units::size, help_heading = headings::CONTENT)]
    length: Option<u64>,
    /// Do not replace existing destination files. A warning names each one that is older than its
    /// source or differs from it in size. The exit code does not depend on them
    #[arg(long, help_heading = headings::CONTENT)]
    keep_existing: bool,
    /// Only say how much there is to copy, how long it would take, and how that is known: by earlier
    /// transfers over the path, or by an advice server. Nothing is moved or changed
    #[arg(long, conflicts_with = "dry_run", help_heading = headings::CONTENT)]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) batch: BatchArgs,
    #[command(flatten)]
    pub(crate) flags: CopyFlags,
    /// One or more sources, then the destination
    #[arg(required_unless_present = "from", num_args = 2.., value_names = ["SRC", "DST"], value_parser = place(), help_heading = None::<&str>)]
    paths: Vec<String>,
}

/// Flags of the verbs that copy: `cp` and `sync`.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct CopyFlags {
    /// Number of parallel streams. `auto` adjusts it while data moves. `mi`, `mi+` and `aimd` are published
    /// methods (see --autopar)
    #[arg(short = 'p', long = "parallel", value_name = "N|auto|mi|mi+|aimd", default_value = "auto", value_parser = parse_parallelism, help_heading = headings::SPEED)]
    parallelism: Parallelism,
    /// Maximum number of streams per file with `-p auto`, `mi`, `mi+` and `aimd`: 1 to 256
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = parse_max_streams, help_heading = headings::SPEED)]
    max_streams: u32,
    /// Socket buffer sizes. `auto` lets the kernel tune them and sets larger ones where the kernel's
    /// limit is too small for the path; `kernel` leaves them to the kernel; SIZE sets a fixed size;
    /// `drs` and `drs1` are dynamic right-sizing after its papers of 2004 and 2003 (see --drs-interval
    /// and --drs1-reads);
    /// `drs2004` has the estimates exactly as published
    #[arg(long, value_name = "auto|kernel|drs|drs1|drs2004|SIZE", default_value = "auto", value_parser = parse_buffer, help_heading = headings::SPEED)]
    buffer: SocketBuffers,
    /// TCP congestion control of the sender. `auto` switches to a loss-tolerant one if the path loses
    /// packets without congestion and the sending system permits it; `system` keeps the system default;
    /// NAME selects one, such as `bbr`. A longhaul server that sends is asked to use it; other servers
    /// use their own
    #[arg(long, value_name = "auto|system|NAME", default_value = "auto", value_parser = parse_congestion, help_heading = headings::SPEED)]
    cc: CongestionChoice,
    /// Transfer mode: `s` (stream), `e` (extended block, MODE E), or `auto`
    #[arg(long, value_name = "auto|s|e", default_value = "auto", value_parser = parse_mode, help_heading = headings::SPEED)]
    mode: ModeChoice,
    /// Maximum rate of all files together in bits per second (`100M`; a number below 1000 needs a
    /// unit). `08:00,20M 18:00,off` is a timetable of the day in local time. `@FILE` holds either of the two, and is
    /// read again when it changes. SIGUSR2 suspends the limit, and puts it in force again. Not possible for third-party
    /// transfers, whose data does not pass through this machine
    #[arg(long, value_name = "RATE|TIMETABLE|@FILE", value_parser = rate_setting::parse, help_heading = headings::SPEED)]
    limit_rate: Option<RateSetting>,
    /// Symbolic links in a copied tree: `skip` skips each one with a notice; `follow` copies the file or
    /// directory that it points to, except for loops; `copy` creates the same link if it points into
    /// the tree
    #[arg(long, value_name = "skip|follow|copy", default_value = "skip", value_parser = parse_links, help_heading = headings::CONTENT)]
    links: SymlinkPolicy,
    #[command(flatten)]
    pub(crate) reliability: ReliabilityArgs,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Most files copied at the same time, each over its own session: 1 to 64, or `auto`, which begins with few and adds
    /// sessions while that moves more files; a server's limit is obeyed
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_concurrency, help_heading = headings::SPEED)]
    concurrency: Concurrency,
    /// Local ports for data connections that servers open (active mode)
    #[arg(long, value_name = "LO-HI", value_parser = values::parse_port_range, help_heading = headings::NETWORK)]
    data_ports: Option<(u16, u16)>,
    /// Connect to the data address that the server announces, even if it is another host. Servers
    /// with separate data nodes need it. By default data connections go to the server's own address
    #[arg(long, help_heading = headings::NETWORK)]
    allow_foreign_data_address: bool,
    /// Begin without what earlier transfers taught about the path, and keep nothing of this one. Otherwise
    /// ~/.local/state/longhaul/paths.json remembers streams, congestion control and pacing by address prefix; it may be
    /// deleted at any time. LONGHAUL_HISTORY=off does the same, LONGHAUL_HISTORY=FILE names another file
    #[arg(long, help_heading = headings::SPEED)]
    no_history: bool,
    /// Whom to ask for advice on the path (`longhaul help advisor`): HOST or HOST:PORT of an advice server,
    /// `off`, or `auto` (the service that the data server announces). Earlier transfers of your own count
    /// more. What a transfer measured is reported to HOST if ENABLE_TOKEN_FILE names a file with its
    /// token [default: LONGHAUL_ADVISOR, or auto]
    #[arg(long, value_name = "HOST|off|auto", value_parser = parse_advisor, help_heading = headings::SPEED)]
    advisor: Option<AdvisorChoice>,
    /// Block size of extended block mode (MODE E) when this machine sends
    #[arg(long, value_name = "SIZE", default_value = "1Mi", value_parser = parse_block_size, help_heading = headings::SPEED)]
    block: usize,
    /// Method to move bytes between file and socket: auto, copy, sendfile, splice, zerocopy
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = parse_io_method, help_heading = headings::SPEED)]
    io: IoMethod,
    /// Print one JSON object per line on standard output; the last one is the summary
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short = 'q', long, help_heading = headings::OUTPUT)]
    pub(crate) quiet: bool,
    /// Write samples and tuning decisions of every stream to FILE, one JSON object per line
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    trace: Option<PathBuf>,
    /// Print one line that names the bottleneck of the transfer
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) why: bool,
    /// Machines that move the files in place of this one, each with its own network card: HOST or USER@HOST, reached by
    /// ssh (see --ssh), or `localhost`. They see the same files, and run the same longhaul (see --ssh-program). `off`: this process
    /// moves everything [default under srun: the tasks of the step]
    #[arg(long, value_name = "HOST,...|off", value_delimiter = ',', help_heading = headings::SPEED)]
    pub(crate) nodes: Vec<String>,
    /// Processes that share the limit on the rate. Set on nodes.
    #[arg(skip)]
    sharers: usize,
    /// Only print what would be copied and deleted
    #[arg(short = 'n', long, help_heading = headings::CONTENT)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) report: ReportingArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    research: ResearchArgs,
}

impl CpArgs {
    /// Sources and destination.
    pub(crate) fn sources_and_destination(&self) -> (&[String], &str) {
        match self.paths.split_last() {
            Some((destination, sources)) => (sources, destination),
            None => (&[], ""),
        }
    }

    /// The flags of one of some nodes.
    pub(crate) fn on_node(self, nodes: usize) -> Self {
        Self {
            flags: self.flags.on_node(nodes),
            ..self
        }
    }

    /// The flags as [`CopyOptions`]; warnings about protection go to `warn`.
    ///
    /// # Errors
    /// As [`CopyFlags::options`].
    pub(crate) fn options(&self, warn: WarningSink) -> Result<CopyOptions, Failure> {
        Ok(self.flags.options(warn)?.with(|options| {
            options.tree.recursive = self.recursive;
            (options.forecast, options.dry_run) = (self.plan, self.plan || options.dry_run);
            options.file.offset = self.offset;
            options.file.length = self.length;
            options.file.keep_existing = self.keep_existing;
            options.journal = self.batch.journal();
            options.failed_list = self.batch.failed_list();
        }))
    }
}

impl CopyFlags {
    /// The flags of one of some nodes, which does not list anything and reports to the process that does.
    pub(crate) fn on_node(mut self, nodes: usize) -> Self {
        self.selection = SelectionArgs::default();
        self.keep = self.keep.on_node();
        (self.trace, self.dry_run) = (None, false);
        self.sharers = nodes;
        self
    }

    /// The flags as [`CopyOptions`] of a whole tree; warnings about protection go to `warn`.
    ///
    /// # Errors
    /// `Usage` for flags that contradict each other; `Refused` for a file of a flag that cannot be
    /// used; `NotFound` for a missing list of files or rules.
    pub(crate) fn options(&self, warn: WarningSink) -> Result<CopyOptions, Failure> {
        let limit = self.limit_rate.as_ref();
        let rate = limit
            .map(|limit| limit.begin(self.sharers.max(1), Arc::clone(&warn)))
            .transpose()?;
        let history = user_history().filter(|_| !self.no_history);
        let security = &self.security;
        Ok(CopyOptions {
            security: security.connection_security(self.data_ports, history.as_ref(), warn)?,
            tree: TreeOptions {
                recursive: true,
                symlinks: self.links,
                selection: self.selection.selection()?,
                files_from: self.selection.listed_files()?,
            },
            file: FileOptions {
                offset: None,
                length: None,
                resume: self.reliability.resume,
                restart: self.reliability.restart,
                verify: self.reliability.verify,
                sync_policy: self.reliability.sync_policy,
                preserve: self.keep.preserve,
                sparse: self.keep.sparse,
                keep_existing: false,
                in_place: self.keep.in_place,
                wait: self.reliability.wait,
            },
            streams: StreamOptions {
                parallelism: self.parallelism,
                max_streams: self.max_streams,
                autopar: self.research.autopar,
                mode: self.mode,
                transfer: TransferOptions {
                    buffers: self.buffer,
                    drs_interval: self.research.drs_interval,
                    drs1_reads: self.research.drs1_reads,
                    congestion: self.cc.clone(),
                    io: self.io,
                    block: self.block,
                    rate: rate.flatten(),
                    stall: self.reliability.timeout,
                },
                allow_foreign_data: self.allow_foreign_data_address,
                data_ports: self.data_ports,
            },
            retry: RetryOptions {
                retries: self.reliability.retries(),
                patience: self.reliability.patience(),
            },
            trace: self.trace.clone(),
            write_sums: self.keep.write_sums(),
            receipt: self.keep.receipt(),
            dry_run: self.dry_run,
            forecast: false,
            concurrency: self.concurrency.0,
            advice: self.advice()?,
            journal: BatchJournalLocation::Off,
            failed_list: None,
            interrupt: CopyInterrupt::default(),
            nodes: CopyNodes::default(),
            history,
        })
    }
}

/// Environment variable with the value of `--advisor`.
const ADVISOR: &str = "LONGHAUL_ADVISOR";

impl CopyFlags {
    /// Whom to ask for advice, and the token for reports.
    ///
    /// # Errors
    /// `Usage`: the environment names no advice server. `Refused`: the token's file cannot be used.
    fn advice(&self) -> Result<AdviceOptions, Failure> {
        let choice = match (&self.advisor, std::env::var(ADVISOR)) {
            (Some(choice), _) => choice.clone(),
            (None, Ok(text)) => parse_advisor(&text)
                .map_err(|error| Failure::usage(format!("{ADVISOR}: {error}")))?,
            (None, Err(_)) => AdvisorChoice::Announced,
        };
        let token_file = std::env::var_os(TOKEN_FILE).map(PathBuf::from);
        let is_named = matches!(choice, AdvisorChoice::Server(_));
        let token = match token_file.filter(|_| is_named) {
            Some(path) => {
                Some(read_token_file(&path).map_err(|error| Failure::refused(error.to_string()))?)
            }
            None => None,
        };
        Ok(AdviceOptions {
            choice,
            token: token.map(|token| Secret::from(token.as_str())),
        })
    }
}

/// Parses `--advisor`.
fn parse_advisor(text: &str) -> Result<AdvisorChoice, String> {
    match text {
        "auto" => Ok(AdvisorChoice::Announced),
        "off" => Ok(AdvisorChoice::Off),
        server => match EnableClient::new(server, Duration::from_secs(1)) {
            Ok(_) => Ok(AdvisorChoice::Server(server.to_owned())),
            Err(error) => Err(error.to_string()),
        },
    }
}

fn parse_parallelism(text: &str) -> Result<Parallelism, String> {
    match text {
        "auto" => Ok(Parallelism::Auto),
        // Ito, Ohsaki and Imase (2008) name the modes MI, MI+ and AIMD.
        "mi" => Ok(Parallelism::Chunked(ChunkTuningMode::Mi)),
        "mi+" => Ok(Parallelism::Chunked(ChunkTuningMode::MiPlus)),
        "aimd" => Ok(Parallelism::Chunked(ChunkTuningMode::Aimd)),
        _ => parse_stream_count(text)
            .map(Parallelism::Fixed)
            .ok_or_else(|| {
                format!("'{text}' is neither auto, mi, mi+, aimd nor a number from 1 to 256")
            }),
    }
}

fn parse_stream_count(text: &str) -> Option<u32> {
    // Servers limit connections too, and each stream costs a thread and its buffers.
    text.parse().ok().filter(|n| (1..=256).contains(n))
}

fn parse_max_streams(text: &str) -> Result<u32, String> {
    parse_stream_count(text).ok_or_else(|| "use a number from 1 to 256".into())
}

/// Parses `--cc`.
pub(crate) fn parse_congestion(text: &str) -> Result<CongestionChoice, String> {
    if !names::is_congestion_control(text) {
        return Err("use auto, system or a name such as bbr".into());
    }
    Ok(CongestionChoice::parse(text))
}

fn parse_buffer(text: &str) -> Result<SocketBuffers, String> {
    match BufferSizing::parse(text) {
        Some(sizing) => Ok(SocketBuffers::sized_by(sizing)),
        None => values::parse_positive_size(text)
            .map(SocketBuffers::pinned)
            .map_err(|_| {
                format!(
                    "'{text}' is neither auto, kernel, drs, drs1, drs2004 nor a size such as 4Mi"
                )
            }),
    }
}

fn parse_mode(text: &str) -> Result<ModeChoice, String> {
    let names = [
        ("auto", ModeChoice::Auto),
        ("s", ModeChoice::Stream),
        ("e", ModeChoice::Extended),
    ];
    values::parse_name(text, &names)
}

fn parse_links(text: &str) -> Result<SymlinkPolicy, String> {
    let names = [
        ("skip", SymlinkPolicy::Skip),
        ("follow", SymlinkPolicy::Follow),
        ("copy", SymlinkPolicy::Copy),
    ];
    values::parse_name(text, &names)
}

/// Most files at a time; `None`: chosen by the policy.
#[derive(Debug, Clone, Copy)]
struct Concurrency(Option<usize>);

fn parse_concurrency(text: &str) -> Result<Concurrency, String> {
    if text == "auto" {
        return Ok(Concurrency(None));
    }
    let number = text.parse().ok();
    let number = number.filter(|n| (1..=64).contains(n));
    number
        .map(|number| Concurrency(Some(number)))
        .ok_or_else(|| "use auto, or a number from 1 to 64".into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tune::streams::chunked::ChunkParameters;

    use super::*;
    use crate::args::parse_flags;

    fn options(flags: &[&str]) -> Result<CopyOptions, String> {
        let args: CpArgs = parse_flags(&[flags, &["a", "b"]].concat())?;
        let options = args.options(Arc::new(|_: &str| ()));
        options.map_err(|failure| failure.to_string())
    }

    #[test]
    fn streams_and_congestion_control_default_to_auto() {
        let options = options(&[]).unwrap();
        assert_eq!(options.streams.parallelism, Parallelism::Auto);
        assert_eq!(options.streams.transfer.congestion, CongestionChoice::Auto);
        assert_eq!(options.streams.max_streams, 128);
        assert_eq!(options.streams.autopar, ChunkParameters::default());
    }

    #[test]
    fn parallel_takes_a_number_from_1_to_256_or_a_mode() {
        for (text, wanted) in [
            ("auto", Parallelism::Auto),
            ("1", Parallelism::Fixed(1)),
            ("256", Parallelism::Fixed(256)),
            ("mi", Parallelism::Chunked(ChunkTuningMode::Mi)),
            ("mi+", Parallelism::Chunked(ChunkTuningMode::MiPlus)),
            ("aimd", Parallelism::Chunked(ChunkTuningMode::Aimd)),
        ] {
            assert_eq!(
                options(&["-p", text]).unwrap().streams.parallelism,
                wanted,
                "{text}"
            );
        }
        for text in ["0", "257", "MI", "mi++", "-1", ""] {
            let error = options(&[&format!("-p={text}")]).unwrap_err();
            assert!(error.contains("mi+"), "{text}: {error}");
        }
    }

    #[test]
    fn advice_comes_from_a_named_server_from_an_announced_one_or_from_nobody() {
        let choice = |text: &str| options(&["--advisor", text]).map(|o| o.advice.choice);
        assert_eq!(choice("off"), Ok(AdvisorChoice::Off));
        assert_eq!(choice("auto"), Ok(AdvisorChoice::Announced));
        let named = AdvisorChoice::Server("data.example:99".to_owned());
        assert_eq!(choice("data.example:99"), Ok(named));
        assert!(choice("two words").unwrap_err().contains("two words"));
    }

    #[test]
    fn autopar_sets_the_parameters_of_the_chunked_modes() {
        let options = options(&["-p", "mi", "--autopar", "eta=0.7,delta=2s,n0=4"]).unwrap();
        assert_eq!(options.streams.autopar.eta, 0.7);
        assert_eq!(options.streams.autopar.delta, Duration::from_secs(2));
        assert_eq!(options.streams.autopar.initial_streams, 4);
    }

    #[test]
    fn the_error_for_an_invalid_value_names_the_problem() {
        let error = |flags: &[&str]| options(flags).unwrap_err();
        assert!(error(&["--autopar", "eta=2"]).contains("eta"));
        assert!(error(&["--autopar", "zeta=2"]).contains("zeta"));
        assert!(error(&["--max-streams", "0"]).contains("256"));
        assert!(error(&["--max-streams", "257"]).contains("256"));
        for name in ["", "cubic;", "a-name-that-is-too-long", "two words"] {
            assert!(error(&["--cc", name]).contains("system"), "{name}");
        }
    }

    #[test]
    fn cc_takes_system_or_a_name() {
        let cc = |name: &str| {
            options(&["--cc", name])
                .unwrap()
                .streams
                .transfer
                .congestion
        };
        assert_eq!(cc("system"), CongestionChoice::System);
        assert_eq!(cc("bbr"), CongestionChoice::Named("bbr".to_owned()));
    }
}
