//! `longhaul cp`, the file verbs and `longhaul proxy` against globus-gridftp-server with GSI.

use std::path::Path;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::longhaul::serve::{ServeCommand, USER};
use interop::matrix::{self, TestStore};
use interop::peer::globus_gridftp_server as globus;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::peer::{client_command, find_installed};
use interop::pki::environment::GridEnvironment;
use interop::pki::{PeerPki, PeerProxy};
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;
use interop::tree::TestTree;
use interop::wire_tap::WireTap;

/// How data connections may be protected, with one stream and with four.
const PROTECTION: [&[&str]; 9] = [
    &[],
    &["-p", "4"],
    &["--data-protection", "clear"],
    &["--data-protection", "authenticated"],
    &["--data-protection", "authenticated", "-p", "4"],
    &["--data-protection", "safe"],
    &["--data-protection", "private"],
    &["--data-protection", "private", "-p", "4"],
    &["--delegate", "limited", "--data-protection", "private"],
];

fn proxy(pki: &PeerPki) -> GridEnvironment {
    GridEnvironment::proxy(pki, &pki.proxy(PeerProxy::Full).unwrap())
}

fn with_server(name: &str, tls_1_2: bool, fill: impl FnOnce(&mut MatrixRow, &ServerUnderTest<'_>)) {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let own = proxy(&pki);
    let server = if tls_1_2 {
        let gridmap = store.path("gridmap");
        pki.write_gridmap(&gridmap, "nobody").unwrap();
        let host = GridEnvironment::certificate(&pki, &pki.host).with("GRIDMAP", gridmap);
        globus::start_gsi_in(&store, &host.tls_1_2(), &[]).unwrap()
    } else {
        globus::start_gsi(&store, &pki).unwrap()
    };
    let target = ServerUnderTest::new(&store, &server).with(&own);
    let mut cells = MatrixRow::new(format!("longhaul cp, globus-gridftp-server GSI: {name}"));
    fill(&mut cells, &target);
    cells.finish();
}

#[test]
fn gsi_cp_transfers_files() {
    with_server("files", false, |cells, target| {
        for options in PROTECTION {
            rows::get_and_put(cells, target, options, &test_files::FEW_SIZES);
        }
    });
}

#[test]
fn gsi_cp_transfers_files_with_tls_1_2() {
    with_server("TLS 1.2", true, |cells, target| {
        for options in PROTECTION {
            rows::get_and_put(cells, target, options, &[65_536, 20_000_000]);
        }
    });
}

#[test]
fn gsi_cp_gets_parts_and_resumes() {
    with_server("parts and resume", false, |cells, target| {
        for options in [
            &["-p", "4"][..],
            &["-p", "4", "--data-protection", "private"],
        ] {
            rows::parts(cells, target, options);
            rows::resume_after_kill(cells, target, options);
        }
    });
}

#[test]
fn gsi_cp_transfers_trees() {
    with_server("trees", false, |cells, target| {
        for options in [&[][..], &["-p", "2", "--data-protection", "private"]] {
            rows::trees(cells, target, &TestTree::thousand_ascii(), options);
        }
    });
}

#[test]
fn gsi_cp_transfers_between_two_servers() {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let own = proxy(&pki);
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let [globus_from, globus_to] =
        [&from, &to].map(|store| globus::start_gsi(store, &pki).unwrap());
    let [longhaul_from, longhaul_to] = [&from, &to].map(|store| {
        let serve = ServeCommand::new(store.root()).gsi(&pki).unwrap();
        serve.start().unwrap()
    });
    let rows: [&[&str]; 5] = [
        &[],
        &["-p", "4"],
        &["--data-protection", "private"],
        &["--data-protection", "private", "-p", "4"],
        &[
            "--delegate",
            "limited",
            "--data-protection",
            "authenticated",
        ],
    ];
    for options in rows {
        let mut cells = MatrixRow::new(format!("cp between GSI servers {}", options.join(" ")));
        for size in [0, 65_536, 20_000_000] {
            let name = format!("src/{}", test_files::name(size));
            let sources = [globus_from.url(&name), longhaul_from.gsi_url(&name)];
            for (number, source) in sources.iter().enumerate() {
                for to_globus in [true, false] {
                    // Globus to globus shows that the client, and not a server, is right.
                    let ends = format!("{size} bytes, source {number}, to globus: {to_globus}");
                    cells.check(ends, || {
                        let served = to.upload();
                        let url = match to_globus {
                            true => globus_to.url(&served),
                            false => longhaul_to.gsi_url(&served),
                        };
                        let copied = copy::cp_in(&own, &[options, &[source, &url]].concat());
                        longhaul_from.explain(longhaul_to.explain(copied))?;
                        matrix::check_and_remove(&test_files::shared(size)?, &to.path(&served))
                    });
                }
            }
        }
        cells.finish();
    }
}

fn expect_refused(refused: Result<FinishedProgram>, reason: &str) -> Result<()> {
    let refused = refused?.expect_code(3)?;
    let why = copy::failure_message(&refused).unwrap_or_default();
    ensure!(
        why.to_lowercase().contains(&reason.to_lowercase()),
        "no {reason:?} in {why:?}"
    );
    Ok(())
}

#[test]
fn gsi_cp_verifies_servers() {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let own = proxy(&pki);
    let mut cells = MatrixRow::new("cp verifies GSI servers");
    for (name, host, reason) in [
        ("another host", &pki.elsewhere, "elsewhere.example"),
        ("an unknown authority", &pki.untrusted_host, "Unknown CA"),
        ("an expired certificate", &pki.expired_host, "expired"),
    ] {
        let store = TestStore::new().unwrap();
        let server = globus::start_gsi_as(&store, &pki, host, &[]).unwrap();
        cells.check(name, || {
            let to = path_argument(&store.local());
            let arguments = ["--retries", "0", &server.url("src/f1"), &to];
            expect_refused(copy::run_in(&own, &arguments), reason)
        });
    }
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    cells.check("authorities of another directory", || {
        let to = path_argument(&store.local());
        let own = own.clone().with("X509_CERT_DIR", pki.other_ca_directory());
        let arguments = ["--retries", "0", &server.url("src/f1"), &to];
        expect_refused(copy::run_in(&own, &arguments), "Interop Test CA")?;
        let directory = path_argument(&pki.ca_directory());
        let arguments = [&["--ca", &directory], &arguments[..]].concat();
        copy::run_in(&own, &arguments)?.expect_success().map(drop)
    });
    cells.finish();
}

#[test]
fn gsi_cp_says_which_credential_is_refused() {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    let get = |environment: &GridEnvironment| {
        let to = path_argument(&store.local());
        copy::run_in(environment, &["--retries", "0", &server.url("src/f1"), &to])
    };
    let mut cells = MatrixRow::new("credentials of cp");
    cells.check("certificate and key work", || {
        get(&GridEnvironment::certificate(&pki, &pki.user))?
            .expect_success()
            .map(drop)
    });
    cells.check("a limited proxy works", || {
        let file = pki.proxy(PeerProxy::Limited)?;
        get(&GridEnvironment::proxy(&pki, &file))?
            .expect_success()
            .map(drop)
    });
    cells.check("an expired proxy", || {
        let file = pki.proxy(PeerProxy::Expired)?;
        expect_refused(get(&GridEnvironment::proxy(&pki, &file)), "expired")
    });
    cells.check("none", || {
        let nothing = GridEnvironment::default()
            .with("X509_CERT_DIR", pki.ca_directory())
            .with("HOME", "/nonexistent");
        expect_refused(get(&nothing), "longhaul proxy init")
    });
    for (name, user) in [("a stranger", &pki.stranger), ("revoked", &pki.revoked)] {
        cells.check(name, || {
            let own = GridEnvironment::certificate(&pki, user);
            get(&own)?.expect_code(3).map(drop)
        });
    }
    cells.finish();
}

/// `gsiftp:` is never clear.
#[test]
fn gsi_cp_refuses_servers_without_gsi() {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let own = proxy(&pki);
    let store = TestStore::new().unwrap();
    let plain = ServeCommand::anonymous(store.root()).start().unwrap();
    let tls = ServeCommand::anonymous(store.root())
        .certificate(&pki.host)
        .start()
        .unwrap();
    let mut cells = MatrixRow::new("cp gsiftp:");
    for (name, server) in [("without security", &plain), ("with TLS", &tls)] {
        cells.check(name, || {
            let to = path_argument(&store.local());
            let arguments = ["--retries", "0", &server.gsi_url("src/f1"), &to];
            expect_refused(copy::run_in(&own, &arguments), "ftp:")
        });
    }
    cells.finish();
}

#[test]
fn gsi_cp_protects_data_as_asked() {
    require!(globus::find());
    require!(WireTap::find());
    let pki = require!(PeerPki::find());
    let own = proxy(&pki);
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    let mut cells = MatrixRow::new("content on the wire, cp over GSI");
    let rows: [(u64, &[&str], bool); 4] = [
        (61, &["--data-protection", "authenticated"], true),
        (62, &["--data-protection", "private"], false),
        (63, &["--data-protection", "private", "-p", "4"], false),
        (64, &["--data-protection", "safe"], false),
    ];
    for (seed, options, expected) in rows {
        cells.check(options.join(" "), || {
            let source = store.local();
            let seed = seed << 32 | u64::from(std::process::id());
            test_files::write(&source, 1_000_000, seed)?;
            let tap = WireTap::start(&source)?;
            let url = server.url(&store.upload());
            copy::cp_in(&own, &[options, &[&path_argument(&source), &url]].concat())?;
            let back = path_argument(&store.local());
            copy::cp_in(&own, &[options, &[&url, &back]].concat())?;
            let seen = tap.has_seen_content()?;
            ensure!(seen == expected, "content on the wire: {seen}");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn gsi_file_verbs_work() {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let own = proxy(&pki);
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    let verb = |words: &[&str]| {
        let mut command = longhaul()?;
        own.apply(&mut command);
        run::run(command.args(words))?.expect_success()
    };
    let listed = verb(&["ls", &server.url("src")]).unwrap();
    assert!(listed.stdout_text().contains("f65535"), "{listed}");
    let shown = verb(&["stat", "--json", &server.url("src/f65535")]).unwrap();
    assert!(shown.stdout_text().contains("65535"), "{shown}");
    let sum = verb(&["cksum", "-a", "adler32", &server.url("src/f0")]).unwrap();
    assert!(sum.stdout_text().starts_with("00000001"), "{sum}");
    verb(&["mkdir", "-p", &server.url("up/a/b")]).unwrap();
    verb(&["mv", &server.url("up/a/b"), &server.url("up/a/c")]).unwrap();
    // The listing of an empty directory names the directory, or it would count as cut.
    let empty = verb(&["ls", &server.url("up/a/c")]).unwrap();
    assert_eq!(empty.stdout_text(), "");
    verb(&["rm", "-r", &server.url("up/a")]).unwrap();
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
}

/// Makes a proxy with `longhaul proxy init`.
fn init_proxy(pki: &PeerPki, file: &Path, options: &[&str]) -> Result<FinishedProgram> {
    let mut command = longhaul()?;
    GridEnvironment::certificate(pki, &pki.user)
        .with("X509_USER_PROXY", file)
        .apply(&mut command);
    run::run(command.args(["proxy", "init"]).args(options))?.expect_success()
}

#[test]
fn gsi_proxies_of_longhaul_work_with_globus() {
    require!(globus::find());
    let client = require!(GlobusUrlCopy::find());
    let info = require!(find_installed("grid-proxy-info"));
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    let longhaul_server = ServeCommand::new(store.root())
        .gsi(&pki)
        .unwrap()
        .start()
        .unwrap();
    let mut cells = MatrixRow::new("longhaul proxy init");
    for options in [&[][..], &["--limited"]] {
        cells.check(options.join(" "), || {
            let file = store.local();
            init_proxy(&pki, &file, options)?;
            let own = GridEnvironment::proxy(&pki, &file);
            let mut command = client_command(&info);
            own.apply(&mut command);
            let shown = run::run(command.arg("-file").arg(&file))?.expect_success()?;
            let shown = shown.stdout_text();
            ensure!(shown.contains("/O=Grid/OU=interop/CN=Test User"), "{shown}");
            ensure!(shown.contains("RFC 3820"), "{shown}");
            let limited = shown.contains("limited");
            ensure!(limited != options.is_empty(), "{shown}");
            let client = client.with(own);
            for url in [
                server.url("src/f65536"),
                longhaul_server.gsi_url("src/f65536"),
            ] {
                let to = store.local();
                longhaul_server.explain(client.copy(&["-dcpriv"], &url, &file_url(&to)))?;
                matrix::check_and_remove(&test_files::shared(65_536)?, &to)?;
            }
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn gsi_proxies_are_shown_and_destroyed() {
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let file = store.local();
    init_proxy(&pki, &file, &[]).unwrap();
    let proxy = |verb: &str| {
        let mut command = longhaul()?;
        GridEnvironment::proxy(&pki, &file).apply(&mut command);
        run::run(command.args(["proxy", verb]))
    };
    let shown = proxy("info")
        .and_then(FinishedProgram::expect_success)
        .unwrap();
    assert!(shown.stdout_text().contains("CN=Test User"), "{shown}");
    proxy("destroy")
        .and_then(FinishedProgram::expect_success)
        .unwrap();
    assert!(!file.exists(), "the proxy is still there");
    proxy("info")
        .and_then(FinishedProgram::expect_failure)
        .unwrap();
}

/// The account of a URL over GSI is one of the gridmap's.
#[test]
fn gsi_cp_names_an_account() {
    let pki = require!(PeerPki::find());
    let own = proxy(&pki);
    let store = TestStore::new().unwrap();
    let server = ServeCommand::new(store.root())
        .gsi(&pki)
        .unwrap()
        .start()
        .unwrap();
    let get = |user: &str| {
        let url = server
            .gsi_url("src/f1")
            .replace("//", &format!("//{user}@"));
        let to = path_argument(&store.local());
        copy::run_in(&own, &["--retries", "0", &url, &to])
    };
    server
        .explain(get(USER))
        .and_then(FinishedProgram::expect_success)
        .unwrap();
    get("bob")
        .and_then(|refused| refused.expect_code(3))
        .unwrap();
}
