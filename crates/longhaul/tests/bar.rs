//! A running copy as a person sees it: on a terminal, with `--stats`, with `-v` and `-vv`, in the log.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};

fn longhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .env_remove("RUST_LOG")
        .env("TERM", "xterm")
        .env("LONGHAUL_HISTORY", "off")
        .env("LONGHAUL_BATCHES", "off");
    command
}

/// A terminal on whose screen a copy draws.
struct CopyOnTerminal {
    child: Child,
    master: File,
    screen: vt100::Parser,
}

impl CopyOnTerminal {
    /// Runs `longhaul cp` with these arguments on a terminal with so many columns.
    fn start(columns: u16, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = tcgetwinsize(&master).unwrap();
        let size = Winsize {
            ws_col: columns,
            ws_row: 20,
            ..size
        };
        tcsetwinsize(&master, size).unwrap();
        let child = longhaul()
            .arg("cp")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(slave)
            .spawn()
            .unwrap();
        Self {
            child,
            master: File::from(master),
            screen: vt100::Parser::new(20, columns, 0),
        }
    }

    /// The rows that are not empty, as soon as `is_reached` is true of them.
    fn wait_for(&mut self, is_reached: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut bytes = [0; 4096];
        loop {
            let rows = self.rows();
            if is_reached(&rows) {
                return rows;
            }
            // The end of the copy is an error of a terminal (EIO).
            let count = self.master.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "the copy ended: {rows:?}");
            self.screen.process(&bytes[..count]);
        }
    }

    fn rows(&self) -> Vec<String> {
        let (_, columns) = self.screen.screen().size();
        let rows = self.screen.screen().rows(0, columns);
        rows.filter(|row| !row.is_empty()).collect()
    }

    fn resize(&mut self, columns: u16) {
        let size = tcgetwinsize(&self.master).unwrap();
        let size = Winsize {
            ws_col: columns,
            ..size
        };
        tcsetwinsize(&self.master, size).unwrap();
        self.screen.screen_mut().set_size(20, columns);
    }
}

impl Drop for CopyOnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Some large files in a directory. They have no holes, which no copy would take time for.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("run7")).unwrap();
    for name in ["run7/detector-01.h5", "run7/detector-02.h5"] {
        fs::write(at.join(name), vec![1; 100 << 20]).unwrap();
    }
    fs::write(at.join("notes"), "short").unwrap();
}

/// Slow enough to be looked at.
const SLOW: [&str; 4] = ["-r", "--limit-rate", "40M", "--concurrency=1"];

fn is_moving(rows: &[String]) -> bool {
    rows.iter()
        .any(|row| row.contains("% of") && row.contains("ends in"))
}

#[test]
fn the_bar_has_two_lines_that_fit_the_terminal_and_follow_its_width() {
    let scratch = tempfile::tempdir().unwrap();
    let from = scratch.path().join("archive");
    tree(&from);
    for columns in [40, 80, 200] {
        let to = scratch.path().join(format!("to{columns}"));
        let ends = [from.to_str().unwrap(), to.to_str().unwrap()];
        let mut copy = CopyOnTerminal::start(columns, &[&SLOW[..], &ends].concat());
        let rows = copy.wait_for(is_moving);
        let [file, rate] = rows.as_slice() else {
            panic!("{columns}: {rows:?}")
        };
        assert!(file.contains(" of 3 files  "), "{file}");
        assert!(file.contains(".h5"), "{file}");
        assert!(rate.contains("% of 210 MB  "), "{rate}");
        if columns > 40 {
            assert!(file.contains("% of 105 MB"), "{file}");
            assert!(rate.starts_with('['), "{rate}");
        }
    }
    let to = scratch.path().join("resized");
    let ends = [from.to_str().unwrap(), to.to_str().unwrap()];
    let mut copy = CopyOnTerminal::start(80, &[&SLOW[..], &ends].concat());
    copy.wait_for(is_moving);
    copy.resize(40);
    let is_narrow = |rows: &[String]| is_moving(rows) && !rows.concat().contains('[');
    let rows = copy.wait_for(is_narrow);
    assert!(rows.iter().all(|row| row.chars().count() < 40), "{rows:?}");
}

