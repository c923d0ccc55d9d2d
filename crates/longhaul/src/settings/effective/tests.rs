use std::path::PathBuf;

use super::*;

/// A directory with a configuration file.
struct Configured(tempfile::TempDir);

impl Configured {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("c.toml"), text).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("c.toml")
    }

    fn line(&self, words: &[&str]) -> CommandLine {
        let head = ["longhaul", words[0], "--config"].map(OsString::from);
        let file = self.path().into_os_string();
        let rest = words[1..].iter().map(OsString::from);
        CommandLine::new(head.into_iter().chain([file]).chain(rest).collect()).unwrap()
    }

    fn load(&self, words: &[&str]) -> Result<EffectiveSettings, CopyFailure> {
        EffectiveSettings::load(&self.line(words))
    }

    /// `name = value` of the settings in use, sorted.
    fn used(&self, words: &[&str]) -> Vec<String> {
        let settings = self.load(words).unwrap();
        let used = settings.used.iter();
        let mut used: Vec<_> = used.map(|s| format!("{} = {}", s.name, s.value)).collect();
        used.sort();
        used
    }

    fn refusal(&self, words: &[&str]) -> String {
        self.load(words).err().unwrap().to_string()
    }
}

#[test]
fn a_flag_comes_before_a_section_and_a_section_before_the_file() {
    let configured = Configured::new(
        "max-streams = 10\nretries = 1\nresume = true\n\
         [host.\"*.example.org\"]\nmax-streams = 20\nretries = 2\n\
         [remote.lab]\nurl = \"ftp://a.example.org/d\"\nmax-streams = 30\n",
    );
    let used = |words: &[&str]| configured.used(words);
    let everywhere = ["max-streams = \"10\"", "resume = true", "retries = \"1\""];
    assert_eq!(used(&["cp", "a", "b"]), everywhere);
    assert_eq!(used(&["cp", "ftp://example.org/a", "b"]), everywhere);
    let of_host = ["max-streams = \"20\"", "resume = true", "retries = \"2\""];
    assert_eq!(used(&["cp", "ftp://A.Example.org/a", "b"]), of_host);
    let of_remote = ["max-streams = \"30\"", "resume = true", "retries = \"2\""];
    assert_eq!(used(&["sync", "a", "lab:b"]), of_remote);
    let of_flag = ["resume = true", "retries = \"2\""];
    assert_eq!(used(&["cp", "--max-streams=5", "lab:a", "b"]), of_flag);
}

#[test]
fn the_first_section_that_matches_and_has_the_key_counts() {
    let configured = Configured::new(
        "[host.\"a.*\"]\nretries = 1\n[host.\"*\"]\nretries = 2\nmax-streams = 3\n",
    );
    let used = configured.used(&["cp", "ftp://a.b/x", "y"]);
    assert_eq!(used, ["max-streams = \"3\"", "retries = \"1\""]);
}

#[test]
fn words_of_settings_stand_behind_the_verb() {
    let configured = Configured::new("exclude = [\"*.o\", \"a b\"]\nresume = true\nwait = false\n");
    let line = configured.line(&["cp", "--", "-x", "y"]);
    let settings = EffectiveSettings::load(&line).unwrap();
    let words = settings.words(&line);
    assert_eq!(words[..2], ["longhaul", "cp"]);
    for word in ["--exclude=*.o", "--exclude=a b", "--resume"] {
        assert!(words.iter().any(|known| known == word), "{word}: {words:?}");
    }
    assert_eq!(words[words.len() - 3..], ["--", "-x", "y"]);
}

#[test]
fn protection_must_be_the_same_for_all_servers_of_a_command() {
    let configured =
        Configured::new("[host.test]\ninsecure = true\nretries = 9\n[host.prod]\nretries = 1\n");
    assert_eq!(
        configured.used(&["cp", "ftps://test/a", "b"]),
        ["insecure = true", "retries = \"9\""]
    );
    let both = &["cp", "ftps://prod/a", "ftps://test/b"];
    let refusal = configured.refusal(both);
    assert!(refusal.contains("choose with --insecure"), "{refusal}");
    assert!(refusal.contains("c.toml:2 [host.\"test\"]"), "{refusal}");
    // Other settings: those of the first server that has them.
    let both = &["cp", "--insecure", "ftps://prod/a", "ftps://test/b"];
    assert_eq!(configured.used(both), ["retries = \"1\""]);
}

#[test]
fn settings_that_contradict_the_command_line_are_not_used() {
    let configured = Configured::new(
        "ca = \"/ca\"\nsums-algorithm = \"md5\"\n[host.h]\ncert = \"/c\"\nkey = \"/k\"\n",
    );
    let used = |words: &[&str]| configured.used(words);
    let on_host = ["ca = \"/ca\"", "cert = \"/c\"", "key = \"/k\""];
    assert_eq!(used(&["cp", "ftps://h/a", "b"]), on_host);
    assert_eq!(
        used(&["cp", "--cert=/x", "ftps://h/a", "b"]),
        ["ca = \"/ca\""]
    );
    let insecure = used(&["cp", "--insecure", "ftps://x/a", "b"]);
    assert_eq!(insecure, [""; 0]);
    let sums = used(&["cp", "--write-sums=s", "ftps://x/a", "b"]);
    assert_eq!(sums, ["ca = \"/ca\"", "sums-algorithm = \"md5\""]);
}

#[test]
fn a_setting_that_contradicts_a_flag_gives_way_to_it() {
    let configured = Configured::new("mode = \"s\"\nmax-streams = 4\nretries = 1\n");
    assert_eq!(
        configured.used(&["cp", "-p", "8", "a", "b"]),
        ["retries = \"1\""]
    );
}

#[test]
fn a_local_copy_has_no_settings_about_protection() {
    let configured = Configured::new("ca = \"/ca\"\ntoken = \"/none\"\nretries = 1\n");
    assert_eq!(configured.used(&["cp", "a", "b"]), ["retries = \"1\""]);
    let all = ["ca = \"/ca\"", "retries = \"1\"", "token = \"/none\""];
    assert_eq!(configured.used(&["cp", "https://h/a", "b"]), all);
    assert_eq!(configured.used(&["cp", "--from", "pairs"]), all);
}

#[test]
fn a_value_that_the_flag_refuses_is_named_with_its_place() {
    let configured = Configured::new("\nmax-streams = 0\n");
    let refusal = configured.refusal(&["cp", "a", "b"]);
    assert!(
        refusal.contains("c.toml:2: max-streams = \"0\":"),
        "{refusal}"
    );
    assert!(refusal.contains("1 to 256"), "{refusal}");
    // The verbs for remote files have no such flag.
    assert_eq!(configured.used(&["ls", "ftp://h/"]), [""; 0]);
}
