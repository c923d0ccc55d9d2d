//! Exit codes of `longhaul cp`, and invalid input.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, PASSWORD, ServeCommand, USER, add_user};
use interop::matrix::{self, TestStore};
use interop::net;
use interop::run::FinishedProgram;
use interop::test_files;

fn fixture() -> (TestStore, LonghaulServer) {
    let store = TestStore::new().unwrap();
    let users = store.path("users");
    add_user(&users, store.root()).unwrap();
    let server = ServeCommand::anonymous(store.root())
        .option("--users", &path_argument(&users))
        .start()
        .unwrap();
    (store, server)
}

/// Runs a copy; fails unless it ends with this code and a message, in the summary or, if there is none, on
/// standard error.
fn expect_exit(code: i32, arguments: &[&str]) -> Result<FinishedProgram> {
    let finished = copy::run(arguments)?.expect_code(code)?;
    let message = copy::failure_message(&finished).unwrap_or_else(|| finished.stderr_text());
    ensure!(!message.trim().is_empty(), "no message: {finished}");
    ensure!(!finished.stderr_text().contains("panicked"), "{finished}");
    Ok(finished)
}

#[test]
fn each_class_of_errors_has_its_exit_code() {
    let (store, server) = fixture();
    let local = path_argument(&store.local());
    let sample = path_argument(&test_files::shared(65_536).unwrap());
    let closed = format!("ftp://127.0.0.1:{}/f", net::free_port().unwrap());
    let missing = path_argument(&store.path("none"));
    let denied = server.user_url("src/f1").replace(PASSWORD, "wrong");
    let unknown = server.user_url("src/f1").replace(USER, "nobody-here");
    let nowhere = path_argument(&store.path("no/such/folder/f"));
    let cases: [(&str, i32, &[&str]); 14] = [
        ("missing remote file", 4, &[&server.url("src/none"), &local]),
        (
            "missing remote folder",
            4,
            &["-r", &server.url("src/none/"), &local],
        ),
        ("missing local file", 4, &[&missing, &server.url("up/x")]),
        ("wrong password", 3, &[&denied, &local]),
        ("unknown user", 3, &[&unknown, &local]),
        ("nobody listens", 5, &["--retries", "0", &closed, &local]),
        (
            "unknown host",
            5,
            &["--retries", "0", "ftp://no-such-host.invalid/f", &local],
        ),
        ("no destination", 2, &[&local]),
        ("unknown option", 2, &["--no-such-option", &sample, &local]),
        ("absurd parallelism", 2, &["-p", "0", &sample, &local]),
        ("unknown scheme", 2, &["gopher://host/f", &local]),
        ("folder without -r", 2, &[&server.url("src/"), &local]),
        (
            "destination folder missing",
            7,
            &[&server.url("src/f1"), &nowhere],
        ),
        ("onto itself", 2, &[&sample, &sample]),
    ];
    let mut cells = MatrixRow::new("longhaul cp");
    for (name, code, arguments) in cases {
        cells.check(name, || {
            server.explain(expect_exit(code, arguments)).map(drop)
        });
    }
    cells.finish();
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
    test_files::ensure_same(
        &test_files::shared(65_536).unwrap(),
        &store.path("src/f65536"),
    )
    .unwrap();
}

#[test]
fn an_upload_to_a_read_only_server_exits_with_3() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::new(store.root())
        .option("--anonymous", "ro")
        .start()
        .unwrap();
    let sample = path_argument(&test_files::shared(1).unwrap());
    expect_exit(3, &["--retries", "0", &sample, &server.url("up/x")]).unwrap();
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
}

#[test]
fn an_anonymous_login_that_is_not_allowed_exits_with_3() {
    let store = TestStore::new().unwrap();
    let users = store.path("users");
    add_user(&users, store.root()).unwrap();
    let server = ServeCommand::new(store.root())
        .option("--users", &path_argument(&users))
        .start()
        .unwrap();
    let to = path_argument(&store.local());
    expect_exit(3, &["--retries", "0", &server.url("src/f1"), &to]).unwrap();
}

