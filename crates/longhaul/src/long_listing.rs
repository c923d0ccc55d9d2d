//! The lines of `ls -l` and `stat`: aligned columns, with times in the zone of this machine.

use copy::RemoteEntry;
use jiff::tz::TimeZone;
use proto::listing::EntryKind;
use proto::timestamp::Timestamp;
use units::show;

/// Widest column of owners or groups. A server says their names, and each line would be as wide as the longest.
const MAX_ACCOUNT_WIDTH: usize = 32;

/// Format of the lines, with the widths of the columns.
#[derive(Debug)]
pub(crate) struct LongFormat {
    /// Sizes with prefixes instead of bytes.
    human_readable: bool,
    zone: TimeZone,
    has_modes: bool,
    owner_width: usize,
    group_width: usize,
    size_width: usize,
}

impl LongFormat {
    /// A format in which the columns of `entries` are aligned. Columns that none of them has are left out.
    pub(crate) fn new(entries: &[RemoteEntry], human_readable: bool, zone: TimeZone) -> Self {
        let width = |text: &Option<String>| {
            let width = text.as_ref().map_or(0, |text| text.chars().count());
            width.min(MAX_ACCOUNT_WIDTH)
        };
        let mut format = Self {
            human_readable,
            zone,
            has_modes: entries.iter().any(|entry| entry.mode.is_some()),
            owner_width: entries.iter().map(|e| width(&e.owner)).max().unwrap_or(0),
            group_width: entries.iter().map(|e| width(&e.group)).max().unwrap_or(0),
            size_width: 0,
        };
        let sizes = entries.iter().map(|entry| format.size(entry).len());
        format.size_width = sizes.max().unwrap_or(0);
        format
    }

    /// The line of an entry. The name comes last, byte for byte.
    pub(crate) fn line(&self, entry: &RemoteEntry) -> Vec<u8> {
        let mut line = match self.has_modes {
            true => mode_text(entry),
            false => format!("{:5}", entry_type(entry)),
        };
        let accounts = [
            (&entry.owner, self.owner_width),
            (&entry.group, self.group_width),
        ];
        for (account, width) in accounts.into_iter().filter(|(_, width)| *width > 0) {
            let name = account.as_deref().unwrap_or("-");
            line.push_str(&format!(" {name:width$}"));
        }
        let (size, time) = (self.size(entry), self.time(entry.modified));
        line.push_str(&format!(
            " {size:>width$} {time:16} ",
            width = self.size_width
        ));
        let mut line = line.into_bytes();
        line.extend_from_slice(&entry.name);
        if let Some(target) = &entry.link_target {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(target);
        }
        line
    }

    fn size(&self, entry: &RemoteEntry) -> String {
        match (entry.size, self.human_readable) {
            (None, _) => "-".to_owned(),
            (Some(bytes), false) => bytes.to_string(),
            (Some(bytes), true) => show::bytes(bytes),
        }
    }

    fn time(&self, time: Option<Timestamp>) -> String {
        let known = time.and_then(|time| jiff::Timestamp::from_second(time.0).ok());
        known.map_or_else(
            || "-".to_owned(),
            |time| {
                let local = time.to_zoned(self.zone.clone());
                local.strftime("%Y-%m-%d %H:%M").to_string()
            },
        )
    }
}

/// Name of the kind of an entry.
pub(crate) fn entry_type(entry: &RemoteEntry) -> &'static str {
    match entry.kind {
        EntryKind::File => "file",
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir => "dir",
        EntryKind::SymLink => "link",
        EntryKind::Other => "other",
    }
}

/// Type and permissions as ls(1) writes them: `drwxr-xr-x`.
fn mode_text(entry: &RemoteEntry) -> String {
    let kind = match entry_type(entry) {
        _ if entry.is_symlink() => 'l',
        "dir" => 'd',
        "file" => '-',
        _ => '?',
    };
    let Some(mode) = entry.mode else {
        return format!("{kind}?????????");
    };
    let mut text = String::from(kind);
    // Set-user-ID, set-group-ID and the sticky bit stand in the place of the execution bits.
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for ((shift, bit), (flag, with, without)) in [(6, 0o100), (3, 0o010), (0, 0o001)]
        .into_iter()
        .zip(special)
    {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & flag != 0, mode & bit != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => with,
            (true, false) => without,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryKind, size: Option<u64>) -> RemoteEntry {
        RemoteEntry {
            size,
            modified: Some(Timestamp(1_764_000_000)),
            ..RemoteEntry::new(name.as_bytes(), kind)
        }
    }

    fn lines(entries: &[RemoteEntry], human_readable: bool) -> Vec<String> {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let format = LongFormat::new(entries, human_readable, zone);
        let lines = entries.iter().map(|entry| format.line(entry));
        lines.map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn columns_are_aligned_and_times_are_local() {
        let mut entries = [
            entry("d", EntryKind::Dir, None),
            entry("file", EntryKind::File, Some(1_234_567)),
        ];
        assert_eq!(
            lines(&entries, false),
            [
                "dir         - 2025-11-24 17:00 d",
                "file  1234567 2025-11-24 17:00 file",
            ]
        );
        entries[0].mode = Some(0o1755);
        entries[0].owner = Some("carol".into());
        assert_eq!(
            lines(&entries, true),
            [
                "drwxr-xr-t carol       - 2025-11-24 17:00 d",
                "-????????? -     1.23 MB 2025-11-24 17:00 file",
            ]
        );
    }

    #[test]
    fn one_long_owner_does_not_widen_all_lines() {
        let mut entries = [
            entry("a", EntryKind::File, Some(1)),
            entry("b", EntryKind::File, Some(1)),
        ];
        entries[0].owner = Some("x".repeat(10_000));
        entries[1].owner = Some("ann".into());
        let lines = lines(&entries, false);
        assert!(lines[0].len() > 10_000 && lines[1].len() < 100);
    }

    #[test]
    fn a_link_shows_its_target_and_an_unknown_time_is_a_dash() {
        let mut link = entry("l", EntryKind::SymLink, Some(1));
        link.link_target = Some(b"../x".to_vec());
        link.mode = Some(0o777);
        link.modified = None;
        assert_eq!(
            lines(&[link], false),
            ["lrwxrwxrwx 1 -                l -> ../x"]
        );
    }

    #[test]
    fn permissions_are_written_as_by_ls() {
        for (mode, text) in [
            (0o644, "-rw-r--r--"),
            (0o4755, "-rwsr-xr-x"),
            (0o2644, "-rw-r-Sr--"),
            (0o000, "----------"),
        ] {
            let file = RemoteEntry {
                mode: Some(mode),
                ..entry("f", EntryKind::File, None)
            };
            assert_eq!(mode_text(&file), text);
        }
    }
}
