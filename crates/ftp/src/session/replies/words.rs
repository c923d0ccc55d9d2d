//! Words by which servers say what their codes do not.

use proto::reply::Reply;

use Meaning::{
    Failed, GlobusError, IncompleteListing, NeedsGsi, NeedsTls, NoFiles, NotEmpty, Refused,
    ServersAccount, SessionLimit,
};

use super::RefusalCause::{
    self, Denied, Directory, Exists, Full, Lost, Missing, NameTooLong, NoFile, Occupied,
    Unprotected,
};

/// A meaning that words may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Meaning {
    /// The cause of a refusal.
    Refused(RefusalCause),
    /// No more than that something failed, be the file missing or forbidden.
    Failed,
    /// The directory to be removed is not empty.
    NotEmpty,
    /// The directory that is listed is empty.
    NoFiles,
    /// An error of globus-gridftp-server.
    GlobusError,
    /// There are as many sessions as the server serves at a time, for all or for one user.
    SessionLimit,
    /// The login needs TLS.
    NeedsTls,
    /// The login needs GSI.
    NeedsGsi,
    /// The system refuses it to the account that serves, whoever has logged in.
    ServersAccount,
    /// A listing lacks entries, although its reply is one of success.
    IncompleteListing,
}

/// Words, in lower case, by which servers say what their codes do not, beside the servers that use them.
const WORDS: &[(Meaning, &str)] = &[
    // The system's words (strerror(3)), which most servers repeat.
    (Refused(Missing), "no such file"),
    (Refused(Missing), "no such directory"),
    (Refused(Missing), "not found"),
    (Refused(Missing), "does not exist"),
    (Refused(Exists), "file exists"),
    (Refused(Exists), "already exists"),
    (Refused(Directory), "is a directory"),
    (Refused(NameTooLong), "name too long"),
    (Refused(Denied), "permission"),
    (Refused(Denied), "denied"),
    (Refused(Denied), "not permitted"),
    (Refused(Denied), "read-only"),
    (Refused(Full), "no space left"),
    (Refused(Full), "quota exceeded"),
    (Refused(Lost), "connection refused"),
    (Refused(Lost), "connection reset"),
    (Refused(Lost), "timed out"),
    (Refused(Lost), "broken pipe"),
    (NotEmpty, "not empty"),
    // RFC 959's texts for 452, 552 and 521, which some servers send with other codes.
    (Refused(Full), "insufficient system storage"),
    (Refused(Full), "exceeded storage allocation"),
    (Refused(Exists), "directory exists"),
    // vsftpd says no more about a file that it cannot open, stat or enter.
    (Refused(Missing), "failed to open file"),
    (Refused(Missing), "could not get file size"),
    (Refused(Missing), "failed to change directory"),
    (Failed, "failed to open file"),
    (Failed, "could not get file size"),
    (Failed, "failed to change directory"),
    (IncompleteListing, "failed to"),
    // IIS: "The system cannot find the file specified."
    (Refused(Missing), "cannot find the"),
    // ProFTPD, Pure-FTPd
    (Refused(Missing), "cannot be listed"),
    (Refused(Missing), "can't check for file existence"),
    (Refused(Missing), "doesn't exist"),
    (Refused(NoFile), "not a regular file"),
    (Refused(NoFile), "only retrieve regular files"),
    (Refused(Denied), "prohibited"),
    (Refused(Denied), "anonymous users"),
    (NeedsTls, "cleartext sessions"),
    // Pure-FTPd: "226-Output truncated to 50 matches".
    (IncompleteListing, "truncated"),
    // globus-gridftp-server answers every error with code 500. Elsewhere the code means that the server does not know the
    // command, whatever its words ("SIZE: command not found").
    (GlobusError, "globus"),
    (GlobusError, "gridftp-"),
    (GlobusError, "command failed"),
    (GlobusError, "system error in"),
    (Refused(Missing), "path_not_found"),
    (Refused(Lost), "unable to connect"),
    (Refused(Lost), "end-of-file was reached"),
    (Refused(Lost), "callback failed"),
    // globus-gridftp-server, of a data connection that has gone while it was used.
    (Refused(Lost), "handle not in the proper state"),
    // globus-gridftp-server, to USER when it wants AUTH GSSAPI.
    (NeedsGsi, "gssapi"),
    (NeedsGsi, "gsi "),
    // longhaul: 450 for an upload beside a running one, 426 for an upload that a newer one replaces.
    (Refused(Occupied), "another upload"),
    // longhaul, where the account that serves lacks a permission, or the file system is mounted read-only.
    (ServersAccount, "which its administrator can change"),
    // Old servers, to NLST of an empty directory.
    (NoFiles, "no files"),
    // Words in which others would say it. "226 2000 matches total" is a complete listing, also where a server reminds of a quota
    // ("disk quota limited to") after each transfer.
    (Refused(NoFile), "not a plain file"),
    (Refused(NoFile), "not a file"),
    (Refused(Denied), "not allowed"),
    (Refused(Denied), "readonly"),
    (Refused(Denied), "forbidden"),
    (Refused(Denied), "not authorized"),
    (Refused(Full), "disk full"),
    (Refused(Full), "insufficient storage"),
    (Refused(Unprotected), "encrypt"),
    (Refused(Unprotected), "prot "),
    (Refused(Unprotected), "protect"),
    (Refused(Unprotected), "ssl"),
    (Refused(Unprotected), "tls"),
    (SessionLimit, "too many"),
    (SessionLimit, "maximum"),
    (SessionLimit, "limit"),
    (SessionLimit, "already logged in"),
    (NeedsTls, "tls"),
    (NeedsTls, "ssl"),
    (NeedsTls, "encryption"),
    (NeedsTls, "secure connection"),
    (IncompleteListing, "incomplete"),
    (IncompleteListing, "not complete"),
    (IncompleteListing, "partial"),
    (IncompleteListing, "could not"),
    (IncompleteListing, "cannot"),
    (IncompleteListing, "unable to"),
    (IncompleteListing, "limit reached"),
    (IncompleteListing, "limit exceeded"),
    (IncompleteListing, "too many"),
    (IncompleteListing, "denied"),
    (IncompleteListing, "only the first"),
    (IncompleteListing, "listing limited"),
    (IncompleteListing, "entries shown"),
    (IncompleteListing, "omitted"),
    (IncompleteListing, "max entries"),
    (IncompleteListing, "aborted"),
    (IncompleteListing, "stopped"),
    (IncompleteListing, "skipped"),
    (IncompleteListing, "shortened"),
    (IncompleteListing, "not all"),
];

/// Whether a text in lower case has words of this meaning.
pub(in crate::session) fn means(text: &str, meaning: Meaning) -> bool {
    let mut words = WORDS.iter().filter(|(known, _)| *known == meaning);
    words.any(|(_, word)| text.contains(word))
}

/// Whether a reply has words of this meaning.
pub(in crate::session) fn says(reply: &Reply, meaning: Meaning) -> bool {
    means(&lowercase_text(reply), meaning)
}

/// The text of a reply in lower case.
pub(super) fn lowercase_text(reply: &Reply) -> String {
    reply
        .lines
        .iter()
        .map(|line| String::from_utf8_lossy(line).to_lowercase())
        .collect::<Vec<_>>()
        .join("\n")
}
