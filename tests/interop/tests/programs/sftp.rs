//! `sftp:` URLs, and `ssh:` URLs of accounts that run no programs, with OpenSSH and proftpd.

use std::process::Stdio;

use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::TestStore;
use interop::peer::PeerServer;
use interop::peer::proftpd;
use interop::peer::sshd::{self, Sshd};
use interop::require;
use interop::run;
use interop::test_files;
use interop::tree::{ASCII, TestTree, UNICODE};

#[test]
fn files_and_trees_pass_by_sftp() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap().by_sftp();
    let target = ServerUnderTest::new(&store, &sshd.server);
    let mut cells = MatrixRow::new("longhaul cp, sftp");
    let options = ["--ssh", &sshd.ssh];
    rows::get_and_put(&mut cells, &target, &options, &test_files::FEW_SIZES);
    let streams = ["--ssh", &sshd.ssh, "-p", "3"];
    rows::get_and_put(&mut cells, &target, &streams, &[test_files::LARGE]);
    rows::parts(&mut cells, &target, &options);
    rows::resume_after_kill(&mut cells, &target, &options);
    let tree = TestTree::generate(100, &[ASCII, UNICODE].concat());
    rows::trees(&mut cells, &target, &tree, &options);
    cells.finish();
}

fn verb(server: &PeerServer, ssh: &str, verb: &[&str], paths: &[&str]) -> String {
    let urls = paths.iter().map(|path| server.url(path));
    let mut command = longhaul().unwrap();
    command.args(verb).args(["--ssh", ssh]).args(urls);
    let finished = run::run(&mut command).unwrap().expect_success().unwrap();
    finished.stdout_text()
}

#[test]
fn all_verbs_work_by_sftp() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap().by_sftp();
    let verb = |name: &[&str], paths: &[&str]| verb(&sshd.server, &sshd.ssh, name, paths);
    verb(&["mkdir", "-p"], &["up/a/b"]);
    std::fs::write(store.path("up/a/file"), "old").unwrap();
    std::fs::write(store.path("up/a/new"), "new").unwrap();
    std::os::unix::fs::symlink("../src", store.path("up/a/link")).unwrap();
    verb(&["mv"], &["up/a/new", "up/a/b/file"]);
    assert!(verb(&["ls"], &["up/a"]).contains("link"));
    assert!(verb(&["stat"], &["up/a/b/file"]).contains('3'));
    let local = store.local();
    std::fs::create_dir(&local).unwrap();
    std::fs::write(local.join("file"), "other").unwrap();
    let to = sshd.server.url("up/a");
    let sync = [
        "sync",
        "--delete",
        "--ssh",
        &sshd.ssh,
        &path_argument(&local),
        &to,
    ];
    let mut command = longhaul().unwrap();
    run::run(command.args(sync))
        .unwrap()
        .expect_success()
        .unwrap();
    assert_eq!(std::fs::read(store.path("up/a/file")).unwrap(), b"other");
    assert!(!store.path("up/a/b").exists());
    verb(&["rm", "-r"], &["up/a"]);
    assert!(!store.path("up/a").exists() && store.path("src").exists());
    let said = verb(&["doctor"], &[""]);
    assert!(
        said.contains("SFTP") && said.contains("computes none"),
        "{said}"
    );
}

fn has_gone_on(finished: &run::FinishedProgram) -> usize {
    let warnings = copy::warnings(finished);
    let about = warnings
        .iter()
        .filter(|text| text.contains("going on by SFTP"));
    about.count()
}

fn goes_on_by_sftp(store: &TestStore, sshd: &Sshd) {
    let tree = TestTree::generate(60, ASCII);
    store.add_tree("tree", &tree).unwrap();
    let (from, to) = (sshd.server.url("src/tree"), store.local());
    let local = path_argument(&to);
    let arguments = [
        "-r",
        "--ssh",
        &sshd.ssh,
        "--concurrency",
        "3",
        &from,
        &local,
    ];
    let finished = copy::run(&arguments).unwrap().expect_success().unwrap();
    assert_eq!(has_gone_on(&finished), 1, "{finished}");
    tree.ensure_same_as(&to).unwrap();
    let served = sshd.server.url(&store.upload());
    let put = copy::run(&["-r", "--ssh", &sshd.ssh, &local, &served]).unwrap();
    assert_eq!(has_gone_on(&put.expect_success().unwrap()), 1);
}

