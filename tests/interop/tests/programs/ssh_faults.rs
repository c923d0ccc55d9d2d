//! `ssh:` and `sftp:` URLs when something on the way dies, stops, is full, or is used twice.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::matrix::TestStore;
use interop::peer::sshd::{self, Sshd};
use interop::process::{ProcessGuard, ServerProcess};
use interop::require;
use interop::run;
use interop::test_files;
use interop::volume::{FullVolume, FullVolumeKind};
use rustix::process::{Pid, Signal, kill_process};

use super::ssh::{processes_named, start_closed, wait_until, wait_until_said};

/// The unfinished file of a copy.
fn partial(of: &Path) -> PathBuf {
    of.with_extension("longhaul-partial")
}

/// The bytes of an unfinished file. Several streams leave holes.
fn arrived(destination: &Path) -> u64 {
    let partial = partial(destination).metadata();
    partial.map_or(0, |partial| partial.blocks() * 512)
}

fn signal(pid: i32, signal: Signal) {
    // One that has ended meanwhile is as good.
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
}

#[test]
fn a_get_goes_on_after_the_login_of_its_data_dies_though_all_was_sent() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start_closed(&store, "");
    let source = store.path("src/short");
    test_files::write(&source, 6_000_000, 1).unwrap();
    let (from, to) = (sshd.server.url("src/short"), store.local());
    let local = path_argument(&to);
    // As slow as it must be for the second login, of a busy machine, to be there before the first has carried all.
    let rate = store.path("local/rate");
    std::fs::write(&rate, "400k").unwrap();
    let limit = format!("@{}", path_argument(&rate));
    let slowly = ["-vv", "-p", "2", "--limit-rate", &limit, &from, &local];
    let words = [&["--ssh", &sshd.ssh], &slowly[..]].concat();
    let sockets = tempfile::tempdir().unwrap();
    let dialogue = store.path("local/dialogue");
    let mut command = copy::command(&words).unwrap();
    command.env("XDG_RUNTIME_DIR", sockets.path());
    command.stdout(Stdio::null());
    command.stderr(File::create(&dialogue).unwrap());
    let mut client = ProcessGuard::spawn(&mut command).unwrap();
    // It has a login of its own; the first one has the sessions.
    let own_login = || {
        let logins = processes_named(&format!("ssh: {}/", sockets.path().display()));
        let mut logins = logins.into_iter();
        logins.find(|(line, _)| line.contains("/1.0 "))
    };
    wait_until_said("a login for data", Some(&dialogue), || {
        own_login().is_some()
    });
    std::fs::write(&rate, "8M").unwrap();
    // The second part is smaller than what is on its way through ssh: the far end has sent all, and says so.
    wait_until_said("the end of a part", Some(&dialogue), || {
        let said = std::fs::read_to_string(&dialogue).unwrap_or_default();
        said.contains(" < 226 ")
    });
    let (_, data) = own_login().expect("a login for data");
    signal(data, Signal::KILL);
    // It goes on without the limit.
    client.signal(Signal::USR2).unwrap();
    let status = client.wait(run::LIMIT).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    test_files::ensure_same(&source, &to).unwrap();
}

/// The ways through ssh.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SshWay {
    /// Data beside it.
    Beside,
    /// Everything through it.
    Through,
    Sftp,
}

const WAYS: [SshWay; 3] = [SshWay::Beside, SshWay::Through, SshWay::Sftp];

impl SshWay {
    fn start(self, store: &TestStore) -> Sshd {
        match self {
            Self::Beside => sshd::start(store, "").unwrap(),
            Self::Through => start_closed(store, ""),
            Self::Sftp => sshd::start(store, "").unwrap().by_sftp(),
        }
    }
}

/// The words of a copy by one login, without further tries, of a destination that any account may name.
fn put(sshd: &Sshd, options: &[&str], from: &Path, to: &str) -> Command {
    let from = path_argument(from);
    let words = ["--ssh", &sshd.ssh, "--retries", "0"];
    let words = [&words[..], options, &[&from, to]].concat();
    copy::command(&words).unwrap()
}

