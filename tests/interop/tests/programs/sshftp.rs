//! `sshftp:` URLs: `longhaul` with globus-gridftp-server, and globus-url-copy with `longhaul serve --sshftp`, through OpenSSH.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::{self, TestStore};
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::peer::sshd::{self, Sshd};
use interop::peer::{globus_gridftp_server as globus, is_root};
use interop::pki::environment::GridEnvironment;
use interop::run::{self, FinishedProgram};
use interop::tree::TestTree;
use interop::{longhaul, require, test_files};

/// Lets a client of sshftp: choose the far end's server.
const REMOTE_PROGRAM: &str = "GLOBUS_REMOTE_SSHFTP";

fn start(store: &TestStore) -> Sshd {
    let mut sshd = sshd::start(store, "").unwrap();
    sshd.server = sshd.server.scheme("sshftp");
    sshd
}

fn executable(store: &TestStore, name: &str, content: &str) -> PathBuf {
    let file = store.scratch().file(name, content.as_bytes()).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

/// The script of globus-gridftp-server-enable-sshftp, which as root needs leave to serve root.
fn globus_script(store: &TestStore) -> PathBuf {
    let server = globus::find().unwrap();
    let root = match is_root() {
        true => " -anonymous-user root -allow-root",
        false => "",
    };
    let content = format!("#!/bin/sh\nexec {} -ssh{root}\n", server.display());
    executable(store, "globus-sshftp", &content)
}

/// The script that longhaul prints.
fn longhaul_script(store: &TestStore) -> PathBuf {
    let mut command = Command::new(longhaul::binary::path().unwrap());
    command.args(["serve", "--sshftp-script"]);
    let printed = run::run(&mut command).unwrap().expect_success().unwrap();
    executable(store, "longhaul-sshftp", &printed.stdout_text())
}

fn environment(script: PathBuf) -> GridEnvironment {
    GridEnvironment::default().with(REMOTE_PROGRAM, script)
}

/// A command of longhaul other than `cp`.
fn verb(sshd: &Sshd, script: PathBuf, arguments: &[&str]) -> FinishedProgram {
    let mut command = Command::new(longhaul::binary::path().unwrap());
    environment(script).apply(&mut command);
    let (verb, rest) = arguments.split_first().unwrap();
    command.args([verb, "--ssh", &sshd.ssh]).args(rest);
    run::run(&mut command).unwrap()
}

#[test]
fn sshftp_longhaul_transfers_files_and_trees_with_globus_gridftp_server() {
    require!(sshd::find());
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let sshd = start(&store);
    let environment = environment(globus_script(&store));
    let target = ServerUnderTest::new(&store, &sshd.server).with(&environment);
    let mut cells = MatrixRow::new("longhaul cp, sshftp");
    let clear = ["--ssh", &sshd.ssh, "--data-protection", "clear"];
    let parallel = [&clear[..], &["-p", "4"]].concat();
    rows::get_and_put(&mut cells, &target, &clear, &test_files::FEW_SIZES);
    rows::get_and_put(&mut cells, &target, &parallel, &[65_536]);
    rows::parts(&mut cells, &target, &clear);
    rows::resume_after_kill(&mut cells, &target, &parallel);
    let tree = TestTree::generate(60, interop::tree::ASCII);
    rows::trees(&mut cells, &target, &tree, &clear);
    cells.check("third party", || {
        let from = sshd
            .server
            .url(&format!("src/{}", test_files::name(test_files::LARGE)));
        let (served, to) = (store.path("third"), sshd.server.url("third"));
        copy::cp_in(&environment, &[&clear[..], &[&from, &to]].concat())?;
        matrix::check_and_remove(&test_files::shared(test_files::LARGE)?, &served)
    });
    cells.finish();
}

#[test]
fn sshftp_data_is_refused_unless_clear_data_is_allowed() {
    require!(sshd::find());
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let sshd = start(&store);
    let environment = environment(globus_script(&store));
    let from = sshd
        .server
        .url(&format!("src/{}", test_files::name(test_files::SIZES[1])));
    let to = store.local();
    for (choice, code) in [("auto", 3), ("private", 2)] {
        let to = path_argument(&to);
        let options = ["--ssh", &sshd.ssh, "--data-protection", choice, &from, &to];
        let finished = copy::run_in(&environment, &options).unwrap();
        let finished = finished.expect_code(code).unwrap();
        assert!(finished.to_string().contains("ssh:"), "{finished}");
    }
    assert!(!to.exists());
    // Its commands need no data connection.
    let script = globus_script(&store);
    verb(&sshd, script, &["stat", &from])
        .expect_success()
        .unwrap();
}

#[test]
fn sshftp_hosts_without_a_server_are_named() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start(&store);
    let script = executable(&store, "none", "#!/bin/sh\nprintf '500 no server\\r\\n'\n");
    let url = sshd.server.url("src");
    let finished = verb(&sshd, script, &["stat", &url]).expect_code(5).unwrap();
    assert!(finished.stderr_text().contains("no server"), "{finished}");
}

