//! SITE commands: those of the globus server and those that other clients send.

use std::net::IpAddr;

use super::words::ArgumentWords;
use super::{CommandError, RawArgument};
use crate::checksum::ChecksumAlgorithm;
use crate::timestamp::Timestamp;

/// SITE commands.
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
    /// `SITE SYMLINK target link`
    Symlink(RawArgument, RawArgument),
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
    /// `SITE SETDISKSTACK drivers`, `SITE SETNETSTACK drivers`: drivers of the globus library,
    /// separated by commas.
    DriverStack(DriverStack, String),
    /// `SITE WHOAMI`
    Whoami,
    /// `SITE VERSION`
    Version,
    /// `SITE STORATTR modify=YYYYMMDDhhmmss;checksum.ALG=hex;`
    StorAttr {
        /// Time for the next stored file.
        modify: Option<Timestamp>,
        /// Checksum that the next stored file must have.
        checksum: Option<(ChecksumAlgorithm, String)>,
    },
    /// `SITE UMASK [octal]`
    Umask(Option<u32>),
    /// `SITE IDLE [seconds]`
    Idle(Option<u32>),
    /// `SITE DATAPEER [address]` (longhaul): the one other host that data connections may come from
    /// and go to; without an address, none.
    DataPeer(Option<IpAddr>),
    /// Anything else; answered 504 or 500.
    Unknown(String),
}

/// Which direction a buffer size is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferDirection {
    /// The server sends (RETR).
    Send,
    /// The server receives (STOR).
    Receive,
    /// Both.
    Both,
}

/// The use of a stack of drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverStack {
    /// Files.
    Disk,
    /// Data connections.
    Net,
}

/// How the argument of a SITE verb is read.
type SiteArgumentParser = fn(ArgumentWords<'_>) -> Result<SiteCommand, CommandError>;

/// The SITE verbs that are known.
const VERBS: &[(&str, SiteArgumentParser)] = &[
    ("HELP", |_| Ok(SiteCommand::Help)),
    ("CHMOD", |mut w| {
        let mode = w.required_octal_mode()?;
        Ok(SiteCommand::Chmod(mode, w.required_path()?))
    }),
    ("CHGRP", |mut w| {
        let group = w.required_word("group")?.to_owned();
        Ok(SiteCommand::Chgrp(group, w.required_path()?))
    }),
    ("UTIME", utime),
    ("SYMLINK", |mut w| {
        let target = w
            .next_word()
            .ok_or_else(|| w.syntax_error("target is missing"))?
            .to_vec();
        Ok(SiteCommand::Symlink(target, w.required_path()?))
    }),
    ("SYMLINKFROM", |w| {
        w.required_path().map(SiteCommand::SymlinkFrom)
    }),
    ("SYMLINKTO", |w| {
        w.required_path().map(SiteCommand::SymlinkTo)
    }),
    ("RDEL", |w| w.required_path().map(SiteCommand::RemoveTree)),
    ("TRNC", |mut w| {
        let length = w.required_number("length")?;
        Ok(SiteCommand::Truncate(length, w.required_path()?))
    }),
    ("SBUF", |w| buffer(w, BufferDirection::Both)),
    ("BUFSIZE", |w| buffer(w, BufferDirection::Both)),
    ("RETRBUFSIZE", |w| buffer(w, BufferDirection::Send)),
    ("RBUFSZ", |w| buffer(w, BufferDirection::Send)),
    ("RBUFSIZ", |w| buffer(w, BufferDirection::Send)),
    ("STORBUFSIZE", |w| buffer(w, BufferDirection::Receive)),
    ("SBUFSZ", |w| buffer(w, BufferDirection::Receive)),
    ("SBUFSIZ", |w| buffer(w, BufferDirection::Receive)),
    ("CLIENTINFO", |w| {
        w.required_text("client information")
            .map(SiteCommand::ClientInfo)
    }),
    ("TASKID", |w| {
        w.required_text("task id").map(SiteCommand::TaskId)
    }),
    ("SETDISKSTACK", |w| stack(w, DriverStack::Disk)),
    ("SETNETSTACK", |w| stack(w, DriverStack::Net)),
    ("WHOAMI", |_| Ok(SiteCommand::Whoami)),
    ("VERSION", |_| Ok(SiteCommand::Version)),
    ("STORATTR", storattr),
    ("UMASK", |mut w| {
        let mask = (!w.remaining_trimmed().is_empty()).then(|| w.required_octal_mode());
        w.finish_with(SiteCommand::Umask(mask.transpose()?))
    }),
    ("DATAPEER", |mut w| {
        let address = (!w.remaining_trimmed().is_empty()).then(|| w.required_ip());
        w.finish_with(SiteCommand::DataPeer(address.transpose()?))
    }),
    ("IDLE", |mut w| {
        let seconds = (!w.remaining_trimmed().is_empty()).then(|| w.required_u32("seconds"));
        w.finish_with(SiteCommand::Idle(seconds.transpose()?))
    }),
];

impl SiteCommand {
    pub(super) fn parse(mut w: ArgumentWords<'_>) -> Result<Self, CommandError> {
        let whole = w.required_text("SITE command")?;
        let verb = w.required_word("SITE command")?;
        let known = VERBS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(verb));
        match known {
            Some((_, parser)) => parser(w),
            None => Ok(Self::Unknown(whole)),
        }
    }

    pub(super) fn encode(&self) -> RawArgument {
        let text = match self {
            Self::Help => "HELP".to_owned(),
            Self::Chmod(mode, path) => return with_path(&format!("CHMOD {mode:04o}"), path),
            Self::Chgrp(group, path) => return with_path(&format!("CHGRP {group}"), path),
            Self::Utime(time, path) => return with_path(&format!("UTIME {}", time.format()), path),
            Self::Symlink(target, link) => {
                return [b"SYMLINK ", target.as_slice(), b" ", link].concat();
            }
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
            Self::DataPeer(None) => "DATAPEER".to_owned(),
            Self::DataPeer(Some(address)) => format!("DATAPEER {address}"),
            Self::Idle(None) => "IDLE".to_owned(),
            Self::Idle(Some(seconds)) => format!("IDLE {seconds}"),
            Self::Unknown(text) => text.clone(),
        };
        text.into_bytes()
    }
}

