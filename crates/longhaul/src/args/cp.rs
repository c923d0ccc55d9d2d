//! `longhaul cp`: its flags, and what they mean to the client.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use client::{CopyOptions, ModeChoice, Parallelism, SymlinkPolicy, VerifyMode};
use data::options::{CongestionChoice, IoMethod, TransferOptions};
use data::rate::RateLimit;
use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;

use tune::sizing::drs::{DrsInterval, DrsIntervalError};
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};

use super::values;

/// Copy files and trees
///
/// SRC and DST are paths, `-` (standard input or output), or URLs: `ftp://host/path`,
/// `gsiftp://host/path`, `file:///path`. `user:password@` may stand before the host; better, put
/// the password into ~/.netrc or LONGHAUL_PASSWORD. With two remote ends the servers move the data
/// between themselves (a third-party transfer). The last component of a source may hold `*`, `?`
/// and `[]`.
///
/// A file that is still on its way is called NAME.longhaul-partial and gets its name when it is
/// whole and verified. After a cut, the same command with --resume goes on from what is safe.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct CpArgs {
    /// Copy directories with all that is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Parallel streams: a number; `auto`, which goes by what it sees while data moves; or `mi`, `mi+`,
    /// `aimd`, which go chunk by chunk by goodput and round trip alone, as published in 2008
    #[arg(short = 'p', long = "parallel", value_name = "N|auto|mi|mi+|aimd", default_value = "auto", value_parser = parallelism)]
    parallelism: Parallelism,
    /// Never more streams than this for one file, with `-p auto`, `mi`, `mi+` and `aimd`: 1 to 256
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = max_streams)]
    max_streams: u32,
    /// Parameters of `-p mi`, `mi+` and `aimd`. Without it they are the paper's: n0=1, eta=0.8,
    /// gamma=2, alpha=2, beta=0.5, delta=10s, rho=0.1. What the paper leaves open is read as its
    /// results ask for: rtt=flowing (round trips are taken while data flows; or between, the chunks),
    /// optimum=both (terms of its equation 1, for mi+; or second, alone)
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true, value_parser = autopar)]
    autopar: ChunkParameters,
    /// Socket buffers while data moves: `auto` (watch the kernel's autotuning, take over where it is
    /// too small), `kernel` (leave them to it), `drs` or `drs1` (dynamic right-sizing as published
    /// in 2004 and 2003), or a SIZE that pins them
    #[arg(long, value_name = "auto|kernel|drs|drs1|SIZE", default_value = "auto", value_parser = buffer)]
    buffer: SocketBuffers,
    /// With `--buffer drs`, how often a receiving end computes the bandwidth: `adaptive` (follows the
    /// round trip) or a time such as 100ms
    #[arg(long, value_name = "adaptive|TIME", default_value = "adaptive", value_parser = interval)]
    drs_interval: DrsInterval,
    /// Congestion control of the streams: `auto` (what the path asks for, of those that the sending
    /// system permits), `system` (its default), or a name such as `bbr`. A longhaul server that sends
    /// is asked for it, others run their own
    #[arg(long, value_name = "auto|system|NAME", default_value = "auto", value_parser = congestion)]
    cc: CongestionChoice,
    /// Transfer mode: `s` stream, `e` extended block, `auto`
    #[arg(long, value_name = "auto|s|e", default_value = "auto", value_parser = mode)]
    mode: ModeChoice,
    /// Copy the part of the source that begins at this byte
    #[arg(long, value_name = "N", value_parser = units::size)]
    offset: Option<u64>,
    /// Copy only this many bytes
    #[arg(long, value_name = "N", value_parser = units::size)]
    length: Option<u64>,
    /// Go on from what an earlier, interrupted copy left, after checking that it still fits
    #[arg(long)]
    resume: bool,
    /// Verify by checksum: `auto` (the cheapest that both ends have), `none` (not verified: the number
    /// of bytes alone is compared), or one of crc32c crc32 adler32 blake3 sha256 sha1 md5 sha512
    #[arg(long, value_name = "auto|none|ALG", default_value = "auto", value_parser = verify)]
    verify: VerifyMode,
    /// Send and receive no faster than this, all files together, in bits per second (`100M`; numbers
    /// below 1000 need a unit). Between two servers it is refused: nothing passes this machine that it
    /// could hold back
    #[arg(long, value_name = "RATE", value_parser = values::bytes_per_second)]
    limit_rate: Option<u64>,
    /// Give up on a peer or stream that is silent for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = values::wait)]
    timeout: Duration,
    /// New attempts after a lost connection, each going on from what is safe
    #[arg(long, value_name = "N", default_value_t = 5)]
    retries: u32,
    /// Symbolic links in a copied tree: `skip` leaves them out, each with a notice; `follow` copies what
    /// they point to, and ends at loops; `copy` makes them anew where they point into the tree
    #[arg(long, value_name = "skip|follow|copy", default_value = "skip", value_parser = links)]
    links: SymlinkPolicy,
    /// Leave destinations alone that exist, whatever they hold. Those that have another size than the
    /// source, or are older, are named in a warning; the exit code is that of the other files
    #[arg(long)]
    keep_existing: bool,
    /// Wait, for as long as it takes, where another copy is writing the destination; without it such a
    /// file fails with exit code 7
    #[arg(long)]
    wait: bool,
    /// Files on their way at the same time when many are copied, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = concurrency)]
    concurrency: usize,
    /// Ports for data connections that servers open to this machine
    #[arg(long, value_name = "LO-HI", value_parser = values::port_range)]
    data_ports: Option<(u16, u16)>,
    /// Let data connections be with other hosts than the server's own when it says so: servers that
    /// keep their data elsewhere need it. Without it the server's own address is used
    #[arg(long)]
    allow_foreign_data_address: bool,
    /// Size of a block in extended block mode when this end sends
    #[arg(long, value_name = "SIZE", default_value = "1Mi", value_parser = block)]
    block: usize,
    /// How bytes get between file and socket: auto, copy, sendfile, splice, zerocopy
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = io_method)]
    io: IoMethod,
    /// Force each copied file to this machine's disk before it is called done (`file`: its data, then its
    /// name), or leave that to the kernel (`none`: a power cut may take back what was reported). A server
    /// has a policy of its own for what is copied to it
    #[arg(long, value_name = "file|none", default_value = "file", value_parser = sync_policy)]
    sync_policy: SyncPolicy,
    /// One JSON object a line on standard output, the last one a summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Write samples of every stream to FILE, one JSON object a line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Say in one line what the speed was limited by
    #[arg(long)]
    pub(crate) why: bool,
    /// Sources, then the destination
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    paths: Vec<String>,
}

