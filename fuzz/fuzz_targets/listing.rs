//! Listing lines: what is read is written in both forms and read back with the same name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::listing::{
    Access, Entry, FactSet, Kind, RemoteEntry, format_ls, format_mlsx, parse_ls, parse_mlsx,
};
use proto::timestamp::Timestamp;

fn entry(remote: RemoteEntry) -> Entry {
    Entry {
        name: remote.name,
        kind: remote.kind,
        size: remote.size.unwrap_or(0),
        modified: remote.modified.unwrap_or(Timestamp(0)),
        mode: remote.mode.unwrap_or(0o644),
        links: 1,
        uid: 0,
        gid: 0,
        owner: remote.owner.unwrap_or_default(),
        group: remote.group.unwrap_or_default(),
        unique: (0, 0),
        link_target: None,
        access: Access::default(),
    }
}

fn is_unsafe(byte: &u8) -> bool {
    matches!(byte, 0 | b'\r' | b'\n')
}

fuzz_target!(|line: &[u8]| {
    for remote in [parse_ls(line), parse_mlsx(line)].into_iter().flatten() {
        assert!(!remote.name.is_empty());
        let entry = entry(remote);
        let facts = format_mlsx(&entry, FactSet::default(), None);
        let ls = format_ls(&entry, Timestamp(0));
        assert!(!facts.iter().chain(&ls).any(is_unsafe), "one line only");
        if entry.name.iter().any(is_unsafe) {
            continue;
        }
        let back = parse_mlsx(&facts).map(|e| e.name);
        assert_eq!(back.as_ref(), Some(&entry.name));
        // `a -> b` is cut at its arrow.
        if entry.kind != Kind::SymLink {
            let back = parse_ls(&ls).map(|e| e.name);
            assert_eq!(back.as_ref(), Some(&entry.name));
        }
    }
});
