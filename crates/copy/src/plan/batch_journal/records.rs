//! The records of a batch journal, and their bytes.
//!
//! Numbers are LEB128 (7 bits a byte, the last one below 128), texts are their length and their bytes. A file takes its name
//! and about ten bytes, or twenty with a version: its directory stands before it once.

use proto::timestamp::Timestamp;

use ftp::answers::SourceFacts;

/// Longest path or name that is recorded, bytes. Longer than any file system permits.
pub(crate) const MAX_TEXT: usize = 64 << 10;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanRecord {
    /// First record of the file: what identifies the copy that it belongs to.
    Command(Vec<u8>),
    /// A run begins. Without `durable` its done marks are valid during this boot of the machine alone, and for runs of the
    /// same kind.
    Run { boot: Vec<u8>, durable: bool },
    /// A storage, as its locations begin, without a password. The first one has number 0.
    Root(Vec<u8>),
    /// The source and the destination, each a root and a path, that the next entries are relative to.
    Top {
        source: PlaceInRoot,
        destination: PlaceInRoot,
    },
    /// The directory of the next entries, relative to the top.
    Directory(Vec<u8>),
    /// An entry: a directory to create. The next entries are in it.
    NewDirectory { path: Vec<u8>, facts: SourceFacts },
    /// An entry: a file in the directory. An empty name stands for the top itself.
    File { name: Vec<u8>, facts: SourceFacts },
    /// An entry: a further name of the file `first`, which is relative to the top.
    HardLink {
        name: Vec<u8>,
        facts: SourceFacts,
        first: Vec<u8>,
    },
    /// An entry: a symbolic link in the directory.
    Link { name: Vec<u8>, target: Vec<u8> },
    /// An entry that is never done: the directory or file `name` of the directory could not be examined.
    Unlisted { name: Vec<u8>, is_directory: bool },
    /// The kind of the destination when the first run began.
    Destination(u8),
    /// The listing begins again: earlier entries count only as far as they are done.
    Relist,
    /// The listing is complete.
    Listed,
    /// These entries, counted from 0 over the whole journal, are complete, verified and in place.
    Done { first: u32, count: u32 },
}

/// A path of a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlaceInRoot {
    /// Number of the root.
    pub(crate) root: u32,
    pub(crate) path: Vec<u8>,
}

impl PlanRecord {
    /// Whether the record is an entry, which has a number.
    pub(crate) fn is_entry(&self) -> bool {
        matches!(
            self,
            Self::NewDirectory { .. }
                | Self::File { .. }
                | Self::HardLink { .. }
                | Self::Link { .. }
                | Self::Unlisted { .. }
        )
    }

