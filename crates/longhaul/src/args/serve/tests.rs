//! Flags and keys of the settings file are the same, and mean the same.

use std::collections::BTreeSet;

use clap::{Args as _, Command, Parser};

use super::*;

/// Flags that are about the command and not about the server.
const FLAGS_ONLY: [&str; 2] = ["check", "config"];

/// Tables, whose many values no flag can name.
const TABLES_ONLY: [&str; 2] = ["token-issuer", "user"];

/// Each key with a value as the file has it, and as its flag has it; `None`: the flag has no value.
const SAMPLES: &[(&str, &str, Option<&str>)] = &[
    ("advisor", "{ config = \"/a.toml\" }", Some("/a.toml")),
    ("allow-ccc", "true", None),
    (
        "allow-from",
        "[\"192.0.2.0/24\", \"::1\"]",
        Some("192.0.2.0/24,::1"),
    ),
    ("allow-users", "[\"ann\", \"bob\"]", Some("ann,bob")),
    ("anonymous", "\"rw\"", Some("rw")),
    ("banner", "\"hello there\"", Some("hello there")),
    ("banner-file", "\"/b\"", Some("/b")),
    ("block", "131072", Some("128Ki")),
    ("buffer", "\"kernel\"", Some("kernel")),
    ("ca-dir", "\"/ca\"", Some("/ca")),
    ("cert", "\"/c.pem\"", Some("/c.pem")),
    ("clear-passwords", "true", None),
    ("client-ca", "\"/ca.pem\"", Some("/ca.pem")),
    ("client-certs", "\"required\"", Some("required")),
    ("client-congestion", "false", Some("false")),
    ("congestion", "\"cubic\"", Some("cubic")),
    ("data-ports", "\"50000-50999\"", Some("50000-50999")),
    (
        "deny-from",
        "[\"198.51.100.0/24\"]",
        Some("198.51.100.0/24"),
    ),
    ("deny-users", "[\"eve\"]", Some("eve")),
    ("directory-message", "\".message\"", Some(".message")),
    ("directory-mode", "\"2770\"", Some("2770")),
    ("drain", "7", Some("7")),
    ("drs-interval", "\"20ms\"", Some("20ms")),
    ("file-mode", "\"640\"", Some("640")),
    ("foreign-data-addresses", "true", None),
    ("ftp-info-log", "\"/f\"", Some("/f")),
    ("gridmap", "\"/g\"", Some("/g")),
    ("gridmap-rights", "\"ro\"", Some("ro")),
    ("history", "\"/h\"", Some("/h")),
    ("idle-timeout", "8", Some("8")),
    ("implicit-tls", "\"[::]:990\"", Some("[::]:990")),
    ("io", "\"copy\"", Some("copy")),
    ("key", "\"/k.pem\"", Some("/k.pem")),
    ("limit-rate", "\"10G\"", Some("10G")),
    ("limit-rate-per-address", "\"1G\"", Some("1G")),
    ("limit-rate-per-user", "\"2Gbit/s\"", Some("2Gbit/s")),
    ("listen", "\"[::]:3000\"", Some("[::]:3000")),
    ("log", "\"json\"", Some("json")),
    ("login-timeout", "9", Some("9")),
    ("max-checksums", "10", Some("10")),
    ("max-listings", "11", Some("11")),
    ("max-password-checks", "12", Some("12")),
    ("max-sessions", "13", Some("13")),
    ("max-sessions-per-address", "14", Some("14")),
    ("max-sessions-per-user", "15", Some("15")),
    ("max-streams", "16", Some("16")),
    ("max-streams-per-transfer", "17", Some("17")),
    ("max-transfers-per-address", "18", Some("18")),
    ("max-waiting-per-address", "19", Some("19")),
    ("metrics", "\"127.0.0.1:9464\"", Some("127.0.0.1:9464")),
    ("pam", "\"lab\"", Some("lab")),
    ("pam-min-uid", "500", Some("500")),
    ("pam-rights", "\"ro\"", Some("ro")),
    ("perf-marker-seconds", "20", Some("20")),
    (
        "proxy-protocol-from",
        "[\"192.0.2.0/24\"]",
        Some("192.0.2.0/24"),
    ),
    ("public-address", "\"192.0.2.1\"", Some("192.0.2.1")),
    ("queue-timeout", "21", Some("21")),
    ("quota", "\"500G\"", Some("500G")),
    ("quota-files", "22", Some("22")),
    ("range-marker-seconds", "23", Some("23")),
    ("require-protection", "\"data\"", Some("data")),
    ("root", "\"/srv\"", Some("/srv")),
    ("run-as", "\"ftp\"", Some("ftp")),
    ("sandbox", "\"required\"", Some("required")),
    ("stall-timeout", "24", Some("24")),
    ("sync-policy", "\"none\"", Some("none")),
    ("third-party", "\"none\"", Some("none")),
    ("tls", "\"required\"", Some("required")),
    ("tls-session-reuse", "\"required\"", Some("required")),
    ("transfer-log", "\"/t\"", Some("/t")),
    ("umask", "\"027\"", Some("027")),
    ("upload-owner", "\"ftp:lab\"", Some("ftp:lab")),
    ("users", "\"/u\"", Some("/u")),
    ("welcome-file", "\"/w\"", Some("/w")),
];

#[derive(Debug, Parser)]
struct ParsedServe {
    #[command(flatten)]
    serve: ServeArgs,
}

fn without<'n>(
    names: impl IntoIterator<Item = &'n str>,
    exceptions: &[&'n str],
) -> BTreeSet<&'n str> {
    let mut names: BTreeSet<&str> = names.into_iter().collect();
    for exception in exceptions {
        assert!(names.remove(exception), "{exception} does not exist");
    }
    names
}

#[test]
fn every_flag_is_a_key_and_every_key_is_a_flag() {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let flags = command.get_arguments().filter_map(clap::Arg::get_long);
    let flags = without(flags, &FLAGS_ONLY);
    let keys = without(FileConfig::keys().iter().copied(), &TABLES_ONLY);
    assert_eq!(flags, keys);
}

#[test]
fn a_flag_and_its_key_mean_the_same() {
    let sampled: BTreeSet<&str> = SAMPLES.iter().map(|(key, ..)| *key).collect();
    let keys = without(FileConfig::keys().iter().copied(), &TABLES_ONLY);
    assert_eq!(sampled, keys, "each key needs a sample");
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("settings.toml");
    let default = format!("{:?}", ServerConfig::default());
    for (key, in_file, on_command_line) in SAMPLES {
        std::fs::write(&path, format!("{key} = {in_file}\n")).unwrap();
        let mut by_file = ServerConfig::default();
        FileConfig::load(&path).unwrap().apply(&mut by_file);
        let flag = format!("--{key}");
        let mut line = vec!["serve", flag.as_str()];
        line.extend(on_command_line);
        let mut by_flag = ServerConfig::default();
        ParsedServe::try_parse_from(line)
            .unwrap()
            .serve
            .apply(&mut by_flag);
        let (by_file, by_flag) = (format!("{by_file:?}"), format!("{by_flag:?}"));
        assert_eq!(by_file, by_flag, "{key}");
        assert_ne!(by_file, default, "the sample of {key} is the default");
    }
}
