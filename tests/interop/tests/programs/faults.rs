//! Things that go wrong on the way: cut connections, full disks, shrinking sources, lost servers.

use std::time::Duration;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::need;
use interop::net::{HOST, free_port};
use interop::proxy::CuttingProxy;
use interop::run;
use interop::test_files;
use interop::tiny_disk;

const LARGE: &str = "src/f100000000";

#[test]
fn cut_data_connections_are_made_again() {
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
            let proxy = CuttingProxy::cutting(server.address(), 10_000_000, cuts)?;
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
            let proxy = CuttingProxy::cutting(server.address(), 10_000_000, cuts)?;
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
fn a_cut_without_retries_is_code_5_and_leaves_no_file() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("a cut with --retries 0");
    for streams in ["1", "4"] {
        cells.check(format!("get -p {streams}"), || {
            let proxy = CuttingProxy::cutting(server.address(), 10_000_000, 1)?;
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
            let proxy = CuttingProxy::cutting(server.address(), 10_000_000, 1)?;
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

/// Words as `&str`, the form that commands take.
fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

#[test]
fn a_full_disk_here_is_code_7() {
    need!(tiny_disk::is_supported());
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
            // The file system goes with its process: what it held is listed before.
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
                "no clear line: {finished}"
            );
            let left = errors
                .lines()
                .find_map(|line| line.strip_prefix("left: "))
                .unwrap_or("");
            ensure!(
                left.split_whitespace().all(|name| name != "f"),
                "the file has its name: {left}"
            );
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn a_full_disk_there_is_an_error_that_says_so() {
    need!(tiny_disk::is_supported());
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
                "not said: {finished}"
            );
            Ok(())
        });
        // The server's own view of its disk; its pid is that of the exec'ed wrapper.
        let pid = server.guard().pid().as_raw_nonzero();
        let inside = format!("/proc/{pid}/root{}", disk.display());
        assert!(
            !std::path::Path::new(&inside).join("f").exists(),
            "the file has its name"
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
fn a_source_that_shrinks_is_an_error() {
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
                // Either it says that the source changed, or it copies what there is now.
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
fn a_server_that_comes_back_is_gone_on_with() {
    let store = TestStore::new().unwrap();
    let source = test_files::shared(test_files::LARGE).unwrap();
    let mut cells = MatrixRow::new("server killed and started again");
    for streams in ["1", "4"] {
        for put in [false, true] {
            let way = if put { "put" } else { "get" };
            cells.check(format!("{way} -p {streams}"), || {
                // A port that nothing else is given while no server has it.
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
fn a_server_that_stops_answering_is_code_5() -> Result<()> {
    let store = TestStore::new()?;
    let mut server = ServeCommand::anonymous(store.root()).start()?;
    let local = store.local();
    let arguments = ["--timeout", "4", "--retries", "0", "--limit-rate", "240M"];
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
