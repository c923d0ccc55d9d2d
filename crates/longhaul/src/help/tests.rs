use super::*;

#[test]
fn the_definitions_of_verbs_and_flags_are_consistent() {
    Cli::command().debug_assert();
}

/// All verbs that are shown, with the verbs below them.
fn shown_verbs(command: &clap::Command, found: &mut Vec<clap::Command>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        found.push(verb.clone());
        shown_verbs(verb, found);
    }
}

fn verbs() -> Vec<clap::Command> {
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    shown_verbs(&command, &mut found);
    found
}

/// Most flags of a verb that need no groups.
const FEW: usize = 8;

#[test]
fn flags_of_a_verb_with_many_of_them_are_in_groups() {
    for verb in verbs() {
        let flags = verb.get_opts().filter(|flag| flag.get_id() != "help");
        let ungrouped: Vec<_> = flags
            .filter(|flag| flag.get_help_heading().is_none() && !flag.is_hide_set())
            .map(|flag| flag.get_id().as_str())
            .collect();
        let may_have = match verb.get_bin_name() {
            Some("longhaul cp" | "longhaul sync" | "longhaul serve") => 0,
            _ => FEW,
        };
        assert!(
            ungrouped.len() <= may_have,
            "{}: {ungrouped:?}",
            verb.get_name()
        );
    }
}

#[test]
fn arguments_stand_above_the_groups_of_flags() {
    for verb in verbs() {
        for argument in verb.get_positionals() {
            let heading = argument.get_help_heading();
            assert_eq!(heading, None, "{} {}", verb.get_name(), argument.get_id());
        }
    }
}

#[test]
fn what_a_copy_prints_is_in_one_group() {
    for verb in verbs() {
        let heading = |name: &str| {
            let mut flags = verb.get_opts();
            let flag = flags.find(|flag| flag.get_long() == Some(name));
            flag.map(|flag| flag.get_help_heading().map(str::to_owned))
        };
        if let (Some(quiet), Some(verbose)) = (heading("quiet"), heading("verbose")) {
            assert_eq!(quiet, verbose, "{}", verb.get_name());
        }
    }
}

#[test]
fn research_is_the_last_group_in_the_help() {
    let mut verbs = verbs();
    for (name, flags) in [
        ("cp", &["--autopar", "--drs-interval", "--drs1-reads"][..]),
        ("sync", &["--autopar", "--drs-interval", "--drs1-reads"]),
        ("serve", &["--drs-interval"]),
    ] {
        let verb = verbs
            .iter_mut()
            .find(|verb| verb.get_name() == name)
            .unwrap();
        let help = verb.render_long_help().to_string();
        let (before, research) = help.split_once("\nResearch:\n").unwrap();
        for flag in flags {
            assert!(
                research.contains(&format!("      {flag} <")),
                "{name} {flag}"
            );
            assert!(
                !before.contains(&format!("      {flag} <")),
                "{name} {flag}"
            );
        }
        let is_heading = |line: &&str| !line.starts_with(' ') && line.ends_with(':');
        let after: Vec<_> = research.lines().filter(is_heading).collect();
        assert!(
            after.iter().all(|line| *line == "Exit codes:"),
            "{name}: {after:?}"
        );
    }
}

#[test]
fn times_have_units_of_their_own_in_every_flag() {
    for verb in verbs() {
        for flag in verb.get_opts() {
            let names = flag.get_value_names().unwrap_or_default();
            let fixed = ["SECONDS", "MINUTES", "HOURS", "DAYS"];
            let is_fixed = names.iter().any(|name| fixed.contains(&name.as_str()));
            assert!(!is_fixed, "{} {}", verb.get_name(), flag.get_id());
        }
    }
}

#[test]
fn the_help_names_the_man_pages() {
    let help = Cli::command().render_long_help().to_string();
    assert!(help.contains("\n  man "), "{help}");
}

#[test]
fn the_error_names_an_unknown_verb() {
    for unknown in [vec!["frobnicate"], vec!["lab", "frobnicate"]] {
        let words: Vec<String> = unknown.into_iter().map(str::to_owned).collect();
        let error = help(&words).unwrap_err().to_string();
        assert!(error.contains("frobnicate"), "{error}");
    }
}
