//! Hosts of `ssh:` URLs without longhaul: it is put into the cache directory there, or a message says why not.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use interop::longhaul::rows::path_argument;
use interop::longhaul::{binary, copy};
use interop::matrix::TestStore;
use interop::peer::sshd::{self, Sshd};
use interop::peer::{find_installed, is_root};
use interop::process::ProcessGuard;
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;

/// Programs that the far end needs for an installation, beside one for the digest.
const PROGRAMS: [&str; 10] = [
    "sh", "cat", "chmod", "dd", "mkdir", "mv", "rm", "rmdir", "sleep", "uname",
];

/// A host whose logins find no longhaul, with a home directory of the test.
struct BareHost {
    store: TestStore,
    home: PathBuf,
    sshd: Sshd,
}

impl BareHost {
    fn new(further: &str) -> Self {
        Self::with(further, &|_: &Path| "/usr/bin:/bin".to_owned())
    }

    /// A host whose PATH is made in a directory.
    fn with(further: &str, path: &dyn Fn(&Path) -> String) -> Self {
        let store = TestStore::new().unwrap();
        let home = store.scratch().folder("home").unwrap();
        let programs = store.scratch().folder("programs").unwrap();
        let environment = format!("HOME={} PATH={}", home.display(), path(&programs));
        // SFTP would take the place of what is missing.
        let further = format!("{}\n{further}", sshd::NO_SFTP);
        let sshd = sshd::start_in(&store, &further, &environment).unwrap();
        Self { store, home, sshd }
    }

    /// A host with these programs alone, beside [`PROGRAMS`].
    fn with_programs(further: &str, others: &[&str]) -> Self {
        let path = |programs: &Path| {
            for program in PROGRAMS.iter().chain(others) {
                symlink(find_installed(program).unwrap(), programs.join(program)).unwrap();
            }
            programs.display().to_string()
        };
        Self::with(further, &path)
    }

    fn cache(&self) -> PathBuf {
        self.home.join(".cache/longhaul")
    }

