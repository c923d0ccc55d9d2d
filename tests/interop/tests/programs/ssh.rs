//! `ssh:` URLs with OpenSSH: files and trees, refused logins, hosts without longhaul, logins that talk.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::TestStore;
use interop::peer::sshd::{self, Sshd};
use interop::process::ProcessGuard;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;
use interop::tree::TestTree;

fn get(sshd: &Sshd, ssh: &str, to: &std::path::Path) -> FinishedProgram {
    let name = test_files::name(test_files::SIZES[1]);
    let from = sshd.server.url(&format!("src/{name}"));
    copy::run(&["--ssh", ssh, "--retries", "0", &from, &path_argument(to)]).unwrap()
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

#[test]
fn what_a_login_prints_is_passed_over() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let banner = store
        .scratch()
        .file("banner", b"Welcome to the host\n220 no server\n")
        .unwrap();
    let folder = store.scratch().folder("talking").unwrap();
    let program = interop::longhaul::binary::path().unwrap();
    let talking = format!(
        "#!/bin/sh\nprintf 'Message of the day\\r\\n220 ready\\n'\nprintf 'no end of line'\nexec {} \"$@\"\n",
        program.display()
    );
    let script = store
        .scratch()
        .file("talking/longhaul", talking.as_bytes())
        .unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, executable).unwrap();
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
        let tree = TestTree::generate(300, interop::tree::ASCII);
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
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap();
    let name = test_files::name(test_files::LARGE);
    let from = sshd.server.url(&format!("src/{name}"));
    let to = path_argument(&store.local());
    let slowly = ["--ssh", &sshd.ssh, "--limit-rate", "1M", &from, &to];
    let mut client =
        ProcessGuard::spawn(copy::command(&slowly).unwrap().stdout(Stdio::null())).unwrap();
    wait_until("a far end", || !sshd.far_ends().is_empty());
    client.kill();
    wait_until("no far end", || sshd.far_ends().is_empty());
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
    let finished = interop::run::run(&mut command)
        .unwrap()
        .expect_code(5)
        .unwrap();
    let message = copy::failure_message(&finished).unwrap();
    assert!(
        message.contains("has not logged in within 2 s"),
        "{message}"
    );
}

/// A process whose command line begins so.
fn process_named(beginning: &str) -> Option<rustix::process::Pid> {
    let processes = std::fs::read_dir("/proc").unwrap();
    processes.flatten().find_map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let pid = process.file_name().to_str()?.parse().ok()?;
        line.starts_with(beginning.as_bytes())
            .then(|| rustix::process::Pid::from_raw(pid))?
    })
}

pub(crate) fn wait_until(condition: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {condition}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
