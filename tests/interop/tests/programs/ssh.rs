//! `ssh:` URLs with OpenSSH: files and trees, refused logins, hosts without longhaul, logins that talk.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::TestStore;
use interop::peer::sshd::{self, Sshd};
use interop::process::ProcessGuard;
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;
use interop::tree::TestTree;

fn get(sshd: &Sshd, ssh: &str, to: &Path) -> FinishedProgram {
    let name = test_files::name(test_files::SIZES[1]);
    let from = sshd.server.url(&format!("src/{name}"));
    copy::run(&["--ssh", ssh, "--retries", "0", &from, &path_argument(to)]).unwrap()
}

/// A program for logins to find, or to log in with: a shell script. `{longhaul}` stands for the build's program.
fn script(store: &TestStore, name: &str, text: &str) -> std::path::PathBuf {
    let program = interop::longhaul::binary::path().unwrap();
    let text = text.replace("{longhaul}", &program.display().to_string());
    let text = format!("#!/bin/sh\n{text}\n");
    let script = store.scratch().file(name, text.as_bytes()).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    script
}

/// The folder of a program `longhaul` for logins to find.
pub(crate) fn far_end(store: &TestStore, folder: &str, text: &str) -> std::path::PathBuf {
    let folder_path = store.scratch().folder(folder).unwrap();
    script(store, &format!("{folder}/longhaul"), text);
    folder_path
}

#[test]
fn files_and_trees_pass_beside_ssh() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap();
    let target = ServerUnderTest::new(&store, &sshd.server);
    let mut cells = MatrixRow::new("longhaul cp, ssh");
    let options = ["--ssh", &sshd.ssh];
    rows::get_and_put(&mut cells, &target, &options, &test_files::SIZES);
    let streams = ["--ssh", &sshd.ssh, "-p", "4"];
    rows::get_and_put(&mut cells, &target, &streams, &test_files::SMALL);
    rows::parts(&mut cells, &target, &options);
    let tree = TestTree::generate(200, interop::tree::ASCII);
    rows::trees(&mut cells, &target, &tree, &options);
    cells.finish();
}

#[test]
fn data_beside_ssh_is_private() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap();
    let finished = get(&sshd, &sshd.ssh, &store.local());
    let text = finished.expect_success().unwrap().stdout_text();
    assert!(
        text.contains("ssh, data private by a credential of this run"),
        "{text}"
    );
}

/// A server whose ports cannot be reached: its sessions take the connection for one from elsewhere, to an address that only the
/// far end itself has.
pub(crate) fn start_closed(store: &TestStore, further: &str) -> Sshd {
    let text = "SSH_CONNECTION='192.0.2.1 4711 127.0.0.5 22'\nexport SSH_CONNECTION\nexec {longhaul} \"$@\"";
    let folder = far_end(store, "closed", text);
    sshd::start_for(store, further, &folder).unwrap()
}

/// A host without open ports is remembered, so that the next run does not wait for one.
#[test]
fn closed_ports_are_remembered() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start_closed(&store, "");
    let history = store.root().join("paths.json");
    for _ in 0..2 {
        let mut list = longhaul().unwrap();
        list.env("LONGHAUL_HISTORY", &history);
        list.args(["ls", "--ssh", &sshd.ssh, &sshd.server.url("src")]);
        run::run(&mut list).unwrap().expect_success().unwrap();
        let known = std::fs::read_to_string(&history).unwrap();
        assert_eq!(known.matches("\"port\"").count(), 1, "{known}");
        assert!(known.contains("\"closed\""), "{known}");
    }
}

#[test]
fn everything_passes_through_ssh_where_no_port_can_be_reached() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start_closed(&store, "");
    let finished = get(&sshd, &sshd.ssh, &store.local());
    let text = finished.expect_success().unwrap().stdout_text();
    assert!(text.contains("ssh, all through it, data private"), "{text}");
    let target = ServerUnderTest::new(&store, &sshd.server);
    let mut cells = MatrixRow::new("longhaul cp, all through ssh");
    let options = ["--ssh", &sshd.ssh];
    rows::get_and_put(&mut cells, &target, &options, &test_files::FEW_SIZES);
    let shown = ["--ssh", &sshd.ssh, "--data-protection", "authenticated"];
    rows::get_and_put(&mut cells, &target, &shown, &[65_535]);
    rows::parts(&mut cells, &target, &options);
    let tree = TestTree::generate(60, interop::tree::ASCII);
    rows::trees(&mut cells, &target, &tree, &options);
    cells.finish();
}

