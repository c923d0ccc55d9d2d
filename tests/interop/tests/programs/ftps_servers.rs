//! `longhaul cp` and the file verbs against FTPS servers.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::peer::tls::{PeerTls, StartTlsPeer};
use interop::peer::{is_root, proftpd, pure_ftpd, pyftpdlib, vsftpd};
use interop::pki::PeerPki;
use interop::pki::authority::PeerCertificate;
use interop::require;
use interop::run;
use interop::test_files;
use interop::tree::TestTree;
use interop::wire_tap::WireTap;

/// All operations with a server with these settings.
fn run_all_rows(name: &str, found: Result<PathBuf, String>, start: StartTlsPeer) {
    require!(found);
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = start(&store, &PeerTls::new(&pki.host)).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let authority = path_argument(&pki.ca_file());
    let trust = ["--ca", &authority];
    let mut cells = MatrixRow::new(format!("longhaul cp, {name} with TLS"));
    rows::get_and_put(&mut cells, &target, &trust, &test_files::SIZES);
    let streams = [&trust[..], &["-p", "4"]].concat();
    rows::get_and_put(&mut cells, &target, &streams, &test_files::SIZES);
    rows::parts(&mut cells, &target, &trust);
    rows::resume_after_kill(&mut cells, &target, &trust);
    rows::trees(&mut cells, &target, &TestTree::thousand(), &trust);
    cells.finish();
}

#[test]
fn ftps_cp_works_with_vsftpd() {
    run_all_rows("vsftpd", vsftpd::find(), vsftpd::start_with_tls);
}

#[test]
fn ftps_cp_works_with_proftpd() {
    run_all_rows("proftpd", proftpd::find_tls(), proftpd::start_with_tls);
}

#[test]
fn ftps_cp_works_with_pure_ftpd() {
    run_all_rows("pure-ftpd", pure_ftpd::find(), pure_ftpd::start_with_tls);
}

#[test]
fn ftps_cp_works_with_pyftpdlib() {
    run_all_rows(
        "pyftpdlib",
        pyftpdlib::find_tls(),
        pyftpdlib::start_with_tls,
    );
}

/// Get, put and a tree with a server that makes further demands.
fn demanding(name: &str, start: StartTlsPeer, tls: &PeerTls, options: &[&str]) {
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = start(&store, tls).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let authority = path_argument(&pki.ca_file());
    let options = [&["--ca", &authority], options].concat();
    let mut cells = MatrixRow::new(format!("longhaul cp, {name}"));
    rows::get_and_put(&mut cells, &target, &options, &test_files::SIZES);
    let tree = TestTree::generate(100, interop::tree::ASCII);
    rows::trees(&mut cells, &target, &tree, &options);
    cells.finish();
}

#[test]
fn ftps_cp_resumes_sessions_where_servers_require_it() {
    let pki = require!(PeerPki::find());
    require!(vsftpd::find());
    require!(proftpd::find_tls());
    for tls_1_2 in [false, true] {
        let tls = PeerTls {
            session_reuse: true,
            tls_1_2,
            ..PeerTls::new(&pki.host)
        };
        if !tls_1_2 {
            demanding("vsftpd, reuse", vsftpd::start_with_tls, &tls, &[]);
        }
        demanding("proftpd, reuse", proftpd::start_with_tls, &tls, &[]);
    }
}

#[test]
fn ftps_cp_shows_a_client_certificate() {
    let pki = require!(PeerPki::find());
    require!(vsftpd::find());
    require!(proftpd::find_tls());
    let tls = PeerTls {
        client_ca: Some(pki.ca_file()),
        ..PeerTls::new(&pki.host)
    };
    let (certificate, key) = (
        path_argument(&pki.user.certificate),
        path_argument(&pki.user.key),
    );
    let own = ["--cert", &certificate, "--key", &key];
    demanding("vsftpd, certificate", vsftpd::start_with_tls, &tls, &own);
    demanding("proftpd, certificate", proftpd::start_with_tls, &tls, &own);
    // Without one, or with one of an unknown authority, the login fails.
    let store = TestStore::new().unwrap();
    let server = proftpd::start_with_tls(&store, &tls).unwrap();
    let authority = path_argument(&pki.ca_file());
    let (certificate, key) = (
        path_argument(&pki.impostor.certificate),
        path_argument(&pki.impostor.key),
    );
    let own = ["--cert", &certificate, "--key", &key];
    for own in [&[][..], &own] {
        let (url, to) = (server.url("src/f1"), path_argument(&store.local()));
        let arguments = ["--retries", "0", "--ca", &authority, &url, &to];
        let refused = copy::run(&[&arguments, own].concat()).unwrap();
        refused.expect_code(3).unwrap();
    }
}

