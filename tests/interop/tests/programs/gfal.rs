//! The gfal2 commands against `longhaul serve`, without GSI.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::peer::gfal::Gfal;
use interop::peer::globus_url_copy::file_url;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;

#[test]
fn gfal_copies_files() {
    let gfal = require!(Gfal::find());
    let (store, other) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let second = ServeCommand::anonymous(other.root()).start().unwrap();
    let copy = |from: &str, to: &str| -> Result<()> {
        server
            .explain(gfal.run("copy", &["-f", "-v", from, to]))
            .map(drop)
    };
    let mut cells = MatrixRow::new("gfal-copy");
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        copy(&server.url(from), &file_url(to))
    });
    matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
        copy(&file_url(from), &server.url(to))
    });
    matrix::third_party(&mut cells, &other, &test_files::SIZES, |from, to| {
        copy(&server.url(from), &second.url(to))
    });
    cells.finish();
}

#[test]
fn gfal_copies_and_verifies_checksums() {
    let gfal = require!(Gfal::find());
    let (store, other) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let second = ServeCommand::anonymous(other.root()).start().unwrap();
    let mut cells = MatrixRow::new("gfal-copy -K");
    for algorithm in ["ADLER32", "MD5"] {
        matrix::third_party(&mut cells, &other, &test_files::SIZES, |from, to| {
            let arguments = ["-f", "-K", algorithm, &server.url(from), &second.url(to)];
            server.explain(gfal.run("copy", &arguments)).map(drop)
        });
    }
    cells.finish();
}

#[test]
fn gfal_lists_renames_and_removes_files() {
    let gfal = require!(Gfal::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let run = |verb: &str, arguments: &[&str]| -> Result<FinishedProgram> {
        server.explain(gfal.run(verb, arguments))
    };
    let mut cells = MatrixRow::new("gfal");
    cells.check("ls", || {
        for options in [&[][..], &["-l"]] {
            let listed = run("ls", &[options, &[&server.url("src")]].concat())?;
            ensure!(listed.stdout_text().contains("f65535"), "{listed}");
        }
        Ok(())
    });
    cells.check("stat", || {
        let finished = run("stat", &[&server.url("src/f65535")])?;
        ensure!(finished.stdout_text().contains("65535"), "{finished}");
        Ok(())
    });
    cells.check("sum", || {
        // Adler-32 of an empty file is 1 (RFC 1950).
        let sum = run("sum", &[&server.url("src/f0"), "ADLER32"])?;
        ensure!(sum.stdout_text().trim().ends_with("00000001"), "{sum}");
        let sum = run("sum", &[&server.url("src/f0"), "MD5"])?;
        ensure!(
            sum.stdout_text()
                .contains("d41d8cd98f00b204e9800998ecf8427e"),
            "{sum}"
        );
        Ok(())
    });
    cells.check("mkdir, rename, chmod, rm", || {
        run("mkdir", &["-p", &server.url("up/a/b")])?;
        run("copy", &[&server.url("src/f1"), &server.url("up/a/b/f")])?;
        run(
            "rename",
            &[&server.url("up/a/b/f"), &server.url("up/a/b/g")],
        )?;
        run("chmod", &["600", &server.url("up/a/b/g")])?;
        test_files::ensure_same(&test_files::shared(1)?, &store.path("up/a/b/g"))?;
        run("rm", &["-r", &server.url("up/a")])?;
        matrix::ensure_only(&store.path("up"), &[])
    });
    cells.check("missing file", || {
        let error = gfal.run("stat", &[&server.url("src/none")]).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        ensure!(
            error.contains("No such file"),
            "not reported as missing: {error}"
        );
        Ok(())
    });
    cells.finish();
}
