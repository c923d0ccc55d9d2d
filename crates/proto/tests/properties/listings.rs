use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proto::listing::{
    DirectoryEntry, EntryKind, EntryPermissions, Fact, FactSet, ListingFormat, ListingReader,
    format_ls, format_mlsx, parse_ls, parse_mlsx,
};
use proto::timestamp::Timestamp;

fn path() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("carried on a line", |b| !matches!(b, 0 | b'\r' | b'\n'));
    vec(byte, 1..20)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    path().prop_filter("`.` and `..` are kinds of their own", |n| {
        !n.contains(&b'/') && n != b"." && n != b".."
    })
}

fn entry() -> impl Strategy<Value = DirectoryEntry> {
    let kind = select(vec![
        EntryKind::File,
        EntryKind::Dir,
        EntryKind::SymLink,
        EntryKind::Other,
    ]);
    let account = "[a-z][a-z0-9_-]{0,9}";
    (
        (
            name(),
            kind,
            any::<u64>(),
            -62_167_219_200..=253_402_300_799i64,
            0..=0o7777u32,
        ),
        (
            any::<u32>(),
            any::<u32>(),
            account,
            account,
            any::<[bool; 3]>(),
        ),
        option::of(path()),
    )
        .prop_map(|(what, whose, link_target)| {
            let (name, kind, size, modified, mode) = what;
            let (uid, gid, owner, group, [read, write, execute]) = whose;
            DirectoryEntry {
                name,
                kind,
                size,
                modified: Timestamp(modified),
                mode,
                link_count: 1,
                uid,
                gid,
                owner,
                group,
                device_and_inode: (u64::from(uid), size),
                link_target,
                permissions: EntryPermissions {
                    read,
                    write,
                    execute,
                },
            }
        })
}

fn every_fact() -> FactSet {
    let names: Vec<&str> = Fact::ALL.iter().map(|f| f.name()).collect();
    FactSet::parse(&names.join(";"))
}

/// Lines of words that occur in listings.
fn listing_like() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        select(vec![
            "-rw-r--r--",
            "drwxr-xr-x",
            "lrwxrwxrwx",
            "Nov",
            "20",
            "08:21",
            "2024",
            "->",
            "",
            "<DIR>",
            "11-20-26",
            "08:21AM",
            "Type=file;",
            "Size=5;",
            ";",
            "=",
            "é",
            "2026-11-20",
        ])
        .prop_map(|w| w.as_bytes().to_vec()),
        vec(any::<u8>(), 0..6),
    ];
    vec(word, 0..14).prop_map(|words| words.join(&b' '))
}

proptest! {
    #[test]
    fn written_facts_are_parsed_back(entry in entry(), count in option::of(any::<u64>())) {
        let line = format_mlsx(&entry, every_fact(), count);
        let back = parse_mlsx(&line);
        let back = back.as_ref();
        prop_assert_eq!(back.map(|b| &b.name), Some(&entry.name));
        let listed_target = back.and_then(|b| b.link_target.as_ref());
        if entry.kind == EntryKind::Dir && entry.link_target.is_some() && listed_target.is_none() {
            // No fact can hold this target, but the entry is still listed as a link.
            prop_assert_eq!(back.map(|b| b.kind), Some(EntryKind::SymLink));
        } else {
            prop_assert_eq!(back.map(|b| b.kind), Some(entry.kind));
        }
        prop_assert!(listed_target.is_none() || listed_target == entry.link_target.as_ref());
        prop_assert_eq!(back.and_then(|b| b.size), Some(entry.size));
        prop_assert_eq!(back.and_then(|b| b.modified), Some(entry.modified));
        prop_assert_eq!(back.and_then(|b| b.mode), Some(entry.mode));
        prop_assert_eq!(back.and_then(|b| b.owner.as_ref()), Some(&entry.owner));
        prop_assert_eq!(back.and_then(|b| b.group.as_ref()), Some(&entry.group));
    }

    #[test]
    fn written_ls_lines_are_parsed_back(entry in entry(), now in 0..253_402_300_799i64) {
        let arrow = |n: &[u8]| n.windows(4).any(|w| w == b" -> ");
        let link = entry.link_target.as_ref();
        prop_assume!((entry.kind != EntryKind::SymLink && link.is_none()) || !arrow(&entry.name));
        let line = format_ls(&entry, Timestamp(now));
        let back = parse_ls(&line, Timestamp(now));
        let back = back.as_ref();
        prop_assert_eq!(back.map(|b| &b.name), Some(&entry.name));
        let (kind, size, mode) = match link {
            Some(target) => (EntryKind::SymLink, Some(target.len() as u64), 0o777),
            None => (
                entry.kind,
                (entry.kind != EntryKind::Other).then_some(entry.size),
                entry.mode,
            ),
        };
        prop_assert_eq!(back.map(|b| b.kind), Some(kind));
        prop_assert_eq!(back.and_then(|b| b.size), size);
        prop_assert_eq!(back.and_then(|b| b.mode), Some(mode));
        prop_assert_eq!(back.and_then(|b| b.owner.as_ref()), Some(&entry.owner));
        prop_assert_eq!(back.and_then(|b| b.group.as_ref()), Some(&entry.group));
    }

    #[test]
    fn an_entry_is_always_one_line(
        mut entry in entry(),
        name in vec(any::<u8>(), 0..20),
        target in vec(any::<u8>(), 0..20),
        owner: String,
    ) {
        entry.name = name;
        entry.link_target = Some(target);
        entry.owner = owner;
        let facts = format_mlsx(&entry, every_fact(), Some(3));
        let ls = format_ls(&entry, Timestamp(0));
        for line in [facts, ls] {
            prop_assert!(!line.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')));
        }
    }

    #[test]
    fn written_fact_sets_are_parsed_back(bits in vec(any::<bool>(), Fact::ALL.len())) {
        let names = Fact::ALL.iter().zip(&bits).filter(|(_, on)| **on);
        let text: String = names.map(|(f, _)| format!("{};", f.name().to_uppercase())).collect();
        let set = FactSet::parse(&text);
        for (fact, on) in Fact::ALL.into_iter().zip(bits) {
            prop_assert_eq!(set.contains(fact), on);
        }
        prop_assert_eq!(FactSet::parse(&set.selected()), set);
    }

    #[test]
    fn each_line_is_an_entry_or_none_or_not_understood(lines in vec(listing_like(), 0..8)) {
        for format in [
            ListingFormat::Facts,
            ListingFormat::Rows,
            ListingFormat::AllRows,
            ListingFormat::Names,
        ] {
            let mut reader = ListingReader::new(format, Timestamp(0));
            let mut found = Vec::new();
            for line in &lines {
                reader.read(line, &mut found);
            }
            reader.finish();
            prop_assert_eq!(reader.entries(), found.len() as u64);
            prop_assert!(reader.entries() + reader.not_understood().0 <= reader.lines());
        }
    }

    #[test]
    fn arbitrary_lines_never_panic(line in listing_like()) {
        for entry in [parse_ls(&line, Timestamp(0)), parse_mlsx(&line)].into_iter().flatten() {
            prop_assert!(!entry.name.is_empty());
        }
    }
}
