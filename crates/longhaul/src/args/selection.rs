//! Flags that choose the files of a tree.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use copy::{Failure, FailureKind, Selection, without_byte_order_mark};
use proto::timestamp::Timestamp;

/// Largest list of files or rules, bytes.
const MAX_LIST: u64 = 1 << 30;

/// Which files of trees are copied. Patterns are those of rclone.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Selection of files in a tree")]
pub(crate) struct SelectionArgs {
    /// Copy only files that match PATTERN of rclone (several times: any of them). `*` and `?` match within a
    /// name, `**` anything with its slashes, `[a-z]` one of some characters, `[^a-z]` another one, `{a,b}` one of some
    /// texts, `{{x}}` a regular expression. `/x` begins at the top of the tree, `x` is the end of a path
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files that match PATTERN; `x/` is everything below directories of that name. Files that --include
    /// names are copied all the same
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Read rules from FILE, after those of --include and --exclude: lines `+ PATTERN` and `- PATTERN`;
    /// the first that matches decides
    #[arg(long, value_name = "FILE")]
    filter_from: Vec<PathBuf>,
    /// Copy only files of at least this size
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    min_size: Option<u64>,
    /// Copy only files of at most this size
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    max_size: Option<u64>,
    /// Copy only files that were modified within this time (`36h`, `7d`; a unit is needed) or since this date
    /// (`2026-11-24`, `2026-11-24T12:00:00Z`)
    #[arg(long, value_name = "TIME|DATE", value_parser = parse_moment)]
    newer: Option<Timestamp>,
    /// Copy only files that were modified before this time or date
    #[arg(long, value_name = "TIME|DATE", value_parser = parse_moment)]
    older: Option<Timestamp>,
    /// Copy only the files and directories that FILE lists, one path a line, relative to the source; lines that
    /// begin with # or ; say nothing (write ./# for such a name). `-`: standard input
    #[arg(long, value_name = "FILE|-")]
    files_from: Option<PathBuf>,
}

impl SelectionArgs {
    /// The rules.
    ///
    /// # Errors
    /// `Usage`: something is no pattern. `NotFound` or `Local`: a file of rules cannot be read.
    pub(crate) fn selection(&self) -> Result<Selection, Failure> {
        let mut selection = Selection::default();
        (selection.min_size, selection.max_size) = (self.min_size, self.max_size);
        (selection.newer, selection.older) = (self.newer, self.older);
        for pattern in &self.include {
            selection.include(pattern)?;
        }
        for pattern in &self.exclude {
            selection.exclude(pattern)?;
        }
        for file in &self.filter_from {
            let text = String::from_utf8_lossy(&read_list(file)?).into_owned();
            selection
                .add_rules(&text)
                .map_err(|failure| failure.within(file.display().to_string()))?;
        }
        Ok(selection)
    }

    /// The paths of `--files-from`. Empty lines, those that begin with `#` or `;`, and a leading `./` or `/` say nothing; paths
    /// may not contain `..`.
    ///
    /// # Errors
    /// `Usage`: a path would lead out of the source. `NotFound` or `Local`: the file cannot be read.
    pub(crate) fn listed_files(&self) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let Some(file) = &self.files_from else {
            return Ok(None);
        };
        let text = read_list(file)?;
        let mut paths = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.starts_with(b"#") || line.starts_with(b";") {
                continue;
            }
            let parts = line.split(|byte| *byte == b'/');
            let parts: Vec<&[u8]> = parts.filter(|p| !p.is_empty() && *p != b".").collect();
            if parts.contains(&&b".."[..]) {
                let line = String::from_utf8_lossy(line);
                let message = format!("{}: {line:?} leads out of the source", file.display());
                return Err(Failure::usage(message));
            }
            if !parts.is_empty() {
                paths.push(parts.join(&b'/'));
            }
        }
        Ok(Some(paths))
    }
}

/// The content of a file, or of standard input.
fn read_list(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(MAX_LIST + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(MAX_LIST + 1).read_to_end(&mut bytes)),
    };
    let failed = |kind, reason: String| {
        let message = format!("cannot read {}: {reason}", path.display());
        Err(Failure::new(kind, message))
    };
    match read {
        Ok(_) if bytes.len() as u64 > MAX_LIST => {
            failed(FailureKind::Usage, "it is larger than 1 GiB".to_owned())
        }
        Ok(_) => {
            let mark = bytes.len() - without_byte_order_mark(&bytes).len();
            bytes.drain(..mark);
            Ok(bytes)
        }
        Err(error) => failed(FailureKind::of_named_file(&error), error.to_string()),
    }
}

/// A date, or a time before now.
fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(moment.as_second()));
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let midnight = date.to_zoned(jiff::tz::TimeZone::UTC);
        return midnight
            .map(|at| Timestamp(at.timestamp().as_second()))
            .map_err(|error| error.to_string());
    }
    let ago = units::time(text).map_err(|_| {
        format!("'{text}' is neither a time such as 36h nor a date such as 2026-11-24")
    })?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "the clock of this machine is before 1970".to_owned())?;
    let seconds = now.saturating_sub(ago).as_secs();
    Ok(Timestamp(i64::try_from(seconds).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_flags;

    fn args(flags: &[&str]) -> Result<SelectionArgs, String> {
        parse_flags(flags)
    }

    #[test]
    fn times_are_ages_or_dates() {
        let newer = |text: &str| args(&["--newer", text]).map(|args| args.newer.unwrap().0);
        assert_eq!(newer("2026-01-02"), Ok(1_767_312_000));
        assert_eq!(newer("2026-01-02T00:00:01Z"), Ok(1_767_312_001));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs() as i64 - newer("2h").unwrap();
        assert!((7199..7300).contains(&age), "{age}");
        for text in ["yesterday", "", "12"] {
            assert!(newer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listed_paths_are_relative_to_the_source() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("list");
        let listed = |text: &[u8]| {
            std::fs::write(&list, text).unwrap();
            args(&["--files-from", list.to_str().unwrap()])
                .unwrap()
                .listed_files()
        };
        let paths = listed(b"a\n./b/c\r\n\n/d//e/\n").unwrap().unwrap();
        assert_eq!(paths, [&b"a"[..], b"b/c", b"d/e"]);
        let paths = listed(b"\xef\xbb\xbfa\r\n# b\r\n;c\r\n./#d \r\n").unwrap();
        assert_eq!(paths.unwrap(), [&b"a"[..], b"#d "]);
        assert_eq!(listed(b"a/../../b").unwrap_err().kind(), FailureKind::Usage);
        std::fs::remove_file(&list).unwrap();
        let missing = args(&["--files-from", list.to_str().unwrap()]).unwrap();
        assert_eq!(
            missing.listed_files().unwrap_err().kind(),
            FailureKind::NotFound
        );
    }

    #[test]
    fn a_rule_file_is_named_in_its_errors() {
        let directory = tempfile::tempdir().unwrap();
        let rules = directory.path().join("rules");
        std::fs::write(&rules, "\u{feff}- *.o\r\nnonsense\n").unwrap();
        let args = args(&["--filter-from", rules.to_str().unwrap()]).unwrap();
        let failure = args.selection().unwrap_err();
        assert!(failure.to_string().contains("rules: line 2"), "{failure}");
    }
}
