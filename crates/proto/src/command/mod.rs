//! Commands: the text of a line to a value that cannot hold nonsense, and back.
//!
//! Sources: RFC 959 §5.3, RFC 2228, 2389, 2428, 3659; GFD.20 §3, §4; GFD.47 (CKSM, SCKS);
//! Engelhart, Gardner and Feng 2004 §3.2 (DPSV, DPRT); the SITE and OPTS forms that existing clients
//! send.
//!
//! Verbs are case-insensitive and end at the first space; a TAB separates nothing. A path begins
//! after exactly one space and runs to the end of the line: further spaces belong to the name. Before
//! other arguments, and between words, more spaces are taken. Commands without argument ignore one;
//! one argument too many of the others is an error.

mod argument;
mod encode;
mod opts;
mod parse;
mod site;
mod words;

use std::net::SocketAddr;

pub use argument::{
    DataChannelAuth, DataType, EpsvArgument, ExtendedRetrieve, ProtectionLevel, RestartMarker,
    TransferMode, TriggerEvent,
};
pub use opts::{OptsCommand, RetrieveOption};
pub use site::{BufferDirection, DriverStack, SiteCommand};

use crate::address::{AddressError, AddressFamily};
use crate::checksum::ChecksumAlgorithm;
use crate::drs::DrsAddress;
use crate::security::SecurityToken;
use crate::stripes::StripeAddresses;
use crate::timestamp::Timestamp;

/// A path or other argument as it stood on the line.
pub type RawArgument = Vec<u8>;

/// Largest number taken as an offset, length or size: the largest file offset.
pub const MAX_FILE_OFFSET: u64 = i64::MAX as u64;

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
    Stat(Option<RawArgument>),
    Opts(OptsCommand),
    Lang(Option<String>),
    Clnt(String),
    /// `AUTH mechanism` (RFC 2228 §3): the mechanism as named.
    Auth(String),
    /// `ADAT base64`: a token of the security exchange; never logged, as in all that follow.
    Adat(SecurityToken),
    /// `MIC base64`: a command whose integrity is protected.
    Mic(SecurityToken),
    /// `CONF base64`: a confidential command.
    Conf(SecurityToken),
    /// `ENC base64`: a command with both.
    Enc(SecurityToken),
    /// From here on commands are clear again.
    Ccc,
    Type(DataType),
    Mode(TransferMode),
    Stru(char),
    Allo(u64),
    /// `SBUF n`, bytes (GFD.20 §4.1; during a transfer: Gardner, Feng and Fisk 2003 §4.2)
    Sbuf(u64),
    Dcau(DataChannelAuth),
    /// `PBSZ n`, 0..=2^32-1
    Pbsz(u32),
    Prot(ProtectionLevel),
    Abor,
    Pasv,
    Epsv(EpsvArgument),
    /// `SPAS [1|2]`: no argument answers in plain form, an argument in EPRT form.
    Spas(Option<AddressFamily>),
    Port(SocketAddr),
    Eprt(SocketAddr),
    Spor(StripeAddresses),
    /// Listen for the DRS channel.
    Dpsv,
    /// `DPRT |1|host|port|nonce|`: connect the DRS channel there. Logs do not show the nonce.
    Dprt(DrsAddress),
    Retr(RawArgument),
    Stor(RawArgument),
    Appe(RawArgument),
    /// `STOU [path]`
    Stou(Option<RawArgument>),
    Eret(ExtendedRetrieve, RawArgument),
    /// `ESTO A offset path`
    Esto(u64, RawArgument),
    Rest(RestartMarker),
    Size(RawArgument),
    Mdtm(RawArgument),
    Mfmt(Timestamp, RawArgument),
    Cwd(RawArgument),
    Cdup,
    Pwd,
    Mkd(RawArgument),
    Rmd(RawArgument),
    Dele(RawArgument),
    Rnfr(RawArgument),
    Rnto(RawArgument),
    /// `LIST [-opts] [path]`; the options are dropped.
    List(Option<RawArgument>),
    /// `NLST [-opts] [path]`; the options are dropped.
    Nlst(Option<RawArgument>),
    Mlst(Option<RawArgument>),
    Mlsd(Option<RawArgument>),
    Mlsc(Option<RawArgument>),
    Mlsr(Option<RawArgument>),
    /// `CKSM ALG offset length path`; length `None` for -1, to the end.
    Cksm {
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: RawArgument,
    },
    /// `SCKS ALG hex`
    Scks(ChecksumAlgorithm, String),
    Trev(TriggerEvent, u32),
    Site(SiteCommand),
}

