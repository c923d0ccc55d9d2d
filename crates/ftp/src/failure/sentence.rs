//! Sentences about files, which know which of their parts are names.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use proto::echo::replace_path;
use proto::printable::printable;
use proto::reply::Reply;

use crate::{Failure, FailureKind};

/// The text that stands in a cause for a name.
const ELLIPSIS: &str = "...";

/// An attempt, with the file or directory that it is about: `write /data/x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    verb: Cow<'static, str>,
    /// As shown to people; empty: it is not about one file.
    place: String,
    /// The other file, if there is one.
    to: Option<String>,
}

impl Operation {
    /// An operation in the infinitive, on something that has this name.
    pub fn on(verb: impl Into<Cow<'static, str>>, place: impl Display) -> Self {
        Self {
            verb: verb.into(),
            place: place.to_string(),
            to: None,
        }
    }

    /// The same operation, with the other file.
    pub fn to(self, to: impl Display) -> Self {
        Self {
            to: Some(to.to_string()),
            ..self
        }
    }

    /// Its permanent failure.
    pub fn failed(&self, kind: FailureKind, reason: impl Display) -> Failure {
        Failure::new(kind, Sentence::cannot(self).words(": ").words(reason))
    }

    /// The same operation, as a command does it.
    pub fn by(&self, command: impl Display) -> Self {
        Self::on(
            self.verb.clone(),
            format_args!("{} ({command})", self.place),
        )
    }

    /// Whether a verb does it with whole trees, if told `-r`.
    pub(crate) fn takes_trees(&self) -> bool {
        matches!(
            &*self.verb,
            "read" | "write" | "copy" | "fetch" | "delete" | "remove"
        )
    }

    /// An operation on the file of a path.
    pub fn on_path(verb: impl Into<Cow<'static, str>>, path: &[u8]) -> Self {
        Self::on(verb, printable(path))
    }
}

/// An operation that is not about one file.
impl<V: Into<Cow<'static, str>>> From<V> for Operation {
    fn from(verb: V) -> Self {
        Self::on(verb, "")
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Sentence(Vec::new()).operation(self).fmt(f)
    }
}

/// A part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SentencePart {
    Words(String),
    /// The name of a file or directory.
    Name(String),
    /// A server's reply, which may repeat names.
    Reply(Reply),
}

/// A sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence(Vec<SentencePart>);

impl<W: Into<String>> From<W> for Sentence {
    fn from(words: W) -> Self {
        Self(vec![SentencePart::Words(words.into())])
    }
}

impl Sentence {
    /// A sentence that begins with a name.
    pub fn about(name: impl Display) -> Self {
        Self(Vec::new()).name(name)
    }

    /// `cannot {operation}`
    pub fn cannot(operation: &Operation) -> Self {
        Self::from("cannot ").operation(operation)
    }

    /// The sentence, followed by these words.
    pub fn words(mut self, words: impl Display) -> Self {
        self.0.push(SentencePart::Words(words.to_string()));
        self
    }

    /// The sentence, followed by a name.
    pub fn name(mut self, name: impl Display) -> Self {
        self.0.push(SentencePart::Name(name.to_string()));
        self
    }

    /// The sentence, followed by an operation.
    pub fn operation(self, operation: &Operation) -> Self {
        let begun = self.words(&operation.verb);
        let named = match operation.place.is_empty() {
            true => begun,
            false => begun.words(" ").name(&operation.place),
        };
        match &operation.to {
            None => named,
            Some(to) => named.words(" to ").name(to),
        }
    }

    /// The sentence, followed by a server's reply.
    pub fn reply(mut self, reply: &Reply) -> Self {
        self.0.push(SentencePart::Reply(reply.clone()));
        self
    }

    /// The sentence, followed by another one.
    pub fn sentence(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    /// The sentence with [`ELLIPSIS`] in place of each name.
    pub(super) fn without_names(&self) -> String {
        let names = || {
            self.0.iter().filter_map(|part| match part {
                SentencePart::Name(name) => Some(name.as_str()),
                _ => None,
            })
        };
        let part = |part: &SentencePart| match part {
            SentencePart::Words(words) => words.clone(),
            SentencePart::Name(_) => ELLIPSIS.to_owned(),
            SentencePart::Reply(reply) => names().fold(display_reply(reply), |text, name| {
                let text = replace_path(text.as_bytes(), name.as_bytes(), ELLIPSIS.as_bytes());
                String::from_utf8_lossy(&text).into_owned()
            }),
        };
        self.0.iter().map(part).collect()
    }
}

impl Display for Sentence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            SentencePart::Words(text) | SentencePart::Name(text) => f.write_str(text),
            SentencePart::Reply(reply) => f.write_str(&display_reply(reply)),
        })
    }
}

/// Code and text in one line, without a full stop at its end: it stands inside a sentence.
pub(crate) fn display_reply(reply: &Reply) -> String {
    let text = reply.summary();
    let text = text.trim();
    let text = match text.strip_suffix('.') {
        Some(sentence) if !sentence.ends_with('.') => sentence,
        _ => text,
    };
    format!("{} {text}", reply.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_files_that_fail_alike_have_one_cause() {
        let cause = |name: &str| {
            let path = format!("/e/{name}.partial");
            let reply = Reply::new(550, format!("STOR {path}: {name}.partial denied"));
            let reason = Sentence::from("h:21 refused to ")
                .operation(&Operation::on_path("write", path.as_bytes()))
                .words(": ")
                .reply(&reply);
            let failure = Failure::new(FailureKind::Refused, reason).advise("ask");
            assert_eq!(
                failure.to_string(),
                format!(
                    "h:21 refused to write {path}: 550 STOR {path}: {name}.partial denied; ask"
                )
            );
            failure.cause()
        };
        for name in ["f1", "f10", "a", "file.longer-name.dat"] {
            assert_eq!(
                cause(name),
                "h:21 refused to write ...: 550 STOR ...: ... denied; ask"
            );
        }
    }

    #[test]
    fn names_in_contexts_and_remarks_are_none_of_the_cause() {
        let failure = Failure::about(FailureKind::Integrity, "/d/a", "differs")
            .advise("copy it again")
            .within(Sentence::about("/e/a").words(" was copied"))
            .remark(Sentence::from("it is kept as ").name("/e/.a"));
        assert_eq!(
            failure.to_string(),
            "/e/a was copied: /d/a: differs; copy it again; it is kept as /e/.a"
        );
        assert_eq!(
            failure.cause(),
            "... was copied: ...: differs; copy it again; it is kept as ..."
        );
        assert_eq!(
            failure.reason().to_string(),
            "/e/a was copied: /d/a: differs"
        );
    }

    #[test]
    fn other_reasons_are_other_causes() {
        let cause = |reason| Failure::about(FailureKind::Local, "/d/a", reason).cause();
        assert_ne!(cause("Permission denied"), cause("Input/output error"));
    }
}