impl CpArgs {
    /// Sources and destination.
    pub(crate) fn sources_and_destination(&self) -> (&[String], &str) {
        match self.paths.split_last() {
            Some((destination, sources)) => (sources, destination),
            None => (&[], ""),
        }
    }

    /// The flags as the client takes them.
    pub(crate) fn options(&self) -> CopyOptions {
        CopyOptions {
            recursive: self.recursive,
            parallelism: self.parallelism,
            transfer: TransferOptions {
                buffers: self.buffer,
                drs_interval: self.drs_interval,
                congestion: self.cc.clone(),
                io: self.io,
                block: self.block,
                rate: self.limit_rate.map(RateLimit::new),
                stall: self.timeout,
            },
            max_streams: self.max_streams,
            autopar: self.autopar,
            mode: self.mode,
            offset: self.offset,
            length: self.length,
            resume: self.resume,
            verify: self.verify,
            retries: self.retries,
            trace: self.trace.clone(),
            sync_policy: self.sync_policy,
            symlinks: self.links,
            keep_existing: self.keep_existing,
            wait: self.wait,
            concurrency: self.concurrency,
            allow_foreign_data: self.allow_foreign_data_address,
            data_ports: self.data_ports,
        }
    }
}

fn parallelism(text: &str) -> Result<Parallelism, String> {
    match text {
        "auto" => Ok(Parallelism::Auto),
        "mi" => Ok(Parallelism::Chunked(ChunkTuningMode::Mi)),
        "mi+" => Ok(Parallelism::Chunked(ChunkTuningMode::MiPlus)),
        "aimd" => Ok(Parallelism::Chunked(ChunkTuningMode::Aimd)),
        _ => streams(text).map(Parallelism::Fixed).ok_or_else(|| {
            format!("'{text}' is neither auto, mi, mi+, aimd nor a number from 1 to 256")
        }),
    }
}

fn streams(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=256).contains(n))
}

fn max_streams(text: &str) -> Result<u32, String> {
    streams(text).ok_or_else(|| "use a number from 1 to 256".into())
}

fn autopar(text: &str) -> Result<ChunkParameters, String> {
    ChunkParameters::parse(text).map_err(|error| error.to_string())
}

/// Longest name that the system gives a congestion control (TCP_CA_NAME_MAX, with its NUL).
const CONGESTION_NAME_MAX: usize = 16;

/// `--cc`
pub(crate) fn congestion(text: &str) -> Result<CongestionChoice, String> {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() >= CONGESTION_NAME_MAX || !text.chars().all(name) {
        return Err("use auto, system or a name such as bbr".into());
    }
    Ok(CongestionChoice::parse(text))
}

fn buffer(text: &str) -> Result<SocketBuffers, String> {
    match BufferSizing::parse(text) {
        Some(sizing) => Ok(SocketBuffers::sized_by(sizing)),
        None => values::positive_size(text)
            .map(SocketBuffers::pinned)
            .map_err(|_| {
                format!("'{text}' is neither auto, kernel, drs, drs1 nor a size such as 4Mi")
            }),
    }
}

