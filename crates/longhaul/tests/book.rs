//! The book of docs/: every flag of the commands that readers are to type exists.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Folders of the pages whose commands readers type.
const FOLDERS: &[&str] = &[
    "docs",
    "docs/start",
    "docs/how",
    "docs/admin",
    "docs/reference",
];

/// A command on a page.
#[derive(Debug, PartialEq)]
struct TypedCommand {
    /// Of the page and the line.
    place: String,
    /// Behind `longhaul`.
    words: Vec<String>,
}

/// Programs whose arguments name the package, the account or the service `longhaul`.
const OF_OTHERS: [&str; 6] = [
    "cargo ",
    "for ",
    "install ",
    "systemctl ",
    "useradd ",
    "apt ",
];

/// The commands in the shell blocks of a page.
fn commands_of(page: &str, text: &str) -> Vec<TypedCommand> {
    let mut commands = Vec::new();
    let (mut is_shell, mut continued) = (false, String::new());
    for (n, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_shell = !is_shell && language == "sh";
            continue;
        }
        if !is_shell {
            continue;
        }
        if let Some(begin) = line.strip_suffix('\\') {
            continued += begin;
            continue;
        }
        let line = std::mem::take(&mut continued) + line;
        // A comment of the shell, not a `#` within a word.
        let line = line.split(" #").next().unwrap();
        for part in line.split(['|', ';', '&', '(']) {
            // Not the name of a package, an account or a service.
            if OF_OTHERS
                .iter()
                .any(|other| part.trim_start().starts_with(other))
            {
                continue;
            }
            let mut words = part
                .split_whitespace()
                .skip_while(|word| *word != "longhaul");
            if words.next().is_some() && !line.starts_with('#') {
                commands.push(TypedCommand {
                    place: format!("{page}:{}", n + 1),
                    words: words.map(str::to_owned).collect(),
                });
            }
        }
    }
    commands
}

/// Asks the program for its manuals, each once.
#[derive(Default)]
struct Manuals(HashMap<String, Option<String>>);

impl Manuals {
    /// The manual of a verb; nothing if there is no such verb.
    fn of(&mut self, verb: &[String]) -> Option<String> {
        let name = verb.join(" ");
        let manual = self.0.entry(name).or_insert_with(|| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_longhaul"));
            let output = program.arg("help").args(verb).output().unwrap();
            let manual = String::from_utf8(output.stdout).unwrap();
            output.status.success().then_some(manual)
        });
        manual.clone()
    }

    /// Why a command cannot be typed so.
    fn fault(&mut self, command: &TypedCommand) -> Option<String> {
        let names = command
            .words
            .iter()
            .take_while(|word| is_verb(word))
            .count();
        let mut verbs = (1..=names).rev().map(|length| &command.words[..length]);
        let Some((manual, length)) = verbs.find_map(|verb| Some((self.of(verb)?, verb.len())))
        else {
            let is_of_program = command
                .words
                .first()
                .is_some_and(|word| word.starts_with("--"));
            return (!is_of_program).then(|| "no such verb".to_owned());
        };
        let own = command.words[length..]
            .iter()
            .take_while(|word| *word != "--");
        let listed = |flag: &str| {
            let mut words = manual.split_whitespace();
            words.any(|word| word.trim_end_matches(',').split(['[', '=']).next() == Some(flag))
        };
        for word in own.filter(|word| word.len() > 1 && word.starts_with('-')) {
            let flags = match word.starts_with("--") {
                true => vec![word.split('=').next().unwrap().to_owned()],
                false => word[1..]
                    .chars()
                    .map(|letter| format!("-{letter}"))
                    .collect(),
            };
            if let Some(unknown) = flags.iter().find(|flag| !listed(flag)) {
                return Some(format!(
                    "{unknown} is no flag of `{}`",
                    command.words[..length].join(" ")
                ));
            }
        }
        None
    }
}

/// Whether a word can be the name of a verb.
fn is_verb(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
}

#[test]
fn every_flag_of_the_commands_in_the_book_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut commands = Vec::new();
    for folder in FOLDERS {
        let Ok(entries) = fs::read_dir(root.join(folder)) else {
            continue;
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.extension().is_some_and(|e| e == "md")) {
            let name = format!("{folder}/{}", path.file_name().unwrap().display());
            commands.extend(commands_of(&name, &fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(commands.len() > 100, "{} commands", commands.len());
    let mut manuals = Manuals::default();
    let faults: Vec<String> = commands
        .iter()
        .filter_map(|command| Some(format!("{}: {}", command.place, manuals.fault(command)?)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_flag_that_does_not_exist_is_found() {
    let text = "`longhaul cp --no`\n\n```sh\ncd x && longhaul cp -rn --delete a b   # longhaul ls --no\n\
        longhaul lab net --rtt 1ms \\\n    --color -- ls --no\nlonghaul copy a b\nsrun longhaul queue submit a b -- -r | longhaul --version\n```\n";
    let commands = commands_of("page", text);
    let mut manuals = Manuals::default();
    let faults: Vec<String> = commands
        .iter()
        .filter_map(|command| Some(format!("{} {}", command.place, manuals.fault(command)?)))
        .collect();
    let expected = [
        "page:4 --delete is no flag of `cp`",
        "page:6 --color is no flag of `lab net`",
        "page:7 no such verb",
    ];
    assert_eq!(faults, expected);
}