#[test]
fn ftps_cp_uses_implicit_tls_on_port_990() {
    let pki = require!(PeerPki::find());
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let tls = PeerTls {
        implicit: true,
        ..PeerTls::new(&pki.host)
    };
    // An address of its own, because other servers may use this port.
    let address: SocketAddr = "127.0.0.90:990".parse().unwrap();
    let server = vsftpd::start_with_tls_at(&store, &tls, address).unwrap();
    let authority = path_argument(&pki.ca_file());
    let mut cells = MatrixRow::new("longhaul cp, implicit TLS");
    for host in ["127.0.0.90:990", "anonymous@127.0.0.90:990"] {
        cells.check(host, || {
            let to = store.local();
            let url = format!("ftps://{host}/src/f65536");
            copy::cp(&["--ca", &authority, &url, &path_argument(&to)])
                .map_err(|error| error.context(server.log()))?;
            matrix::check_and_remove(&test_files::shared(65_536)?, &to)
        });
    }
    cells.finish();
}

#[test]
fn ftps_tls_may_be_asked_for_with_ftp_urls() {
    let pki = require!(PeerPki::find());
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let secure = vsftpd::start_with_tls(&store, &PeerTls::new(&pki.host)).unwrap();
    let plain_store = TestStore::new().unwrap();
    let plain = vsftpd::start(&plain_store).unwrap();
    let authority = path_argument(&pki.ca_file());
    let run = |tls: &str, url: &str| {
        let to = path_argument(&store.local());
        copy::run(&["--retries", "0", "--ca", &authority, "--tls", tls, url, &to])
    };
    let (secure, plain) = (secure.url_with("ftp", "src/f1"), plain.url("src/f1"));
    let mut cells = MatrixRow::new("cp --tls");
    for tls in ["require", "try"] {
        cells.check(format!("{tls} with a server that requires it"), || {
            let done = run(tls, &secure)?.expect_success()?;
            let warnings = copy::warnings(&done);
            ensure!(warnings.is_empty(), "{warnings:?}");
            Ok(())
        });
    }
    cells.check("require without TLS fails", || {
        let refused = run("require", &plain)?.expect_code(3)?;
        let why = copy::failure_message(&refused).unwrap_or_default();
        ensure!(why.contains("AUTH TLS"), "{why}");
        Ok(())
    });
    cells.check("try without TLS warns", || {
        let done = run("try", &plain)?.expect_success()?;
        let warnings = copy::warnings(&done);
        let about = warnings.iter().filter(|text| text.contains("in clear"));
        ensure!(about.count() == 1, "{warnings:?}");
        Ok(())
    });
    cells.check("off does not begin it", || {
        let to = path_argument(&store.local());
        let refused = copy::run(&["--retries", "0", "--tls", "off", &secure, &to])?;
        refused.expect_code(3).map(drop)
    });
    cells.check("off has no use for authorities", || {
        run("off", &secure)?.expect_code(2).map(drop)
    });
    cells.finish();
}

/// Neither `ftps:` nor `--tls try` goes on with a server that cannot be verified, not even in clear.
#[test]
fn ftps_cp_verifies_servers() {
    let pki = require!(PeerPki::find());
    require!(proftpd::find_tls());
    let authority = path_argument(&pki.ca_file());
    let other = path_argument(&pki.other_authority.certificate());
    let mut cells = MatrixRow::new("cp verifies servers");
    let servers: [(&str, &PeerCertificate, &str); 3] = [
        ("an unknown authority", &pki.untrusted_host, "certificate"),
        ("another host", &pki.elsewhere, "elsewhere.example"),
        ("an expired certificate", &pki.expired_host, "expired"),
    ];
    for (name, identity, reason) in servers {
        let store = TestStore::new().unwrap();
        let server = proftpd::start_with_tls(&store, &PeerTls::new(identity)).unwrap();
        let run = |options: &[&str], url: &str| {
            let to = path_argument(&store.local());
            copy::run(&[&["--retries", "0"], options, &[url, &to]].concat())
        };
        let (ftps, ftp) = (server.url("src/f1"), server.url_with("ftp", "src/f1"));
        let trust = ["--ca", &authority];
        let attempts: [(&[&str], &str); 2] = [
            (&trust, &ftps),
            (&["--tls", "try", "--ca", &authority], &ftp),
        ];
        for (options, url) in attempts {
            cells.check(format!("{name}: {}", options.join(" ")), || {
                let refused = run(options, url)?.expect_code(3)?;
                let why = copy::failure_message(&refused).unwrap_or_default();
                ensure!(why.contains(reason), "{why}");
                ensure!(!server.log().contains("USER"), "{}", server.log());
                Ok(())
            });
        }
        cells.check(format!("{name}: --insecure warns"), || {
            let done = run(&["--insecure"], &ftps)?.expect_success()?;
            let warnings = copy::warnings(&done);
            let about = warnings.iter().filter(|text| text.contains("--insecure"));
            ensure!(about.count() == 1, "{warnings:?}");
            Ok(())
        });
    }
    let store = TestStore::new().unwrap();
    let server = proftpd::start_with_tls(&store, &PeerTls::new(&pki.untrusted_host)).unwrap();
    cells.check("--ca names its authority", || {
        let to = path_argument(&store.local());
        copy::cp(&["--ca", &other, &server.url("src/f1"), &to]).map(drop)
    });
    cells.check("without --ca the authorities of the system count", || {
        let to = path_argument(&store.local());
        let refused = copy::run(&["--retries", "0", &server.url("src/f1"), &to])?;
        refused.expect_code(3).map(drop)
    });
    cells.finish();
}

