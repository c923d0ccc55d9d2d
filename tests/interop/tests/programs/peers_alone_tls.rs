//! FTPS clients and servers of other projects with each other. These tests check the harness, so that a
//! failing cell elsewhere is a defect of longhaul.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::rows::path_argument;
use interop::matrix::{self, TestStore};
use interop::peer::curl::Curl;
use interop::peer::ftplib::{Ftplib, TlsScript};
use interop::peer::lftp::Lftp;
use interop::peer::tls::{PeerTls, StartTlsPeer};
use interop::peer::{PeerServer, proftpd, pure_ftpd, pyftpdlib, vsftpd};
use interop::pki::PeerPki;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files::{self, HARNESS_SIZES};

/// Every FTPS server: its name, its program, how it is started.
fn servers() -> [(&'static str, Result<PathBuf, String>, StartTlsPeer); 4] {
    [
        ("vsftpd", vsftpd::find(), vsftpd::start_with_tls),
        ("proftpd", proftpd::find_tls(), proftpd::start_with_tls),
        ("pure-ftpd", pure_ftpd::find(), pure_ftpd::start_with_tls),
        (
            "pyftpdlib",
            pyftpdlib::find_tls(),
            pyftpdlib::start_with_tls,
        ),
    ]
}

/// Gets and puts every size with curl; URLs have this scheme.
fn curl_both_ways(name: &str, server: &PeerServer, store: &TestStore, scheme: &str, more: &[&str]) {
    let curl = require!(Curl::find());
    let pki = require!(PeerPki::find());
    let authority = path_argument(&pki.ca_file());
    let options = [&["--ssl-reqd", "--cacert", &authority], more].concat();
    let mut cells = MatrixRow::new(format!("curl, {name}"));
    matrix::get(&mut cells, store, &HARNESS_SIZES, |from, to| {
        let (url, to) = (server.url_with(scheme, from), path_argument(to));
        curl.run(&[&options[..], &[&url, "-o", &to]].concat())?
            .expect_success()
            .map(drop)
    });
    matrix::put(&mut cells, store, &HARNESS_SIZES, |from, to| {
        let (from, url) = (path_argument(from), server.url_with(scheme, to));
        curl.run(&[&options[..], &["-T", &from, &url]].concat())?
            .expect_success()
            .map(drop)
    });
    cells.finish();
}

#[test]
fn curl_works_with_ftps_servers() {
    let pki = require!(PeerPki::find());
    // curl begins the handshake of a data connection before RETR or STOR; pyftpdlib 1.5.7 then resets it.
    for (name, found, start) in servers().into_iter().take(3) {
        require!(found);
        let store = TestStore::new().unwrap();
        let server = start(&store, &PeerTls::new(&pki.host)).unwrap();
        for more in [&[][..], &["--tls-max", "1.2"]] {
            curl_both_ways(name, &server, &store, "ftp", more);
        }
    }
}

#[test]
fn curl_resumes_sessions_where_servers_require_it() {
    let pki = require!(PeerPki::find());
    for (name, found, start) in servers().into_iter().take(2) {
        require!(found);
        let store = TestStore::new().unwrap();
        let tls = PeerTls {
            session_reuse: true,
            ..PeerTls::new(&pki.host)
        };
        let server = start(&store, &tls).unwrap();
        for more in [&[][..], &["--tls-max", "1.2"]] {
            let name = format!("{name} with session reuse {more:?}");
            curl_both_ways(&name, &server, &store, "ftp", more);
        }
    }
}

#[test]
fn curl_uses_implicit_tls() {
    let pki = require!(PeerPki::find());
    for (name, found, start) in servers().into_iter().take(2) {
        require!(found);
        let store = TestStore::new().unwrap();
        let tls = PeerTls {
            implicit: true,
            ..PeerTls::new(&pki.host)
        };
        let server = start(&store, &tls).unwrap();
        curl_both_ways(&format!("{name}, implicit"), &server, &store, "ftps", &[]);
    }
}

#[test]
fn curl_shows_a_client_certificate() {
    let pki = require!(PeerPki::find());
    let curl = require!(Curl::find());
    for (name, found, start) in servers().into_iter().take(2) {
        require!(found);
        let store = TestStore::new().unwrap();
        let tls = PeerTls {
            client_ca: Some(pki.ca_file()),
            ..PeerTls::new(&pki.host)
        };
        let server = start(&store, &tls).unwrap();
        let (certificate, key) = (
            path_argument(&pki.user.certificate),
            path_argument(&pki.user.key),
        );
        let own = ["--cert", &certificate, "--key", &key];
        curl_both_ways(&format!("{name} asks"), &server, &store, "ftp", &own);
        let authority = path_argument(&pki.ca_file());
        let url = server.url_with("ftp", "src/f1");
        curl.run(&["--ssl-reqd", "--cacert", &authority, &url])
            .and_then(FinishedProgram::expect_failure)
            .unwrap();
    }
}

#[test]
fn lftp_works_with_every_ftps_server() {
    let pki = require!(PeerPki::find());
    let lftp = require!(Lftp::find());
    for (name, found, start) in servers() {
        require!(found);
        let store = TestStore::new().unwrap();
        let server = start(&store, &PeerTls::new(&pki.host)).unwrap();
        let url = server.url_with("ftp", "");
        let url = url.trim_end_matches('/');
        let options = format!(
            "set ssl:ca-file {}; set ftp:ssl-force yes; set ftp:ssl-protect-data yes; \
             set ftp:ssl-allow-anonymous yes",
            pki.ca_file().display()
        );
        let mut cells = MatrixRow::new(format!("lftp, {name}"));
        matrix::get(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            let commands = format!("{options}; get /{from} -o {}", to.display());
            lftp.script_at(url, &commands).map(drop)
        });
        matrix::put(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            let commands = format!("{options}; put {} -o /{to}", from.display());
            lftp.script_at(url, &commands).map(drop)
        });
        cells.finish();
    }
}

