//! docs/migration.md: every flag that it names exists, and every command that it names is accepted.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::{Command, Stdio};

const TABLES: &str = include_str!("../../../docs/migration.md");

/// Verbs that a cell may begin with; other cells have flags of `cp`.
const VERBS: &[&str] = &["cp", "sync", "ls", "rm", "mkdir", "cksum", "serve"];

/// A command of the second column.
#[derive(Debug)]
struct MigratedCommand {
    verb: &'static str,
    words: Vec<String>,
}

fn commands() -> Vec<MigratedCommand> {
    let rows = TABLES.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split(" |").nth(1));
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let commands = spans.map(|span| {
        let mut words: Vec<String> = span
            .split(' ')
            .map(|w| w.trim_matches('\'').to_owned())
            .collect();
        let verb = VERBS.iter().find(|verb| **verb == words[0]);
        if verb.is_some() {
            words.remove(0);
        }
        MigratedCommand {
            verb: verb.copied().unwrap_or("cp"),
            words,
        }
    });
    commands.collect()
}

fn longhaul(arguments: &[&str]) -> std::process::Output {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("list"), "").unwrap();
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .current_dir(directory.path())
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn every_flag_in_the_tables_exists() {
    let commands = commands();
    assert!(commands.len() > 80, "{}", commands.len());
    for command in &commands {
        let help = String::from_utf8(longhaul(&["help", command.verb]).stdout).unwrap();
        let listed = |flag: &str| {
            let mut words = help.split_whitespace();
            words.any(|word| word.trim_end_matches(',') == flag)
        };
        for flag in command
            .words
            .iter()
            .filter(|word| word.len() > 1 && word.starts_with('-'))
        {
            match flag.strip_prefix("--") {
                Some(_) => assert!(listed(flag), "{command:?}"),
                None => {
                    for letter in flag[1..].chars() {
                        assert!(listed(&format!("-{letter}")), "{command:?}");
                    }
                }
            }
        }
    }
}

/// A port of this machine on which nothing listens.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn every_command_in_the_tables_is_accepted() {
    let port = closed_port();
    // Flags about protection need a URL that can have it.
    let sources = ["ftp", "ftps", "gsiftp"].map(|scheme| format!("{scheme}://127.0.0.1:{port}/a"));
    for command in commands().iter().filter(|command| command.verb != "serve") {
        let mut refusals = Vec::new();
        for source in &sources {
            let mut arguments = vec![command.verb];
            let mut previous = "";
            for word in &command.words {
                arguments.push(match (previous, word.as_str()) {
                    // Nothing listens, however often it is tried.
                    ("--retries", _) => "0",
                    (_, "URL") => source,
                    (_, word) => word,
                });
                previous = word;
            }
            let copies = matches!(command.verb, "cp" | "sync");
            if copies && !command.words.iter().any(|word| word == "--retries") {
                arguments.extend(["--retries", "0"]);
            }
            if copies
                && !command
                    .words
                    .iter()
                    .any(|word| word == "URL" || word == "--from")
            {
                arguments.extend([source.as_str(), "b"]);
            }
            let output = longhaul(&arguments);
            if output.status.code() != Some(2) {
                refusals.clear();
                break;
            }
            refusals.push(String::from_utf8(output.stderr).unwrap());
        }
        assert!(refusals.is_empty(), "{command:?}: {refusals:?}");
    }
}
