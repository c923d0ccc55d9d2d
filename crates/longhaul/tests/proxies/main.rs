//! Servers behind proxies. The name in the URLs is known to the proxy alone, so that no connection can be direct.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scripted;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use scripted::{Behaviour, NAME, ScriptedProxy};

/// Login of proxies; no output may have the password.
const LOGIN: &str = "ann:hush4711";

/// A server, and a place for files.
struct ProxiedSite {
    place: tempfile::TempDir,
    server: Child,
    port: u16,
}

impl Drop for ProxiedSite {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl ProxiedSite {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for directory in ["root/tree/sub", "work"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        std::fs::write(place.path().join("root/big"), bytes(3_000_000)).unwrap();
        for number in 0..30 {
            let file = place.path().join(format!("root/tree/sub/f{number}"));
            std::fs::write(file, bytes(number * 1000)).unwrap();
        }
        let mut server = longhaul()
            .args(["serve", "--listen", "127.0.0.1:0", "--history", "off"])
            .args(["--anonymous", "rw", "--root"])
            .arg(place.path().join("root"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(server.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self {
            place,
            server,
            port,
        }
    }

    /// URL with the name that only the proxy knows.
    fn url(&self, path: &str) -> String {
        format!("ftp://{NAME}:{}/{path}", self.port)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = longhaul();
        command.args(words);
        command.env("LONGHAUL_HISTORY", self.path("paths.json"));
        command.current_dir(self.path("work"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that succeeds. Its standard output.
    fn succeeds(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn is_same(&self, served: &str, local: &str) -> bool {
        let read = |name: String| std::fs::read(self.path(&name)).unwrap();
        read(format!("root/{served}")) == read(format!("work/{local}"))
    }
}

/// A command without the settings and proxies of the one who runs the tests.
fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    for name in ["ftp", "http", "https", "all", "no"] {
        let name = format!("{name}_proxy");
        command.env_remove(name.to_uppercase()).env_remove(name);
    }
    command.env("LONGHAUL_CONFIG", "off").env_remove("RUST_LOG");
    command.env("LONGHAUL_BATCHES", "off");
    command
}

fn bytes(count: usize) -> Vec<u8> {
    (0..251)
        .map(|byte: u8| byte.wrapping_mul(7))
        .cycle()
        .take(count)
        .collect()
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// All verbs with a proxy of this scheme.
fn all_verbs(scheme: &str) {
    let site = ProxiedSite::new();
    let proxy = ScriptedProxy::start(Behaviour::Open, Some(LOGIN));
    let url = format!("{scheme}://{LOGIN}@{}", proxy.address);
    let through = ["--proxy", &url];
    let run = |words: &[&str]| site.succeeds(&[words, &through].concat());
    run(&["cp", &site.url("big"), "big"]);
    assert!(site.is_same("big", "big"));
    run(&["cp", "-p", "4", "--mode", "e", "big", &site.url("put")]);
    assert!(site.is_same("put", "big"));
    run(&["cp", "-p", "4", &site.url("big"), "big4"]);
    assert!(site.is_same("big", "big4"));
    run(&["cp", "-r", &site.url("tree"), "."]);
    run(&["cp", "-r", "tree", &site.url("tree2")]);
    for number in 0..30 {
        let name = format!("sub/f{number}");
        assert!(site.is_same(&format!("tree/{name}"), &format!("tree/{name}")));
        assert!(site.is_same(&format!("tree2/{name}"), &format!("tree/{name}")));
    }
    run(&["sync", "--delete", "tree/sub", &site.url("tree2")]);
    assert!(run(&["ls", &site.url("tree2")]).contains("f29"));
    assert!(run(&["stat", &site.url("big")]).contains("3000000"));
    run(&["mkdir", &site.url("made")]);
    run(&["mv", &site.url("put"), &site.url("made/put")]);
    run(&[
        "cksum",
        "-a",
        "crc32c",
        &site.url("big"),
        &site.url("made/put"),
    ]);
    run(&["rm", "-r", &site.url("made"), &site.url("tree2")]);
    assert!(!site.path("root/made").exists());
    run(&["doctor", "--rtt", "1ms", &site.url("")]);
    let asked = proxy.asked();
    let data = format!("{NAME}:{}", site.port);
    assert!(
        asked.iter().all(|target| target.starts_with(NAME)),
        "{asked:?}"
    );
    assert!(
        asked.iter().filter(|target| **target != data).count() > 5,
        "{asked:?}"
    );
    assert!(
        !site.path("paths.json").exists(),
        "no lesson is kept of a path through a proxy"
    );
}

#[test]
fn all_verbs_reach_a_server_through_connect() {
    all_verbs("http");
}

#[test]
fn all_verbs_reach_a_server_through_socks() {
    all_verbs("socks5h");
}

#[test]
fn a_name_is_resolved_here_for_socks5_and_at_the_proxy_for_socks5h() {
    let site = ProxiedSite::new();
    let proxy = ScriptedProxy::start(Behaviour::Open, None);
    let url = format!("socks5://{}", proxy.address);
    let output = site.run(&["ls", "--proxy", &url, &site.url("")]);
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output).contains("socks5h://"), "{output:?}");
    assert_eq!(proxy.asked(), [""; 0]);
    let local = format!("ftp://127.0.0.1:{}/big", site.port);
    site.succeeds(&["cp", "--proxy", &url, &local, "."]);
    let asked = proxy.asked();
    assert!(asked.len() >= 2, "{asked:?}");
    assert!(
        asked.iter().all(|target| target.starts_with("127.0.0.1:")),
        "{asked:?}"
    );
}

#[test]
fn the_proxy_of_the_environment_is_used_unless_the_host_is_excluded() {
    let site = ProxiedSite::new();
    let proxy = ScriptedProxy::start(Behaviour::Open, None);
    let address = proxy.address.to_string();
    let socks = format!("socks5h://{address}");
    let ls = ["ls", &site.url("")];
    for (name, value) in [
        ("ftp_proxy", &address),
        ("FTP_PROXY", &address),
        ("all_proxy", &socks),
        ("ALL_PROXY", &socks),
        ("LONGHAUL_PROXY", &socks),
    ] {
        let output = site.command(&ls).env(name, value).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
    let before = proxy.asked().len();
    let direct = format!("ftp://localhost:{}/", site.port);
    let with = |words: &[&str], name: &str, value: &str| {
        let mut command = site.command(words);
        command.env("ftp_proxy", &address).env(name, value);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    };
    with(&["ls", &direct], "no_proxy", "localhost");
    with(&["ls", &direct], "NO_PROXY", "*");
    with(&["ls", &direct, "--proxy", "none"], "no_proxy", "");
    with(&["ls", &direct, "--proxy", &socks], "no_proxy", "localhost");
    assert_eq!(proxy.asked().len(), before);
    let output = site
        .command(&ls)
        .env("all_proxy", "socks4://x:hush4711@h")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output).contains("all_proxy") && !text(&output).contains("hush"));
}

#[test]
fn a_proxy_that_does_not_help_is_named_in_one_line_with_its_exit_code() {
    let site = ProxiedSite::new();
    let (url, local) = (site.url("big"), site.url("new"));
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let with_login = ScriptedProxy::start(Behaviour::Open, Some(LOGIN));
    let forbidding = ScriptedProxy::start(Behaviour::Forbidding, None);
    let silent = ScriptedProxy::start(Behaviour::Silent, None);
    let ftp = ScriptedProxy::start(Behaviour::Ftp, None);
    let control_only = ScriptedProxy::start(Behaviour::OnlyPort(site.port), None);
    for scheme in ["http", "socks5h"] {
        for (proxy, code, words) in [
            (closed.to_string(), 5, "--proxy none"),
            (with_login.address.to_string(), 3, "requires a login"),
            (
                format!("ann:hush@{}", with_login.address),
                3,
                "refuses the login",
            ),
            (forbidding.address.to_string(), 3, "forbids the connection"),
            (silent.address.to_string(), 5, "in time"),
            (ftp.address.to_string(), 8, "does not answer in"),
            (control_only.address.to_string(), 3, "data ports"),
        ] {
            let through = format!("{scheme}://{proxy}");
            for pair in [[&*url, "new"], ["../root/big", &*local]] {
                let flags = ["--timeout", "2s", "--retries", "0", "--proxy", &through];
                let output = site.run(&[&["cp"], &flags[..], &pair].concat());
                let text = text(&output);
                assert_eq!(output.status.code(), Some(code), "{through}: {text}");
                assert!(
                    text.contains(words) && !text.contains("hush"),
                    "{through}: {text}"
                );
                let host = proxy.rsplit('@').next().unwrap();
                assert!(text.contains(host), "{through}: {text}");
            }
        }
    }
}

#[test]
fn the_password_of_a_proxy_is_never_shown() {
    let site = ProxiedSite::new();
    let proxy = ScriptedProxy::start(Behaviour::Open, Some(LOGIN));
    let url = format!("http://{LOGIN}@{}", proxy.address);
    let log = site.path("log");
    let output = site
        .command(&[
            "cp",
            "-vv",
            "--why",
            "--json",
            "--proxy",
            &url,
            &site.url("big"),
            ".",
        ])
        .arg("--log")
        .arg(&log)
        .arg("--trace")
        .arg(site.path("trace"))
        .env("RUST_LOG", "trace")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut shown = text(&output);
    for file in [log, site.path("trace")] {
        shown += &std::fs::read_to_string(file).unwrap();
    }
    let address = proxy.address.to_string();
    assert!(shown.contains(&format!("http://ann@{address}")), "{shown}");
    let config = site.path("config.toml");
    std::fs::write(&config, format!("proxy = \"{url}\"\n")).unwrap();
    let set = |mode| std::fs::set_permissions(&config, PermissionsExt::from_mode(mode)).unwrap();
    let ls = site.url("");
    let run = |words: &[&str]| {
        let mut command = site.command(words);
        command.env("LONGHAUL_CONFIG", &config).output().unwrap()
    };
    set(0o644);
    let refused = run(&["ls", &ls]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    set(0o600);
    assert!(run(&["ls", &ls]).status.success());
    let settings = run(&["config", "show", "ls", &ls]);
    let line = format!("proxy = \"http://***@{address}\"");
    assert!(text(&settings).contains(&line), "{settings:?}");
    std::fs::write(&config, "proxy = \"ann:hush4711@:x\"\n").unwrap();
    let invalid = run(&["ls", &ls]);
    assert_eq!(invalid.status.code(), Some(2), "{invalid:?}");
    let wrong = run(&["config", "check"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let of_environment = site
        .command(&["config"])
        .env("all_proxy", &url)
        .output()
        .unwrap();
    assert!(
        text(&of_environment).contains("environment all_proxy"),
        "{of_environment:?}"
    );
    for output in [refused, settings, invalid, wrong, of_environment] {
        shown += &text(&output);
    }
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn a_put_has_several_streams_and_a_get_several_sessions_or_says_why_not() {
    let site = ProxiedSite::new();
    let proxy = ScriptedProxy::start(Behaviour::Open, None);
    let url = format!("socks5h://{}", proxy.address);
    let cp = |from: &str, to: &str| {
        site.run(&[
            "cp", "-p", "4", "--mode", "e", "--json", "--proxy", &url, from, to,
        ])
    };
    let shown = text(&site.run(&["cp", "-vv", "--proxy", &url, &site.url("big"), "v"]));
    assert!(
        shown.contains(&format!("(through the proxy {url})")),
        "{shown}"
    );
    let put = cp("../root/big", &site.url("new"));
    assert!(put.status.success(), "{put:?}");
    // The control connection and at least two more: further ones join only while data is left.
    assert!(proxy.asked().len() > 2, "{put:?}");
    let get = cp(&site.url("big"), "new");
    assert!(get.status.success(), "{get:?}");
    assert!(text(&get).contains("through the proxy"), "{get:?}");
    // Without --mode e, several sessions have one stream each.
    let before = proxy.asked();
    let big = site.url("big");
    let get = site.run(&["cp", "-p", "4", "-v", "--proxy", &url, &big, "again"]);
    assert!(
        get.status.success() && site.is_same("big", "again"),
        "{get:?}"
    );
    assert!(text(&get).contains("4 sessions of one stream"), "{get:?}");
    let control = format!("{NAME}:{}", site.port);
    let asked = proxy.asked();
    let sessions = asked
        .iter()
        .skip(before.len())
        .filter(|target| **target == control);
    assert!(sessions.count() > 1, "{asked:?}");
}