#[test]
fn a_full_disk_at_the_far_end_is_said_and_leaves_no_half_file() {
    require!(sshd::find());
    require!(FullVolume::is_supported());
    let volume = FullVolume::new(FullVolumeKind::Tmpfs, 1 << 20).unwrap();
    let arrives = volume.folder().join("f");
    let source = test_files::shared(20_000_000).unwrap();
    for way in WAYS {
        let store = TestStore::new().unwrap();
        let sshd = way.start(&store);
        let to = sshd.server.url("f");
        let root = path_argument(&store.path("f"));
        let to = to.replace(&root, &path_argument(&arrives));
        let full = run::run(&mut put(&sshd, &[], &source, &to)).unwrap();
        let full = full.expect_code(7).unwrap();
        let said = copy::failure_message(&full).unwrap_or_default();
        assert!(said.contains("make room"), "{full}");
        assert_eq!(said.lines().count(), 1);
        assert!(!arrives.exists(), "{full}");
        // The next one needs the room.
        let _ = std::fs::remove_file(partial(&arrives));
    }
}

#[test]
fn two_copies_to_one_file_through_ssh_are_never_mixed() {
    require!(sshd::find());
    let source = test_files::shared(20_000_000).unwrap();
    for way in WAYS {
        let store = TestStore::new().unwrap();
        let sshd = way.start(&store);
        let other = store.path("local/other-source");
        test_files::write(&other, 20_000_000, 7).unwrap();
        let served = store.upload();
        let (arrives, to) = (store.path(&served), sshd.server.url(&served));
        let mut first = put(&sshd, &["--limit-rate", "2M"], &source, &to);
        let mut first = ProcessGuard::spawn(first.stdout(Stdio::null())).unwrap();
        wait_until("bytes", || arrived(&arrives) > 0);
        let mut second = put(&sshd, &[], &other, &to);
        // As from another machine, which does not know the lock of this one.
        second.env("XDG_STATE_HOME", store.path("local/other"));
        let second = run::run(&mut second).unwrap();
        // It goes on without the limit.
        first.signal(Signal::USR2).unwrap();
        let first = first.wait(run::LIMIT).unwrap().unwrap().code();
        if way == SshWay::Sftp {
            // No server of SFTP keeps two writers apart: the later one has a file of its own, and the first finds its own gone.
            second.expect_success().unwrap();
            assert!(matches!(first, Some(4 | 6)), "{first:?}");
            test_files::ensure_same(&other, &arrives).unwrap();
        } else {
            second.expect_code(7).unwrap();
            assert_eq!(first, Some(0));
            test_files::ensure_same(&source, &arrives).unwrap();
        }
        assert!(!partial(&arrives).exists());
    }
}

/// Stops processes of a copy, which has to end within the time for silence, with exit code 5. Then they go on, and
/// nothing stays at the far end.
fn is_given_up(way: SshWay, stopped: impl Fn(&Sshd) -> Vec<i32>) {
    let store = TestStore::new().unwrap();
    let sshd = way.start(&store);
    let from = format!("src/{}", test_files::name(test_files::LARGE));
    let (from, to) = (sshd.server.url(&from), store.local());
    // Also a busy machine is not silent that long.
    let slowly = [
        "--timeout",
        "20",
        "--limit-rate",
        "40M",
        &from,
        &path_argument(&to),
    ];
    let words = [&["--ssh", &sshd.ssh, "--retries", "0"], &slowly[..]].concat();
    let mut command = copy::command(&words).unwrap();
    let said = tempfile::tempdir().unwrap();
    let mut client = ServerProcess::spawn(&mut command, said.path(), "copy").unwrap();
    let bytes = |_: &str| (arrived(&to) > 0).then_some(());
    client.wait_until("bytes", run::LIMIT, bytes).unwrap();
    // Others may begin after the first are stopped, and would carry everything.
    let mut pids = BTreeSet::new();
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        let more = stopped(&sshd);
        more.iter().for_each(|pid| signal(*pid, Signal::STOP));
        pids.extend(more);
        let status = client.guard().wait(Duration::from_millis(100)).unwrap();
        if status.is_some() || Instant::now() > until {
            break status;
        }
    };
    assert!(!pids.is_empty());
    pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
    assert_eq!(status.and_then(|status| status.code()), Some(5));
    assert!(!to.exists());
    wait_until("no login", || sshd.sessions().is_empty());
}

#[test]
fn a_stopped_longhaul_at_the_far_end_is_given_up() {
    require!(sshd::find());
    std::thread::scope(|scope| {
        scope.spawn(|| is_given_up(SshWay::Beside, Sshd::far_ends));
        is_given_up(SshWay::Through, Sshd::far_ends);
    });
}

#[test]
fn a_stopped_ssh_server_is_given_up() {
    require!(sshd::find());
    std::thread::scope(|scope| {
        scope.spawn(|| is_given_up(SshWay::Through, Sshd::sessions));
        is_given_up(SshWay::Sftp, Sshd::sessions);
    });
}