/// `--drs-interval`
pub(crate) fn interval(text: &str) -> Result<DrsInterval, String> {
    text.parse()
        .map_err(|error: DrsIntervalError| error.to_string())
}

fn mode(text: &str) -> Result<ModeChoice, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(ModeChoice::Auto),
        "s" => Ok(ModeChoice::Stream),
        "e" => Ok(ModeChoice::Extended),
        _ => Err("use auto, s or e".into()),
    }
}

fn links(text: &str) -> Result<SymlinkPolicy, String> {
    match text.to_ascii_lowercase().as_str() {
        "skip" => Ok(SymlinkPolicy::Skip),
        "follow" => Ok(SymlinkPolicy::Follow),
        "copy" => Ok(SymlinkPolicy::Copy),
        _ => Err("use skip, follow or copy".into()),
    }
}

fn verify(text: &str) -> Result<VerifyMode, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(VerifyMode::Auto),
        "none" => Ok(VerifyMode::None),
        name => algorithm(name).map(VerifyMode::With),
    }
}

/// A checksum algorithm's name.
pub(crate) fn algorithm(text: &str) -> Result<ChecksumAlgorithm, String> {
    ChecksumAlgorithm::parse(text).ok_or_else(|| {
        let names: Vec<_> = ChecksumAlgorithm::CHEAPEST_FIRST
            .iter()
            .map(|a| a.name().to_ascii_lowercase())
            .collect();
        format!("'{text}' is not one of {}", names.join(" "))
    })
}

fn concurrency(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| (1..=64).contains(n))
        .ok_or_else(|| "use a number from 1 to 64".into())
}

/// A block size, 64 KiB to 64 MiB.
pub(crate) fn block(text: &str) -> Result<usize, String> {
    let bytes = units::size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes)
        .ok()
        .filter(|b| (64 << 10..=64 << 20).contains(b))
        .ok_or_else(|| "use a size from 64Ki to 64Mi".into())
}

/// `--sync-policy`
pub(crate) fn sync_policy(text: &str) -> Result<SyncPolicy, String> {
    SyncPolicy::parse(text).ok_or_else(|| "use file or none".into())
}

/// `--io`
pub(crate) fn io_method(text: &str) -> Result<IoMethod, String> {
    match text {
        "auto" => Ok(IoMethod::Auto),
        "copy" => Ok(IoMethod::Copy),
        "sendfile" => Ok(IoMethod::Sendfile),
        "splice" => Ok(IoMethod::Splice),
        "zerocopy" => Ok(IoMethod::Zerocopy),
        _ => Err("use auto, copy, sendfile, splice or zerocopy".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CpCommandLine {
        #[command(flatten)]
        cp: CpArgs,
    }

    fn options(flags: &[&str]) -> Result<CopyOptions, String> {
        let words = ["cp"].iter().chain(flags).chain(&["a", "b"]);
        let line = CpCommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.cp.options())
    }

    #[test]
    fn without_flags_everything_follows_the_path() {
        let options = options(&[]).unwrap();
        assert_eq!(options.parallelism, Parallelism::Auto);
        assert_eq!(options.transfer.congestion, CongestionChoice::Auto);
        assert_eq!(options.max_streams, 64);
        assert_eq!(options.autopar, ChunkParameters::default());
    }

    #[test]
    fn streams_are_a_number_or_a_mode() {
        for (text, wanted) in [
            ("auto", Parallelism::Auto),
            ("1", Parallelism::Fixed(1)),
            ("256", Parallelism::Fixed(256)),
            ("mi", Parallelism::Chunked(ChunkTuningMode::Mi)),
            ("mi+", Parallelism::Chunked(ChunkTuningMode::MiPlus)),
            ("aimd", Parallelism::Chunked(ChunkTuningMode::Aimd)),
        ] {
            assert_eq!(
                options(&["-p", text]).unwrap().parallelism,
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
    fn the_modes_take_parameters() {
        let options = options(&["-p", "mi", "--autopar", "eta=0.7,delta=2s,n0=4"]).unwrap();
        assert_eq!(options.autopar.eta, 0.7);
        assert_eq!(options.autopar.delta, Duration::from_secs(2));
        assert_eq!(options.autopar.initial_streams, 4);
    }

    #[test]
    fn what_cannot_be_is_named() {
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
    fn congestion_controls_go_by_name() {
        let cc = |name: &str| options(&["--cc", name]).unwrap().transfer.congestion;
        assert_eq!(cc("system"), CongestionChoice::System);
        assert_eq!(cc("bbr"), CongestionChoice::Named("bbr".to_owned()));
    }
}