#[test]
fn an_account_without_programs_is_reached_by_sftp() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let confined = match interop::peer::is_root() {
        true => "ForceCommand internal-sftp\nChrootDirectory /",
        false => "ForceCommand internal-sftp",
    };
    let sshd = sshd::start(&store, confined).unwrap();
    goes_on_by_sftp(&store, &sshd);
}

#[test]
fn a_host_without_longhaul_is_reached_by_sftp() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let nothing = store.scratch().folder("nothing").unwrap();
    let sshd = sshd::start_for(&store, "", &nothing).unwrap();
    goes_on_by_sftp(&store, &sshd);
}

#[test]
fn where_there_is_neither_the_first_failure_is_shown() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let nothing = store.scratch().folder("nothing").unwrap();
    let sshd = sshd::start_for(&store, sshd::NO_SFTP, &nothing).unwrap();
    for (url, words) in [
        (sshd.server.url("src/x"), "there is no longhaul at"),
        (
            sshd.server.url_with("sftp", "src/x"),
            "there is no subsystem sftp at",
        ),
    ] {
        let to = path_argument(&store.local());
        let finished = copy::run(&["--ssh", &sshd.ssh, "--retries", "0", &url, &to]).unwrap();
        let finished = finished.expect_code(3).unwrap();
        let message = copy::failure_message(&finished).unwrap_or_default();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn proftpd_proves_copies_by_checksums() {
    require!(sshd::find());
    require!(proftpd::find());
    require!(proftpd::find_tls());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap();
    let server = proftpd::start_with_sftp(&store, &sshd).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let mut cells = MatrixRow::new("longhaul cp, sftp of proftpd");
    let options = ["--ssh", &sshd.ssh, "--verify", "sha256"];
    rows::get_and_put(&mut cells, &target, &options, &test_files::SMALL);
    // Several sessions: this server mixes those of one connection.
    let tree = TestTree::generate(60, ASCII);
    rows::trees(
        &mut cells,
        &target,
        &tree,
        &["--ssh", &sshd.ssh, "--concurrency", "4"],
    );
    cells.finish();
}

#[test]
fn a_copy_by_sftp_goes_on_after_its_server_is_lost() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap().by_sftp();
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
    let mut command = copy::command(&slowly).unwrap();
    let mut client = interop::process::ProcessGuard::spawn(command.stdout(Stdio::null())).unwrap();
    let partial = to.with_file_name(format!(
        "{}.longhaul-partial",
        to.file_name().unwrap().display()
    ));
    super::ssh::wait_until("bytes", || {
        partial.metadata().is_ok_and(|file| file.len() > 1_000_000)
    });
    for pid in sshd.sessions() {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            // One that has ended meanwhile is as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    let status = client.wait(std::time::Duration::from_secs(120)).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    test_files::ensure_same(&test_files::shared(test_files::LARGE).unwrap(), &to).unwrap();
    assert!(sshd.logins() >= 2);
}

/// The attempt is the only one, so it goes on over what is left.
#[test]
fn a_copy_by_sftp_goes_on_over_the_connections_that_are_left() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = sshd::start(&store, "").unwrap().by_sftp();
    let large = test_files::shared(test_files::LARGE).unwrap();
    let name = test_files::name(test_files::LARGE);
    let upload = store.upload();
    let (here, there) = (store.local(), store.path(&upload));
    let puts = sshd.server.url(&upload);
    let gets = sshd.server.url(&format!("src/{name}"));
    for (from, to, at) in [
        (gets, path_argument(&here), &here),
        (path_argument(&large), puts, &there),
    ] {
        let before = sshd.logins();
        let slowly = [
            "--ssh",
            &sshd.ssh,
            "--limit-rate",
            "80M",
            "-p",
            "3",
            "--retries",
            "0",
            &from,
            &to,
        ];
        let mut command = copy::command(&slowly).unwrap();
        let client = interop::process::ProcessGuard::spawn(command.stdout(Stdio::null()));
        let mut client = client.unwrap();
        super::ssh::wait_until("connections", || sshd.logins() >= before + 3);
        let partial = at.with_file_name(format!(
            "{}.longhaul-partial",
            at.file_name().unwrap().display()
        ));
        super::ssh::wait_until("bytes", || {
            partial.metadata().is_ok_and(|file| file.len() > 1_000_000)
        });
        let last = sshd.sessions().into_iter().max();
        let last = rustix::process::Pid::from_raw(last.unwrap()).unwrap();
        rustix::process::kill_process(last, rustix::process::Signal::KILL).unwrap();
        let status = client.wait(std::time::Duration::from_secs(120)).unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{from}");
        test_files::ensure_same(&large, at).unwrap();
    }
}