fn with_path(head: &str, path: &[u8]) -> RawArgument {
    [head.as_bytes(), b" ", path].concat()
}

fn stack(w: ArgumentWords<'_>, stack: DriverStack) -> Result<SiteCommand, CommandError> {
    let drivers = w.required_text("list of drivers")?;
    Ok(SiteCommand::DriverStack(stack, drivers.trim().to_owned()))
}

fn buffer(mut w: ArgumentWords<'_>, side: BufferDirection) -> Result<SiteCommand, CommandError> {
    let size = w.required_number("buffer size")?;
    w.finish_with(SiteCommand::Buffer(side, size))
}

/// `YYYYMMDDhhmmss path`, or the older `path atime mtime ctime UTC`, of which only the modification
/// time is used.
fn utime(w: ArgumentWords<'_>) -> Result<SiteCommand, CommandError> {
    let mut new_form = w;
    let first = new_form.required_word("time")?;
    if let Some(time) = Timestamp::parse(first) {
        return Ok(SiteCommand::Utime(time, new_form.required_path()?));
    }
    old_utime(w.remaining()).ok_or_else(|| w.syntax_error("time is not YYYYMMDDhhmmss"))
}

/// Read from the end, since the path may hold spaces.
fn old_utime(argument: &[u8]) -> Option<SiteCommand> {
    let mut words = argument.rsplitn(5, |b| *b == b' ');
    let zone = words.next()?;
    let mut time = || Timestamp::parse(str::from_utf8(words.next()?).ok()?);
    let (_ctime, mtime, _atime) = (time()?, time()?, time()?);
    let path = words.next()?;
    (zone.eq_ignore_ascii_case(b"UTC") && !path.is_empty())
        .then(|| SiteCommand::Utime(mtime, path.to_vec()))
}

/// `modify=YYYYMMDDhhmmss;checksum.ALG=hex;` in any order.
fn storattr(w: ArgumentWords<'_>) -> Result<SiteCommand, CommandError> {
    let text = w.required_text("attribute")?;
    let (mut modify, mut checksum) = (None, None);
    for item in text.split(';').map(str::trim).filter(|i| !i.is_empty()) {
        let (key, value) = item
            .split_once('=')
            .ok_or_else(|| w.syntax_error("attributes have the form name=value;"))?;
        let key = key.to_ascii_lowercase();
        if key == "modify" {
            let time = Timestamp::parse(value);
            modify = Some(time.ok_or_else(|| w.syntax_error("modify is not YYYYMMDDhhmmss"))?);
        } else if let Some(name) = key.strip_prefix("checksum.") {
            let algorithm = ChecksumAlgorithm::parse(name)
                .ok_or_else(|| w.unsupported("unknown checksum algorithm"))?;
            let sum = algorithm
                .parse_hex(value)
                .ok_or_else(|| w.syntax_error(format!("not a {} checksum", algorithm.name())))?;
            checksum = Some((algorithm, sum));
        } else {
            return Err(w.unsupported("only modify and checksum are offered"));
        }
    }
    Ok(SiteCommand::StorAttr { modify, checksum })
}

fn storattr_text(
    modify: Option<Timestamp>,
    checksum: Option<&(ChecksumAlgorithm, String)>,
) -> String {
    let modify = modify.map_or_else(String::new, |time| format!("modify={};", time.format()));
    let checksum = checksum.map_or_else(String::new, |(algorithm, sum)| {
        format!("checksum.{}={sum};", algorithm.name().to_ascii_lowercase())
    });
    format!("STORATTR {modify}{checksum}")
}