#[test]
fn a_partial_failure_exits_with_1_and_copies_the_other_files() {
    let (store, server) = fixture();
    let folder = store.scratch().folder("local/some").unwrap();
    let (one, none, two) = (
        server.url("src/f1"),
        server.url("src/none"),
        server.url("src/f65535"),
    );
    expect_exit(1, &[&one, &none, &two, &path_argument(&folder)]).unwrap();
    for size in [1, 65_535] {
        let name = test_files::name(size);
        test_files::ensure_same(&test_files::shared(size).unwrap(), &folder.join(name)).unwrap();
    }
    matrix::ensure_only(&folder, &["f1", "f65535"]).unwrap();
}

#[test]
fn a_copy_of_a_remote_file_onto_itself_loses_nothing() {
    let (store, server) = fixture();
    let url = server.url("src/f65536");
    let copied = copy::run(&["--retries", "0", &url, &url]).unwrap();
    assert_ne!(copied.code, Some(101), "{copied}");
    test_files::ensure_same(
        &test_files::shared(65_536).unwrap(),
        &store.path("src/f65536"),
    )
    .unwrap();
    matrix::ensure_only(
        &store.path("src"),
        &["f0", "f1", "f65535", "f65536", "f20000000", "f100000000"],
    )
    .unwrap();
}

#[test]
fn unusual_file_names_are_copied_or_refused() {
    let (store, server) = fixture();
    let sample = test_files::shared(65_535).unwrap();
    let mut cells = MatrixRow::new("unusual names");
    cells.check("4 000 characters", || {
        let url = server.url(&format!("up/{}", "x".repeat(4_000)));
        let finished =
            copy::run(&["--retries", "0", &path_argument(&sample), &url])?.expect_failure()?;
        ensure!(finished.code.is_some_and(|code| code != 101), "{finished}");
        Ok(())
    });
    cells.check("NUL", || {
        expect_exit(2, &[&path_argument(&sample), &server.url("up/a%00b")]).map(drop)
    });
    cells.check("newline", || {
        // FTP cannot encode this name. The copy must fail, or the file must have exactly this name.
        let finished = copy::run(&[
            "--retries",
            "0",
            &path_argument(&sample),
            &server.url("up/a%0Ab"),
        ])?;
        ensure!(finished.code.is_some_and(|code| code != 101), "{finished}");
        if finished.code == Some(0) {
            matrix::check_and_remove(&sample, &store.path("up/a\nb"))?;
        }
        Ok(())
    });
    cells.check("invalid UTF-8", || {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(b"latin-\xe9");
        copy::run(&[&path_argument(&sample), &server.url("up/latin-%E9")])?.expect_success()?;
        test_files::ensure_same(&sample, &store.path("up").join(name))?;
        let local = store.local();
        copy::run(&[&server.url("up/latin-%E9"), &path_argument(&local)])?.expect_success()?;
        std::fs::remove_file(store.path("up").join(name))?;
        matrix::check_and_remove(&sample, &local)
    });
    cells.finish();
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
}

#[test]
fn cp_reads_standard_input_and_writes_standard_output() {
    let (store, server) = fixture();
    let sample = test_files::shared(65_536).unwrap();
    let content = std::fs::read(&sample).unwrap();
    let mut cells = MatrixRow::new("pipes");
    cells.check("put from standard input", || {
        let mut command = copy::command(&["-", &server.url("up/stdin")])?;
        let finished = interop::run::run_with_input(&mut command, &content, interop::run::LIMIT)?;
        server.explain(finished.expect_success())?;
        matrix::check_and_remove(&sample, &store.path("up/stdin"))
    });
    cells.check("get to standard output", || {
        let mut command = interop::longhaul::binary::longhaul()?;
        command.args(["cp", "-q", &server.url("src/f65536"), "-"]);
        let finished = server.explain(interop::run::run(&mut command)?.expect_success())?;
        ensure!(
            finished.stdout == content,
            "{} bytes came",
            finished.stdout.len()
        );
        Ok(())
    });
    cells.finish();
}
