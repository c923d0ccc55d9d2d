//! `longhaul serve --check`, and the recipes of docs/server.md, which it must accept.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use security::test_pki::{TestAuthority, write_certificates, write_grid_directory, write_key};
use tempfile::TempDir;

const DOCUMENT: &str = include_str!("../../../docs/server.md");

/// The page with everything in one settings file.
const ONE_SERVER: &str = include_str!("../../../docs/admin/one-server.md");

fn check(settings: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["serve", "--check", "--config"])
        .arg(settings)
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Writes settings to a file and checks them.
fn check_text(place: &TempDir, text: &str) -> Output {
    let path = place.path().join("serve.toml");
    fs::write(&path, text).unwrap();
    check(&path)
}

#[test]
fn what_the_account_of_run_as_may_not_use_is_found() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root may become another account");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(place.path(), 0o755);
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let welcome = place.path().join("welcome");
    fs::write(&welcome, "hello\n").unwrap();
    let settings = format!(
        "root = {root:?}\nanonymous = \"rw\"\nquota = \"1G\"\nrun-as = \"nobody\"\nwelcome-file = {welcome:?}\n"
    );
    for (closed, expected) in [
        (&root, "the account that serves must be able to enter it"),
        (&welcome, "cannot read the message in"),
    ] {
        mode(closed, 0o600);
        let output = check_text(&place, &settings);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains(expected), "{output:?}");
        mode(closed, 0o755);
    }
    let output = check_text(&place, &settings);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said(&output).contains("may not write in"), "{output:?}");
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_key() {
    let place = tempfile::tempdir().unwrap();
    for (text, expected) in [
        (
            "anonymous = \"ro\"\n\nmax-sesions = 3\n",
            "line 3: \"max-sesions\" is not a setting; is \"max-sessions\" meant?",
        ),
        (
            "anonymous = \"ro\"\n[user.ann]\nqouta = \"1G\"\n",
            "line 3: \"qouta\" is not a setting; is \"quota\" meant?",
        ),
        (
            "anonymous = \"rr\"\n",
            "line 1: anonymous: \"rr\" is not a value; use \"ro\" or \"rw\"",
        ),
    ] {
        let output = check_text(&place, text);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said(&output).contains(expected), "{output:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_a_server_could_not_use_is_refused_and_nothing_is_made() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    let usable = format!(
        "root = {root:?}\nanonymous = \"ro\"\ntransfer-log = {:?}\n",
        place.path().join("log")
    );
    let output = check_text(&place, &usable);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("cannot use"), "{output:?}");
    fs::create_dir(&root).unwrap();
    let output = check_text(&place, &usable);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!place.path().join("log").exists());
    for (line, reason) in [
        ("users = \"/nowhere/users\"", "/nowhere/users"),
        ("banner-file = \"/nowhere/banner\"", "/nowhere/banner"),
        ("congestion = \"warp\"", "warp"),
        (
            "advisor = { config = \"/nowhere/advisor.toml\" }",
            "/nowhere/advisor.toml",
        ),
        ("cert = \"/nowhere/cert\"", "key"),
    ] {
        let output = check_text(&place, &format!("{usable}{line}\n"));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(said(&output).contains(reason), "{line}: {output:?}");
    }
}

#[test]
fn what_is_hardly_meant_is_a_warning() {
    let place = tempfile::tempdir().unwrap();
    let text = format!("root = {:?}\nanonymous = \"rw\"\n", place.path());
    let output = check_text(&place, &text);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        said(&output).contains("warning: anonymous sessions may write"),
        "{output:?}"
    );
}

#[test]
fn a_users_file_and_directories_that_run_as_may_not_use_are_warnings() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root may become another account");
        return;
    }
    let host = RecipeHost::new();
    for file in ["etc/longhaul/users", "var/log/longhaul", "var/lib/longhaul"] {
        chown(host.path(file), Some(0), Some(0)).unwrap();
    }
    let settings = "root = \"/srv/data\"\nusers = \"/etc/longhaul/users\"\nrun-as = \"longhaul\"\n\
        transfer-log = \"/var/log/longhaul/transfers.jsonl\"\nhistory = \"/var/lib/longhaul/paths.json\"\n";
    let output = check_text(&host.place, &host.adapted(settings));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = said(&output);
    for warning in ["chown nobody", "transfer-log: ", "history: "] {
        assert!(said.contains(warning), "{warning}: {said}");
    }
    assert_eq!(said.lines().count(), 3, "{said}");
}

