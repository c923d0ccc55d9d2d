//! Configuration files, environment variables and passwords of the client, end to end.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod reach;
mod secrets;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The password of `carol`; no output may have it.
const PASSWORD: &str = "hush hush 4711";

/// A home directory, a server with the user `carol`, and its files.
struct Site {
    place: tempfile::TempDir,
    server: Child,
    address: String,
}

impl Site {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for directory in ["root/d", "home", "work"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        for number in 0..40 {
            let file = place.path().join(format!("root/d/f{number}"));
            std::fs::write(file, format!("content {number}")).unwrap();
        }
        let users = place.path().join("users");
        let mut add = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["user", "add", "--password-stdin", "carol", "--users"])
            .arg(&users)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = add.stdin.take().unwrap();
        input.write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
        drop(input);
        assert!(add.wait().unwrap().success());
        let mut server = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--history",
                "off",
                "--users",
            ])
            .arg(&users)
            .arg("--root")
            .arg(place.path().join("root"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(server.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        let address = ready.trim().strip_prefix("listening on ").unwrap();
        Self {
            address: address.to_owned(),
            place,
            server,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Writes a file that is its user's alone.
    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
    }

    /// Writes the user's configuration file; `URL` stands for the server.
    fn configure(&self, text: &str) {
        let url = format!("ftp://{}", self.address);
        self.write(
            "home/.config/longhaul/config.toml",
            &text.replace("URL", &url),
        );
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LONGHAUL_") {
                command.env_remove(name);
            }
        }
        command
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("RUST_LOG")
            .env("HOME", self.path("home"))
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    fn longhaul(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_longhaul"));
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        ending(&self.longhaul(words).output().unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The exit code, and both outputs, which do not have the password.
fn ending(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(!text.contains(PASSWORD), "{text}");
    (output.status.code(), text)
}

#[test]
fn a_remote_is_a_server_with_a_name_and_a_login() {
    let site = Site::new();
    site.write("home/pw", &format!("{PASSWORD}\n"));
    for source in [
        "password-file = \"~/pw\"",
        "password-command = \"cat $HOME/pw\"",
        "password-command = [\"sed\", \"-n\", \"1p\", \"../home/pw\"]",
        "password-env = \"OF_CAROL\"",
        &format!("password = \"{PASSWORD}\""),
    ] {
        site.configure(&format!(
            "[remote.lab]\nurl = \"URL/d\"\nuser = \"carol\"\n{source}\n"
        ));
        let list = site
            .longhaul(&["ls", "lab:"])
            .env("OF_CAROL", PASSWORD)
            .output();
        let (code, text) = ending(&list.unwrap());
        assert_eq!(code, Some(0), "{source}: {text}");
        assert!(text.contains("f39\n"), "{text}");
    }
    let (code, text) = site.run(&["cp", "-q", "lab:f7", "lab:/d/f8", "lab:f?", "."]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(std::fs::read(site.path("work/f7")).unwrap(), b"content 7");
    let (code, text) = site.run(&["cp", "-q", "f7", "lab:new:name"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(site.path("root/d/new:name").exists());
    // Pairs of a list, too.
    std::fs::write(site.path("work/pairs"), "lab:f9 nine\n").unwrap();
    let (code, text) = site.run(&["cp", "-q", "--from", "pairs"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(site.path("work/nine").exists());
}

#[test]
fn local_names_with_a_colon_stay_local_unless_a_remote_has_the_name() {
    let site = Site::new();
    site.configure("[remote.lab]\nurl = \"URL/d\"\nuser = \"carol\"\npassword-env = \"NONE\"\n");
    for name in ["lab:f7", "other:f7"] {
        std::fs::write(site.path("work").join(name), "local").unwrap();
    }
    let (code, text) = site.run(&["cp", "-q", "./lab:f7", "other:f7", "/dev/null/.."]);
    assert_ne!(code, Some(3), "{text}");
    for (from, to) in [("./lab:f7", "a"), ("other:f7", "b")] {
        let (code, text) = site.run(&["cp", "-q", from, to]);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(std::fs::read(site.path("work").join(to)).unwrap(), b"local");
    }
    let (code, text) = site.run(&["cp", "-q", "lab:f7", "c"]);
    assert_eq!(
        code,
        Some(3),
        "the remote, whose variable is not set: {text}"
    );
    assert!(
        text.contains("remote lab") && text.contains("NONE"),
        "{text}"
    );
}

#[test]
fn every_value_is_shown_with_its_origin_and_secrets_are_not() {
    let site = Site::new();
    site.configure(&format!(
        "retries = 1\nconcurrency = 3\n[host.\"127.*\"]\nretries = 2\ntimeout = 7\n\
         [remote.lab]\nurl = \"URL/d\"\nuser = \"carol\"\npassword = \"{PASSWORD}\"\n"
    ));
    let shown = site
        .longhaul(&["config", "show", "cp", "-p", "8", "lab:f", "."])
        .env("LONGHAUL_TIMEOUT", "5")
        .output()
        .unwrap();
    let (code, text) = ending(&shown);
    assert_eq!(code, Some(0), "{text}");
    let file = ".config/longhaul/config.toml";
    for (setting, origin) in [
        ("parallel = \"8\"", "flag"),
        ("timeout = \"5\"", "environment LONGHAUL_TIMEOUT"),
        ("retries = \"2\"", &format!("{file}:4 [host.\"127.*\"]")),
        ("concurrency = \"3\"", &format!("{file}:2")),
        ("verify = \"auto\"", "default"),
        ("password = \"(hidden)\"", &format!("{file}:9")),
    ] {
        let line = text.lines().find(|line| line.starts_with(setting));
        let line = line.unwrap_or_else(|| panic!("{setting}: {text}"));
        assert!(line.ends_with(origin), "{line}");
    }
    let (code, text) = site.run(&["config"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("retries = \"1\""), "{text}");
}

#[test]
fn settings_reach_the_command_that_runs() {
    let site = Site::new();
    std::fs::write(site.path("work/a"), "x").unwrap();
    let traced = |variable: Option<&str>, words: &[&str]| {
        let mut command = site.longhaul(words);
        command.args(["a", "b"]);
        if let Some(value) = variable {
            command.env("LONGHAUL_JSON", value);
        }
        let (code, text) = ending(&command.output().unwrap());
        assert_eq!(code, Some(0), "{text}");
        text.contains("\"event\"")
    };
    assert!(!traced(None, &["cp"]));
    assert!(traced(Some("true"), &["cp"]));
    site.configure("json = true\n");
    assert!(traced(None, &["cp"]));
    assert!(
        !traced(Some("off"), &["cp"]),
        "the environment comes before the file"
    );
    assert!(!traced(None, &["cp", "--config", "off"]));
    std::fs::write(site.path("work/other.toml"), "quiet = true\n").unwrap();
    assert!(!traced(None, &["cp", "--config", "other.toml"]));
}

#[test]
fn defaults_that_a_command_does_not_need_are_no_errors() {
    let site = Site::new();
    site.configure("ca = \"/etc/ssl/certs\"\ncert = \"/none\"\ndelegate = \"limited\"\nsums-algorithm = \"md5\"\n");
    std::fs::write(site.path("work/a"), "x").unwrap();
    let (code, text) = site.run(&["cp", "a", "b"]);
    assert_eq!(code, Some(0), "{text}");
    let url = format!("ftp://{}/a", site.address);
    let (code, text) = site.run(&["cp", "--config", "off", "--ca", "/etc/ssl/certs", &url, "b"]);
    assert_eq!(code, Some(2), "a flag must have an effect: {text}");
    site.configure("ca = \"/etc/ssl/certs\"\ndelegate = \"limited\"\n");
    let url = format!(
        "ftp://carol:{}@{}/d/f1",
        PASSWORD.replace(' ', "%20"),
        site.address
    );
    let (code, text) = site.run(&["cp", &url, "c"]);
    assert_eq!(code, Some(0), "a default need not have one: {text}");
}

#[test]
fn mistakes_are_refused_with_the_nearest_name() {
    let site = Site::new();
    let refused = |text: &str, words: &[&str], code: i32, wanted: &[&str]| {
        site.configure(text);
        let (exit, message) = site.run(words);
        assert_eq!(exit, Some(code), "{message}");
        for word in wanted {
            assert!(message.contains(word), "{word}: {message}");
        }
    };
    let cp = &["cp", "a", "b"];
    refused(
        "max-stream = 3\n",
        cp,
        2,
        &["config.toml:1", "\"max-streams\""],
    );
    refused(
        "[remote.x]\nurls = \"\"\n",
        cp,
        2,
        &["config.toml:2", "\"url\""],
    );
    refused("max-streams = 0\n", cp, 2, &["config.toml:1", "1 to 256"]);
    refused("x = \n", cp, 2, &["config.toml:1"]);
    let check = &["config", "check"];
    let text = "[host.a]\nretries = \"many\"\n[remote.x]\nurl = \"gopher://h\"\n";
    refused(
        text,
        check,
        2,
        &["config.toml:2", "config.toml:3: [remote.x]"],
    );
    site.configure("retries = 3\n");
    let (code, text) = site.run(check);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 default,"), "{text}");
    let misspelt = site
        .longhaul(check)
        .env("LONGHAUL_RETRIE", "3")
        .output()
        .unwrap();
    let (code, text) = ending(&misspelt);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("\"LONGHAUL_RETRIES\""), "{text}");
    let (code, text) = site.run(&["cp", "--config", "/none.toml", "a", "b"]);
    assert_eq!(code, Some(4), "{text}");
}

#[test]
fn a_file_with_a_password_that_others_may_read_is_refused() {
    let site = Site::new();
    let remote = "[remote.lab]\nurl = \"URL\"\nuser = \"carol\"\n";
    let path = site.path("home/.config/longhaul/config.toml");
    site.configure(&format!("{remote}password = \"{PASSWORD}\"\n"));
    set_mode(&path, 0o644);
    let (code, text) = site.run(&["ls", "lab:"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("config.toml:4") && text.contains("chmod 600"),
        "{text}"
    );
    set_mode(&path, 0o600);
    assert_eq!(site.run(&["ls", "lab:"]).0, Some(0));
    // Without a secret anybody may read it.
    site.configure(remote);
    set_mode(&path, 0o644);
    assert_eq!(site.run(&["config", "check"]).0, Some(0));
}

#[test]
fn without_a_terminal_nobody_is_asked_and_the_error_names_what_was_searched() {
    let site = Site::new();
    let url = format!("ftp://carol@{}/d", site.address);
    let (code, text) = site.run(&["ls", &url]);
    assert_eq!(code, Some(3), "{text}");
    assert!(!text.contains("password:"), "{text}");
    for place in ["LONGHAUL_PASSWORD", "~/.netrc", "longhaul config"] {
        assert!(text.contains(place), "{text}");
    }
}

/// Runs a command on a terminal and types the password when it is asked for. Returns the exit code, and what the
/// terminal showed. The terminal must be left as it was.
fn on_a_terminal(site: &Site, words: &[&str], typed: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_longhaul");
    let words = words.iter().map(|word| format!(" '{word}'"));
    let words = words.collect::<String>();
    // The shell outlives Ctrl-C, to show the state of the terminal.
    let line = format!("trap : INT; '{program}'{words}; code=$?; stty -a; exit $code");
    // script(1) makes the terminal, and passes on what it reads.
    let mut script = site
        .command("script")
        .args(["-q", "-e", "-f", "-c", &line, "/dev/null"])
        .env("RUST_LOG", "trace")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = script.stdout.take().unwrap();
    let mut shown = Vec::new();
    let mut byte = [0];
    while !shown.ends_with(b"password: ") && output.read(&mut byte).unwrap() > 0 {
        shown.push(byte[0]);
    }
    let mut input = script.stdin.take().unwrap();
    input.write_all(typed.as_bytes()).unwrap();
    output.read_to_end(&mut shown).unwrap();
    drop(input);
    let status = script.wait().unwrap();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(
        shown.contains(" echo "),
        "the terminal shows what is typed again: {shown}"
    );
    (status.code(), shown)
}

#[test]
fn a_password_is_asked_for_once_and_never_shown_or_logged() {
    let site = Site::new();
    let url = format!("ftp://carol@{}", site.address);
    let (directory, file) = (format!("{url}/d"), format!("{url}/alone"));
    std::fs::write(site.path("root/alone"), "x").unwrap();
    std::fs::create_dir(site.path("work/here")).unwrap();
    let words = [
        "cp",
        "-r",
        "--concurrency",
        "4",
        "--trace",
        "t",
        &directory,
        &file,
        "here/",
    ];
    let (code, shown) = on_a_terminal(&site, &words, &format!("{PASSWORD}\n"));
    assert_eq!(code, Some(0), "{shown}");
    let prompt = "no password found for carol@127.0.0.1: password: ";
    assert_eq!(shown.matches(prompt).count(), 1, "{shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    assert!(site.path("work/here/d/f39").exists());
    let trace = std::fs::read_to_string(site.path("work/t")).unwrap();
    assert!(!trace.contains(PASSWORD));
}

#[test]
fn a_remote_with_a_user_alone_asks_and_a_wrong_password_is_refused() {
    let site = Site::new();
    site.configure("[remote.lab]\nurl = \"URL/d\"\nuser = \"carol\"\n");
    let (code, shown) = on_a_terminal(&site, &["ls", "lab:"], &format!("{PASSWORD}\n"));
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("f39"), "{shown}");
    let (code, shown) = on_a_terminal(&site, &["ls", "lab:"], "wrong\n");
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("check user name and password"), "{shown}");
}

#[test]
fn an_interrupted_prompt_ends_the_command() {
    let site = Site::new();
    let url = format!("ftp://carol@{}/d", site.address);
    // The byte of Ctrl-C.
    let (code, shown) = on_a_terminal(&site, &["ls", &url], "\u{3}");
    assert_eq!(code, Some(130), "{shown}");
    let (code, shown) = on_a_terminal(&site, &["cp", "-r", &url, "."], "\u{3}");
    assert_eq!(code, Some(130), "{shown}");
    assert!(
        shown.contains("password: \r\nlonghaul: interrupted"),
        "{shown}"
    );
}
