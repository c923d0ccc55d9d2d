//! Settings files of other servers, translated into one of this server. Text in, text out: no file is read, and no account
//! is looked up.
//!
//! Each program has a table: directive, and how it maps. Every directive that is set ends as a key or as a comment with one
//! reason. A translation never permits more than the original did: where the two programs differ, the stricter setting is
//! written and the administrator is asked.

mod directives;
mod globus;
mod proftpd;
mod pure_ftpd;
mod rule;
mod translation;
mod vsftpd;

use std::fmt;

use directives::ForeignDirective;
use rule::{ImportRule, rule_of};
use translation::Translation;

/// A server whose settings can be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignServer {
    /// vsftpd: lines `key=value`.
    Vsftpd,
    /// ProFTPD: lines `Directive values` in sections.
    Proftpd,
    /// Pure-FTPd: lines `Directive values`; Debian has one file per directive.
    PureFtpd,
    /// globus-gridftp-server: lines `option value`.
    Globus,
}

/// The reason why a text cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsImportError {
    /// No directive, or as many of one server as of another.
    #[error(
        "cannot tell which server these settings are for; name it with --import-format vsftpd|proftpd|pure-ftpd|globus"
    )]
    UnknownFormat,
}

impl ForeignServer {
    const ALL: [Self; 4] = [Self::Vsftpd, Self::Proftpd, Self::PureFtpd, Self::Globus];

    /// The server whose directives a text has most of; `None`: none, or two have the same number.
    pub fn of_text(text: &str) -> Option<Self> {
        let count = |server: Self| {
            let directives = server.directives(text);
            let is_known = |found: &&ForeignDirective| server.spells(found);
            directives.iter().filter(is_known).count()
        };
        let mut counts = Self::ALL.map(|server| (count(server), server));
        counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let [(most, server), (next, _), ..] = counts;
        (most > next).then_some(server)
    }

    /// Translates files that have the name of a directive, and its value in them: Pure-FTPd's settings in Debian. `source`: the
    /// name of their directory. Each file is its name and its content.
    ///
    /// # Errors
    /// Without `server`, if no file has the name of a directive.
    pub fn import_files(
        files: &[(String, String)],
        source: &str,
        server: Option<Self>,
    ) -> Result<String, SettingsImportError> {
        let directives = directives::of_files(files);
        let is_known = |found: &ForeignDirective| Self::PureFtpd.spells(found);
        if server.is_none() && !directives.iter().any(is_known) {
            return Err(SettingsImportError::UnknownFormat);
        }
        Ok(Self::PureFtpd.translated(&directives, source))
    }

    fn directives(self, text: &str) -> Vec<ForeignDirective> {
        match self {
            Self::Vsftpd => directives::with_equals(text),
            Self::Proftpd => directives::in_sections(text),
            Self::PureFtpd | Self::Globus => directives::of_words(text),
        }
    }

    fn table(self) -> &'static [(&'static str, ImportRule)] {
        match self {
            Self::Vsftpd => vsftpd::TABLE,
            Self::Proftpd => proftpd::TABLE,
            Self::PureFtpd => pure_ftpd::TABLE,
            Self::Globus => globus::TABLE,
        }
    }

    /// Whether the directive is one of this server as its documents spell it.
    fn spells(self, directive: &ForeignDirective) -> bool {
        self.table().iter().any(|(name, _)| *name == directive.name)
    }

    fn translated(self, directives: &[ForeignDirective], source: &str) -> String {
        let mut translation = Translation::default();
        // Those of several directives first: addresses and access head the file.
        match self {
            Self::Vsftpd => vsftpd::combine(directives, &mut translation),
            Self::Proftpd => proftpd::combine(directives, &mut translation),
            Self::PureFtpd => pure_ftpd::combine(directives, &mut translation),
            Self::Globus => globus::combine(directives, &mut translation),
        }
        for directive in directives {
            let section = directive.section.as_deref();
            match section.and_then(proftpd::reason_of_section) {
                Some(remark) => translation.remark(directive, &remark),
                None => match rule_of(self.table(), &directive.name) {
                    // Each of Pure-FTPd's has a value; elsewhere a name can be enough.
                    Some(_) if self == Self::PureFtpd && directive.values.is_empty() => {
                        translation.remark(directive, &rule::EMPTY);
                    }
                    Some(rule) => rule.apply(directive, &mut translation),
                    None => translation.remark(directive, &rule::UNKNOWN),
                },
            }
        }
        translation.complete();
        translation.text(&format!("{source} ({self})"))
    }
}

impl fmt::Display for ForeignServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vsftpd => "vsftpd",
            Self::Proftpd => "proftpd",
            Self::PureFtpd => "pure-ftpd",
            Self::Globus => "globus-gridftp-server",
        })
    }
}

/// Translates settings into the text of a settings file of this server (TOML). `source`: the name of the original, for the first
/// line. Without `server` it is found by the directives.
///
/// # Errors
/// See [`SettingsImportError`].
pub fn import_settings(
    text: &str,
    source: &str,
    server: Option<ForeignServer>,
) -> Result<String, SettingsImportError> {
    let server = server.or_else(|| ForeignServer::of_text(text));
    let server = server.ok_or(SettingsImportError::UnknownFormat)?;
    Ok(server.translated(&server.directives(text), source))
}

#[cfg(test)]
mod tests;
