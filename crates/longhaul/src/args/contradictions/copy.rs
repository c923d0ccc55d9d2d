//! Contradictions between flags of `cp` and `sync`.

use proto::timestamp::Timestamp;

use super::{Contradiction, TypedFlags};

/// The modes of `-p` that tune the number of streams after each chunk of a file.
const CHUNKED: &[&str] = &["mi", "mi+", "aimd"];

/// Flags that name a file that is written.
const WRITTEN: &[&str] = &["trace", "log", "write_sums", "receipt", "failed", "journal"];
/// Flags that name a file that is read. (`--from` is compared by device and inode when the copy begins.)
const READ: &[&str] = &[
    "files_from",
    "filter_from",
    "limit_rate",
    "ca",
    "cert",
    "key",
    "token",
    "config",
];

pub(super) const RULES: &[Contradiction] = &[
    Contradiction {
        applies: |flags| {
            flags.is("mode", &["s"]) && flags.has("parallelism") && stream_count(flags) > 1
        },
        line: "--mode s has one stream, and -p asks for several: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.is("mode", &["s"]) && flags.is("parallelism", CHUNKED),
        line: "--mode s has one stream, and -p mi, mi+ and aimd vary their number: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.is("mode", &["s"]) && flags.has("max_streams"),
        line: "--mode s has one stream, which leaves nothing for --max-streams: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.is("mode", &["s"]) && flags.has("block"),
        line: "--block is the block size of extended block mode, which --mode s rules out: leave one of them out",
    },
    Contradiction {
        applies: |flags| {
            flags.has("max_streams") && flags.has("parallelism") && stream_count(flags) > 0
        },
        line: "-p fixes the number of streams, and --max-streams limits a number that varies: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.has("autopar") && !flags.value_is("parallelism", CHUNKED),
        line: "--autopar is for -p mi, mi+ and aimd: give one of them, or leave --autopar out",
    },
    Contradiction {
        applies: |flags| flags.has("drs_interval") && !flags.value_is("buffer", &["drs"]),
        line: "--drs-interval is for --buffer drs: give both, or leave --drs-interval out",
    },
    Contradiction {
        applies: |flags| flags.has("drs1_reads") && !flags.value_is("buffer", &["drs1"]),
        line: "--drs1-reads is for --buffer drs1: give both, or leave --drs1-reads out",
    },
    Contradiction {
        applies: |flags| {
            flags.has("resume") && (has_stream_source(flags) || has_stream_destination(flags))
        },
        line: "--resume continues a file, and - (standard input or output) is none: leave --resume out",
    },
    Contradiction {
        applies: |flags| flags.has("keep_existing") && has_stream_destination(flags),
        line: "--keep-existing is about files that exist, and - (standard output) is none: leave --keep-existing out",
    },
    Contradiction {
        applies: |flags| keeps_metadata(flags) && has_stream_destination(flags),
        line: "--preserve and --sparse are about files, and - (standard output) is none: leave them out",
    },
    Contradiction {
        applies: |flags| flags.has("recursive") && flags.has_any(&["offset", "length"]),
        line: "--offset and --length are for one file, and -r is for directories: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.has("from") && flags.has_any(&["offset", "length"]),
        line: "--offset and --length are for one file, and --from is for many: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.has_all(&["from", "files_from"]),
        line: "--from and --files-from both say what to copy: leave one of them out",
    },
    Contradiction {
        applies: |flags| flags.is("files_from", &["-"]) && has_stream_source(flags),
        line: "--files-from - and the source - both need standard input: give one of them as a file",
    },
    Contradiction {
        applies: |flags| {
            let sizes = (
                flags.value::<u64>("min_size"),
                flags.value::<u64>("max_size"),
            );
            matches!(sizes, (Some(min), Some(max)) if min > max)
        },
        line: "--min-size is above --max-size, so no file would be copied",
    },
    Contradiction {
        applies: |flags| {
            let times = (
                flags.value::<Timestamp>("newer"),
                flags.value::<Timestamp>("older"),
            );
            matches!(times, (Some(newer), Some(older)) if newer > older)
        },
        line: "--newer is after --older, so no file would be copied",
    },
    Contradiction {
        applies: |flags| {
            flags.has("sums_algorithm") && !flags.has("write_sums") && !flags.has("receipt")
        },
        line: "--sums-algorithm is for --write-sums and --receipt: give one of these, too, or leave --sums-algorithm out",
    },
    Contradiction {
        applies: |flags| flags.has("receipt_key") && !flags.has("receipt"),
        line: "--receipt-key signs the file of --receipt: give both, or leave --receipt-key out",
    },
    Contradiction {
        applies: |flags| flags.share_a_value(WRITTEN),
        line: "--trace, --log, --write-sums, --receipt, --failed and --journal need a file each, and two of them name the same one",
    },
    Contradiction {
        applies: |flags| flags.share_values(WRITTEN, READ),
        line: "a file that --trace, --log, --write-sums, --receipt, --failed or --journal writes is one that another flag reads: name another file",
    },
];

/// The number that `-p` fixes; 0 if it varies.
fn stream_count(flags: TypedFlags<'_>) -> u32 {
    let text = flags.text("parallelism").and_then(|text| text.to_str());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether the destination gets a property that only a file has.
fn keeps_metadata(flags: TypedFlags<'_>) -> bool {
    let preserves = flags.has("preserve") && !flags.is("preserve", &["", "none"]);
    preserves || flags.is("sparse", &["always"])
}

/// The sources and the destination as written.
fn places(flags: TypedFlags<'_>) -> Vec<String> {
    let names = ["paths", "source", "destination"];
    let given = names
        .iter()
        .filter_map(|name| flags.0.try_get_many::<String>(name).ok()?);
    given.flatten().cloned().collect()
}

fn has_stream_source(flags: TypedFlags<'_>) -> bool {
    let places = places(flags);
    let sources = places.split_last().map(|(_, sources)| sources);
    sources.is_some_and(|sources| sources.iter().any(|source| source == "-"))
}

fn has_stream_destination(flags: TypedFlags<'_>) -> bool {
    places(flags)
        .last()
        .is_some_and(|destination| destination == "-")
}
