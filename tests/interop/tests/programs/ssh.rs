//! `ssh:` URLs with OpenSSH: files and trees, refused logins, hosts without longhaul, logins that talk.

use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::TestStore;
use interop::peer::sshd::{self, Sshd};
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
    let sshd = sshd::start_for(&store, "", &nothing).unwrap();
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
    let sshd = sshd::start(&store, "ForceCommand internal-sftp").unwrap();
    let finished = get(&sshd, &sshd.ssh, &store.local());
    let message = copy::failure_message(&finished).unwrap_or_default();
    assert!(message.contains("may run no commands"), "{finished}");
}