#[test]
fn the_bar_gives_way_to_messages_and_to_the_summary() {
    let scratch = tempfile::tempdir().unwrap();
    let from = scratch.path().join("archive");
    fs::create_dir_all(&from).unwrap();
    fs::write(from.join("notes"), "short").unwrap();
    std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
    let to = scratch.path().join("to");
    let ends = ["-r", from.to_str().unwrap(), to.to_str().unwrap()];
    let mut copy = CopyOnTerminal::start(200, &ends);
    let is_done = |rows: &[String]| {
        rows.last()
            .is_some_and(|row| row.starts_with("1 file: 5 B"))
    };
    let rows = copy.wait_for(is_done);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].contains("link skipped"), "{rows:?}");
}

#[test]
fn stats_print_lines_and_a_log_has_them_with_times() {
    let scratch = tempfile::tempdir().unwrap();
    let from = scratch.path().join("archive");
    tree(&from);
    let log = scratch.path().join("log");
    let mut copy = longhaul()
        .args(["cp", "-q", "--stats", "300ms", "--log"])
        .arg(&log)
        .args(SLOW)
        .arg(&from)
        .arg(scratch.path().join("to"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(copy.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(" of 210 MB ("), "{line}");
        assert!(line.contains(" of 3 files, "), "{line}");
        let logged = fs::read_to_string(&log).unwrap();
        let logged = logged.lines().find(|logged| logged.ends_with(&line));
        assert!(logged.unwrap().starts_with("20"), "{logged:?}");
    }
    copy.kill().unwrap();
    copy.wait().unwrap();
    let mode = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn verbose_shows_decisions_and_twice_the_dialogue_without_passwords() {
    let scratch = tempfile::tempdir().unwrap();
    let users = scratch.path().join("users");
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "content").unwrap();
    let password = scratch.path().join("password");
    fs::write(&password, "swordfish\n").unwrap();
    let added = longhaul()
        .args(["user", "add", "--password-stdin", "--users"])
        .arg(&users)
        .arg("alice")
        .stdin(File::open(&password).unwrap())
        .status()
        .unwrap();
    assert!(added.success());
    let mut server = longhaul()
        .args(["serve", "--listen", "127.0.0.1:0", "--root"])
        .arg(&root)
        .arg("--users")
        .arg(&users)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    let log = scratch.path().join("log");
    let stderr_of = |flag: &str| {
        let copied = longhaul()
            .args(["cp", flag, "--log"])
            .arg(&log)
            .arg(format!("ftp://alice:swordfish@{address}/f"))
            .arg(scratch.path().join(flag))
            .output()
            .unwrap();
        String::from_utf8(copied.stderr).unwrap()
    };
    let decisions = stderr_of("-v");
    assert!(
        decisions.contains("/f: begins with 1 stream in MODE S"),
        "{decisions}"
    );
    assert!(decisions.contains("copied ftp://"), "{decisions}");
    assert!(!decisions.contains(" > USER"), "{decisions}");
    let dialogue = stderr_of("-vv");
    let logged = fs::read_to_string(&log).unwrap();
    for shown in [&dialogue, &logged] {
        assert!(
            shown.contains(&format!("{address} > USER alice\n")),
            "{shown}"
        );
        assert!(
            shown.contains(&format!("{address} > PASS ***\n")),
            "{shown}"
        );
        assert!(shown.contains(&format!("{address} < 230")), "{shown}");
        assert!(!shown.contains("swordfish"), "{shown}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_line_break_in_a_name_does_not_begin_another_message() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a\nlonghaul: forged"), "x").unwrap();
    std::os::unix::fs::symlink("a", tree.join("l\nlonghaul: forged")).unwrap();
    let log = dir.path().join("log");
    let output = longhaul()
        .args(["cp", "-r", "-v", "--stats", "1ms", "--log"])
        .args([&log, &tree, &dir.path().join("copy")])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(shown.contains("l\\x0alonghaul: forged skipped"), "{shown}");
    for text in [shown, fs::read_to_string(log).unwrap()] {
        assert!(!text.contains("\nlonghaul: forged"), "{text}");
        assert!(!text.contains("Z longhaul: forged"), "{text}");
    }
}

#[test]
fn a_dry_run_ends_with_what_would_be_copied_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, text) in [("from/a", "12"), ("from/b", "345"), ("to/extra", "x")] {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), text).unwrap();
    }
    let output = longhaul()
        .args(["sync", "-n", "--delete"])
        .args([at("from"), at("to")])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    let last = shown.lines().last().unwrap();
    assert_eq!(
        last, "2 files would be copied, 5 B; 1 would be deleted",
        "{shown}"
    );
}
