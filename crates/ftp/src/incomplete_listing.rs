//! Why a listing is not known to be complete.

use proto::printable::printable;

use crate::Failure;
use crate::failure::Sentence;

/// A reason to expect more entries in a directory than its listing showed. What was shown can be used; that something was
/// not shown proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteListing {
    /// Lines, or entries in another form, that are not understood.
    #[error("{} not understood{}", lines(*.count), shown_first(*.count, .first))]
    NotUnderstood {
        /// Number of them, at least 1.
        count: u64,
        /// The first one.
        first: Vec<u8>,
    },
    /// The directory itself, which every listing of WebDAV has (RFC 4918 section 9.1), so that this one is of something else.
    #[error("it does not contain the directory itself")]
    LacksDirectory,
    /// The last line of a text has no end.
    #[error("its last line has no end")]
    Cut,
    /// The connection ended without a proof that this is the end of the text: somebody may have cut it.
    #[error("the connection ended without close_notify, so it may be cut off")]
    EndUnproved,
    /// The login may not see everything (RFC 3659 section 7.5.5, `Perm` of the directory itself; SFTP: it may not search it).
    #[error("this login may not see everything in it")]
    HiddenFromLogin,
    /// The storage says that it left entries out, in these words.
    #[error("\"{}\"", printable(.0))]
    Limited(Vec<u8>),
    /// Two entries have one name: one of them has another name, which the listing cannot express, or the directory changed
    /// while it was listed.
    #[error("two entries have the name \"{}\"", printable(.0))]
    SameName(Vec<u8>),
    /// Entries of which the storage tells nothing but their names.
    #[error("{} known by name alone{}", entries(*.count), shown_first(*.count, .first))]
    NoFacts {
        /// Number of them, at least 1.
        count: u64,
        /// Name of the first one.
        first: Vec<u8>,
    },
}

impl IncompleteListing {
    /// Whether another way to list the directory has the same fault.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::EndUnproved | Self::HiddenFromLogin)
    }

    /// The failure of a listing of `path` at `storage`, after everything that is known was visited.
    pub fn failure(&self, storage: &str, path: &[u8]) -> Failure {
        let listing = Sentence::from("the listing of ").name(printable(path));
        let reason = listing.words(format_args!(
            " at {storage} is not known to be complete: {self}"
        ));
        Failure::protocol(reason).advise("name files that it lacks one by one")
    }
}

fn lines(count: u64) -> String {
    match count {
        1 => "one line is".to_owned(),
        count => format!("{count} lines are"),
    }
}

fn entries(count: u64) -> String {
    match count {
        1 => "one entry is".to_owned(),
        count => format!("{count} entries are"),
    }
}

fn shown_first(count: u64, first: &[u8]) -> String {
    let first = printable(first);
    match count {
        1 => format!(": \"{first}\""),
        _ => format!(", the first is \"{first}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_that_may_lack_entries_says_why() {
        let shown = |reason: IncompleteListing| reason.failure("h:21", b"/d").to_string();
        let first = b"x\r".to_vec();
        assert_eq!(
            shown(IncompleteListing::NotUnderstood { count: 2, first }),
            "the listing of /d at h:21 is not known to be complete: 2 lines are not understood, the first is \"x\\x0d\"; \
             name files that it lacks one by one"
        );
        let limited = IncompleteListing::Limited(b"226 Output truncated to 50 matches".to_vec());
        assert!(shown(limited).contains(": \"226 Output truncated to 50 matches\";"));
        let unknown = IncompleteListing::NoFacts {
            count: 1,
            first: b"f".to_vec(),
        };
        assert!(shown(unknown).contains("one entry is known by name alone: \"f\";"));
        assert!(shown(IncompleteListing::SameName(b"a?".to_vec())).contains("the name \"a?\";"));
    }
}
