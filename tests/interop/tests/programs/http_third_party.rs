//! Copies between two HTTP servers: XRootD's third-party copies both ways, and relays where a server has none.

use std::cell::RefCell;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::matrix::{self, TestStore};
use interop::peer::xrootd::Macaroons;
use interop::peer::{PeerServer, apache, nginx, xrootd};
use interop::pki::PeerPki;
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;

/// Copies, and returns the warnings that the bytes pass through this machine.
fn relayed(arguments: &[&str]) -> Result<Vec<String>> {
    let finished = copy::run(arguments)?.expect_success()?;
    let warnings = copy::warnings(&finished);
    Ok(warnings
        .into_iter()
        .filter(|warning| warning.contains("passes through this machine"))
        .collect())
}

/// Copies between two servers; fails if the bytes pass through this machine.
fn direct(arguments: &[&str]) -> Result<()> {
    let relayed = relayed(arguments)?;
    ensure!(relayed.is_empty(), "{relayed:?}");
    Ok(())
}

fn copies_directly(name: &str, from: &PeerServer, to: &PeerServer, store: &TestStore) {
    let mut cells = MatrixRow::new(name);
    for options in [&[][..], &["-p", "4"]] {
        matrix::third_party(
            &mut cells,
            store,
            &test_files::SIZES,
            |source, destination| {
                let urls = [from.url(source), to.url(destination)];
                direct(&[options, &[&urls[0], &urls[1]]].concat())
            },
        );
    }
    cells.finish();
}

#[test]
fn xrootd_fetches_and_puts_files_of_other_servers() {
    require!(xrootd::find());
    require!(apache::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 3].map(|()| TestStore::new().unwrap());
    let [one, two] = [&stores[0], &stores[1]].map(|store| xrootd::start(store, &pki).unwrap());
    let plain = apache::start(&stores[2]).unwrap().scheme("http");
    copies_directly("xrootd to xrootd", &one, &two, &stores[1]);
    copies_directly("apache to xrootd", &plain, &two, &stores[1]);
    copies_directly("xrootd to apache", &one, &plain, &stores[2]);
    copies_directly("within apache", &plain, &plain, &stores[2]);
}

/// Whether an XRootD copies a file within itself for curl.
fn copies_for_curl(server: &PeerServer, source: &str) -> bool {
    let [from, to] =
        [source, "up/for-curl"].map(|path| format!("http://{}/{path}", server.address()));
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "--max-time",
        "20",
        "-X",
        "COPY",
        "-H",
        "Credential: none",
    ]);
    curl.args([
        "-H",
        &format!("Destination: {to}"),
        "-H",
        "Overwrite: T",
        &from,
    ]);
    run::run(&mut curl).is_ok_and(|finished| finished.stdout_text().contains("success:"))
}

