//! A job: one command `longhaul cp` or `longhaul sync` that any worker can run.

use crate::place::{self, PlaceRefused};

/// Most sources of one job.
pub const MOST_SOURCES: usize = 1000;
/// Most options of one job.
const MOST_OPTIONS: usize = 100;
/// Longest text of all words of a job, bytes.
const LONGEST_COMMAND: usize = 64 * 1024;
/// Most sessions of one job; `cp --concurrency` takes no more.
pub const MOST_SESSIONS: u32 = 64;
/// Longest name of an owner or a credential, bytes.
const LONGEST_NAME: usize = 128;

/// Options that the queue sets, or that make the result of the command another one than a copy.
const OWN_OPTIONS: &[&str] = &[
    "--json",
    "--limit-rate",
    "--concurrency",
    "--dry-run",
    "--plan",
    "--from",
    "--help",
    "--version",
];
/// The same as letters.
const OWN_LETTERS: &[char] = &['n', 'h', 'V'];

/// The verb of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyVerb {
    /// `longhaul cp`
    Cp,
    /// `longhaul sync`
    Sync,
}

impl CopyVerb {
    /// The word of the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Sync => "sync",
        }
    }

    /// The verb of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Cp, Self::Sync]
            .into_iter()
            .find(|verb| verb.word() == word)
    }
}

/// Why a command cannot be queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyRefused {
    /// A source or destination.
    #[error("{place} {cause}")]
    Place {
        /// The source or destination; empty where it holds a secret.
        place: String,
        /// The reason.
        cause: PlaceRefused,
    },
    /// No source, or too many.
    #[error("a job has one to {MOST_SOURCES} sources (sync: one) and a destination")]
    Sources,
    /// An option that does not stand alone.
    #[error("{0} is not an option with its value behind '=' (--verify=sha256)")]
    Option(String),
    /// An option that is the queue's.
    #[error("{0} cannot be an option of a job: the queue decides about it")]
    Own(String),
    /// A password in an option.
    #[error("an option holds a password, and a queue keeps none")]
    Secret,
    /// Too many words, or too long ones.
    #[error("the command is longer than a job may be")]
    TooLong,
    /// The name of an owner or of a credential.
    #[error("'{0}' is not a name of letters, digits and -_.@ (at most 128)")]
    Name(String),
    /// The number of sessions.
    #[error("a job has 1 to {MOST_SESSIONS} sessions")]
    Sessions,
}

/// The parts of a job before they are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyParts {
    /// The verb.
    pub verb: CopyVerb,
    /// The sources, then the destination.
    pub places: Vec<String>,
    /// Options of the verb, each a word, with its value behind `=`.
    pub options: Vec<String>,
    /// Whose job it is.
    pub owner: String,
    /// Most files at a time, each over its own session.
    pub sessions: u32,
    /// Highest rate, bits per second.
    pub rate: Option<u64>,
    /// Name of the credential, which each worker knows.
    pub credential: Option<String>,
    /// How often a failed attempt is repeated.
    pub retries: u32,
}

/// A job whose parts are known to be good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedCopy {
    parts: CopyParts,
    endpoints: Vec<String>,
    is_direct: bool,
}

impl QueuedCopy {
    /// Checks the parts of a job.
    ///
    /// # Errors
    /// See [`CopyRefused`].
    pub fn new(parts: CopyParts) -> Result<Self, CopyRefused> {
        let sources = parts.places.len().saturating_sub(1);
        let most = match parts.verb {
            CopyVerb::Cp => MOST_SOURCES,
            CopyVerb::Sync => 1,
        };
        if sources == 0 || sources > most {
            return Err(CopyRefused::Sources);
        }
        let length = |words: &[String]| words.iter().map(String::len).sum::<usize>();
        if length(&parts.places) + length(&parts.options) > LONGEST_COMMAND
            || parts.options.len() > MOST_OPTIONS
        {
            return Err(CopyRefused::TooLong);
        }
        for name in [Some(&parts.owner), parts.credential.as_ref()] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                return Err(CopyRefused::Name(name.clone()));
            }
        }
        if !(1..=MOST_SESSIONS).contains(&parts.sessions) {
            return Err(CopyRefused::Sessions);
        }
        for option in &parts.options {
            check_option(option)?;
        }
        let (mut endpoints, mut is_direct) = (Vec::new(), true);
        for text in &parts.places {
            let facts = place::read(text).map_err(|cause| CopyRefused::Place {
                place: match cause {
                    PlaceRefused::Secret => "a URL".to_owned(),
                    _ => text.clone(),
                },
                cause,
            })?;
            is_direct &= facts.is_direct;
            endpoints.extend(facts.endpoint);
        }
        endpoints.sort_unstable();
        endpoints.dedup();
        Ok(Self {
            parts,
            endpoints,
            is_direct,
        })
    }

    /// Its parts.
    pub fn parts(&self) -> &CopyParts {
        &self.parts
    }

    /// The hosts that it uses, without those of the worker: sorted, each once.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The words behind `longhaul`. `rate_file` holds the rate that the queue sets; `is_limited`: there is one now.
    /// Data that servers exchange directly has no rate: without a limit the option is left out there, and with one
    /// the program refuses the copy.
    pub(crate) fn words(&self, sessions: u32, rate_file: &str, is_limited: bool) -> Vec<String> {
        let parts = &self.parts;
        let mut words = vec![
            parts.verb.word().to_owned(),
            "--json".to_owned(),
            format!("--concurrency={sessions}"),
        ];
        if is_limited || !self.is_direct {
            words.push(format!("--limit-rate=@{rate_file}"));
        }
        words.extend(parts.options.iter().cloned());
        words.push("--".to_owned());
        words.extend(parts.places.iter().cloned());
        words
    }
}

