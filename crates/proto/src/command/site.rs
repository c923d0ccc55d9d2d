//! SITE commands: those of the globus server, those that other clients send, and SITE DATAPEER.

use std::net::IpAddr;

use super::words::ArgumentWords;
use super::{CommandError, RawArgument};
use crate::bundle::{self, BundleEntry, BundleProof, announcement_lines};
use crate::checksum::ChecksumAlgorithm;
use crate::stripes::MAX_STRIPES;
use crate::timestamp::Timestamp;

/// Parsed SITE command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiteCommand {
    /// `SITE HELP`
    Help,
    /// `SITE CHMOD octal path`
    Chmod(u32, RawArgument),
    /// `SITE CHGRP group path`
    Chgrp(String, RawArgument),
    /// `SITE UTIME YYYYMMDDhhmmss path` and the older `SITE UTIME path atime mtime ctime UTC`.
    Utime(Timestamp, RawArgument),
    /// `SITE SYMLINK target link`: both names, as they came. Clients do not quote spaces in them (lftp).
    Symlink(RawArgument),
    /// `SITE SYMLINKFROM target`
    SymlinkFrom(RawArgument),
    /// `SITE SYMLINKTO link`
    SymlinkTo(RawArgument),
    /// `SITE RDEL path`: recursive delete.
    RemoveTree(RawArgument),
    /// `SITE TRNC length path`
    Truncate(u64, RawArgument),
    /// `SITE SBUF|RETRBUFSIZE|RBUFSZ|RBUFSIZ|STORBUFSIZE|SBUFSZ|SBUFSIZ|BUFSIZE n`
    Buffer(BufferDirection, u64),
    /// `SITE CLIENTINFO k=v;...`
    ClientInfo(String),
    /// `SITE TASKID id`
    TaskId(String),
    /// `SITE SETDISKSTACK drivers` and `SITE SETNETSTACK drivers`: names of Globus XIO drivers, separated
    /// by commas.
    DriverStack(DriverStack, String),
    /// `SITE WHOAMI`
    Whoami,
    /// `SITE VERSION`
    Version,
    /// `SITE STORATTR modify=YYYYMMDDhhmmss;checksum.ALG=hex;`
    StorAttr {
        /// Modification time of the next stored file.
        modify: Option<Timestamp>,
        /// Checksum that the next stored file must have.
        checksum: Option<(ChecksumAlgorithm, String)>,
    },
    /// `SITE UMASK [octal]`
    Umask(Option<u32>),
    /// `SITE IDLE [seconds]`
    Idle(Option<u32>),
    /// `SITE DATAPEER [address ...]` (longhaul): the other hosts allowed for data connections, at most [`MAX_STRIPES`]; no
    /// other host without an address.
    DataPeer(Vec<IpAddr>),
    /// `SITE BUNDLE ADD size,time,path ...` (longhaul): announces files of the next bundle.
    BundleAdd(Vec<BundleEntry>),
    /// `SITE BUNDLE PACK base64` (longhaul): the same, compressed.
    BundlePack(Vec<BundleEntry>),
    /// `SITE BUNDLE END [algorithm checksum [position,...]]` (longhaul): ends a bundle. After a store it has the checksum
    /// of the bytes that were sent.
    BundleEnd(Option<BundleProof>),
    /// Any other command, answered with 500.
    Unknown(String),
}

/// Direction that a buffer size applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferDirection {
    /// The server sends (RETR).
    Send,
    /// The server receives (STOR).
    Receive,
    /// Both directions.
    Both,
}

/// Purpose of a stack of Globus XIO drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverStack {
    /// File access.
    Disk,
    /// Data connections.
    Net,
}

