//! `FACTS NAME` lines of MLST, MLSD, MLSC and MLSR (RFC 3659 §7.2).

use super::{DirectoryEntry, EntryKind, Fact, FactSet, ListedEntry, push_name, without_ending};
use crate::timestamp::Timestamp;

/// Writes `FACTS NAME` without line ending. CR, LF and NUL in the name become `?`, since they cannot be
/// sent on a line. `entries_in_dir` is the `X.count` fact.
///
/// A symbolic link has the facts of its target, with `UNIX.slink`, as the globus server writes it. A
/// dangling link is `Type=OS.unix=slink:TARGET` (RFC 3659 §7.5.1.5). So is a link to a directory for
/// a client that did not select `UNIX.slink`: it would take the link for a directory, enter it, and
/// delete or copy files outside the tree.
pub fn format_mlsx(entry: &DirectoryEntry, facts: FactSet, entries_in_dir: Option<u64>) -> Vec<u8> {
    // Room for the default facts.
    let mut line = Vec::with_capacity(192 + entry.name.len());
    for fact in Fact::ALL.into_iter().filter(|fact| facts.contains(*fact)) {
        if let Some(value) =
            fact_value(entry, fact, facts.contains(Fact::UnixSlink), entries_in_dir)
        {
            line.extend_from_slice(fact.name().as_bytes());
            line.push(b'=');
            line.extend_from_slice(&value);
            line.push(b';');
        }
    }
    line.push(b' ');
    push_name(&entry.name, &mut line);
    line
}

/// Parses one MLSx line. Trailing CRs and one leading space are accepted, and the case of fact names is
/// ignored. Returns `None` for lines without facts or name, and for entries of unknown kind: those of a `Type` that no
/// standard and no operating system has, and those without `Type` whose permissions do not show it.
pub fn parse_mlsx(line: &[u8]) -> Option<ListedEntry> {
    let line = without_ending(line);
    // MLST sends the facts inside a reply, after one space (RFC 3659 §7.2).
    let line = line.strip_prefix(b" ").unwrap_or(line);
    let (facts, name) = split_facts(line)?;
    if name.is_empty() || !facts.contains(&b'=') {
        return None;
    }
    let text = String::from_utf8_lossy(facts);
    let facts_of_line = || text.split(';').filter_map(|fact| fact.split_once('='));
    let value_of = |wanted: &str| {
        let mut all = facts_of_line();
        let found = all.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value)
    };
    let kind = match value_of("type") {
        Some(word) => parse_type(word)?,
        // Some servers have a fact of its own for the size of directories.
        None if value_of("sizd").is_some() => EntryKind::Dir,
        None => kind_of_permissions(value_of("perm")?)?,
    };
    let mut entry = ListedEntry::new(name, kind);
    entry.link_target = link_target(facts);
    for (name, value) in facts_of_line() {
        apply_fact(&mut entry, &name.to_ascii_lowercase(), value);
    }
    Some(entry)
}

/// The kind of an entry by its permissions (RFC 3659 §7.5.5): some are those of directories alone, others those of files.
fn kind_of_permissions(perm: &str) -> Option<EntryKind> {
    let has = |letters: &[char]| perm.to_ascii_lowercase().contains(letters);
    match (has(&['c', 'e', 'l', 'm', 'p']), has(&['a', 'r', 'w'])) {
        (true, false) => Some(EntryKind::Dir),
        (false, true) => Some(EntryKind::File),
        _ => None,
    }
}

fn fact_value(
    entry: &DirectoryEntry,
    fact: Fact,
    shows_links: bool,
    entries_in_dir: Option<u64>,
) -> Option<Vec<u8>> {
    let text = match fact {
        Fact::Type => return Some(type_value(entry, shows_links)),
        Fact::Modify => entry.modified.format(),
        Fact::Charset => "UTF-8".to_owned(),
        Fact::Size => entry.size.to_string(),
        Fact::Perm => perm_value(entry),
        Fact::UnixMode => format!("{:04o}", entry.mode & 0o7777),
        Fact::UnixOwner => entry.owner_column(),
        Fact::UnixGroup => entry.group_column(),
        Fact::UnixSlink => return slink_value(entry),
        Fact::Unique => format!(
            "{:x}-{:x}",
            entry.device_and_inode.0, entry.device_and_inode.1
        ),
        Fact::UnixUid => entry.uid.to_string(),
        Fact::UnixGid => entry.gid.to_string(),
        Fact::XCount => entries_in_dir?.to_string(),
    };
    Some(text.into_bytes())
}

