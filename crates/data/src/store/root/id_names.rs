//! Names of users and groups, from /etc/passwd and /etc/group.
//!
//! They are read once per process. The name service switch is not used: a directory server that
//! hangs would hang every listing.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Most bytes read of either file.
const MAX_FILE: u64 = 16 << 20;

/// Maps numbers to names and back.
#[derive(Debug, Default)]
pub(super) struct IdNames {
    by_id: HashMap<u32, String>,
    by_name: HashMap<String, u32>,
}

/// The users.
pub(super) fn users() -> &'static IdNames {
    static USERS: OnceLock<IdNames> = OnceLock::new();
    USERS.get_or_init(|| IdNames::read("/etc/passwd"))
}

/// The groups.
pub(super) fn groups() -> &'static IdNames {
    static GROUPS: OnceLock<IdNames> = OnceLock::new();
    GROUPS.get_or_init(|| IdNames::read("/etc/group"))
}

impl IdNames {
    /// Reads a file. Without it, numbers stand for names.
    fn read(path: &str) -> Self {
        let text: io::Result<Vec<u8>> = File::open(path).and_then(|file| {
            let mut text = Vec::new();
            file.take(MAX_FILE).read_to_end(&mut text)?;
            Ok(text)
        });
        Self::parse(&String::from_utf8_lossy(&text.unwrap_or_default()))
    }

    /// Parses lines `name:x:number:...`. The first of several entries for a number or name counts.
    fn parse(text: &str) -> Self {
        let mut names = Self::default();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(id)) = (fields.next(), fields.nth(1)) else {
                continue;
            };
            // A broken line must not hide the others.
            let Ok(id) = id.parse() else { continue };
            names.by_id.entry(id).or_insert_with(|| name.to_owned());
            names.by_name.entry(name.to_owned()).or_insert(id);
        }
        names
    }

    /// The name, or the number as text.
    pub(super) fn name(&self, id: u32) -> String {
        self.by_id
            .get(&id)
            .cloned()
            .unwrap_or_else(|| id.to_string())
    }

    /// The number of a name, or of a number as text.
    pub(super) fn id(&self, name: &str) -> Option<u32> {
        self.by_name
            .get(name)
            .copied()
            .or_else(|| name.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_lines_are_parsed() {
        let names = IdNames::parse("root:x:0:0:root:/root:/bin/sh\nbroken\nbad:x:y:\ntoor:x:0:0\n");
        assert_eq!(names.name(0), "root");
        assert_eq!(names.name(7), "7");
        assert_eq!(names.id("toor"), Some(0));
        assert_eq!(names.id("12"), Some(12));
        assert_eq!(names.id("bad"), None);
    }
}
