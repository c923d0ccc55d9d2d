//! The findings of a translation, and its text.

use super::directives::ForeignDirective;
use super::rule::ImportRemark;

/// Column at which the original of a key begins, so that keys can be read.
const ORIGINAL_COLUMN: usize = 52;

/// Keys and remarks of one translated file.
#[derive(Debug, Default)]
pub(super) struct Translation {
    keys: Vec<TranslatedKey>,
    remarks: Vec<(RemarkOrigin, ImportRemark)>,
    files: Vec<String>,
}

/// A key of the settings file.
#[derive(Debug)]
struct TranslatedKey {
    key: &'static str,
    value: String,
    origin: String,
    lines: Vec<usize>,
}

/// Where a remark comes from.
#[derive(Debug)]
enum RemarkOrigin {
    /// A line of the original: its number, and how it is shown.
    Line(usize, String),
    /// A default of its program, which the original leaves as it is.
    Default,
}

impl Translation {
    /// Sets a key to a value of TOML. A second value replaces the first: the last line counts.
    pub(super) fn set(&mut self, key: &'static str, value: String, from: &ForeignDirective) {
        self.replace(TranslatedKey {
            key,
            value,
            origin: origin_of(from),
            lines: vec![from.line],
        });
    }

    /// Sets a key to what those of several lines that are there say together; without any of them, because of a default of the
    /// original's program, which a reason explains.
    pub(super) fn set_together<const LINES: usize>(
        &mut self,
        key: &'static str,
        value: String,
        from: [Option<&ForeignDirective>; LINES],
        reason: &str,
    ) {
        let from: Vec<_> = from.into_iter().flatten().collect();
        if from.is_empty() {
            return self.set_by_default(key, value, reason);
        }
        let origins: Vec<_> = from.iter().copied().map(origin_of).collect();
        self.replace(TranslatedKey {
            key,
            value,
            origin: origins.join(", "),
            lines: from.iter().map(|found| found.line).collect(),
        });
    }

    /// Sets a key because of a default of the original's program, which a reason explains.
    pub(super) fn set_by_default(&mut self, key: &'static str, value: String, reason: &str) {
        let origin = reason.to_owned();
        self.replace(TranslatedKey {
            key,
            value,
            origin,
            lines: Vec::new(),
        });
    }

    /// Notes a file that the settings need.
    pub(super) fn needs_file(&mut self, path: &str) {
        if !self.files.iter().any(|known| known == path) {
            self.files.push(path.to_owned());
        }
    }

    /// Keeps a line as a comment with its reason.
    pub(super) fn remark(&mut self, from: &ForeignDirective, remark: &ImportRemark) {
        let origin = RemarkOrigin::Line(from.line, origin_of(from));
        self.remarks.push((origin, remark.clone()));
    }

    /// Adds what the administrator must decide, and no line says.
    pub(super) fn ask(&mut self, question: &str) {
        let remark = ImportRemark::Decide(question.to_owned().into());
        self.remarks.push((RemarkOrigin::Default, remark));
    }

    /// Whether a line has become a key or a comment.
    pub(super) fn mentions(&self, directive: &ForeignDirective) -> bool {
        let is_line = |origin: &RemarkOrigin| matches!(origin, RemarkOrigin::Line(line, _) if *line == directive.line);
        self.keys
            .iter()
            .any(|known| known.lines.contains(&directive.line))
            || self.remarks.iter().any(|(origin, _)| is_line(origin))
    }

    /// Adds what every server needs, and what the keys leave open.
    pub(super) fn complete(&mut self) {
        let has = |key: &str| self.keys.iter().any(|known| known.key == key);
        let (has_passwords, has_certificate) = (has("pam") || has("users"), has("cert"));
        let demands_tls = self
            .keys
            .iter()
            .any(|known| known.key == "tls" && known.value == quoted("required"));
        let has_logins = has_passwords || has("anonymous") || has("gridmap");
        if !has("run-as") {
            let reason = "the account that serves; its permissions count";
            self.set_by_default("run-as", quoted("longhaul"), reason);
        }
        if !has_logins {
            self.ask(
                "nobody can log in: set anonymous = \"ro\", or users = FILE (longhaul user add)",
            );
        }
        if has_passwords && !has_certificate {
            self.ask("passwords are accepted over TLS only: set cert and key, or, for a network that nobody listens to, clear-passwords = true");
        } else if has_passwords && !demands_tls {
            self.ask("passwords are accepted over TLS only, although tls is optional: clients that log in without TLS are refused, unless clear-passwords = true, for a network that nobody listens to");
        }
    }

    fn replace(&mut self, new: TranslatedKey) {
        match self.keys.iter_mut().find(|known| known.key == new.key) {
            Some(known) => *known = new,
            None => self.keys.push(new),
        }
    }

    /// The settings file. `source` names the original.
    pub(super) fn text(&self, source: &str) -> String {
        let mut text = format!(
            "# Settings of longhaul serve, translated from {}.\n\
             # Decide what is left to you below, then: longhaul serve --check --config FILE\n\n",
            printable(source)
        );
        for TranslatedKey {
            key, value, origin, ..
        } in &self.keys
        {
            let setting = format!("{key} = {value}");
            text.push_str(&format!("{setting:<ORIGINAL_COLUMN$} # {origin}\n"));
        }
        if !self.files.is_empty() {
            text.push_str("\n# Files that these settings use:\n");
            for file in &self.files {
                text.push_str(&format!("#   {}\n", printable(file)));
            }
        }
        for title in ImportRemark::TITLES {
            let is_of_group = |(_, remark): &&(RemarkOrigin, ImportRemark)| remark.title() == title;
            let mut group = self.remarks.iter().filter(is_of_group).peekable();
            if group.peek().is_some() {
                text.push_str(&format!("\n# {title}:\n"));
            }
            for (origin, remark) in group {
                text.push_str(&match origin {
                    RemarkOrigin::Line(_, shown) => format!("#   {shown}\n#     {remark}\n"),
                    RemarkOrigin::Default => format!("#   {remark}\n"),
                });
            }
        }
        text
    }
}

/// A line of the original, with its place.
fn origin_of(from: &ForeignDirective) -> String {
    printable(&format!("{}: {}", from.place(), from.original))
}

/// A text of TOML.
pub(super) fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|letter| match letter {
            '"' | '\\' => vec!['\\', letter],
            letter if letter.is_control() => vec!['?'],
            letter => vec![letter],
        })
        .collect();
    format!("\"{escaped}\"")
}

/// A list of texts of TOML.
pub(super) fn quoted_list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

/// A text without control characters, which comments of TOML must not have.
fn printable(text: &str) -> String {
    let shown = |letter: char| {
        if letter.is_control() && letter != '\t' {
            '?'
        } else {
            letter
        }
    };
    text.chars().map(shown).collect()
}