/// Result of reading a command.
type ParsedCommand = Result<Command, CommandError>;

/// Text that must not reach a log. Overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(pub Vec<u8>);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Or the compiler would leave out what nobody reads.
        std::hint::black_box(&self.0);
    }
}

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
    UnknownVerb(String),
    /// A known verb that this server does not offer (SMNT, ...): 502.
    #[error("command {0} not implemented")]
    NotImplemented(&'static str),
    /// Argument missing or malformed: 501.
    #[error("{verb}: {reason}")]
    Syntax {
        /// The verb.
        verb: &'static str,
        /// The mistake, for the reply.
        reason: String,
    },
    /// A well-formed argument that is not offered (TYPE E, MODE B, CKSM FOO): 504.
    #[error("{verb}: {reason}")]
    UnsupportedParameter {
        /// The verb.
        verb: &'static str,
        /// The parameter that is not offered.
        reason: String,
    },
    /// An address of a family that is not offered: 522.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl Command {
    /// Reads one line, without its ending. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// See [`CommandError`]; numbers above [`MAX_FILE_OFFSET`] and NUL bytes are syntax errors.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        parse::parse(line)
    }

    /// The line to send, without CR LF. Parsing it gives the command back, provided that no path
    /// starts with a space and no option-taking one (LIST, NLST) with `-`. CR, LF and NUL in
    /// arguments must have been refused by the caller (see [`crate::path`]); they become `?`, so
    /// that one command can never become two.
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// The verb, upper case.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::User(..) => "USER",
            Self::Pass(..) => "PASS",
            Self::Acct(..) => "ACCT",
            Self::Rein => "REIN",
            Self::Quit => "QUIT",
            Self::Noop => "NOOP",
            Self::Feat => "FEAT",
            Self::Help(..) => "HELP",
            Self::Syst => "SYST",
            Self::Stat(..) => "STAT",
            Self::Opts(..) => "OPTS",
            Self::Lang(..) => "LANG",
            Self::Clnt(..) => "CLNT",
            Self::Auth(..) => "AUTH",
            Self::Adat(..) => "ADAT",
            Self::Mic(..) => "MIC",
            Self::Conf(..) => "CONF",
            Self::Enc(..) => "ENC",
            Self::Ccc => "CCC",
            Self::Type(..) => "TYPE",
            Self::Mode(..) => "MODE",
            Self::Stru(..) => "STRU",
            Self::Allo(..) => "ALLO",
            Self::Sbuf(..) => "SBUF",
            Self::Dcau(..) => "DCAU",
            Self::Pbsz(..) => "PBSZ",
            Self::Prot(..) => "PROT",
            Self::Abor => "ABOR",
            Self::Pasv => "PASV",
            Self::Epsv(..) => "EPSV",
            Self::Spas(..) => "SPAS",
            Self::Port(..) => "PORT",
            Self::Eprt(..) => "EPRT",
            Self::Spor(..) => "SPOR",
            Self::Dpsv => "DPSV",
            Self::Dprt(..) => "DPRT",
            Self::Retr(..) => "RETR",
            Self::Stor(..) => "STOR",
            Self::Appe(..) => "APPE",
            Self::Stou(..) => "STOU",
            Self::Eret(..) => "ERET",
            Self::Esto(..) => "ESTO",
            Self::Rest(..) => "REST",
            Self::Size(..) => "SIZE",
            Self::Mdtm(..) => "MDTM",
            Self::Mfmt(..) => "MFMT",
            Self::Cwd(..) => "CWD",
            Self::Cdup => "CDUP",
            Self::Pwd => "PWD",
            Self::Mkd(..) => "MKD",
            Self::Rmd(..) => "RMD",
            Self::Dele(..) => "DELE",
            Self::Rnfr(..) => "RNFR",
            Self::Rnto(..) => "RNTO",
            Self::List(..) => "LIST",
            Self::Nlst(..) => "NLST",
            Self::Mlst(..) => "MLST",
            Self::Mlsd(..) => "MLSD",
            Self::Mlsc(..) => "MLSC",
            Self::Mlsr(..) => "MLSR",
            Self::Cksm { .. } => "CKSM",
            Self::Scks(..) => "SCKS",
            Self::Trev(..) => "TREV",
            Self::Site(..) => "SITE",
        }
    }
}

#[cfg(test)]
mod tests;