/// A recipe of the document: its heading and its settings file.
struct Recipe {
    name: String,
    settings: String,
}

fn recipes() -> Vec<Recipe> {
    let (_, rest) = DOCUMENT.split_once("\n## Recipes\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let parts = section.split("\n### ").skip(1);
    let recipe = |part: &str| {
        let (name, text) = part.split_once('\n').unwrap();
        let (_, after) = text.split_once("```toml\n").unwrap();
        Recipe {
            name: name.to_owned(),
            settings: after.split_once("```").unwrap().0.to_owned(),
        }
    };
    parts.map(recipe).collect()
}

/// A host with the files that the recipes name.
struct RecipeHost {
    place: TempDir,
}

impl RecipeHost {
    fn new() -> Self {
        let host = Self {
            place: tempfile::tempdir().unwrap(),
        };
        for directory in [
            "srv/archive",
            "srv/incoming/observatory",
            "srv/lab",
            "srv/data",
            "var/log/longhaul",
            "var/lib/longhaul",
            "etc/longhaul/private",
            "etc/grid-security/certificates",
        ] {
            fs::create_dir_all(host.path(directory)).unwrap();
        }
        let authority = TestAuthority::new("/O=Test/CN=CA");
        write_grid_directory(&host.path("etc/grid-security/certificates"), &[&authority]);
        let server = authority.host(&["localhost"]);
        for (cert, key) in [
            ("etc/longhaul/host.pem", "etc/longhaul/private/host.key"),
            (
                "etc/grid-security/hostcert.pem",
                "etc/grid-security/hostkey.pem",
            ),
        ] {
            write_certificates(&host.path(cert), &server);
            write_key(&host.path(key), &server);
        }
        fs::write(host.path("etc/longhaul/welcome"), "be kind\n").unwrap();
        let gridmap = "\"/O=Test/CN=Ann\" ann\n";
        fs::write(host.path("etc/grid-security/grid-mapfile"), gridmap).unwrap();
        for user in ["observatory", "instrument"] {
            host.add_user(user);
        }
        if rustix::process::geteuid().is_root() {
            let own = ["etc/longhaul/users", "var/log/longhaul", "var/lib/longhaul"];
            own.iter().for_each(|file| host.give_to_server(file));
        }
        host
    }

    /// Gives a file to the account of [`RecipeHost::adapted`], 65534 on every Debian.
    fn give_to_server(&self, file: &str) {
        const NOBODY: u32 = 65_534;
        chown(self.path(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }

    fn path(&self, below: &str) -> PathBuf {
        self.place.path().join(below)
    }

    fn add_user(&self, name: &str) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["user", "add", "--password-stdin", "--users"])
            .arg(self.path("etc/longhaul/users"))
            .arg(name)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"correct horse\n").unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }

    /// The recipe with the paths of this host and an account that every host has.
    fn adapted(&self, settings: &str) -> String {
        let place = self.place.path().display();
        let mut adapted = settings.replace("run-as = \"longhaul\"", "run-as = \"nobody\"");
        for directory in ["/srv/", "/etc/", "/var/"] {
            adapted = adapted.replace(&format!("\"{directory}"), &format!("\"{place}{directory}"));
        }
        adapted
    }
}

#[test]
fn every_recipe_of_the_document_can_be_used() {
    let recipes = recipes();
    let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Public archive",
            "Incoming drop box",
            "Lab data server",
            "Behind NAT and a firewall"
        ]
    );
    let host = RecipeHost::new();
    for recipe in recipes {
        let adapted = host.adapted(&recipe.settings);
        let output = check_text(&host.place, &adapted);
        assert_eq!(output.status.code(), Some(0), "{}: {output:?}", recipe.name);
        // A recipe means what it says.
        assert_eq!(said(&output), "", "{}", recipe.name);
    }
}

#[test]
fn the_page_with_everything_in_one_settings_file_can_be_used() {
    let (_, after) = ONE_SERVER.split_once("```toml\n").unwrap();
    let settings = after.split_once("```").unwrap().0;
    let host = RecipeHost::new();
    host.add_user("ann");
    if rustix::process::geteuid().is_root() {
        host.give_to_server("etc/longhaul/users");
    }
    let output = check_text(&host.place, &host.adapted(settings));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(said(&output), "", "a recipe means what it says");
}