#[test]
fn streams_through_ssh_have_logins_of_their_own_unless_these_are_refused() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start_closed(&store, "");
    let from = path_argument(&test_files::shared(test_files::LARGE).unwrap());
    let put = |ssh: &str, to: &str| {
        let to = sshd.server.url(to);
        let finished = copy::run(&["--ssh", ssh, "-p", "4", &from, &to]).unwrap();
        let text = finished.expect_success().unwrap().stdout_text();
        assert!(text.contains("\"streams_max\":4"), "{text}");
    };
    put(&sshd.ssh, "four");
    // The shared login, and one for each stream but the first.
    assert_eq!(sshd.logins(), 4);
    // A program that logs in over the first connection alone, as with a password of one use.
    let once = format!(
        "case \"$*\" in *ControlPath=*/1.[0-9]*) echo 'Permission denied' >&2; exit 255;; esac\nexec {} \"$@\"",
        sshd.ssh
    );
    let once = script(&store, "once", &once);
    let to = sshd.server.url("once");
    let finished = copy::run(&["--ssh", &path_argument(&once), "-p", "4", &from, &to]).unwrap();
    finished.expect_success().unwrap();
    assert_eq!(sshd.logins(), 5);
    for copy in ["four", "once"] {
        test_files::ensure_same(
            &test_files::shared(test_files::LARGE).unwrap(),
            &store.path(copy),
        )
        .unwrap();
    }
}

#[test]
fn a_stranger_at_the_data_port_stops_nothing() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let port = interop::net::free_port().unwrap();
    let text = format!("exec {{longhaul}} \"$@\" --data-ports {port}-{port}");
    let folder = far_end(&store, "one-port", &text);
    let sshd = sshd::start_for(&store, "", &folder).unwrap();
    let (is_over, strangers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let copies = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let Ok(mut stranger) = TcpStream::connect((interop::net::HOST, port)) else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                strangers.fetch_add(1, Ordering::SeqCst);
                // It says nothing, and waits for what comes.
                let mut got = Vec::new();
                let _ = stranger.read_to_end(&mut got);
                // The search for open ports shows its 16 digits to whoever comes.
                let is_probe = got.len() == 16 && got.iter().all(u8::is_ascii_hexdigit);
                assert!(got.is_empty() || is_probe, "a stranger got {got:?}");
            }
        });
        let copies: Vec<FinishedProgram> = (0..5)
            .map(|n| get(&sshd, &sshd.ssh, &store.path(&format!("copy{n}"))))
            .collect();
        is_over.store(true, Ordering::SeqCst);
        copies
    });
    for copy in copies {
        copy.expect_success().unwrap();
    }
    assert!(strangers.into_inner() > 0);
}

#[test]
fn what_a_login_prints_is_passed_over() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let banner = store
        .scratch()
        .file("banner", b"Welcome to the host\n220 no server\n")
        .unwrap();
    let text = "printf 'Message of the day\\r\\n220 ready\\n'\nprintf 'no end of line'\nexec {longhaul} \"$@\"";
    let folder = far_end(&store, "talking", text);
    let further = format!("Banner {}", banner.display());
    let sshd = sshd::start_for(&store, &further, &folder).unwrap();
    get(&sshd, &sshd.ssh, &store.local())
        .expect_success()
        .unwrap();
}

#[test]
fn failures_say_what_is_missing() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let nothing = store.scratch().folder("nothing").unwrap();
    let sshd = sshd::start_for(&store, sshd::NO_SFTP, &nothing).unwrap();
    let expect = |ssh: &str, code: i32, words: &str| {
        let finished = get(&sshd, ssh, &store.local());
        let finished = finished.expect_code(code).unwrap();
        let message = copy::failure_message(&finished).unwrap_or_default();
        assert!(message.contains(words), "{message}");
    };
    expect(&sshd.ssh, 3, "there is no longhaul at 127.0.0.1");
    expect(
        "ssh -F /dev/null -oBatchMode=yes -oStrictHostKeyChecking=yes",
        3,
        "Host key verification failed",
    );
    let no_key = format!(
        "{} -oIdentityFile=/dev/null",
        sshd.ssh.replace("-F", "-oPubkeyAuthentication=no -F")
    );
    expect(&no_key, 3, "Permission denied");
    let nobody = format!("{} -oProxyCommand=false", sshd.ssh);
    expect(&nobody, 5, "ssh cannot reach");
    expect("/nonexistent/ssh", 7, "there is no program");
}