/// Whether a text can be the name of an owner, a credential, a worker or an endpoint.
pub fn is_name(text: &str) -> bool {
    let is_known = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
    (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(is_known)
}

fn check_option(option: &str) -> Result<(), CopyRefused> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let letters = name.strip_prefix('-').unwrap_or_default();
    let is_option = match letters.strip_prefix('-') {
        Some(long) => !long.is_empty(),
        None => !letters.is_empty(),
    };
    if !is_option || option.chars().any(char::is_control) {
        return Err(CopyRefused::Option(option.to_owned()));
    }
    let is_own = match letters.starts_with('-') {
        true => OWN_OPTIONS.contains(&name),
        false => letters.contains(OWN_LETTERS),
    };
    if is_own {
        return Err(CopyRefused::Own(name.to_owned()));
    }
    match place::has_secret(value) {
        true => Err(CopyRefused::Secret),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(places: &[&str], options: &[&str]) -> CopyParts {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        CopyParts {
            verb: CopyVerb::Cp,
            places: owned(places),
            options: owned(options),
            owner: "anna".to_owned(),
            sessions: 2,
            rate: None,
            credential: None,
            retries: 3,
        }
    }

    fn refused(places: &[&str], options: &[&str]) -> CopyRefused {
        QueuedCopy::new(parts(places, options)).unwrap_err()
    }

    #[test]
    fn the_words_are_a_command_that_needs_no_directory() {
        let job = QueuedCopy::new(parts(&["ftp://a/x", "/data/"], &["-r", "--verify=md5"]));
        let words = job.unwrap().words(3, "/state/rate", false);
        let expected = "cp --json --concurrency=3 --limit-rate=@/state/rate -r --verify=md5 -- ftp://a/x /data/";
        assert_eq!(words.join(" "), expected);
        // Between two servers a rate is possible only as a refusal.
        let direct = QueuedCopy::new(parts(&["ftp://a/x", "gsiftp://b/x"], &[])).unwrap();
        assert!(!direct.words(1, "f", false).concat().contains("limit-rate"));
        assert!(direct.words(1, "f", true).concat().contains("limit-rate"));
        assert_eq!(direct.endpoints(), ["a", "b"]);
    }

    #[test]
    fn options_that_are_the_queues_or_take_the_next_word_are_refused() {
        let places = &["ftp://a/x", "/data/"];
        for own in ["--json", "--limit-rate=1M", "-n", "-rn", "--from=f"] {
            assert!(
                matches!(refused(places, &[own]), CopyRefused::Own(_)),
                "{own}"
            );
        }
        for other in ["-", "--", "sha256", "", "-r\n"] {
            let refused = refused(places, &[other]);
            assert!(matches!(refused, CopyRefused::Option(_)), "{other}");
        }
        let proxy = refused(places, &["--proxy=joe:secret@h"]);
        assert_eq!(proxy, CopyRefused::Secret);
    }

    #[test]
    fn a_refusal_does_not_repeat_a_secret() {
        let refused = refused(&["ftp://joe:hidden@a/x", "/data/"], &[]);
        assert!(!refused.to_string().contains("hidden"), "{refused}");
    }

    #[test]
    fn numbers_and_names_are_bounded() {
        assert_eq!(refused(&["/x"], &[]), CopyRefused::Sources);
        let mut many = parts(&["/a", "/b", "/c"], &[]);
        many.verb = CopyVerb::Sync;
        assert_eq!(QueuedCopy::new(many), Err(CopyRefused::Sources));
        let mut wrong = parts(&["/a", "/b"], &[]);
        wrong.sessions = 65;
        assert_eq!(QueuedCopy::new(wrong.clone()), Err(CopyRefused::Sessions));
        wrong.owner = "a b".to_owned();
        assert!(matches!(QueuedCopy::new(wrong), Err(CopyRefused::Name(_))));
    }
}