/// Parser of the argument of one SITE verb.
type SiteArgumentParser = fn(ArgumentWords<'_>) -> Result<SiteCommand, CommandError>;

/// All known SITE verbs with their argument parsers.
const VERBS: &[(&str, SiteArgumentParser)] = &[
    ("HELP", |_| Ok(SiteCommand::Help)),
    ("CHMOD", |mut args| {
        let mode = args.required_octal_mode()?;
        Ok(SiteCommand::Chmod(mode, args.required_path()?))
    }),
    ("CHGRP", |mut args| {
        let group = args.required_word("group")?.to_owned();
        Ok(SiteCommand::Chgrp(group, args.required_path()?))
    }),
    ("UTIME", utime),
    ("SYMLINK", |args| {
        let names = args.remaining_trimmed();
        match names {
            [] => Err(args.syntax_error("target is missing")),
            names if !names.contains(&b' ') => Err(args.syntax_error("link is missing")),
            names => Ok(SiteCommand::Symlink(names.to_vec())),
        }
    }),
    ("SYMLINKFROM", |args| {
        args.required_path().map(SiteCommand::SymlinkFrom)
    }),
    ("SYMLINKTO", |args| {
        args.required_path().map(SiteCommand::SymlinkTo)
    }),
    ("RDEL", |args| {
        args.required_path().map(SiteCommand::RemoveTree)
    }),
    ("TRNC", |mut args| {
        let length = args.required_number("length")?;
        Ok(SiteCommand::Truncate(length, args.required_path()?))
    }),
    ("SBUF", |args| buffer(args, BufferDirection::Both)),
    ("BUFSIZE", |args| buffer(args, BufferDirection::Both)),
    ("RETRBUFSIZE", |args| buffer(args, BufferDirection::Send)),
    ("RBUFSZ", |args| buffer(args, BufferDirection::Send)),
    ("RBUFSIZ", |args| buffer(args, BufferDirection::Send)),
    ("STORBUFSIZE", |args| buffer(args, BufferDirection::Receive)),
    ("SBUFSZ", |args| buffer(args, BufferDirection::Receive)),
    ("SBUFSIZ", |args| buffer(args, BufferDirection::Receive)),
    ("CLIENTINFO", |args| {
        args.required_text("client information")
            .map(SiteCommand::ClientInfo)
    }),
    ("TASKID", |args| {
        args.required_text("task id").map(SiteCommand::TaskId)
    }),
    ("SETDISKSTACK", |args| stack(args, DriverStack::Disk)),
    ("SETNETSTACK", |args| stack(args, DriverStack::Net)),
    ("WHOAMI", |_| Ok(SiteCommand::Whoami)),
    ("VERSION", |_| Ok(SiteCommand::Version)),
    ("STORATTR", storattr),
    ("UMASK", |mut args| {
        let mask = (!args.remaining_trimmed().is_empty()).then(|| args.required_octal_mode());
        args.finish_with(SiteCommand::Umask(mask.transpose()?))
    }),
    ("DATAPEER", |mut args| {
        let mut hosts = Vec::new();
        while !args.remaining_trimmed().is_empty() && hosts.len() < MAX_STRIPES {
            hosts.push(args.required_ip()?);
        }
        args.finish_with(SiteCommand::DataPeer(hosts))
    }),
    ("BUNDLE", bundle_command),
    ("IDLE", |mut args| {
        let seconds = (!args.remaining_trimmed().is_empty()).then(|| args.required_u32("seconds"));
        args.finish_with(SiteCommand::Idle(seconds.transpose()?))
    }),
];

impl SiteCommand {
    pub(super) fn parse(mut args: ArgumentWords<'_>) -> Result<Self, CommandError> {
        let whole = args.required_text("SITE command")?;
        let verb = args.required_word("SITE command")?;
        let known = VERBS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(verb));
        match known {
            Some((_, parser)) => parser(args),
            None => Ok(Self::Unknown(whole)),
        }
    }

    pub(super) fn encode(&self) -> RawArgument {
        let text = match self {
            Self::Help => "HELP".to_owned(),
            Self::Chmod(mode, path) => return with_path(&format!("CHMOD {mode:04o}"), path),
            Self::Chgrp(group, path) => return with_path(&format!("CHGRP {group}"), path),
            Self::Utime(time, path) => return with_path(&format!("UTIME {}", time.format()), path),
            Self::Symlink(names) => return with_path("SYMLINK", names),
            Self::SymlinkFrom(path) => return with_path("SYMLINKFROM", path),
            Self::SymlinkTo(path) => return with_path("SYMLINKTO", path),
            Self::RemoveTree(path) => return with_path("RDEL", path),
            Self::Truncate(length, path) => return with_path(&format!("TRNC {length}"), path),
            Self::Buffer(BufferDirection::Send, n) => format!("RETRBUFSIZE {n}"),
            Self::Buffer(BufferDirection::Receive, n) => format!("STORBUFSIZE {n}"),
            Self::Buffer(BufferDirection::Both, n) => format!("SBUF {n}"),
            Self::ClientInfo(text) => format!("CLIENTINFO {text}"),
            Self::TaskId(text) => format!("TASKID {text}"),
            Self::DriverStack(DriverStack::Disk, drivers) => format!("SETDISKSTACK {drivers}"),
            Self::DriverStack(DriverStack::Net, drivers) => format!("SETNETSTACK {drivers}"),
            Self::Whoami => "WHOAMI".to_owned(),
            Self::Version => "VERSION".to_owned(),
            Self::StorAttr { modify, checksum } => storattr_text(*modify, checksum.as_ref()),
            Self::Umask(None) => "UMASK".to_owned(),
            Self::Umask(Some(mask)) => format!("UMASK {mask:03o}"),
            Self::DataPeer(hosts) => {
                let hosts = hosts.iter().map(|host| format!(" {host}"));
                format!("DATAPEER{}", hosts.collect::<String>())
            }
            Self::BundleAdd(entries) => {
                format!("BUNDLE ADD {}", announcement_lines(entries).join(" "))
            }
            Self::BundlePack(entries) => format!("BUNDLE PACK {}", bundle::pack(entries)),
            Self::BundleEnd(None) => "BUNDLE END".to_owned(),
            Self::BundleEnd(Some(proof)) => format!("BUNDLE END {}", proof.encode()),
            Self::Idle(None) => "IDLE".to_owned(),
            Self::Idle(Some(seconds)) => format!("IDLE {seconds}"),
            Self::Unknown(text) => text.clone(),
        };
        text.into_bytes()
    }
}

