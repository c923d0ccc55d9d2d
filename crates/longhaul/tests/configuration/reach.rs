//! Settings reach lists of pairs, names of any bytes and `doctor`; `config --json` shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use super::*;

#[test]
fn servers_of_a_list_have_sections_and_passwords_as_arguments_have() {
    let site = Site::new();
    let list = format!("lab:f1 a\nftp://carol@{}/d/f2 b\n", site.address);
    site.write("work/list", &list);
    site.configure("[remote.lab]\nurl = \"URL/d\"\nuser = \"carol\"\n");
    let words = ["cp", "--from", "list"];
    let (code, shown) = on_a_terminal(&site, &words, &format!("{PASSWORD}\n"));
    assert_eq!(code, Some(0), "{shown}");
    let prompts = shown.matches("no password found").count();
    assert_eq!(prompts, 1, "{shown}");
    let copied = std::fs::read_to_string(site.path("work/b")).unwrap();
    assert_eq!(copied, "content 2");
    site.configure(
        "[remote.lab]\nurl = \"URL/d\"\nuser = \"carol\"\n[host.\"127.0.0.1\"]\ntls = \"require\"\n",
    );
    let (code, text) = site.run(&["cp", "--from", "list"]);
    assert_ne!(code, Some(0), "{text}");
    assert!(text.contains("TLS"), "{text}");
    // A server without the section must not lose the protection of the other one.
    site.write("work/list", &format!("{list}ftp://localhost/x y\n"));
    let (code, text) = site.run(&["cp", "--from", "list"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("choose with --tls"), "{text}");
    // Nobody knows yet which servers standard input names.
    let (code, text) = site.run(&["cp", "--from", "-"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("give the list as a file"), "{text}");
    let (code, text) = site.run(&["cp", "--from", "-", "--tls", "off"]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_file_with_a_command_that_others_may_write_is_refused() {
    let site = Site::new();
    let file = site.path("home/.config/longhaul/config.toml");
    let remote = "[remote.lab]\nurl = \"URL\"\nuser = \"carol\"\n";
    for (line, mode, is_refused) in [
        ("password-command = \"touch ../ran\"", 0o622, true),
        ("password-command = \"touch ../ran\"", 0o660, true),
        ("password-command = \"touch ../ran\"", 0o644, false),
        ("password-file = \"/none\"", 0o666, false),
    ] {
        site.configure(&format!("{remote}{line}\n"));
        set_mode(&file, mode);
        let (code, text) = site.run(&["config", "check"]);
        assert_eq!(
            code,
            Some(if is_refused { 3 } else { 0 }),
            "{mode:o}: {text}"
        );
        assert_eq!(
            text.contains("others may write it"),
            is_refused,
            "{mode:o}: {text}"
        );
    }
    assert!(!site.path("ran").exists());
}

#[test]
fn names_of_any_bytes_have_the_sections_of_their_hosts_and_remotes() {
    let site = Site::new();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let file = site.path("root/d").join(name(b"caf\xe9 %41"));
    std::fs::write(&file, "any bytes").unwrap();
    site.write("home/pw", &format!("{PASSWORD}\n"));
    let remote = "[remote.lab]\nurl = \"URL\"\nuser = \"carol\"\npassword-file = \"~/pw\"\n";
    site.configure(remote);
    let mut fetch = site.longhaul(&["cp"]);
    fetch.args([name(b"lab:d/caf\xe9 %41"), "here".into()]);
    let (code, text) = ending(&fetch.output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(std::fs::read(site.path("work/here")).unwrap(), b"any bytes");
    // Without such a remote it is a local file, whose name is as it was typed.
    let local = name(b"nolab:caf\xe9 %41");
    let mut copy = site.longhaul(&["cp", "here"]);
    let (code, text) = ending(&copy.arg(&local).output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    assert!(site.path("work").join(&local).exists());
    site.configure(&format!(
        "{remote}[host.\"127.0.0.1\"]\ntls = \"require\"\n"
    ));
    let url = [format!("ftp://{}/d/caf", site.address).as_bytes(), b"\xe9"].concat();
    let mut look = site.longhaul(&["stat"]);
    let (code, text) = ending(&look.arg(name(&url)).output().unwrap());
    assert_ne!(code, Some(0), "{text}");
    assert!(text.contains("TLS"), "the section counts: {text}");
}

#[test]
fn a_path_that_looks_like_one_of_a_remote_is_warned_of() {
    let site = Site::new();
    site.configure("[remote.lab]\nurl = \"URL\"\nuser = \"carol\"\n");
    site.write("work/a", "x");
    let (code, text) = site.run(&["cp", "a", "lba:a"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("warning: lba:a is a path of this machine"),
        "{text}"
    );
    for known in ["./lbb:a", "lba:a"] {
        let (_, text) = site.run(&["cp", "a", known]);
        assert!(!text.contains("warning"), "{text}");
    }
}

#[test]
fn doctor_knows_remotes_and_their_logins() {
    let site = Site::new();
    site.write("home/pw", &format!("{PASSWORD}\n"));
    site.configure(
        "tls = \"require\"\ncert = \"/no/such/file\"\n[remote.lab]\nurl = \"URL\"\nuser = \"carol\"\npassword-file = \"~/pw\"\n",
    );
    let (_, text) = site.run(&["doctor", "lab:"]);
    assert!(text.contains("ok       login"), "{text}");
    let (_, text) = site.run(&["doctor"]);
    assert!(!text.contains("/no/such/file"), "{text}");
}

#[test]
fn config_prints_one_json_object_without_passwords() {
    let site = Site::new();
    site.configure(&format!(
        "parallel = 8\nexclude = [\"a\", \"b\"]\n[remote.lab]\nurl = \"URL\"\nuser = \"carol\"\npassword = \"{PASSWORD}\"\n"
    ));
    let words = [
        "config", "show", "--json", "cp", "--mode", "s", "lab:x", ".",
    ];
    let (code, text) = site.run(&words);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let setting = |name: &str| {
        let settings = shown["settings"].as_array().unwrap();
        settings.iter().find(|s| s["name"] == name).unwrap().clone()
    };
    assert_eq!(setting("mode")["origin"], "flag");
    assert_eq!(setting("exclude")["value"], serde_json::json!(["a", "b"]));
    assert_eq!(setting("ca")["value"], Value::Null);
    assert_eq!(setting("quiet")["value"], false);
    assert_eq!(shown["unused"][0]["name"], "parallel");
    let remote = &shown["remotes"][0];
    assert_eq!(
        (&remote["name"], &remote["values"]["user"]),
        (&"lab".into(), &"carol".into())
    );
    let alone = site.run(&["config", "--json"]);
    assert!(serde_json::from_str::<Value>(&alone.1).unwrap()["settings"].is_array());
    // A full disk is an error, a closed pipe is none.
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let full = site.longhaul(&["config"]).stdout(full).status().unwrap();
    assert_eq!(full.code(), Some(7));
}
