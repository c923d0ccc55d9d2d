//! The directives of a settings file, by the syntax of each program.

/// A directive that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignDirective {
    /// Number of its line, from 1; in a directory, its number among the lines of all files.
    pub(super) line: usize,
    /// The file of a directory that has its value.
    pub(super) file: Option<String>,
    /// The line without the spaces around it.
    pub(super) original: String,
    /// The name as it is written.
    pub(super) name: String,
    /// The words after the name, without quotes.
    pub(super) values: Vec<String>,
    /// The innermost section around it that counts (`Anonymous ~ftp`, `Limit WRITE`).
    pub(super) section: Option<String>,
}

impl ForeignDirective {
    /// Its place in the original: the line, or the file of a directory.
    pub(super) fn place(&self) -> String {
        match &self.file {
            Some(file) => format!("file {file}"),
            None => format!("line {}", self.line),
        }
    }

    /// The words after the name, as one text.
    pub(super) fn value(&self) -> String {
        self.values.join(" ")
    }

    /// Whether the value switches something on; `None`: it is no such value.
    pub(super) fn is_on(&self) -> Option<bool> {
        match self.value().to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Some(true),
            "no" | "false" | "off" | "0" => Some(false),
            _ => None,
        }
    }
}

/// The last directive of a name outside of sections: the one that counts.
pub(super) fn last<'d>(
    directives: &'d [ForeignDirective],
    name: &str,
) -> Option<&'d ForeignDirective> {
    let is_it = |found: &&ForeignDirective| {
        found.section.is_none() && found.name.eq_ignore_ascii_case(name)
    };
    directives.iter().rev().find(is_it)
}

/// Lines `key=value` (vsftpd.conf(5)): no spaces around `=`, and the value extends to the end of the line.
pub(super) fn with_equals(text: &str) -> Vec<ForeignDirective> {
    let read = |(line, original): (usize, &str)| {
        let (name, value) = original.split_once('=')?;
        let value = value.trim().to_owned();
        let values = Some(value).filter(|value| !value.is_empty());
        Some(ForeignDirective {
            line,
            file: None,
            original: original.to_owned(),
            name: name.trim_end().to_owned(),
            values: values.into_iter().collect(),
            section: None,
        })
    };
    set_lines(text).filter_map(read).collect()
}

/// Lines `Directive word "several words"` (pure-ftpd.conf, gridftp.conf).
pub(super) fn of_words(text: &str) -> Vec<ForeignDirective> {
    let read = |(line, original)| directive_of_words(line, original, None);
    set_lines(text).filter_map(read).collect()
}

/// Files that have the name of a directive, and its value in them (Debian's /etc/pure-ftpd/conf). An empty one is a directive
/// without a value.
pub(super) fn of_files(files: &[(String, String)]) -> Vec<ForeignDirective> {
    let mut directives = Vec::new();
    for (name, content) in files {
        let mut values: Vec<&str> = set_lines(content).map(|(_, value)| value).collect();
        if values.is_empty() {
            values.push("");
        }
        for value in values {
            let original = if value.is_empty() { "(empty)" } else { value };
            directives.push(ForeignDirective {
                line: directives.len() + 1,
                file: Some(name.clone()),
                original: original.to_owned(),
                name: name.clone(),
                values: words(value),
                section: None,
            });
        }
    }
    directives
}

/// Lines `Directive word` with sections `<Name words>` to `</Name>`, and lines that a backslash continues (proftpd.conf).
/// Sections that only ask what is compiled in count as if they were not there.
pub(super) fn in_sections(text: &str) -> Vec<ForeignDirective> {
    let mut sections: Vec<String> = Vec::new();
    let mut directives = Vec::new();
    for (line, joined) in joined_lines(text) {
        let original = joined.trim();
        if !is_set(original) {
            continue;
        }
        if original.starts_with("</") {
            sections.pop();
            continue;
        }
        if let Some(section) = original.strip_prefix('<') {
            sections.push(section.trim_end_matches('>').trim().to_owned());
            continue;
        }
        let is_open = |section: &&String| !is_transparent(section);
        let section = sections.iter().rev().find(is_open).cloned();
        directives.extend(directive_of_words(line, original, section));
    }
    directives
}

fn is_transparent(section: &str) -> bool {
    let name = section.split_whitespace().next().unwrap_or_default();
    ["IfModule", "IfDefine", "IfVersion", "Global"]
        .iter()
        .any(|transparent| name.eq_ignore_ascii_case(transparent))
}

/// Lines with their numbers, each with those that a backslash at its end continues.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let (body, is_continued) = match line.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        match joined.last_mut().filter(|_| goes_on) {
            Some((_, before)) => before.push_str(&format!(" {}", body.trim())),
            None => joined.push((index + 1, body.to_owned())),
        }
        goes_on = is_continued;
    }
    joined
}

fn is_set(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// The lines that are neither empty nor comments, with their numbers.
fn set_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| is_set(line))
}

fn directive_of_words(
    line: usize,
    original: &str,
    section: Option<String>,
) -> Option<ForeignDirective> {
    let mut words = words(original).into_iter();
    Some(ForeignDirective {
        line,
        file: None,
        original: original.to_owned(),
        name: words.next()?,
        values: words.collect(),
        section,
    })
}

/// Words, of which those in double quotes may have spaces. A quote that is not closed ends with the line.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}