#[test]
fn sshftp_globus_url_copy_transfers_files_with_longhaul() {
    require!(sshd::find());
    let client = require!(GlobusUrlCopy::find());
    require!(interop::tiny_disk::is_supported());
    let store = TestStore::new().unwrap();
    let sshd = start(&store);
    let environment = environment(longhaul_script(&store));
    let client = client.with(environment).through(&sshd.ssh, &store).unwrap();
    let own = nix::unistd::User::from_uid(nix::unistd::getuid())
        .unwrap()
        .unwrap();
    let url = |served: &str| {
        let user = format!("sshftp://{}@", own.name);
        sshd.server.url(served).replace("sshftp://", &user)
    };
    let mut cells = MatrixRow::new("globus-url-copy, longhaul serve --sshftp");
    for options in [&[][..], &["-p", "4"], &["-fast", "-p", "2"]] {
        matrix::get(&mut cells, &store, &test_files::FEW_SIZES, |served, to| {
            client.copy(options, &url(served), &file_url(to)).map(drop)
        });
        matrix::put(
            &mut cells,
            &store,
            &test_files::FEW_SIZES,
            |from, served| {
                client
                    .copy(options, &file_url(from), &url(served))
                    .map(drop)
            },
        );
        cells.check(format!("third party {}", options.join(" ")), || {
            let from = url(&format!("src/{}", test_files::name(test_files::LARGE)));
            client.copy(options, &from, &url("third"))?;
            matrix::check_and_remove(
                &test_files::shared(test_files::LARGE)?,
                &store.path("third"),
            )
        });
    }
    cells.finish();
}

#[test]
fn the_home_directory_of_a_user_is_found() {
    require!(sshd::find());
    let store = TestStore::new().unwrap();
    let sshd = start(&store);
    // A user of every system, whose home everybody may list.
    let home = nix::unistd::User::from_name("bin").unwrap().unwrap().dir;
    let expected = std::fs::read_dir(&home).unwrap().count();
    let script = longhaul_script(&store);
    for scheme in ["ssh", "sshftp"] {
        let url = sshd
            .server
            .url_with(scheme, "")
            .replace(&store.root().display().to_string(), "");
        let home = format!("{}/~bin/", url.trim_end_matches('/'));
        let listing = ["ls", "--data-protection", "clear", &home];
        let listed = verb(&sshd, script.clone(), &listing)
            .expect_success()
            .unwrap();
        assert_eq!(listed.stdout_text().lines().count(), expected, "{listed}");
        let nobody = home.replace("~bin", "~no-such-user");
        let missing = verb(&sshd, script.clone(), &["stat", &nobody]);
        let missing = missing.expect_code(4).unwrap();
        assert!(missing.stderr_text().contains("no such user"), "{missing}");
        let kept = verb(&sshd, script.clone(), &["rm", &home]);
        kept.expect_code(2).unwrap();
    }
}