#[test]
fn ftplib_works_with_every_ftps_server() {
    let pki = require!(PeerPki::find());
    let ftplib = require!(Ftplib::find());
    let authority = pki.ca_file();
    for (name, found, start) in servers() {
        require!(found);
        let store = TestStore::new().unwrap();
        let server = start(&store, &PeerTls::new(&pki.host)).unwrap();
        let login = match name {
            "pure-ftpd" => ("alice", interop::peer::PASSWORD),
            _ => ("anonymous", "x"),
        };
        let session = TlsScript {
            authority: &authority,
            kind: "plain",
            login,
        };
        let script = "
f.prot_p()
f.retrbinary('RETR ' + args[0], open(args[1], 'wb').write)
f.storbinary('STOR ' + args[2], open(args[1], 'rb'))
";
        let mut cells = MatrixRow::new(format!("ftplib, {name}"));
        for size in HARNESS_SIZES {
            cells.check(format!("{size} bytes there and back"), || {
                let (local, served) = (store.local(), store.upload());
                let from = format!("/src/{}", test_files::name(size));
                let args = [&from[..], &path_argument(&local), &format!("/{served}")];
                ftplib.tls_script(server.address(), &session, script, &args)?;
                let source = test_files::shared(size)?;
                matrix::check_and_remove(&source, &local)?;
                matrix::check_and_remove(&source, &store.path(&served))
            });
        }
        cells.check("data without protection is refused", || {
            let script = "f.prot_c()\nprint(f.nlst('/src'))";
            let tried = ftplib.tls_script(server.address(), &session, script, &[]);
            ensure!(tried.is_err(), "{tried:?}");
            Ok(())
        });
        cells.finish();
    }
}

#[test]
fn ftplib_resumes_the_session_on_data_connections() {
    let pki = require!(PeerPki::find());
    let ftplib = require!(Ftplib::find());
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let tls = PeerTls {
        session_reuse: true,
        ..PeerTls::new(&pki.host)
    };
    let server = vsftpd::start_with_tls(&store, &tls).unwrap();
    let authority = pki.ca_file();
    let script = "f.prot_p()\nassert 'f65535' in str(f.nlst('/src'))";
    let mut session = TlsScript::anonymous(&authority, "reuse");
    ftplib
        .tls_script(server.address(), &session, script, &[])
        .unwrap();
    session.kind = "plain";
    ftplib
        .tls_script(server.address(), &session, script, &[])
        .unwrap_err();
}

#[test]
fn ftplib_uses_implicit_tls() {
    let pki = require!(PeerPki::find());
    let ftplib = require!(Ftplib::find());
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let tls = PeerTls {
        implicit: true,
        ..PeerTls::new(&pki.host)
    };
    let server = vsftpd::start_with_tls(&store, &tls).unwrap();
    let authority = pki.ca_file();
    let session = TlsScript::anonymous(&authority, "implicit");
    let script = "f.prot_p()\nassert 'f65535' in str(f.nlst('/src'))";
    ftplib
        .tls_script(server.address(), &session, script, &[])
        .unwrap();
}

#[test]
fn a_client_refuses_certificates_that_are_not_valid() {
    let pki = require!(PeerPki::find());
    let curl = require!(Curl::find());
    require!(vsftpd::find());
    let mut cells = MatrixRow::new("curl refuses");
    for (name, identity) in [
        ("an unknown authority", &pki.untrusted_host),
        ("another host", &pki.elsewhere),
        ("an expired certificate", &pki.expired_host),
    ] {
        cells.check(name, || {
            let store = TestStore::new()?;
            let server = vsftpd::start_with_tls(&store, &PeerTls::new(identity))?;
            let authority = path_argument(&pki.ca_file());
            let url = server.url_with("ftp", "src/f1");
            // Exit code 60 of curl: the peer's certificate cannot be verified.
            curl.run(&["--ssl-reqd", "--cacert", &authority, &url])?
                .expect_code(60)
                .map(drop)
        });
    }
    cells.finish();
}
