//! FTP commands: parsing and encoding of control lines.
//!
//! Sources: RFC 959 §5.3, RFC 2228, 2389, 2428, 3659; GFD.20 §3, §4; GFD.47 (CKSM, SCKS, GET, PUT);
//! Engelhart, Gardner and Feng 2004 §3.2 (DPSV, DPRT); the SITE and OPTS forms that existing clients
//! send.
//!
//! Verbs are case-insensitive and end at the first space; a TAB is no separator. A path starts after
//! exactly one space and extends to the end of the line; further spaces belong to the name. Before and
//! between other arguments, several spaces are accepted. Commands without arguments ignore any; all other
//! commands reject a surplus argument.

mod argument;
mod encode;
mod get_put;
mod opts;
mod parse;
mod protected;
mod site;
mod words;

use std::net::SocketAddr;

pub use argument::{
    DataType, EpsvArgument, ExtendedRetrieve, ExtendedStore, RestartMarker, TransferMode,
    TriggerEvent,
};
pub use get_put::{GetPutChannel, GetPutRequest};
pub use opts::{OptsCommand, RetrieveOption};
pub use protected::{CommandProtection, unwrap_line};
pub use site::{BufferDirection, DriverStack, SiteCommand, packed_announcements};

pub use crate::security::Secret;

use crate::address::{AddressError, AddressFamily};
use crate::checksum::ChecksumAlgorithm;
use crate::drs::DrsAddress;
use crate::printable::printable;
use crate::security::{DataChannelAuth, DataCredential, ProtectionLevel, SecurityToken};
use crate::stripes::StripeAddresses;
use crate::timestamp::Timestamp;

/// Bytes of a path or other argument as received.
pub type RawArgument = Vec<u8>;

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the verb of its name")]
pub enum Command {
    User(String),
    /// The password. [`std::fmt::Debug`] of [`Secret`] hides it, so that it is never logged.
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
    /// `AUTH mechanism` (RFC 2228 §3)
    Auth(String),
    /// `ADAT base64`: a token of the security exchange. Tokens are never logged.
    Adat(SecurityToken),
    /// `MIC base64`: a command with integrity protection.
    Mic(SecurityToken),
    /// `CONF base64`: a command with confidentiality.
    Conf(SecurityToken),
    /// `ENC base64`: a command with integrity and confidentiality.
    Enc(SecurityToken),
    /// Send all further commands in the clear (RFC 2228 §3).
    Ccc,
    Type(DataType),
    Mode(TransferMode),
    Stru(char),
    Allo(u64),
    /// `SBUF n`, bytes (GFD.20 §4.1; during a transfer: Gardner, Feng and Fisk 2003 §4.2)
    Sbuf(u64),
    /// `ABUF [sizes]` (GFD.20 §4): the server finds the sizes of its buffers itself, whatever the client proposes.
    Abuf,
    Dcau(DataChannelAuth),
    /// `DCSC D` or `DCSC P base64`. Logs hide the credential.
    Dcsc(DataCredential),
    /// `PBSZ n`, 0..=2^32-1
    Pbsz(u32),
    Prot(ProtectionLevel),
    Abor,
    Pasv,
    Epsv(EpsvArgument),
    /// `SPAS [1|2]`: the reply has PORT form without argument, and EPRT form with one.
    Spas(Option<AddressFamily>),
    Port(SocketAddr),
    Eprt(SocketAddr),
    Spor(StripeAddresses),
    /// Make the server listen for the DRS channel.
    Dpsv,
    /// `DPRT |1|host|port|nonce|`: make the server connect the DRS channel. Logs hide the nonce.
    Dprt(DrsAddress),
    Retr(RawArgument),
    Stor(RawArgument),
    /// `GET path=...;pasv;` (GFD.47 §4)
    Get(GetPutRequest),
    /// `PUT path=...;pasv;` (GFD.47 §4)
    Put(GetPutRequest),
    Appe(RawArgument),
    /// `STOU [path]`
    Stou(Option<RawArgument>),
    Eret(ExtendedRetrieve, RawArgument),
    Esto(ExtendedStore, RawArgument),
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
    /// `LIST [-opts] [path]`; the options are ignored.
    List(Option<RawArgument>),
    /// `NLST [-opts] [path]`; the options are ignored.
    Nlst(Option<RawArgument>),
    Mlst(Option<RawArgument>),
    Mlsd(Option<RawArgument>),
    Mlsc(Option<RawArgument>),
    Mlsr(Option<RawArgument>),
    /// `CKSM ALG offset length path`; a length of -1 (to the end) is `None`.
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

/// Result of parsing a command.
type ParsedCommand = Result<Command, CommandError>;

/// Error in a control line. [`crate::server`] maps each variant to one reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The line is empty or its verb is unknown: 500.
    #[error("command not recognized: {0}")]
    UnknownVerb(String),
    /// A known verb that this server does not implement (SMNT, ...): 502.
    #[error("command {0} not implemented")]
    NotImplemented(&'static str),
    /// An argument is missing or malformed: 501.
    #[error("{verb}: {reason}")]
    Syntax {
        /// The verb.
        verb: &'static str,
        /// Description of the error, for the reply.
        reason: String,
    },
    /// A well-formed argument that is not supported (TYPE E, MODE B, CKSM FOO): 504.
    #[error("{verb}: {reason}")]
    UnsupportedParameter {
        /// The verb.
        verb: &'static str,
        /// Description of the unsupported parameter, for the reply.
        reason: String,
    },
    /// An address of an unsupported family: 522.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl Command {
    /// Whether it moves data over a data connection.
    pub fn needs_data_connection(&self) -> bool {
        matches!(
            self,
            Self::Retr(_)
                | Self::Get(_)
                | Self::Put(_)
                | Self::Eret(..)
                | Self::Stor(_)
                | Self::Appe(_)
                | Self::Stou(_)
                | Self::Esto(..)
                | Self::List(_)
                | Self::Nlst(_)
                | Self::Mlsd(_)
                | Self::Mlsr(_)
        )
    }

    /// The file that it moves.
    pub fn transferred_file(&self) -> Option<&[u8]> {
        match self {
            Self::Retr(path) | Self::Stor(path) | Self::Eret(_, path) | Self::Esto(_, path) => {
                Some(path)
            }
            _ => None,
        }
    }

    /// Parses one line, without its ending. Never panics.
    ///
    /// # Errors
    /// See [`CommandError`]; numbers above [`MAX_FILE_OFFSET`](crate::ranges::MAX_FILE_OFFSET) and NUL bytes are syntax errors.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        parse::parse(line)
    }

