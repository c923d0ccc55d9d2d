//! Failures: kinds that say what may be done about them, and facts that become a text here and nowhere else.

mod sentence;

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind};

pub(crate) use sentence::display_reply;
pub use sentence::{Operation, Sentence};
use units::Exit;

/// Kind of a failure: all that a decision may depend on, but for whether another attempt may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FailureKind {
    /// Some of several things failed.
    Partial,
    /// The request is invalid.
    Usage,
    /// Login or permission refused.
    Refused,
    /// A refused login, which may be due to the number of the user's sessions.
    LoginLimit,
    /// No such file.
    NotFound,
    /// The peer was lost, or does not do now what it may do later.
    Unreachable,
    /// No connection with the peer could be made. One that was reached before may be restarting.
    Away,
    /// Two servers cannot connect to each other, or move no file between them.
    Apart,
    /// The server lets no further session in: it has as many as it serves at a time.
    SessionLimit,
    /// Checksum or size mismatch, or a file that changed.
    Integrity,
    /// Disk or file error on this machine.
    Local,
    /// The disk or the quota of this machine is full.
    LocalDiskFull,
    /// The disk or the quota of the server is full.
    ServerDiskFull,
    /// Another copy is writing the destination. This one may succeed later.
    DestinationBusy,
    /// The server's file system cannot hold such a long name.
    NameTooLong,
    /// The peer broke the protocol or refused for another reason.
    Protocol,
    /// The login by ssh is good, and the program that serves sessions is not there.
    NoProgram,
    /// The login by ssh is good, and runs no programs.
    NoCommands,
    /// Interrupted by a signal.
    Interrupted,
}

impl FailureKind {
    /// The class of a process that ends with such a failure.
    pub fn exit(self) -> Exit {
        match self {
            Self::Partial => Exit::Partial,
            Self::Usage => Exit::Usage,
            Self::Refused | Self::LoginLimit | Self::NoProgram => Exit::Refused,
            Self::NotFound => Exit::NotFound,
            Self::Unreachable | Self::Away | Self::Apart | Self::SessionLimit => Exit::Unreachable,
            Self::Integrity => Exit::Integrity,
            Self::Local | Self::LocalDiskFull | Self::ServerDiskFull | Self::DestinationBusy => {
                Exit::Local
            }
            Self::NameTooLong | Self::Protocol | Self::NoCommands => Exit::Protocol,
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// The peer was lost or cannot be reached, for whatever reason.
    pub fn is_unreachable(self) -> bool {
        self.exit() == Exit::Unreachable
    }

    /// A disk or a quota is full.
    pub fn is_disk_full(self) -> bool {
        matches!(self, Self::LocalDiskFull | Self::ServerDiskFull)
    }

    /// The server has, or may have, as many sessions as it serves at a time.
    pub fn is_session_limit(self) -> bool {
        matches!(self, Self::SessionLimit | Self::LoginLimit)
    }

    /// A login by ssh is good, and no session of longhaul begins there: SFTP may.
    pub fn leaves_sftp(self) -> bool {
        matches!(self, Self::NoProgram | Self::NoCommands)
    }

    /// The kind of an error of a file on this machine that the user has named.
    pub fn of_named_file(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound,
            _ => Self::Local,
        }
    }

    /// The kind of an error of this machine's store.
    pub fn of_store(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::LocalDiskFull,
            _ => Self::Local,
        }
    }
}

/// Why something was not done. As text it is one line that says what failed, why, and what to do; no decision is made by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<FailureFacts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FailureFacts {
    kind: FailureKind,
    may_retry: bool,
    reason: Sentence,
    advice: Cow<'static, str>,
    /// Remarks after the advice, with the punctuation before them.
    remarks: Sentence,
}

impl Failure {
    /// A permanent failure: another attempt would fail in the same way.
    pub fn new(kind: FailureKind, reason: impl Into<Sentence>) -> Self {
        Self(Box::new(FailureFacts {
            kind,
            may_retry: false,
            reason: reason.into(),
            advice: Cow::Borrowed(""),
            remarks: Sentence::from(""),
        }))
    }

