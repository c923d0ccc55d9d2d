//! Commands: the text of a line to a value that cannot hold nonsense, and back.
//!
//! Sources: RFC 959 §5.3, RFC 2228, 2389, 2428, 3659; GFD.20 §3, §4; GFD.47 (CKSM, SCKS);
//! the SITE and OPTS forms that existing clients send.

use std::net::SocketAddr;

use crate::address::{AddressError, Family};
use crate::checksum::Algorithm;
use crate::ranges::RangeSet;
use crate::timestamp::Timestamp;

/// A path or other argument as it stood on the line.
pub type Bytes = Vec<u8>;

/// TYPE (RFC 959 §3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Line ends are translated.
    Ascii,
    /// Bytes as they are.
    Image,
}

/// MODE (RFC 959 §3.4, GFD.20 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Stream: end of connection is end of file.
    Stream,
    /// Extended block.
    Extended,
}

/// DCAU argument (GFD.20 §3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dcau {
    /// No data channel authentication.
    None,
    /// Authenticate self.
    SelfAuth,
    /// Authenticate a given subject.
    Subject(String),
}

/// PROT argument (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prot {
    /// Clear
    Clear,
    /// Safe
    Safe,
    /// Confidential
    Confidential,
    /// Private
    Private,
}

/// REST argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// `REST n`: skip n bytes (RFC 3659 §5).
    Offset(u64),
    /// `REST a-b,c-d`: these ranges are there already (GFD.20 §3.7).
    Ranges(RangeSet),
}

/// EPSV argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsvArg {
    /// None: the control connection's family.
    Any,
    /// `1` or `2`
    Family(Family),
    /// `ALL`
    All,
}

/// ERET/ESTO module forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retrieve {
    /// `ERET P offset length path`
    Partial {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// OPTS forms (names and values are case-insensitive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opts {
    /// `OPTS RETR k=v;...`
    Retr(Vec<RetrOption>),
    /// `OPTS STOR Checksum=ALG;` or `=None;` (longhaul): sum while storing.
    StorChecksum(Option<Algorithm>),
    /// `OPTS PASV|EPSV|SPAS AllowDelayed=0|1;`
    AllowDelayed(bool),
    /// `OPTS MLST|MLSD|MLSR facts`; `None`: no argument (RFC 3659 §7.9 clears the list).
    Facts(Option<String>),
    /// `OPTS MLSR OnError=...;TraverseSymbolicLinks=...;`
    Mlsr,
    /// `OPTS CKSM Markers=n;`: 113 every n seconds.
    ChecksumMarkers(u32),
    /// `OPTS UTF8 [ON|OFF|NLST]`
    Utf8(bool),
    /// Anything else; answered 501.
    Unknown(String),
}

/// One `key=value` of OPTS RETR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrOption {
    /// `Parallelism=a,b,c`; only the first counts. 1..=[`crate::eblock::MAX_STREAMS`].
    Parallelism(u32),
    /// `StripeLayout=Partitioned`
    Partitioned,
    /// `StripeLayout=Blocked`
    Blocked,
    /// `BlockSize=n`
    BlockSize(u64),
    /// `Markers=n`: 112 every n seconds while sending.
    Markers(u32),
}

/// Which event TREV sets the period of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrevEvent {
    /// Range markers.
    Restart,
    /// Performance markers.
    Perf,
}

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

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the verb of its name")]
pub enum Command {
    User(String),
    /// The password; never logged: [`std::fmt::Debug`] of [`Secret`] hides it.
    Pass(Secret),
    Acct(String),
    Rein,
    Quit,
    Noop,
    Feat,
    /// `HELP [verb]`
    Help(Option<String>),
    Syst,
    /// `STAT [path]`
    Stat(Option<Bytes>),
    Opts(Opts),
    Lang(Option<String>),
    Clnt(String),
    /// AUTH, ADAT, MIC, ENC, CONF, CCC: not offered yet; the mechanism as named.
    Auth(String),
    Type(Type),
    Mode(Mode),
    Stru(char),
    Allo(u64),
    /// `SBUF n` (GFD.20 §4.1)
    Sbuf(u64),
    Dcau(Dcau),
    /// `PBSZ n`, 0..=2^32-1
    Pbsz(u32),
    Prot(Prot),
    Abor,
    Pasv,
    Epsv(EpsvArg),
    /// `SPAS [1|2]`: no argument answers in plain form, an argument in EPRT form.
    Spas(Option<Family>),
    Port(SocketAddr),
    Eprt(SocketAddr),
    Spor(Vec<SocketAddr>),
    Retr(Bytes),
    Stor(Bytes),
    Appe(Bytes),
    /// `STOU [path]`
    Stou(Option<Bytes>),
    Eret(Retrieve, Bytes),
    /// `ESTO A offset path`
    Esto(u64, Bytes),
    Rest(Restart),
    Size(Bytes),
    Mdtm(Bytes),
    Mfmt(Timestamp, Bytes),
    Cwd(Bytes),
    Cdup,
    Pwd,
    Mkd(Bytes),
    Rmd(Bytes),
    Dele(Bytes),
    Rnfr(Bytes),
    Rnto(Bytes),
    /// `LIST [-opts] [path]`; the options are dropped.
    List(Option<Bytes>),
    /// `NLST [-opts] [path]`; the options are dropped.
    Nlst(Option<Bytes>),
    Mlst(Option<Bytes>),
    Mlsd(Option<Bytes>),
    Mlsc(Option<Bytes>),
    Mlsr(Option<Bytes>),
    /// `CKSM ALG offset length path`; length `None` for -1, to the end.
    Cksm {
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: Bytes,
    },
    /// `SCKS ALG hex`
    Scks(Algorithm, String),
    Trev(TrevEvent, u32),
    Site(Site),
}

/// Text that must not reach a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Why a line is not a command; each maps to one reply in [`crate::server`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Empty, or no such verb: 500.
    #[error("command not recognized: {0}")]
    Unknown(String),
    /// A known verb that this server does not offer (SMNT, ...): 502.
    #[error("command {0} not implemented")]
    NotImplemented(&'static str),
    /// Argument missing or malformed: 501.
    #[error("{verb}: {reason}")]
    Syntax {
        /// The verb.
        verb: &'static str,
        /// What is wrong, for the reply.
        reason: String,
    },
    /// A well-formed argument that is not offered (TYPE E, MODE B, CKSM FOO): 504.
    #[error("{verb}: {reason}")]
    Parameter {
        /// The verb.
        verb: &'static str,
        /// What is not offered.
        reason: String,
    },
    /// An address of a family that is not offered: 522.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl Command {
    /// Reads one line, without its ending. Never panics, whatever the bytes.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        let _ = line;
        todo!()
    }

    /// The line to send, without CR LF. Parsing it gives the command back. CR, LF and NUL in
    /// arguments must have been refused by the caller (see [`crate::path`]).
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }

    /// The verb, upper case.
    pub fn verb(&self) -> &'static str {
        todo!()
    }
}