/// XRootD 5.5 connects to itself for such a copy, whose two ends take a thread each. On a machine without room for more, it never
/// starts another one again (`XrdScheduler::hireWorker`), nor serves what needs one.
#[test]
fn xrootd_copies_within_itself() {
    require!(xrootd::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = RefCell::new(xrootd::start(&store, &pki).unwrap());
    let mut cells = MatrixRow::new("within xrootd");
    for streams in ["1", "4"] {
        matrix::third_party(&mut cells, &store, &test_files::SIZES, |source, to| {
            for _ in 0..3 {
                let urls = [source, to].map(|path| server.borrow().url(path));
                let words = ["--timeout", "15", "--retries", "1", "-p", streams];
                let copied = direct(&[&words[..], &[&urls[0], &urls[1]]].concat());
                // One that does it for nobody is not what is tested here.
                if copied.is_ok() || copies_for_curl(&server.borrow(), source) {
                    return copied;
                }
                let _ = std::fs::remove_file(store.path(to));
                server.replace(xrootd::start(&store, &pki)?);
            }
            anyhow::bail!("no XRootD copies anything within itself, for curl neither")
        });
    }
    cells.finish();
}

#[test]
fn xrootd_copies_trees_and_its_checksums_are_compared() {
    require!(xrootd::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 2].map(|()| TestStore::new().unwrap());
    let [one, two] = [&stores[0], &stores[1]].map(|store| xrootd::start(store, &pki).unwrap());
    let mut cells = MatrixRow::new("xrootd to xrootd");
    cells.check("a tree", || {
        // XRootD 5.5 does not decode the names of requests, so these need no encoding.
        let names: Vec<_> = (0..12).map(|n| format!("d{}/e/f{n}+x", n % 3)).collect();
        for (n, name) in names.iter().enumerate() {
            let file = stores[0].path(&format!("src/tree/{name}"));
            std::fs::create_dir_all(file.parent().context("no folder")?)?;
            // One of them is empty.
            std::fs::write(&file, vec![7; n * 50_000])?;
        }
        let urls = [one.url("src/tree"), two.url("up/tree")];
        direct(&["-r", &urls[0], &urls[1]])?;
        for name in &names {
            let [from, to] = [("src", 0), ("up", 1)]
                .map(|(folder, store)| stores[store].path(&format!("{folder}/tree/{name}")));
            test_files::ensure_same(&from, &to)?;
        }
        Ok(())
    });
    cells.check("ADLER32", || {
        let name = test_files::name(test_files::SIZES[4]);
        let urls = [one.url(&format!("src/{name}")), two.url("up/sum")];
        let summary = copy::cp(&urls)?;
        ensure!(summary.verified == "adler32", "{}", summary.verified);
        Ok(())
    });
    cells.check("a file that is not there", || {
        let urls = [one.url("src/none"), two.url("up/none")];
        copy::run(&urls)?.expect_code(4)?;
        ensure!(!stores[1].path("up/none").exists(), "it was made");
        Ok(())
    });
    cells.finish();
}

#[test]
fn files_of_servers_without_third_party_copies_pass_through_here() {
    require!(apache::find());
    require!(nginx::find());
    let stores = [(); 2].map(|()| TestStore::new().unwrap());
    let from = apache::start(&stores[0]).unwrap().scheme("http");
    let to = nginx::start(&stores[1], None).unwrap().scheme("http");
    let mut cells = MatrixRow::new("apache to nginx");
    matrix::third_party(
        &mut cells,
        &stores[1],
        &test_files::SIZES[1..],
        |source, destination| {
            let relayed = relayed(&[&from.url(source), &to.url(destination)])?;
            ensure!(relayed.len() == 1, "{relayed:?}");
            ensure!(relayed[0].contains("COPY"), "{relayed:?}");
            Ok(())
        },
    );
    cells.finish();
    matrix::ensure_only(&stores[1].path("up"), &[]).unwrap();
    matrix::ensure_only(&stores[0].path("up"), &[]).unwrap();
}

/// A key for macaroons.
fn macaroon_key(store: &TestStore) -> Result<std::path::PathBuf> {
    let made = Command::new("openssl")
        .args(["rand", "-base64", "64"])
        .output()?;
    ensure!(made.status.success(), "openssl: {made:?}");
    store.scratch().file("macaroon-key", &made.stdout)
}

/// A macaroon of a server for everything.
fn macaroon(server: &PeerServer, pki: &PeerPki) -> Result<String> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"])
        .arg(pki.ca_file())
        .args(["-H", "Content-Type: application/macaroon-request", "-d"])
        .arg(r#"{"caveats":["activity:DOWNLOAD,UPLOAD,DELETE,MANAGE,LIST"],"validity":"PT1H"}"#)
        .arg(format!("https://{}/", server.address()));
    let finished = run::run(&mut curl)?.expect_success()?;
    let answer: serde_json::Value = serde_json::from_str(&finished.stdout_text())?;
    let macaroon = answer["macaroon"].as_str();
    Ok(macaroon.context(finished.stdout_text())?.to_owned())
}

fn cp_tls(pki: &PeerPki, arguments: &[&str]) -> Result<FinishedProgram> {
    let mut command = copy::command(arguments)?;
    command.arg("--ca").arg(pki.ca_file());
    run::run(&mut command)
}

/// Both servers know nobody but the holders of macaroons.
#[test]
fn a_token_for_both_servers_lets_one_fetch_from_the_other() {
    require!(xrootd::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 3].map(|()| TestStore::new().unwrap());
    let key = macaroon_key(&stores[2]).unwrap();
    let start = |store: &TestStore, is_open| {
        let macaroons = Macaroons { key: &key, is_open };
        xrootd::start_tls(store, &pki, macaroons).unwrap()
    };
    let token = macaroon(&start(&stores[2], true), &pki).unwrap();
    let file = stores[2].scratch().file("token", token.as_bytes()).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let [one, two] = [&stores[0], &stores[1]].map(|store| start(store, false));
    let name = test_files::name(test_files::SIZES[3]);
    let urls = [one.url(&format!("src/{name}")), two.url("up/copy")];
    let mut cells = MatrixRow::new("xrootd to xrootd, with a token");
    cells.check("without it", || {
        let refused = cp_tls(&pki, &["--retries", "0", &urls[0], &urls[1]])?.expect_failure()?;
        ensure!(!stores[1].path("up/copy").exists(), "{refused}");
        Ok(())
    });
    cells.check("with it", || {
        let token = path_argument(&file);
        let done =
            cp_tls(&pki, &["-vv", "--token", &token, &urls[0], &urls[1]])?.expect_success()?;
        let warnings = copy::warnings(&done);
        ensure!(warnings.is_empty(), "{warnings:?}");
        for text in [done.stdout_text(), done.stderr_text(), two.log()] {
            ensure!(
                !text.contains(token_secret(&std::fs::read_to_string(&file)?)),
                "the token is shown"
            );
        }
        let source = stores[0].path(&format!("src/{name}"));
        matrix::check_and_remove(&source, &stores[1].path("up/copy"))
    });
    cells.finish();
}

fn token_secret(token: &str) -> &str {
    token.trim()
}

/// The source knows the user by a login that is for it alone, and makes a macaroon for the one file.
#[test]
fn the_source_makes_a_macaroon_for_the_destination() {
    require!(xrootd::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 2].map(|()| TestStore::new().unwrap());
    let key = macaroon_key(&stores[0]).unwrap();
    let start = |store: &TestStore| {
        let macaroons = Macaroons {
            key: &key,
            is_open: true,
        };
        xrootd::start_tls(store, &pki, macaroons).unwrap()
    };
    let [one, two] = [&stores[0], &stores[1]].map(start);
    let name = test_files::name(test_files::SIZES[3]);
    let from = one
        .url(&format!("src/{name}"))
        .replace("davs://", "davs://joe:hush@");
    let done = cp_tls(&pki, &[&from, &two.url("up/copy")]).unwrap();
    let done = done.expect_success().unwrap();
    assert!(copy::warnings(&done).is_empty(), "{done}");
    let said = one.messages();
    assert!(
        said.contains("activity:DOWNLOAD") || said.contains("Macaroon"),
        "{said}"
    );
    assert!(!two.log().contains("hush"));
    let source = stores[0].path(&format!("src/{name}"));
    matrix::check_and_remove(&source, &stores[1].path("up/copy")).unwrap();
}
