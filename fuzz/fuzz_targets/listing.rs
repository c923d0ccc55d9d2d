//! Listing lines: a parsed entry is written in both forms and parsed back with the same name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::listing::{
    DirectoryEntry, EntryKind, EntryPermissions, FactSet, ListedEntry, ListingFormat,
    ListingReader, format_ls, format_mlsx, parse_ls, parse_mlsx,
};
use proto::timestamp::Timestamp;

fn server_entry(listed: ListedEntry) -> DirectoryEntry {
    DirectoryEntry {
        name: listed.name,
        kind: listed.kind,
        size: listed.size.unwrap_or(0),
        modified: listed.modified.unwrap_or(Timestamp(0)),
        mode: listed.mode.unwrap_or(0o644),
        link_count: 1,
        uid: 0,
        gid: 0,
        owner: listed.owner.unwrap_or_default(),
        group: listed.group.unwrap_or_default(),
        device_and_inode: (0, 0),
        link_target: None,
        permissions: EntryPermissions::default(),
    }
}

fn is_unsafe(byte: &u8) -> bool {
    matches!(byte, 0 | b'\r' | b'\n')
}

fuzz_target!(|line: &[u8]| {
    for format in [
        ListingFormat::Facts,
        ListingFormat::Rows,
        ListingFormat::AllRows,
        ListingFormat::Names,
    ] {
        let mut reader = ListingReader::new(format, Timestamp(0));
        let mut found = Vec::new();
        for line in line.split(|byte| *byte == b'\n') {
            reader.read(line, &mut found);
        }
        reader.finish();
        assert_eq!(reader.entries(), found.len() as u64);
        assert!(reader.entries() + reader.not_understood().0 <= reader.lines());
    }
    for listed in [parse_ls(line, Timestamp(0)), parse_mlsx(line)]
        .into_iter()
        .flatten()
    {
        assert!(!listed.name.is_empty());
        let entry = server_entry(listed);
        let facts = format_mlsx(&entry, FactSet::default(), None);
        let ls = format_ls(&entry, Timestamp(0));
        assert!(
            !facts.iter().chain(&ls).any(is_unsafe),
            "an entry is one line"
        );
        if entry.name.iter().any(is_unsafe) {
            continue;
        }
        let back = parse_mlsx(&facts).map(|e| e.name);
        assert_eq!(back.as_ref(), Some(&entry.name));
        // The name of a link ends at an arrow, that of a directory may be followed by a slash.
        if entry.kind != EntryKind::SymLink && !entry.name.ends_with(b"/") {
            let back = parse_ls(&ls, Timestamp(0)).map(|e| e.name);
            assert_eq!(back.as_ref(), Some(&entry.name));
        }
    }
});