/// The commands that announce these files of a bundle compressed, as few as possible.
pub fn packed_announcements(entries: &[BundleEntry]) -> Vec<SiteCommand> {
    let lines = bundle::packed_lines(entries).into_iter();
    lines
        .map(|files| SiteCommand::BundlePack(files.to_vec()))
        .collect()
}

fn with_path(head: &str, path: &[u8]) -> RawArgument {
    [head.as_bytes(), b" ", path].concat()
}

fn bundle_command(mut args: ArgumentWords<'_>) -> Result<SiteCommand, CommandError> {
    let verb = args.required_word("ADD, PACK or END")?;
    if verb.eq_ignore_ascii_case("ADD") {
        let entries = bundle::parse_entries(args.remaining_trimmed());
        let entries = entries.ok_or_else(|| args.syntax_error("not size,time,path"))?;
        return Ok(SiteCommand::BundleAdd(entries));
    }
    if verb.eq_ignore_ascii_case("PACK") {
        let entries = bundle::unpack(args.remaining_trimmed());
        let entries = entries.ok_or_else(|| args.syntax_error("not compressed announcements"))?;
        return Ok(SiteCommand::BundlePack(entries));
    }
    if !verb.eq_ignore_ascii_case("END") {
        return Err(args.unsupported("only ADD, PACK and END are offered"));
    }
    if args.remaining_trimmed().is_empty() {
        return Ok(SiteCommand::BundleEnd(None));
    }
    let algorithm = ChecksumAlgorithm::parse(args.required_word("algorithm")?)
        .ok_or_else(|| args.unsupported("unknown checksum algorithm"))?;
    let hex = algorithm
        .parse_hex(args.required_word("checksum")?)
        .ok_or_else(|| args.syntax_error(format!("not a {} checksum", algorithm.name())))?;
    let without = args.next_word().map(BundleProof::parse_without);
    let without = without.unwrap_or_else(|| Some(Vec::new()));
    args.finish_with(SiteCommand::BundleEnd(Some(BundleProof {
        algorithm,
        checksum: hex,
        without: without.ok_or_else(|| args.syntax_error("not positions of files"))?,
    })))
}

