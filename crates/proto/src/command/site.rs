//! SITE commands: those of the globus server and those that other clients send.

use std::net::IpAddr;

use super::words::Words;
use super::{Bytes, CommandError};
use crate::checksum::Algorithm;
use crate::timestamp::Timestamp;

/// SITE commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Site {
    /// `SITE HELP`
    Help,
    /// `SITE CHMOD octal path`
    Chmod(u32, Bytes),
    /// `SITE CHGRP group path`
    Chgrp(String, Bytes),
    /// `SITE UTIME YYYYMMDDhhmmss path` and the older `SITE UTIME path atime mtime ctime UTC`.
    Utime(Timestamp, Bytes),
    /// `SITE SYMLINK target link`
    Symlink(Bytes, Bytes),
    /// `SITE SYMLINKFROM target`
    SymlinkFrom(Bytes),
    /// `SITE SYMLINKTO link`
    SymlinkTo(Bytes),
    /// `SITE RDEL path`: recursive delete.
    Rdel(Bytes),
    /// `SITE TRNC length path`
    Truncate(u64, Bytes),
    /// `SITE SBUF|RETRBUFSIZE|RBUFSZ|RBUFSIZ|STORBUFSIZE|SBUFSZ|SBUFSIZ|BUFSIZE n`
    Buffer(BufferSide, u64),
    /// `SITE CLIENTINFO k=v;...`
    ClientInfo(String),
    /// `SITE TASKID id`
    TaskId(String),
    /// `SITE SETDISKSTACK drivers`, `SITE SETNETSTACK drivers`: drivers of the globus library,
    /// separated by commas.
    Stack(Stack, String),
    /// `SITE WHOAMI`
    Whoami,
    /// `SITE VERSION`
    Version,
    /// `SITE STORATTR modify=YYYYMMDDhhmmss;checksum.ALG=hex;`
    StorAttr {
        /// Time for the next stored file.
        modify: Option<Timestamp>,
        /// Checksum that the next stored file must have.
        checksum: Option<(Algorithm, String)>,
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
pub enum BufferSide {
    /// The server sends (RETR).
    Send,
    /// The server receives (STOR).
    Receive,
    /// Both.
    Both,
}

/// The use of a stack of drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// Files.
    Disk,
    /// Data connections.
    Net,
}

