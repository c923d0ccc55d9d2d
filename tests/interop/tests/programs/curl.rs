//! curl against `longhaul serve`.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::{self, TestStore};
use interop::net;
use interop::peer::curl::Curl;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;

fn run(curl: &Curl, server: &LonghaulServer, arguments: &[&str]) -> Result<FinishedProgram> {
    server.explain(
        curl.run(arguments)
            .and_then(FinishedProgram::expect_success),
    )
}

/// Runs get and put of every size with these options; the server listens on `listen`.
fn both_ways(name: &str, listen: &str, options: &[&str]) {
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root())
        .listen(listen)
        .start()
        .unwrap();
    let mut cells = MatrixRow::new(format!("curl {name}"));
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        let (url, to) = (server.url(from), path_argument(to));
        let arguments = [options, &[&url, "-o", &to]].concat();
        run(&curl, &server, &arguments).map(drop)
    });
    matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
        let (from, url) = (path_argument(from), server.url(to));
        let arguments = [options, &["-T", &from, &url]].concat();
        run(&curl, &server, &arguments).map(drop)
    });
    cells.finish();
}

#[test]
fn curl_transfers_files_in_passive_mode() {
    both_ways("", "127.0.0.1:0", &[]);
}

#[test]
fn curl_transfers_files_with_pasv() {
    both_ways("--disable-epsv", "127.0.0.1:0", &["--disable-epsv"]);
}

#[test]
fn curl_transfers_files_in_active_mode() {
    both_ways("-P", "127.0.0.1:0", &["-P", "127.0.0.1"]);
    both_ways(
        "-P --disable-eprt",
        "127.0.0.1:0",
        &["-P", "127.0.0.1", "--disable-eprt"],
    );
}

#[test]
fn curl_transfers_files_over_ipv6() {
    require!(
        net::has_ipv6()
            .then_some(())
            .ok_or_else(|| "no IPv6 loopback".to_owned())
    );
    both_ways("over IPv6", "[::1]:0", &[]);
    both_ways("-P over IPv6", "[::1]:0", &["-P", "::1"]);
}

#[test]
fn curl_gets_ranges_of_a_file() {
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("curl -r");
    matrix::get_parts(&mut cells, &store, |from, offset, length, to| {
        let range = format!("{offset}-{}", offset + length - 1);
        run(
            &curl,
            &server,
            &["-r", &range, &server.url(from), "-o", &path_argument(to)],
        )
        .map(drop)
    });
    cells.check("two ranges in one session", || {
        // curl ends a range with ABOR; the session must remain usable for the next one.
        let (a, b) = (store.local(), store.local());
        let (to_a, to_b, url) = (
            path_argument(&a),
            path_argument(&b),
            server.url("src/f65536"),
        );
        let first = ["-r", "0-99", &url, "-o", &to_a];
        let second = ["--next", "-sS", "-v", "-r", "100-299", &url, "-o", &to_b];
        let finished = run(&curl, &server, &[&first[..], &second].concat())?;
        let source = test_files::shared(65_536)?;
        test_files::ensure_same_part(&source, 0, 100, &a)?;
        test_files::ensure_same_part(&source, 100, 200, &b)?;
        // A port or a byte count may contain these digits too: only a reply line ends the session.
        let ended = finished
            .stderr_text()
            .lines()
            .any(|line| line.starts_with("< 421"));
        ensure!(!ended, "the session ended: {finished}");
        Ok(())
    });
    cells.finish();
}

#[test]
fn curl_resumes_interrupted_transfers() {
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let source = test_files::shared(test_files::LARGE).unwrap();
    let content = std::fs::read(&source).unwrap();
    let mut cells = MatrixRow::new("curl -C");
    for there in [1, 65_536, 12_345_678, content.len()] {
        cells.check(format!("get from {there}"), || {
            let local = store.local();
            std::fs::write(&local, &content[..there])?;
            let url = server.url(&format!("src/{}", test_files::name(test_files::LARGE)));
            run(
                &curl,
                &server,
                &["-C", "-", &url, "-o", &path_argument(&local)],
            )?;
            matrix::check_and_remove(&source, &local)
        });
        cells.check(format!("put from {there}"), || {
            let served = store.upload();
            std::fs::write(store.path(&served), &content[..there])?;
            let url = server.url(&served);
            run(
                &curl,
                &server,
                &["-C", "-", "-T", &path_argument(&source), &url],
            )?;
            matrix::check_and_remove(&source, &store.path(&served))
        });
    }
    cells.finish();
}

#[test]
fn curl_lists_folders_and_reports_errors() {
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("curl");
    for (options, whole) in [(&[][..], false), (&["-l"], true)] {
        cells.check(format!("listing {}", options.join(" ")), || {
            let url = server.url("src/");
            let finished = run(&curl, &server, &[options, &[&url]].concat())?;
            let listing = finished.stdout_text();
            for size in test_files::SIZES {
                let name = test_files::name(size);
                let found = listing.lines().any(|line| {
                    if whole {
                        line == name
                    } else {
                        line.ends_with(&format!(" {name}"))
                    }
                });
                ensure!(found, "no {name} in {finished}");
            }
            ensure!(!listing.contains("\r\r"), "CR CR LF in {finished}");
            Ok(())
        });
    }
    cells.check("size and time", || {
        let finished = run(&curl, &server, &["-I", &server.url("src/f65535")])?;
        ensure!(
            finished.stdout_text().contains("Content-Length: 65535"),
            "{finished}"
        );
        ensure!(
            finished.stdout_text().contains("Last-Modified: "),
            "{finished}"
        );
        Ok(())
    });
    cells.check("missing file", || {
        // Exit code 78 of curl: the resource does not exist.
        curl.run(&[&server.url("src/none")])?
            .expect_code(78)
            .map(drop)
    });
    cells.check("missing folder", || {
        // Exit code 9 of curl: access to a folder was denied.
        curl.run(&[&server.url("none/f")])?.expect_code(9).map(drop)
    });
    cells.check("folders made on the way", || {
        let from = path_argument(&test_files::shared(1)?);
        let url = server.url("up/made/on%20the/way");
        run(&curl, &server, &["--ftp-create-dirs", "-T", &from, &url])?;
        matrix::check_and_remove(&test_files::shared(1)?, &store.path("up/made/on the/way"))
    });
    cells.check("append", || {
        let served = store.upload();
        std::fs::write(store.path(&served), "first ")?;
        let more = store.local();
        std::fs::write(&more, "second")?;
        run(
            &curl,
            &server,
            &["-a", "-T", &path_argument(&more), &server.url(&served)],
        )?;
        let content = std::fs::read_to_string(store.path(&served))?;
        ensure!(content == "first second", "{content:?}");
        Ok(())
    });
    cells.finish();
}