fn stack(args: ArgumentWords<'_>, stack: DriverStack) -> Result<SiteCommand, CommandError> {
    let drivers = args.required_text("list of drivers")?;
    Ok(SiteCommand::DriverStack(stack, drivers))
}

fn buffer(mut args: ArgumentWords<'_>, side: BufferDirection) -> Result<SiteCommand, CommandError> {
    let size = args.required_number("buffer size")?;
    args.finish_with(SiteCommand::Buffer(side, size))
}

/// SITE UTIME: `YYYYMMDDhhmmss path`, or the older `path atime mtime ctime UTC`. Only the modification
/// time is used.
fn utime(args: ArgumentWords<'_>) -> Result<SiteCommand, CommandError> {
    // `ArgumentWords` is `Copy`, so the older form can be parsed from the start again.
    let mut new_form = args;
    let first = new_form.required_word("time")?;
    if let Some(time) = Timestamp::parse(first) {
        return Ok(SiteCommand::Utime(time, new_form.required_path()?));
    }
    old_utime(args.remaining()).ok_or_else(|| args.syntax_error("time is not YYYYMMDDhhmmss"))
}

/// The older form. It is parsed from the end, since the path may contain spaces.
fn old_utime(argument: &[u8]) -> Option<SiteCommand> {
    // Four words are split off from the end; the fifth part is the path.
    let mut words = argument.rsplitn(5, |b| *b == b' ');
    let zone = words.next()?;
    let mut time = || Timestamp::parse(str::from_utf8(words.next()?).ok()?);
    let (_ctime, mtime, _atime) = (time()?, time()?, time()?);
    let path = words.next()?;
    (zone.eq_ignore_ascii_case(b"UTC") && !path.is_empty())
        .then(|| SiteCommand::Utime(mtime, path.to_vec()))
}

/// SITE STORATTR: `modify=YYYYMMDDhhmmss;checksum.ALG=hex;` in any order.
fn storattr(args: ArgumentWords<'_>) -> Result<SiteCommand, CommandError> {
    let text = args.required_text("attribute")?;
    let (mut modify, mut checksum) = (None, None);
    for item in text.split(';').map(str::trim).filter(|i| !i.is_empty()) {
        let (key, value) = item
            .split_once('=')
            .ok_or_else(|| args.syntax_error("attributes have the form name=value;"))?;
        let key = key.to_ascii_lowercase();
        if key == "modify" {
            let time = Timestamp::parse(value);
            modify = Some(time.ok_or_else(|| args.syntax_error("modify is not YYYYMMDDhhmmss"))?);
        } else if let Some(name) = key.strip_prefix("checksum.") {
            let algorithm = ChecksumAlgorithm::parse(name)
                .ok_or_else(|| args.unsupported("unknown checksum algorithm"))?;
            let hex = algorithm
                .parse_hex(value)
                .ok_or_else(|| args.syntax_error(format!("not a {} checksum", algorithm.name())))?;
            checksum = Some((algorithm, hex));
        } else {
            return Err(args.unsupported("only modify and checksum are offered"));
        }
    }
    if modify.is_none() && checksum.is_none() {
        return Err(args.syntax_error("names no attribute"));
    }
    Ok(SiteCommand::StorAttr { modify, checksum })
}

fn storattr_text(
    modify: Option<Timestamp>,
    checksum: Option<&(ChecksumAlgorithm, String)>,
) -> String {
    let modify = modify.map_or_else(String::new, |time| format!("modify={};", time.format()));
    let checksum = checksum.map_or_else(String::new, |(algorithm, hex)| {
        format!("checksum.{}={hex};", algorithm.name().to_ascii_lowercase())
    });
    format!("STORATTR {modify}{checksum}")
}