#[test]
fn logins_without_commands_are_named() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let only_one = format!("{}\nForceCommand true", sshd::NO_SFTP);
    let sshd = sshd::start(&store, &only_one).unwrap();
    let finished = get(&sshd, &sshd.ssh, &store.local());
    let message = copy::failure_message(&finished).unwrap_or_default();
    assert!(message.contains("may run no commands"), "{finished}");
}

#[test]
fn one_login_serves_all_sessions_of_a_command() {
    require!(sshd::find());
    for (settings, sessions) in [("", "4"), ("MaxSessions 2", "4")] {
        let store = TestStore::new().unwrap();
        let sshd = sshd::start(&store, settings).unwrap();
        let target = ServerUnderTest::new(&store, &sshd.server);
        let tree = TestTree::generate(150, interop::tree::ASCII);
        let mut cells = MatrixRow::new(format!("longhaul cp -r, ssh {settings}"));
        // Session by session: bundles would need few.
        let options = [
            "--ssh",
            &sshd.ssh,
            "--concurrency",
            sessions,
            "--verify",
            "sha256",
        ];
        rows::trees(&mut cells, &target, &tree, &options);
        cells.finish();
        let commands = 2;
        assert_eq!(sshd.logins(), commands, "{}", sshd.server.log());
    }
}

#[test]
fn between_two_accounts_the_data_goes_directly() {
    require!(sshd::find());
    let [from, to] = [(); 2].map(|()| TestStore::new().unwrap());
    let first = sshd::start(&from, "").unwrap();
    let second = sshd::start_beside(&first, &to).unwrap();
    let name = test_files::name(test_files::LARGE);
    let (source, destination) = (
        first.server.url(&format!("src/{name}")),
        second.server.url("copy"),
    );
    let finished = copy::run(&["--ssh", &first.ssh, &source, &destination]).unwrap();
    let finished = finished.expect_success().unwrap();
    assert_eq!(copy::warnings(&finished), Vec::<String>::new());
    let shared = test_files::shared(test_files::LARGE).unwrap();
    test_files::ensure_same(&shared, &to.path("copy")).unwrap();
}

#[test]
fn between_accounts_without_open_ports_the_data_is_relayed_and_that_is_said() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start_closed(&store, "");
    let name = test_files::name(test_files::SIZES[2]);
    let source = sshd.server.url(&format!("src/{name}"));
    let destination = sshd.server.url("copy");
    let finished =
        copy::run(&["--ssh", &sshd.ssh, "--retries", "0", &source, &destination]).unwrap();
    let finished = finished.expect_success().unwrap();
    let warnings = copy::warnings(&finished).join("\n");
    assert!(
        warnings.contains("passes through this machine"),
        "{warnings}"
    );
    let original = test_files::shared(test_files::SIZES[2]).unwrap();
    test_files::ensure_same(&original, &store.path("copy")).unwrap();
}

#[test]
fn sessions_of_two_hosts_stay_apart() {
    require!(sshd::find());
    let [from, to] = [(); 2].map(|()| TestStore::new().unwrap());
    let first = sshd::start(&from, "").unwrap();
    let second = sshd::start_beside(&first, &to).unwrap();
    let tree = TestTree::generate(200, interop::tree::ASCII);
    from.add_tree("tree", &tree).unwrap();
    let (source, destination) = (first.server.url("src/tree"), second.server.url("copy"));
    let options = [
        "-r",
        "--ssh",
        &first.ssh,
        "--concurrency",
        "4",
        "--verify",
        "sha256",
    ];
    copy::cp(&[&options[..], &[&source, &destination]].concat()).unwrap();
    tree.ensure_same_as(&to.path("copy")).unwrap();
    assert_eq!([first.logins(), second.logins()], [1, 1]);
}