/// Value of the `Type` fact. `shows_links` is set if `UNIX.slink` is shown too.
fn type_value(entry: &DirectoryEntry, shows_links: bool) -> Vec<u8> {
    let target = slink_value(entry);
    let target_shown = shows_links && target.is_some();
    // Links to files keep the type `file`: reading through them is harmless.
    let hidden_link = entry.kind == EntryKind::Dir && entry.link_target.is_some() && !target_shown;
    if entry.kind != EntryKind::SymLink && !hidden_link {
        return type_word(entry.kind).into();
    }
    let mut word = type_word(EntryKind::SymLink).as_bytes().to_vec();
    if let Some(target) = target {
        word.push(b':');
        word.extend_from_slice(&target);
    }
    word
}

fn type_word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Dir => "dir",
        EntryKind::CurrentDir => "cdir",
        EntryKind::ParentDir => "pdir",
        EntryKind::SymLink => "OS.unix=slink",
        EntryKind::Other => "OS.unix=special",
    }
}

fn parse_type(word: &str) -> Option<EntryKind> {
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "file" => EntryKind::File,
        "dir" => EntryKind::Dir,
        "cdir" => EntryKind::CurrentDir,
        "pdir" => EntryKind::ParentDir,
        // `OS.unix=slink:target` (RFC 3659 §7.5.1.5), `OS.unix=symlink` (ProFTPD).
        _ if word.starts_with("os.unix=slink") || word.starts_with("os.unix=symlink") => {
            EntryKind::SymLink
        }
        _ if word.contains('=') => EntryKind::Other,
        _ => return None,
    })
}

/// Value of the `Perm` fact (RFC 3659 §7.5.5), with letters in the order of the globus server.
fn perm_value(entry: &DirectoryEntry) -> String {
    let access = entry.permissions;
    let is_dir = matches!(
        entry.kind,
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir
    );
    let parts = if is_dir {
        [
            (access.write, "cfmp"),
            (access.execute, "e"),
            (access.read, "l"),
        ]
    } else {
        [(access.write, "aw"), (access.read, "r"), (false, "")]
    };
    parts
        .into_iter()
        .filter_map(|(granted, letters)| granted.then_some(letters))
        .collect()
}

/// Value of the `UNIX.slink` fact. Left out if the target contains bytes that would end the fact or line.
fn slink_value(entry: &DirectoryEntry) -> Option<Vec<u8>> {
    let target = entry.link_target.as_ref()?;
    let ends_fact = |b: &u8| b.is_ascii_control() || matches!(b, b' ' | b';');
    (!target.iter().any(ends_fact)).then(|| target.clone())
}

/// Splits a line into facts and name. Facts end at the first space after a `;`, since values of some
/// servers contain spaces. Without `; ` they end at the first space.
fn split_facts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line
        .windows(2)
        .position(|pair| pair == b"; ")
        .map(|at| at + 1)
        .or_else(|| line.iter().position(|b| *b == b' '))?;
    Some((&line[..at], &line[at + 1..]))
}

/// Target of a symbolic link, from `UNIX.slink=TARGET` or `Type=OS.unix=slink:TARGET`.
fn link_target(facts: &[u8]) -> Option<Vec<u8>> {
    let after = |fact: &[u8], start: &[u8]| {
        let (head, rest) = fact.split_at_checked(start.len())?;
        head.eq_ignore_ascii_case(start).then(|| rest.to_vec())
    };
    let facts = || facts.split(|b| *b == b';');
    facts()
        .find_map(|fact| after(fact, b"unix.slink="))
        .or_else(|| facts().find_map(|fact| after(fact, b"type=os.unix=slink:")))
}

fn apply_fact(entry: &mut ListedEntry, fact: &str, value: &str) {
    // `FromStr` alone would accept a leading `+`.
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match fact {
        "size" if digits => entry.size = value.parse().ok(),
        "modify" => entry.modified = Timestamp::parse(value),
        // Servers write the mode with or without a leading zero, always octal.
        "unix.mode" if digits => {
            entry.mode = u32::from_str_radix(value, 8).ok().map(|m| m & 0o7777);
        }
        "unique" if !value.is_empty() => entry.unique = Some(value.to_owned()),
        // RFC 3659 §7.5.5: to enter, and to list.
        "perm" => {
            let has = |letter: char| value.chars().any(|c| c.eq_ignore_ascii_case(&letter));
            entry.may_list = Some(has('e') && has('l'));
        }
        "unix.owner" => entry.owner = Some(value.to_owned()),
        "unix.group" => entry.group = Some(value.to_owned()),
        _ => {}
    }
}