    /// Appends the bytes of the record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Command(text) => put_tagged_text(1, text, out),
            Self::Run { boot, durable } => {
                put_tagged_text(2, boot, out);
                out.push(u8::from(*durable));
            }
            Self::Root(text) => put_tagged_text(3, text, out),
            Self::Top {
                source,
                destination,
            } => {
                out.push(4);
                for place in [source, destination] {
                    put_number(u64::from(place.root), out);
                    put_text(&place.path, out);
                }
            }
            Self::Directory(path) => put_tagged_text(5, path, out),
            Self::NewDirectory { path, facts } => {
                put_tagged_text(6, path, out);
                put_facts(*facts, out);
            }
            Self::File { name, facts } => {
                put_tagged_text(7, name, out);
                put_facts(*facts, out);
            }
            Self::Link { name, target } => {
                put_tagged_text(8, name, out);
                put_text(target, out);
            }
            Self::Relist => out.push(9),
            Self::Listed => out.push(10),
            Self::Done { first, count } => {
                out.push(11);
                put_number(u64::from(*first), out);
                put_number(u64::from(*count), out);
            }
            Self::Unlisted { name, is_directory } => {
                put_tagged_text(12, name, out);
                out.push(u8::from(*is_directory));
            }
            Self::Destination(kind) => out.extend_from_slice(&[13, *kind]),
            Self::HardLink { name, facts, first } => {
                put_tagged_text(14, name, out);
                put_facts(*facts, out);
                put_text(first, out);
            }
        }
    }

    /// Takes one record from the front of `bytes`. `None`: they are not the bytes of a record.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let tag = take_byte(bytes)?;
        Some(match tag {
            1 => Self::Command(take_text(bytes)?),
            2 => Self::Run {
                boot: take_text(bytes)?,
                durable: take_byte(bytes)? == 1,
            },
            3 => Self::Root(take_text(bytes)?),
            4 => Self::Top {
                source: take_place(bytes)?,
                destination: take_place(bytes)?,
            },
            5 => Self::Directory(take_text(bytes)?),
            6 => Self::NewDirectory {
                path: take_text(bytes)?,
                facts: take_facts(bytes)?,
            },
            7 => Self::File {
                name: take_text(bytes)?,
                facts: take_facts(bytes)?,
            },
            8 => Self::Link {
                name: take_text(bytes)?,
                target: take_text(bytes)?,
            },
            9 => Self::Relist,
            10 => Self::Listed,
            11 => Self::Done {
                first: u32::try_from(take_number(bytes)?).ok()?,
                count: u32::try_from(take_number(bytes)?).ok()?,
            },
            12 => Self::Unlisted {
                name: take_text(bytes)?,
                is_directory: take_byte(bytes)? == 1,
            },
            13 => Self::Destination(take_byte(bytes)?),
            14 => Self::HardLink {
                name: take_text(bytes)?,
                facts: take_facts(bytes)?,
                first: take_text(bytes)?,
            },
            _ => return None,
        })
    }
}

const HAS_SIZE: u8 = 1;
const HAS_TIME: u8 = 2;
const HAS_MODE: u8 = 4;
const HAS_VERSION: u8 = 8;
const IS_ARCHIVED: u8 = 16;

/// Facts of a source that tell whether it is the same later: which are known, then their values.
fn put_facts(facts: SourceFacts, out: &mut Vec<u8>) {
    let known = |is_known, bit| if is_known { bit } else { 0 };
    out.push(
        known(facts.size.is_some(), HAS_SIZE)
            | known(facts.modified.is_some(), HAS_TIME)
            | known(facts.mode.is_some(), HAS_MODE)
            | known(facts.version.is_some(), HAS_VERSION)
            | known(facts.is_archived, IS_ARCHIVED),
    );
    if let Some(size) = facts.size {
        put_number(size, out);
    }
    if let Some(time) = facts.modified {
        // Times before 1970 are rare; they take ten bytes.
        put_number(time.0.cast_unsigned(), out);
    }
    if let Some(mode) = facts.mode {
        put_number(u64::from(mode), out);
    }
    if let Some(version) = facts.version {
        out.extend_from_slice(&version.to_le_bytes());
    }
}

fn take_facts(bytes: &mut &[u8]) -> Option<SourceFacts> {
    let known = take_byte(bytes)?;
    let mut facts = SourceFacts {
        is_archived: known & IS_ARCHIVED != 0,
        ..SourceFacts::default()
    };
    if known & HAS_SIZE != 0 {
        facts.size = Some(take_number(bytes)?);
    }
    if known & HAS_TIME != 0 {
        facts.modified = Some(Timestamp(take_number(bytes)?.cast_signed()));
    }
    if known & HAS_MODE != 0 {
        facts.mode = Some(u32::try_from(take_number(bytes)?).ok()?);
    }
    if known & HAS_VERSION != 0 {
        let (version, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        facts.version = Some(u64::from_le_bytes(*version));
    }
    Some(facts)
}

fn put_tagged_text(tag: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_text(text, out);
}

fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_number(text.len() as u64, out);
    out.extend_from_slice(text);
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [lowest, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(lowest & 0x7f);
            return;
        }
        out.push(lowest | 0x80);
    }
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take_text(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(take_number(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text.to_vec())
}

fn take_place(bytes: &mut &[u8]) -> Option<PlaceInRoot> {
    Some(PlaceInRoot {
        root: u32::try_from(take_number(bytes)?).ok()?,
        path: take_text(bytes)?,
    })
}