#[test]
fn ftps_file_verbs_work() {
    let pki = require!(PeerPki::find());
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let tls = PeerTls {
        session_reuse: true,
        ..PeerTls::new(&pki.host)
    };
    let server = vsftpd::start_with_tls(&store, &tls).unwrap();
    let verb = |words: &[&str]| {
        let mut command = longhaul()?;
        command.args(words).arg("--ca").arg(pki.ca_file());
        run::run(&mut command)?.expect_success()
    };
    let mut cells = MatrixRow::new("verbs over TLS");
    cells.check("ls", || {
        let listed = verb(&["ls", &server.url("src")])?;
        ensure!(listed.stdout_text().contains("f65535"), "{listed}");
        Ok(())
    });
    cells.check("stat", || {
        let shown = verb(&["stat", "--json", &server.url("src/f65535")])?;
        ensure!(shown.stdout_text().contains("65535"), "{shown}");
        Ok(())
    });
    cells.check("mkdir, mv, rm", || {
        verb(&["mkdir", "-p", &server.url("up/a/b")])?;
        verb(&["mv", &server.url("up/a/b"), &server.url("up/a/c")])?;
        ensure!(store.path("up/a/c").is_dir());
        verb(&["rm", "-r", &server.url("up/a")])?;
        matrix::ensure_only(&store.path("up"), &[])
    });
    cells.check("an unknown authority is refused", || {
        let mut command = longhaul()?;
        command.args(["ls", &server.url("src")]);
        run::run(&mut command)?.expect_code(3).map(drop)
    });
    cells.finish();
}

/// `--data-protection clear` is the only way to clear data; with servers that refuse it the copy fails.
#[test]
fn ftps_data_is_protected_unless_clear_is_asked_for() {
    let pki = require!(PeerPki::find());
    require!(WireTap::find());
    require!(vsftpd::find());
    require!(
        is_root()
            .then_some(())
            .ok_or_else(|| "needs root".to_owned())
    );
    let authority = path_argument(&pki.ca_file());
    let store = TestStore::new().unwrap();
    let strict = vsftpd::start_with_tls(&store, &PeerTls::new(&pki.host)).unwrap();
    // The other servers refuse PROT C where they require TLS.
    let lax = ServeCommand::anonymous(store.root())
        .certificate(&pki.host)
        .start()
        .unwrap();
    let mut cells = MatrixRow::new("--data-protection");
    for (seed, protection, expected) in [
        (81, "auto", false),
        (82, "private", false),
        (83, "clear", true),
    ] {
        cells.check(protection, || {
            let source = store.local();
            let seed = seed << 32 | u64::from(std::process::id());
            test_files::write(&source, 1_000_000, seed)?;
            let tap = WireTap::start(&source)?;
            let options = ["--ca", &authority, "--data-protection", protection];
            let url = lax.url(&store.upload()).replace("ftp:", "ftps:");
            copy::cp(&[&options[..], &[&path_argument(&source), &url]].concat())
                .map_err(|error| error.context(lax.log()))?;
            let seen = tap.has_seen_content()?;
            ensure!(seen == expected, "content on the wire: {seen}");
            Ok(())
        });
    }
    cells.check("clear is refused by vsftpd", || {
        let options = [
            "--retries",
            "0",
            "--ca",
            &authority,
            "--data-protection",
            "clear",
        ];
        let (url, to) = (strict.url("src/f1"), path_argument(&store.local()));
        copy::run(&[&options[..], &[&url, &to]].concat())?
            .expect_failure()
            .map(drop)
    });
    cells.finish();
}