    /// An invalid request.
    pub fn usage(reason: impl Into<Sentence>) -> Self {
        Self::new(FailureKind::Usage, reason)
    }

    /// A refused login or permission.
    pub fn refused(reason: impl Into<Sentence>) -> Self {
        Self::new(FailureKind::Refused, reason)
    }

    /// An error of this machine.
    pub fn local(reason: impl Into<Sentence>) -> Self {
        Self::new(FailureKind::Local, reason)
    }

    /// A peer that broke the protocol, or refused for a reason that has no kind.
    pub fn protocol(reason: impl Into<Sentence>) -> Self {
        Self::new(FailureKind::Protocol, reason)
    }

    /// A transient failure: another attempt may succeed.
    pub fn transient(kind: FailureKind, reason: impl Into<Sentence>) -> Self {
        Self::new(kind, reason).retried(true)
    }

    /// A permanent failure of a file or directory.
    pub fn about(kind: FailureKind, name: impl Display, reason: impl Display) -> Self {
        Self::new(kind, Sentence::about(name).words(": ").words(reason))
    }

    /// The peer cannot be reached or was lost: another attempt may succeed.
    pub fn unreachable(reason: impl Into<Sentence>) -> Self {
        Self::transient(FailureKind::Unreachable, reason)
    }

    /// Another copy is writing the destination.
    pub fn destination_busy(reason: impl Into<Sentence>) -> Self {
        Self::transient(FailureKind::DestinationBusy, reason)
            .advise("wait for it to end, or use --wait")
    }

    /// The same failure, with what to do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.0.advice = advice.into();
        self
    }

    /// The same failure of another kind.
    #[must_use]
    pub fn of_kind(mut self, kind: FailureKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The same failure, of which it is known whether another attempt may succeed.
    #[must_use]
    pub fn retried(mut self, may_retry: bool) -> Self {
        self.0.may_retry = may_retry;
        self
    }

    /// The same failure, met in `context`: its text begins with it.
    #[must_use]
    pub fn within(mut self, context: impl Into<Sentence>) -> Self {
        self.0.reason = context.into().words(": ").sentence(&self.0.reason);
        self
    }

    /// The same failure with a further remark.
    #[must_use]
    pub fn remark(mut self, remark: impl Into<Sentence>) -> Self {
        self.0.remarks = self.0.remarks.words("; ").sentence(&remark.into());
        self
    }

    /// The same failure with a remark in parentheses.
    #[must_use]
    pub fn aside(mut self, remark: impl Into<Sentence>) -> Self {
        let opened = self.0.remarks.words(" (");
        self.0.remarks = opened.sentence(&remark.into()).words(")");
        self
    }

    /// The kind of the failure, by which decisions are made.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        self.0.kind == FailureKind::NotFound
    }

    /// The class of a process that ends with this failure.
    pub fn exit(&self) -> Exit {
        self.0.kind.exit()
    }

    /// Whether another attempt may succeed without any change (lost connection, 4xx reply, a destination
    /// that another copy is writing).
    pub fn may_retry(&self) -> bool {
        self.0.may_retry
    }

    /// The connection was lost, or the peer asks to come again.
    pub fn is_lost(&self) -> bool {
        self.may_retry() && self.kind().is_unreachable()
    }

    /// The failure without what to do about it, for one who does that.
    pub fn reason(&self) -> impl Display {
        &self.0.reason
    }

    /// The text without the names of the files that it is about: equal for files that fail alike.
    pub fn cause(&self) -> String {
        self.whole().without_names()
    }

    /// The failure with what to do about it, as one sentence.
    pub fn whole(&self) -> Sentence {
        let joint = if self.0.advice.is_empty() { "" } else { "; " };
        let advised = self.0.reason.clone().words(joint).words(&self.0.advice);
        advised.sentence(&self.0.remarks)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.whole().fmt(f)
    }
}

impl std::error::Error for Failure {}