#[test]
fn nothing_stays_at_the_far_end_after_a_kill() {
    require!(sshd::find());
    for is_closed in [false, true] {
        let store = TestStore::new().unwrap();
        // Through ssh, its data connection has one, too.
        let (sshd, least) = match is_closed {
            false => (sshd::start(&store, "").unwrap(), 1),
            true => (start_closed(&store, ""), 2),
        };
        let name = test_files::name(test_files::LARGE);
        let from = sshd.server.url(&format!("src/{name}"));
        let to = path_argument(&store.local());
        let slowly = ["--ssh", &sshd.ssh, "--limit-rate", "1M", &from, &to];
        let mut client =
            ProcessGuard::spawn(copy::command(&slowly).unwrap().stdout(Stdio::null())).unwrap();
        wait_until("a far end", || sshd.far_ends().len() >= least);
        client.kill();
        wait_until("no far end", || sshd.far_ends().is_empty());
    }
}

#[test]
fn a_copy_goes_on_after_its_shared_login_is_killed() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap();
    let name = test_files::name(test_files::LARGE);
    let from = sshd.server.url(&format!("src/{name}"));
    let to = store.local();
    let slowly = [
        "--ssh",
        &sshd.ssh,
        "--limit-rate",
        "80M",
        &from,
        &path_argument(&to),
    ];
    // The sockets of this command alone are there.
    let sockets = tempfile::tempdir().unwrap();
    let mut command = copy::command(&slowly).unwrap();
    command.env("XDG_RUNTIME_DIR", sockets.path());
    let mut client = ProcessGuard::spawn(command.stdout(Stdio::null())).unwrap();
    let login = format!("ssh: {}/", sockets.path().display());
    wait_until("a login and bytes", || {
        let partial = to.with_file_name(format!(
            "{}.longhaul-partial",
            to.file_name().unwrap().display()
        ));
        process_named(&login).is_some() && partial.metadata().is_ok_and(|file| file.len() > 0)
    });
    let login = process_named(&login).unwrap();
    rustix::process::kill_process(login, rustix::process::Signal::KILL).unwrap();
    let status = client.wait(Duration::from_secs(120)).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    test_files::ensure_same(&test_files::shared(test_files::LARGE).unwrap(), &to).unwrap();
    assert_eq!(sshd.logins(), 2);
}

#[test]
fn a_far_end_that_stays_silent_is_given_up() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "ForceCommand sleep 1000").unwrap();
    let program = interop::longhaul::binary::path().unwrap();
    let from = sshd.server.url("src/a");
    // Without a terminal, at which somebody could be asked for something.
    let mut command = Command::new("setsid");
    command.args(["--wait".as_ref(), program.as_os_str()]);
    command.args([
        "cp",
        "--json",
        "--timeout",
        "2",
        "--retries",
        "0",
        "--ssh",
        &sshd.ssh,
    ]);
    command.args([&from, &path_argument(&store.local())]);
    let finished = run::run(&mut command).unwrap().expect_code(5).unwrap();
    let message = copy::failure_message(&finished).unwrap();
    assert!(
        message.contains("has not logged in within 2 s"),
        "{message}"
    );
}

/// A process whose command line begins so.
fn process_named(beginning: &str) -> Option<rustix::process::Pid> {
    let (_, pid) = processes_named(beginning).pop()?;
    rustix::process::Pid::from_raw(pid)
}

/// Processes whose command lines begin so, with these.
pub(crate) fn processes_named(beginning: &str) -> Vec<(String, i32)> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let named = processes.flatten().filter_map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let pid = process.file_name().to_str()?.parse().ok()?;
        line.starts_with(beginning).then_some((line, pid))
    });
    named.collect()
}

pub(crate) fn wait_until(condition: &str, holds: impl Fn() -> bool) {
    wait_until_said(condition, None, holds);
}

/// The same; what a program has said until then, which is in this file, is shown if it does not become true.
pub(crate) fn wait_until_said(condition: &str, said: Option<&Path>, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() >= deadline {
            let said = said.map(|file| std::fs::read_to_string(file).unwrap_or_default());
            panic!(
                "waited for {condition}; the program said: {}",
                said.unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