    /// Encodes the line to send, without CR LF. Parsing it gives the same command, unless a path starts
    /// with a space or, for LIST and NLST, with `-`. The caller must refuse CR, LF and NUL in arguments
    /// (see [`crate::path`]); here they become `?`, so that one command can never become two.
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// The line as logs show it: `***` in place of secrets, and without control characters. Secrets are passwords and
    /// accounts, tokens of a security exchange, protected commands, credentials, and the nonce of DPRT.
    pub fn for_log(&self) -> String {
        let verb = self.verb();
        match self {
            Self::Pass(_)
            | Self::Acct(_)
            | Self::Adat(_)
            | Self::Mic(_)
            | Self::Conf(_)
            | Self::Enc(_)
            | Self::Dprt(_) => format!("{verb} ***"),
            Self::Dcsc(DataCredential::Pem(_)) => format!("{verb} P ***"),
            _ => printable(&self.encode()).to_string(),
        }
    }

    /// The argument of USER's companions (PASS, ACCT) and of DCSC, a secret, as it is sent. Empty ones are none.
    pub fn credential(&self) -> Option<Secret> {
        let before = match self {
            Self::Pass(_) | Self::Acct(_) => self.verb().len() + 1,
            Self::Dcsc(DataCredential::Pem(_)) => self.verb().len() + " P ".len(),
            _ => return None,
        };
        let line = Secret(self.encode());
        let argument = line.0.get(before..).filter(|argument| !argument.is_empty());
        argument.map(|argument| Secret(argument.to_vec()))
    }

    /// The verb in upper case.
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
            Self::Abuf => "ABUF",
            Self::Dcau(..) => "DCAU",
            Self::Dcsc(..) => "DCSC",
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
            Self::Get(..) => "GET",
            Self::Put(..) => "PUT",
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
