//! Flags that contradict each other: exit code 2, and one line that names them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::{Command, Stdio};

/// Command lines, separated at spaces, and the flags that the refusal names.
const REFUSED: &[(&str, &[&str])] = &[
    // Streams and modes.
    ("cp --mode s -p 8 ftp://h/a b", &["--mode s", "-p"]),
    ("cp --mode s -p mi ftp://h/a b", &["--mode s", "-p"]),
    (
        "cp --mode s --max-streams 4 ftp://h/a b",
        &["--mode s", "--max-streams"],
    ),
    (
        "cp --mode S --block 1Mi ftp://h/a b",
        &["--mode s", "--block"],
    ),
    (
        "cp --max-streams 4 -p 8 ftp://h/a b",
        &["--max-streams", "-p"],
    ),
    (
        "sync --max-streams 4 -p 8 ftp://h/a b",
        &["--max-streams", "-p"],
    ),
    ("cp --autopar eta=0.7 ftp://h/a b", &["--autopar", "-p"]),
    (
        "cp -p 4 --autopar eta=0.7 ftp://h/a b",
        &["--autopar", "-p"],
    ),
    (
        "cp --drs-interval 100ms ftp://h/a b",
        &["--drs-interval", "--buffer drs"],
    ),
    (
        "cp --buffer 4Mi --drs-interval 100ms ftp://h/a b",
        &["--drs-interval", "--buffer drs"],
    ),
    (
        "cp --buffer drs --drs1-reads published ftp://h/a b",
        &["--drs1-reads", "--buffer drs1"],
    ),
    // Standard input and output.
    ("cp --resume ftp://h/a -", &["--resume", "-"]),
    ("cp --resume - ftp://h/a", &["--resume", "-"]),
    ("cp --keep-existing ftp://h/a -", &["--keep-existing", "-"]),
    ("cp --preserve all ftp://h/a -", &["--preserve", "-"]),
    ("cp --sparse always ftp://h/a -", &["--sparse", "-"]),
    ("cp --json ftp://h/a -", &["--json", "-"]),
    (
        "cp --write-sums s ftp://h/a -",
        &["--write-sums", "standard output"],
    ),
    ("cp --offset 5 - ftp://h/a", &["--offset", "standard input"]),
    ("cp - -", &["standard input"]),
    ("cp - ftp://h/a b/", &["standard input"]),
    (
        "cp --files-from - - b",
        &["--files-from -", "standard input"],
    ),
    // One file and many.
    ("cp -r --offset 5 ftp://h/a b", &["--offset", "-r"]),
    ("cp -r --length 5 ftp://h/a b", &["--length", "-r"]),
    ("cp --from list --length 5", &["--length", "--from"]),
    ("cp --from list --write-sums s", &["--write-sums", "--from"]),
    (
        "cp --from list --files-from list",
        &["--from", "--files-from"],
    ),
    ("cp --from list ftp://h/a b", &["--from", "SRC"]),
    (
        "cp --trace t --write-sums t ftp://h/a b",
        &["--trace", "--write-sums"],
    ),
    ("cp --log t --trace t ftp://h/a b", &["--log", "--trace"]),
    (
        "cp -r --trace t --filter-from rules --filter-from t ftp://h/a b",
        &["another flag reads"],
    ),
    (
        "sync --log t --limit-rate @t ftp://h/a b",
        &["another flag reads"],
    ),
    (
        "cp --journal t --failed t ftp://h/a b",
        &["--journal", "--failed"],
    ),
    (
        "cp --sums-algorithm md5 ftp://h/a b",
        &["--sums-algorithm", "--write-sums"],
    ),
    // Selections that are empty.
    (
        "cp -r --min-size 2M --max-size 1M ftp://h/a b",
        &["--min-size", "--max-size"],
    ),
    (
        "sync --newer 1d --older 2d ftp://h/a b",
        &["--newer", "--older"],
    ),
    // Rates and protection.
    (
        "cp --limit-rate 8M ftp://h/a ftp://i/b",
        &["--limit-rate", "two servers"],
    ),
    (
        "cp --insecure --ca /ca ftps://h/a b",
        &["--insecure", "--ca"],
    ),
    (
        "cp --insecure --token /t ftps://h/a b",
        &["--insecure", "token"],
    ),
    ("cp --insecure https://h/a b", &["--insecure", "https"]),
    ("cp --insecure ftp://h/a b", &["--insecure", "ftps:"]),
    ("cp --key /k ftps://h/a b", &["--key", "--cert"]),
    (
        "cp --delegate full ftps://h/a b",
        &["--delegate", "gsiftp:"],
    ),
    (
        "cp --data-protection private http://h/a b",
        &["--data-protection", "http:"],
    ),
    (
        "cp --data-protection private ftp://h/a b",
        &["--data-protection", "--tls"],
    ),
    (
        "cp --data-protection safe ftps://h/a b",
        &["--data-protection", "gsiftp:"],
    ),
    // Other verbs.
    ("cksum --check s --offset 5 a", &["--check", "--offset"]),
    ("advisor get --json --emit lftp h", &["--json", "--emit"]),
    ("lab run --full --quick all", &["--full", "--quick"]),
    // The server.
    (
        "serve --anonymous ro --tls required --clear-passwords",
        &["--tls required", "--clear-passwords"],
    ),
    (
        "serve --anonymous ro --tls off --require-protection data",
        &["--tls off", "--require-protection"],
    ),
    (
        "serve --anonymous ro --tls off --tls-session-reuse required",
        &["--tls off", "--tls-session-reuse"],
    ),
    (
        "serve --anonymous ro --tls off --client-certs optional",
        &["--tls off", "--client-certs"],
    ),
    (
        "serve --anonymous ro --client-certs none --client-ca /ca",
        &["--client-certs none", "--client-ca"],
    ),
    (
        "serve --anonymous ro --pam-rights ro",
        &["--pam-rights", "--pam"],
    ),
    (
        "serve --anonymous ro --gridmap-rights ro",
        &["--gridmap-rights", "--gridmap"],
    ),
    (
        "serve --anonymous ro --ca-dir /d",
        &["--ca-dir", "--gridmap"],
    ),
    (
        "serve --anonymous ro --third-party none --foreign-data-addresses",
        &["--third-party none", "--foreign-data-addresses"],
    ),
    (
        "serve --anonymous ro --max-sessions 5 --max-sessions-per-address 6",
        &["--max-sessions-per-address", "--max-sessions,"],
    ),
    (
        "serve --anonymous ro --max-sessions 5 --max-sessions-per-user 6",
        &["--max-sessions-per-user", "--max-sessions,"],
    ),
    (
        "serve --anonymous ro --max-streams 5 --max-streams-per-transfer 6",
        &["--max-streams-per-transfer", "--max-streams,"],
    ),
    (
        "serve --anonymous ro --listen 127.0.0.1:1 --metrics 127.0.0.1:1",
        &["--listen", "--metrics"],
    ),
    (
        "serve --anonymous ro --transfer-log t --ftp-info-log t",
        &["--transfer-log", "--ftp-info-log"],
    ),
    ("serve --anonymous ro --tls optional", &["TLS", "--cert"]),
    ("serve --anonymous ro --cert /c", &["--cert", "--key"]),
    (
        "serve --anonymous ro --gridmap /g",
        &["--gridmap", "--cert"],
    ),
    (
        "serve --anonymous ro --cert /c --key /k --tls self-signed",
        &["--tls self-signed", "--cert"],
    ),
    (
        "serve --anonymous ro --cert /c --key /k --tls off --implicit-tls 127.0.0.1:0",
        &["--tls off", "--implicit-tls"],
    ),
];

fn longhaul(line: &str, directory: &std::path::Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(line.split(' '))
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

#[test]
fn flags_that_contradict_each_other_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (line, words) in REFUSED {
        let (code, text) = longhaul(line, directory.path());
        let names_all = words.iter().all(|word| text.contains(word));
        if code != Some(2) || text.trim_end().lines().count() != 1 || !names_all {
            wrong.push(format!("{line}: {code:?} {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(
        left.is_empty(),
        "a refused command leaves nothing: {left:?}"
    );
}

#[test]
fn flags_that_agree_with_each_other_are_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "x").unwrap();
    for line in [
        "cp -q --mode s -p 1 a b",
        "cp -q --mode e -p 4 a b",
        "cp -q -p mi --max-streams 4 --autopar eta=0.7 a b",
        "cp -q --buffer drs --drs-interval 100ms a b",
        "cp -q --buffer drs1 --drs1-reads published a b",
        "cp -q --resume a b",
        "cp -q --newer 2d --min-size 1 --max-size 1 a b",
        "cp -q --preserve none a -",
    ] {
        assert_eq!(
            longhaul(line, directory.path()),
            (Some(0), String::new()),
            "{line}"
        );
    }
}