/// How the argument of a SITE verb is read.
type Parser = fn(Words<'_>) -> Result<Site, CommandError>;

/// The SITE verbs that are known.
const VERBS: &[(&str, Parser)] = &[
    ("HELP", |_| Ok(Site::Help)),
    ("CHMOD", |mut w| {
        let mode = w.octal_mode()?;
        Ok(Site::Chmod(mode, w.path()?))
    }),
    ("CHGRP", |mut w| {
        let group = w.word("group")?.to_owned();
        Ok(Site::Chgrp(group, w.path()?))
    }),
    ("UTIME", utime),
    ("SYMLINK", |mut w| {
        let target = w
            .next()
            .ok_or_else(|| w.syntax("target is missing"))?
            .to_vec();
        Ok(Site::Symlink(target, w.path()?))
    }),
    ("SYMLINKFROM", |w| w.path().map(Site::SymlinkFrom)),
    ("SYMLINKTO", |w| w.path().map(Site::SymlinkTo)),
    ("RDEL", |w| w.path().map(Site::Rdel)),
    ("TRNC", |mut w| {
        let length = w.number("length")?;
        Ok(Site::Truncate(length, w.path()?))
    }),
    ("SBUF", |w| buffer(w, BufferSide::Both)),
    ("BUFSIZE", |w| buffer(w, BufferSide::Both)),
    ("RETRBUFSIZE", |w| buffer(w, BufferSide::Send)),
    ("RBUFSZ", |w| buffer(w, BufferSide::Send)),
    ("RBUFSIZ", |w| buffer(w, BufferSide::Send)),
    ("STORBUFSIZE", |w| buffer(w, BufferSide::Receive)),
    ("SBUFSZ", |w| buffer(w, BufferSide::Receive)),
    ("SBUFSIZ", |w| buffer(w, BufferSide::Receive)),
    ("CLIENTINFO", |w| {
        w.text("client information").map(Site::ClientInfo)
    }),
    ("TASKID", |w| w.text("task id").map(Site::TaskId)),
    ("SETDISKSTACK", |w| stack(w, Stack::Disk)),
    ("SETNETSTACK", |w| stack(w, Stack::Net)),
    ("WHOAMI", |_| Ok(Site::Whoami)),
    ("VERSION", |_| Ok(Site::Version)),
    ("STORATTR", storattr),
    ("UMASK", |mut w| {
        let mask = (!w.rest().is_empty()).then(|| w.octal_mode());
        w.ending(Site::Umask(mask.transpose()?))
    }),
    ("DATAPEER", |mut w| {
        let address = (!w.rest().is_empty()).then(|| w.address());
        w.ending(Site::DataPeer(address.transpose()?))
    }),
    ("IDLE", |mut w| {
        let seconds = (!w.rest().is_empty()).then(|| w.small_number("seconds"));
        w.ending(Site::Idle(seconds.transpose()?))
    }),
];

impl Site {
    pub(super) fn parse(mut w: Words<'_>) -> Result<Self, CommandError> {
        let whole = w.text("SITE command")?;
        let verb = w.word("SITE command")?;
        let known = VERBS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(verb));
        match known {
            Some((_, parser)) => parser(w),
            None => Ok(Self::Unknown(whole)),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
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
            Self::Rdel(path) => return with_path("RDEL", path),
            Self::Truncate(length, path) => return with_path(&format!("TRNC {length}"), path),
            Self::Buffer(BufferSide::Send, n) => format!("RETRBUFSIZE {n}"),
            Self::Buffer(BufferSide::Receive, n) => format!("STORBUFSIZE {n}"),
            Self::Buffer(BufferSide::Both, n) => format!("SBUF {n}"),
            Self::ClientInfo(text) => format!("CLIENTINFO {text}"),
            Self::TaskId(text) => format!("TASKID {text}"),
            Self::Stack(Stack::Disk, drivers) => format!("SETDISKSTACK {drivers}"),
            Self::Stack(Stack::Net, drivers) => format!("SETNETSTACK {drivers}"),
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

fn with_path(head: &str, path: &[u8]) -> Bytes {
    [head.as_bytes(), b" ", path].concat()
}

fn stack(w: Words<'_>, stack: Stack) -> Result<Site, CommandError> {
    let drivers = w.text("list of drivers")?;
    Ok(Site::Stack(stack, drivers.trim().to_owned()))
}

fn buffer(mut w: Words<'_>, side: BufferSide) -> Result<Site, CommandError> {
    let size = w.number("buffer size")?;
    w.ending(Site::Buffer(side, size))
}

/// `YYYYMMDDhhmmss path`, or the older `path atime mtime ctime UTC`, of which only the modification
/// time is used.
fn utime(w: Words<'_>) -> Result<Site, CommandError> {
    let mut new_form = w;
    let first = new_form.word("time")?;
    if let Some(time) = Timestamp::parse(first) {
        return Ok(Site::Utime(time, new_form.path()?));
    }
    old_utime(w.raw()).ok_or_else(|| w.syntax("time is not YYYYMMDDhhmmss"))
}

/// Read from the end, since the path may hold spaces.
fn old_utime(argument: &[u8]) -> Option<Site> {
    let mut words = argument.rsplitn(5, |b| *b == b' ');
    let zone = words.next()?;
    let mut time = || Timestamp::parse(str::from_utf8(words.next()?).ok()?);
    let (_ctime, mtime, _atime) = (time()?, time()?, time()?);
    let path = words.next()?;
    (zone.eq_ignore_ascii_case(b"UTC") && !path.is_empty())
        .then(|| Site::Utime(mtime, path.to_vec()))
}

/// `modify=YYYYMMDDhhmmss;checksum.ALG=hex;` in any order.
fn storattr(w: Words<'_>) -> Result<Site, CommandError> {
    let text = w.text("attribute")?;
    let (mut modify, mut checksum) = (None, None);
    for item in text.split(';').map(str::trim).filter(|i| !i.is_empty()) {
        let (key, value) = item
            .split_once('=')
            .ok_or_else(|| w.syntax("attributes have the form name=value;"))?;
        let key = key.to_ascii_lowercase();
        if key == "modify" {
            let time = Timestamp::parse(value);
            modify = Some(time.ok_or_else(|| w.syntax("modify is not YYYYMMDDhhmmss"))?);
        } else if let Some(name) = key.strip_prefix("checksum.") {
            let algorithm = Algorithm::parse(name)
                .ok_or_else(|| w.not_offered("unknown checksum algorithm"))?;
            let sum = algorithm
                .parse_hex(value)
                .ok_or_else(|| w.syntax(format!("not a {} checksum", algorithm.name())))?;
            checksum = Some((algorithm, sum));
        } else {
            return Err(w.not_offered("only modify and checksum are offered"));
        }
    }
    Ok(Site::StorAttr { modify, checksum })
}

fn storattr_text(modify: Option<Timestamp>, checksum: Option<&(Algorithm, String)>) -> String {
    let modify = modify.map_or_else(String::new, |time| format!("modify={};", time.format()));
    let checksum = checksum.map_or_else(String::new, |(algorithm, sum)| {
        format!("checksum.{}={sum};", algorithm.name().to_ascii_lowercase())
    });
    format!("STORATTR {modify}{checksum}")
}