    /// Entries of the cache directory there.
    fn put(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.cache()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// A program for the far end, smaller than this build.
    fn helper(&self) -> String {
        let program = binary::path().unwrap();
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", program.display());
        path_argument(&script_at(&self.store, "helper", &script))
    }

    /// A download without a terminal.
    fn get(&self, flags: &[&str]) -> FinishedProgram {
        let mut command = Command::new("setsid");
        command.arg("--wait").arg(binary::path().unwrap());
        command.args(self.words(flags));
        run::run(command.env("LONGHAUL_CONFIG", "off")).unwrap()
    }

    fn words(&self, flags: &[&str]) -> Vec<String> {
        let from = format!("src/{}", test_files::name(test_files::SIZES[1]));
        let from = self.sshd.server.url(&from);
        let to = path_argument(&self.store.local());
        let first = ["cp", "--json", "--retries", "0", "--ssh", &self.sshd.ssh];
        let words = first.iter().chain(flags).copied();
        words
            .chain([from.as_str(), &to])
            .map(str::to_owned)
            .collect()
    }

    /// A download that puts the small helper there.
    fn get_by_helper(&self) -> FinishedProgram {
        self.get(&["--ssh-install", "--ssh-helper", &self.helper()])
    }

    fn refused(&self, finished: FinishedProgram, words: &str) {
        let finished = finished.expect_code(3).unwrap();
        let message = copy::failure_message(&finished).unwrap_or_default();
        assert!(message.contains(words), "{message}");
    }

    fn clean(&self, host: &str) -> FinishedProgram {
        let mut command = binary::longhaul().unwrap();
        let clean = ["ssh", "clean", "--ssh", &self.sshd.ssh, host];
        // The flag counts.
        command.env("LONGHAUL_SSH", "/nonexistent/ssh");
        let finished = run::run(command.args(clean)).unwrap();
        finished.expect_success().unwrap()
    }
}

fn script_at(store: &TestStore, name: &str, text: &str) -> PathBuf {
    let script = store.scratch().file(name, text.as_bytes()).unwrap();
    executable(&script);
    script
}

fn executable(file: &Path) {
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
}

fn mode(file: &Path) -> u32 {
    file.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_host_without_longhaul_gets_this_program_once_and_gives_it_back() {
    require!(sshd::find());
    let host = BareHost::new("");
    host.get(&["--ssh-install"]).expect_success().unwrap();
    let put = host.put();
    let [directory] = &put[..] else {
        panic!("{put:?}");
    };
    let program = directory.join("longhaul");
    assert_eq!([mode(&host.cache()), mode(directory)], [0o700; 2]);
    let own = binary::path().unwrap();
    test_files::ensure_same(&own, &program).unwrap();
    let before = program.metadata().unwrap().modified().unwrap();
    // No question and no flag: the same command finds it.
    host.get(&[]).expect_success().unwrap();
    assert_eq!(program.metadata().unwrap().modified().unwrap(), before);
    assert_eq!(host.put(), put);

    let cleaned = host.clean(&host.sshd.server.url(""));
    let removed = format!("removed {}\n", directory.display());
    assert_eq!(cleaned.stdout_text(), removed);
    assert!(!host.cache().exists());
    let address = host.sshd.server.address().to_string();
    let nothing = host.clean(&address);
    assert!(nothing.stderr_text().contains("nothing"), "{nothing}");
}

#[test]
fn nothing_goes_to_a_host_without_consent() {
    require!(sshd::find());
    let host = BareHost::new("");
    let refused = host.get(&[]);
    host.refused(refused, "there is no longhaul at 127.0.0.1");
    host.refused(host.get(&[]), "--ssh-install");
    assert!(!host.home.join(".cache").exists());
    // A server of other settings than those that may be asked for: doctor changes nothing.
    let mut doctor = binary::longhaul().unwrap();
    doctor.args(["doctor", "--ssh", &host.sshd.ssh]);
    doctor.arg(host.sshd.server.url(""));
    run::run(&mut doctor).unwrap().expect_failure().unwrap();
    assert!(!host.home.join(".cache").exists());
}

#[test]
fn a_question_at_the_terminal_decides() {
    require!(sshd::find());
    require!(find_installed("script"));
    let host = BareHost::new("");
    // The end of the input would be typed, too: it stays open.
    let answer = |answer: &str| {
        let helper = host.helper();
        let words = host.words(&["--ssh-helper", &helper]);
        let quoted = words.iter().map(|word| format!("'{word}'"));
        let line = quoted.collect::<Vec<_>>().join(" ");
        let program = binary::path().unwrap();
        let mut command = Command::new("script");
        command
            .arg("-qefc")
            .arg(format!("'{}' {line}", program.display()));
        command.arg("/dev/null").env("LONGHAUL_CONFIG", "off");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut typed, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(b"[y/N] ") && shown.read(&mut byte).unwrap() == 1 {
            text.push(byte[0]);
        }
        typed.write_all(answer.as_bytes()).unwrap();
        shown.read_to_end(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        let question =
            "has no longhaul: put this version (1 MB) into ~/.cache/longhaul there? [y/N]";
        assert_eq!(text.matches(question).count(), 1, "{text}");
        child.wait().unwrap().code()
    };
    assert_eq!(answer("n\n"), Some(3));
    assert!(!host.home.join(".cache").exists());
    assert_eq!(answer("y\n"), Some(0));
    assert_eq!(host.put().len(), 1);
}

#[test]
fn any_login_shell_installs_and_runs_it() {
    require!(sshd::find());
    for shell in ["dash", "bash", "rbash", "csh", "tcsh", "fish"] {
        let program = require!(find_installed(shell));
        let force = format!(
            "ForceCommand {} -c \"$SSH_ORIGINAL_COMMAND\"",
            program.display()
        );
        let host = BareHost::new(&force);
        for _ in 0..2 {
            let finished = host.get_by_helper();
            finished.expect_success().unwrap();
        }
        assert_eq!(host.put().len(), 1, "{shell}");
        let cleaned = host.clean(&host.sshd.server.url(""));
        assert!(cleaned.stdout_text().starts_with("removed "), "{cleaned}");
    }
}

#[test]
fn any_sh_runs_the_scripts() {
    require!(sshd::find());
    for shell in ["bash", "busybox", "dash"] {
        let program = require!(find_installed(shell));
        let path = |programs: &Path| {
            for name in PROGRAMS.iter().chain(&["sha256sum"]) {
                let others = find_installed(name).unwrap();
                let is_here = shell == "busybox" || *name == "sh";
                let program = if is_here { &program } else { &others };
                symlink(program, programs.join(name)).unwrap();
            }
            programs.display().to_string()
        };
        let host = BareHost::with("", &path);
        host.get_by_helper().expect_success().unwrap();
        host.get(&[]).expect_success().unwrap();
        let cleaned = host.clean(&host.sshd.server.url(""));
        assert!(cleaned.stdout_text().starts_with("removed "), "{cleaned}");
    }
}

#[test]
fn programs_that_arrive_together_become_one() {
    require!(sshd::find());
    let host = BareHost::new("");
    let helper = host.helper();
    std::thread::scope(|scope| {
        let get = || host.get(&["--ssh-install", "--ssh-helper", &helper]);
        for copy in [(); 3].map(|()| scope.spawn(get)) {
            copy.join().unwrap().expect_success().unwrap();
        }
    });
    let put = host.put();
    assert_eq!(put.len(), 1, "{put:?}");
    let files = std::fs::read_dir(&put[0]).unwrap().count();
    assert_eq!(files, 1);
}

#[test]
fn a_damaged_program_is_neither_run_nor_overwritten() {
    require!(sshd::find());
    let host = BareHost::new("");
    host.get_by_helper().expect_success().unwrap();
    let program = host.put().remove(0).join("longhaul");
    std::fs::write(&program, "").unwrap();
    host.refused(host.get(&[]), "there is no longhaul at");
    host.refused(host.get_by_helper(), "something else is at");
    assert_eq!(std::fs::read(&program).unwrap(), b"");
    assert_eq!(host.put().len(), 1);
    host.clean(&host.sshd.server.url(""));
    host.get_by_helper().expect_success().unwrap();
}

#[test]
fn a_talking_login_installs_and_runs_it() {
    require!(sshd::find());
    let noise =
        "ForceCommand echo Welcome; printf 'longhaul install 1'; sh -c \"$SSH_ORIGINAL_COMMAND\"";
    let host = BareHost::new(noise);
    host.get_by_helper().expect_success().unwrap();
}

#[test]
fn a_login_without_sh_or_commands_is_named() {
    require!(sshd::find());
    let nothing = BareHost::with("", &|programs: &Path| programs.display().to_string());
    nothing.refused(nothing.get_by_helper(), "with sh on its PATH");
    let sftp = BareHost::new("ForceCommand internal-sftp");
    let finished = sftp.get_by_helper();
    let message = copy::failure_message(&finished).unwrap_or_default();
    assert!(message.contains("may run no commands"), "{finished}");
}

#[test]
fn bytes_that_cannot_be_checked_are_neither_sent_nor_run() {
    require!(sshd::find());
    let host = BareHost::with_programs("", &[]);
    host.refused(
        host.get_by_helper(),
        "none of sha256sum, shasum and openssl",
    );
    assert_eq!(host.put(), [] as [PathBuf; 0]);

    // A disk that returns other bytes.
    let host = BareHost::with("", &|programs: &Path| {
        let wrong = programs.join("sha256sum");
        std::fs::write(&wrong, "#!/bin/sh\ncat >/dev/null\necho 00 -\n").unwrap();
        executable(&wrong);
        format!("{}:/usr/bin:/bin", programs.display())
    });
    let witness = host.store.path("has-run");
    let program = format!("#!/bin/sh\ntouch {}\n", witness.display());
    let program = path_argument(&script_at(&host.store, "stranger", &program));
    let refused = host.get(&["--ssh-install", "--ssh-helper", &program]);
    host.refused(refused, "were not run");
    assert!(!witness.exists());
    assert_eq!(host.put(), [] as [PathBuf; 0]);
}

#[test]
fn any_program_for_digests_serves() {
    require!(sshd::find());
    for digest in ["sha256sum", "shasum", "openssl"] {
        require!(find_installed(digest));
        let host = BareHost::with_programs("", &[digest]);
        host.get_by_helper().expect_success().unwrap();
    }
}

#[test]
fn only_this_version_for_that_machine_is_put_there() {
    require!(sshd::find());
    let host = BareHost::new("");
    for (text, words) in [
        ("echo longhaul 0.0.1", "is longhaul 0.0.1, and not longhaul"),
        ("exit 1", "it cannot run"),
    ] {
        let helper = script_at(&host.store, "other", &format!("#!/bin/sh\n{text}\n"));
        let helper = path_argument(&helper);
        host.refused(host.get(&["--ssh-install", "--ssh-helper", &helper]), words);
        assert_eq!(host.put(), [] as [PathBuf; 0]);
    }
    let mut foreign = std::fs::read(binary::path().unwrap()).unwrap();
    foreign.truncate(1 << 20);
    foreign[18] ^= 0xff;
    let foreign = host.store.scratch().file("foreign", &foreign).unwrap();
    let helper = path_argument(&foreign);
    let finished = host.get(&["--ssh-install", "--ssh-helper", &helper]);
    let finished = finished.expect_code(2).unwrap();
    assert!(
        finished.stdout_text().contains("no program for Linux"),
        "{finished}"
    );
}

#[test]
fn disks_that_cannot_hold_or_run_it_are_named() {
    require!(sshd::find());
    // Blocks of 512 bytes (sh) or 1 KiB (bash).
    let host = BareHost::new("ForceCommand ulimit -f 8; eval \"$SSH_ORIGINAL_COMMAND\"");
    host.refused(host.get(&["--ssh-install"]), "writing to");
    assert_eq!(host.put(), [] as [PathBuf; 0]);

    let host = BareHost::new("");
    std::fs::create_dir(host.home.join(".cache")).unwrap();
    symlink("/tmp", host.cache()).unwrap();
    host.refused(host.get_by_helper(), "is a link");
    std::fs::remove_file(host.cache()).unwrap();
    std::fs::write(host.cache(), "a file").unwrap();
    host.refused(host.get_by_helper(), "cannot be used");

    if !is_root() {
        eprintln!("SKIPPED file systems of their own: needs root");
        return;
    }
    for (options, words) in [("noexec", "noexec"), ("size=64k", "No space left")] {
        let host = BareHost::new("");
        std::fs::create_dir_all(host.cache()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "longhaul-test"]);
        if !mount.arg(host.cache()).status().unwrap().success() {
            eprintln!("SKIPPED file systems of their own: mount(8) fails");
            return;
        }
        let finished = match options {
            "noexec" => host.get_by_helper(),
            _ => host.get(&["--ssh-install"]),
        };
        let left = host.put();
        let unmounted = Command::new("umount").arg(host.cache()).status();
        assert!(unmounted.unwrap().success());
        host.refused(finished, words);
        assert_eq!(left, [] as [PathBuf; 0], "{options}");
    }
}

#[test]
fn an_installation_that_is_killed_leaves_nothing_that_runs() {
    require!(sshd::find());
    let host = BareHost::new("");
    let slow = script_at(&host.store, "slow", "#!/bin/sh\nsleep 1000\n");
    let words = host.words(&["--ssh-install", "--ssh-helper", &path_argument(&slow)]);
    let mut command = binary::longhaul().unwrap();
    command.args(words);
    let mut client = ProcessGuard::spawn(&mut command).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while host.put().is_empty() {
        assert!(std::time::Instant::now() < deadline, "nothing arrives");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    client.kill();
    host.refused(host.get(&[]), "there is no longhaul at");
    host.clean(&host.sshd.server.url(""));
    assert_eq!(host.put(), [] as [PathBuf; 0]);
}

#[test]
fn another_version_at_the_far_end_is_named() {
    require!(sshd::find());
    for (text, words) in [
        (
            "case \"$1\" in --version) echo longhaul 0.0.1;; *) echo \"error: unexpected argument\" >&2; exit 2;; esac",
            "longhaul 0.0.1 at 127.0.0.1",
        ),
        (
            "echo longhaul session 2 - - new; cat >/dev/null",
            "sessions of version 2",
        ),
    ] {
        let host = BareHost::with("", &|programs: &Path| {
            let program = programs.join("longhaul");
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            executable(&program);
            format!("{}:/usr/bin:/bin", programs.display())
        });
        let finished = host.get(&["--ssh-install"]).expect_code(8).unwrap();
        let message = copy::failure_message(&finished).unwrap_or_default();
        assert!(message.contains(words), "{message}");
        assert!(!host.home.join(".cache").exists());
    }
}

#[test]
fn a_program_that_the_user_names_is_the_one_that_runs() {
    require!(sshd::find());
    let host = BareHost::new("");
    let opt = host.home.join("opt/long haul");
    std::fs::create_dir_all(&opt).unwrap();
    symlink(binary::path().unwrap(), opt.join("longhaul")).unwrap();
    host.get(&["--ssh-program", "~/opt/long haul/longhaul"])
        .expect_success()
        .unwrap();
    let missing = host.get(&["--ssh-install", "--ssh-program", "/opt/none"]);
    host.refused(missing, "cannot run /opt/none");
    assert!(!host.home.join(".cache").exists());

    let from = host.sshd.server.url("src");
    let mut listing = binary::longhaul().unwrap();
    listing.args(["ls", "--ssh", &host.sshd.ssh, &from]);
    listing.env("LONGHAUL_SSH_PROGRAM", opt.join("longhaul"));
    run::run(&mut listing).unwrap().expect_success().unwrap();

    let settings = "[host.\"127.0.0.1\"]\nssh-program = \"~/opt/long haul/longhaul\"\n";
    let settings = host.store.scratch().file("config", settings.as_bytes());
    for verb in ["ls", "doctor"] {
        let mut of_section = binary::longhaul().unwrap();
        of_section.args([verb, "--ssh", &host.sshd.ssh, &from]);
        of_section.env("LONGHAUL_CONFIG", settings.as_ref().unwrap());
        let finished = run::run(&mut of_section).unwrap();
        assert!(
            !finished.stdout_text().contains("no longhaul"),
            "{finished}"
        );
        if verb == "ls" {
            finished.expect_success().unwrap();
        }
    }
}

#[test]
fn cleaning_removes_its_own_layout_only_and_follows_no_link() {
    require!(sshd::find());
    let host = BareHost::new("");
    host.get_by_helper().expect_success().unwrap();
    let own = host.put().remove(0);
    let elsewhere = host.store.scratch().folder("elsewhere").unwrap();
    let precious = elsewhere.join("longhaul");
    std::fs::write(&precious, "precious").unwrap();
    let cache = host.cache();
    let name = |digit: &str| cache.join(format!("9.9.9-Linux-x86_64-{}", digit.repeat(16)));
    symlink(&elsewhere, name("a")).unwrap();
    std::fs::create_dir(name("b")).unwrap();
    symlink(&precious, name("b").join("longhaul")).unwrap();
    std::fs::create_dir(name("c")).unwrap();
    std::fs::write(name("c").join("notes"), "mine").unwrap();
    std::fs::create_dir(cache.join("mine")).unwrap();
    std::fs::write(cache.join("mine/longhaul"), "mine").unwrap();
    std::fs::create_dir(cache.join("new-0123456789abcdef")).unwrap();
    let cleaned = host.clean(&host.sshd.server.url(""));
    let removed = format!(
        "removed {}\nremoved {}\n",
        own.display(),
        cache.join("new-0123456789abcdef").display()
    );
    assert_eq!(cleaned.stdout_text(), removed);
    for kept in [name("a"), name("b"), name("c")] {
        assert!(kept.symlink_metadata().is_ok(), "{}", kept.display());
        let line = format!("{} stays", kept.display());
        assert!(cleaned.stderr_text().contains(&line), "{cleaned}");
    }
    assert!(cache.join("mine/longhaul").exists());
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
}
