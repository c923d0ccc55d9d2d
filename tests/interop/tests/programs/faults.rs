//! Faults during a copy: cut connections, full disks, shrinking sources, lost servers.

use std::time::Duration;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::net::{HOST, free_port};
use interop::proxy::FtpProxy;
use interop::require;
use interop::run;
use interop::test_files;
use interop::tiny_disk;

const LARGE: &str = "src/f100000000";

#[test]
fn a_copy_survives_cut_data_connections() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let source = test_files::shared(test_files::LARGE).unwrap();
    let mut cells = MatrixRow::new("cut data connections");
    let rows: [(&[&str], u64); 8] = [
        (&["-p", "1"], 1),
        (&["-p", "1"], 2),
        (&["-p", "4"], 1),
        (&["-p", "4"], 2),
        (&["-p", "1", "--buffer", "drs"], 1),
        (&["-p", "4", "--buffer", "drs"], 1),
        (&["-p", "1", "--buffer", "drs1"], 1),
        (&["-p", "mi", "--autopar", "n0=2,delta=100ms"], 2),
    ];
    for (options, cuts) in rows {
        let row = options.join(" ");
        cells.check(format!("get {row}, {cuts} cuts"), || {
            let proxy = FtpProxy::cutting(server.address(), 10_000_000, cuts)?;
            let local = store.local();
            let (url, to) = (proxy.url(LARGE), path_argument(&local));
            server.explain(cp(&[options, &[&url, &to]].concat()))?;
            ensure!(
                proxy.cuts() == cuts,
                "{} cuts instead of {cuts}",
                proxy.cuts()
            );
            matrix::check_and_remove(&source, &local)
        });
        cells.check(format!("put {row}, {cuts} cuts"), || {
            let proxy = FtpProxy::cutting(server.address(), 10_000_000, cuts)?;
            let served = store.upload();
            let (from, url) = (path_argument(&source), proxy.url(&served));
            server.explain(cp(&[options, &[&from, &url]].concat()))?;
            ensure!(
                proxy.cuts() == cuts,
                "{} cuts instead of {cuts}",
                proxy.cuts()
            );
            matrix::check_and_remove(&source, &store.path(&served))
        });
    }
    cells.finish();
}

#[test]
fn a_cut_connection_without_retries_exits_with_5_and_leaves_no_file() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("a cut with --retries 0");
    for streams in ["1", "4"] {
        cells.check(format!("get -p {streams}"), || {
            let proxy = FtpProxy::cutting(server.address(), 10_000_000, 1)?;
            let local = store.local();
            let arguments = [
                "--retries",
                "0",
                "-p",
                streams,
                &proxy.url(LARGE),
                &path_argument(&local),
            ];
            server.explain(copy::run(&arguments)?.expect_code(5))?;
            ensure!(!local.exists(), "a partial file has the final name");
            Ok(())
        });
        cells.check(format!("put -p {streams}"), || {
            let proxy = FtpProxy::cutting(server.address(), 10_000_000, 1)?;
            let served = store.upload();
            let source = path_argument(&test_files::shared(test_files::LARGE)?);
            let arguments = [
                "--retries",
                "0",
                "-p",
                streams,
                &source,
                &proxy.url(&served),
            ];
            server.explain(copy::run(&arguments)?.expect_code(5))?;
            ensure!(
                !store.path(&served).exists(),
                "a partial file has the final name"
            );
            Ok(())
        });
    }
    cells.finish();
}

/// Converts strings to `&str`.
fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

#[test]
fn a_full_local_disk_exits_with_7() {
    require!(tiny_disk::is_supported());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("full disk of the client");
    for streams in ["1", "4"] {
        cells.check(format!("get -p {streams}"), || {
            let disk = store.scratch().folder("local/disk")?;
            let wrapper = tiny_disk::wrapper_command(&disk, 16);
            let copy = copy::command(&[
                "-p",
                streams,
                &server.url(LARGE),
                &path_argument(&disk.join("f")),
            ])?;
            // The tmpfs ends with the process, so the script lists its files first.
            let script = "\"$@\"; code=$?; echo \"left: $(ls -A \"$0\")\" >&2; exit $code";
            let mut command = std::process::Command::new(&wrapper[0]);
            command
                .args(&wrapper[1..])
                .args(["sh", "-c", script])
                .arg(&disk);
            command.arg(copy.get_program()).args(copy.get_args());
            let finished = server.explain(run::run(&mut command)?.expect_code(7))?;
            let errors = finished.stderr_text();
            ensure!(
                copy::failure_message(&finished).is_some_and(|said| said.contains("No space left")),
                "no clear message: {finished}"
            );
            let left = errors
                .lines()
                .find_map(|line| line.strip_prefix("left: "))
                .unwrap_or("");
            ensure!(
                left.split_whitespace().all(|name| name != "f"),
                "the file has its final name: {left}"
            );
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn a_full_disk_of_the_server_is_reported() {
    require!(tiny_disk::is_supported());
    let store = TestStore::new().unwrap();
    let disk = store.scratch().folder("disk").unwrap();
    let wrapper = tiny_disk::wrapper_command(&disk, 16);
    let mut server = ServeCommand::anonymous(&disk)
        .wrapped_in(&words(&wrapper))
        .start()
        .unwrap();
    let source = path_argument(&test_files::shared(test_files::LARGE).unwrap());
    let mut cells = MatrixRow::new("full disk of the server");
    for streams in ["1", "4"] {
        cells.check(format!("put -p {streams}"), || {
            let arguments = ["--retries", "0", "-p", streams, &source, &server.url("f")];
            let finished = copy::run(&arguments)?.expect_failure()?;
            ensure!(
                copy::failure_message(&finished)
                    .is_some_and(|said| said.to_lowercase().contains("space")),
                "not reported: {finished}"
            );
            Ok(())
        });
        // The disk as the server sees it. The wrapper calls exec, so the server has its PID.
        let pid = server.guard().pid().as_raw_nonzero();
        let inside = format!("/proc/{pid}/root{}", disk.display());
        assert!(
            !std::path::Path::new(&inside).join("f").exists(),
            "the file has its final name"
        );
        cells.check(
            format!("a small file fits afterwards, -p {streams}"),
            || {
                for entry in std::fs::read_dir(&inside)? {
                    std::fs::remove_file(entry?.path())?;
                }
                cp(&[
                    "-p",
                    streams,
                    &path_argument(&test_files::shared(65_536)?),
                    &server.url("small"),
                ])?;
                test_files::ensure_same(
                    &test_files::shared(65_536)?,
                    &std::path::Path::new(&inside).join("small"),
                )
            },
        );
    }
    cells.finish();
}

#[test]
fn a_source_that_shrinks_fails_or_is_copied_as_it_is() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("shrinking source");
    for streams in ["1", "4"] {
        for put in [false, true] {
            let way = if put { "put" } else { "get" };
            cells.check(format!("{way} -p {streams}"), || {
                let source = store.path(&format!("src/shrinks-{way}-{streams}"));
                test_files::write(&source, test_files::LARGE, 9)?;
                let (served, local) = (store.upload(), store.local());
                let url = server.url(&format!("src/shrinks-{way}-{streams}"));
                let (ends, destination) = if put {
                    (
                        [path_argument(&source), server.url(&served)],
                        store.path(&served),
                    )
                } else {
                    ([url, path_argument(&local)], local)
                };
                let common = ["--retries", "1", "-p", streams, "--limit-rate", "240M"];
                let arguments = [&common[..], &[&ends[0], &ends[1]]].concat();
                let mut copy = RunningCopy::start(copy::command(&arguments)?)?;
                copy.wait_until_safe(10_000_000)?;
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(&source)?
                    .set_len(1_000)?;
                let status = copy.wait_for_end()?;
                // The copy either fails, or consists of the current content of the source.
                if status.success() {
                    test_files::ensure_same(&source, &destination)
                } else {
                    ensure!(!destination.exists(), "a failed copy has the final name");
                    Ok(())
                }
            });
        }
    }
    cells.finish();
}

#[test]
fn a_copy_continues_after_the_server_was_restarted() {
    let store = TestStore::new().unwrap();
    let source = test_files::shared(test_files::LARGE).unwrap();
    let mut cells = MatrixRow::new("server killed and started again");
    for streams in ["1", "4"] {
        for put in [false, true] {
            let way = if put { "put" } else { "get" };
            cells.check(format!("{way} -p {streams}"), || {
                // A fixed port, so that the restarted server gets the same one.
                let address = format!("{HOST}:{}", free_port()?);
                let mut server = ServeCommand::anonymous(store.root())
                    .listen(&address)
                    .start()?;
                let (served, local) = (store.upload(), store.local());
                let (from, to, destination) = if put {
                    (
                        path_argument(&source),
                        server.url(&served),
                        store.path(&served),
                    )
                } else {
                    (server.url(LARGE), path_argument(&local), local)
                };
                let arguments = ["--limit-rate", "400M", "-p", streams, &from, &to];
                let mut copy = RunningCopy::start(copy::command(&arguments)?)?;
                copy.wait_until_safe(20_000_000)?;
                server.guard().kill();
                std::thread::sleep(Duration::from_millis(300));
                let _again = ServeCommand::anonymous(store.root())
                    .listen(&address)
                    .start()?;
                let status = copy.wait_for_end()?;
                ensure!(status.success(), "{status}");
                matrix::check_and_remove(&source, &destination)
            });
        }
    }
    cells.finish();
}

#[test]
fn a_server_that_stops_replying_exits_with_5() -> Result<()> {
    let store = TestStore::new()?;
    let mut server = ServeCommand::anonymous(store.root()).start()?;
    let local = store.local();
    let arguments = ["--timeout", "10", "--retries", "0", "--limit-rate", "240M"];
    let (url, to) = (server.url(LARGE), path_argument(&local));
    let arguments = [&arguments[..], &[&url, &to]].concat();
    let mut copy = RunningCopy::start(copy::command(&arguments)?)?;
    copy.wait_until_safe(10_000_000)?;
    server.guard().signal(rustix::process::Signal::STOP)?;
    let status = copy.wait_for_end()?;
    ensure!(status.code() == Some(5), "{status} instead of code 5");
    ensure!(!local.exists(), "a partial file has the final name");
    Ok(())
}
