//! GSI clients and servers of other projects with each other. These tests check the harness, so that a
//! failing cell elsewhere is a defect of longhaul.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::matrix::{self, TestStore};
use interop::peer::gfal::Gfal;
use interop::peer::globus_gridftp_server as globus;
use interop::peer::globus_url_copy::{GSI_PROTECTION, GlobusUrlCopy, file_url};
use interop::pki::environment::GridEnvironment;
use interop::pki::{PeerPki, PeerProxy};
use interop::require;
use interop::test_files::HARNESS_SIZES;

#[test]
fn globus_url_copy_works_with_globus_gridftp_server_over_gsi() {
    let client = require!(GlobusUrlCopy::find());
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let proxy = pki.proxy(PeerProxy::Full).unwrap();
    let environment = GridEnvironment::proxy(&pki, &proxy);
    let mut cells = MatrixRow::new("globus-url-copy, globus-gridftp-server, GSI");
    let rows = [
        (environment.clone(), &GSI_PROTECTION[..]),
        (environment.tls_1_2(), &GSI_PROTECTION[2..4]),
    ];
    for (environment, options) in rows {
        let client = client.with(environment);
        let (store, other) = (TestStore::new().unwrap(), TestStore::new().unwrap());
        let server = globus::start_gsi(&store, &pki).unwrap();
        let second = globus::start_gsi(&other, &pki).unwrap();
        for options in options {
            let sizes = HARNESS_SIZES;
            matrix::get(&mut cells, &store, &sizes, |from, to| {
                client
                    .copy(options, &server.url(from), &file_url(to))
                    .map(drop)
            });
            matrix::put(&mut cells, &store, &sizes, |from, to| {
                client
                    .copy(options, &file_url(from), &server.url(to))
                    .map(drop)
            });
            matrix::third_party(&mut cells, &other, &sizes, |from, to| {
                client
                    .copy(options, &server.url(from), &second.url(to))
                    .map(drop)
            });
        }
    }
    cells.finish();
}

#[test]
fn globus_gridftp_server_accepts_and_refuses_credentials() {
    let client = require!(GlobusUrlCopy::find());
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    let mut cells = MatrixRow::new("credentials, globus-gridftp-server");
    let get = |environment: GridEnvironment| {
        let to = file_url(&store.local());
        client
            .with(environment)
            .copy::<&str>(&[], &server.url("src/f1"), &to)
    };
    let proxy = |kind| {
        pki.proxy(kind)
            .map(|file| GridEnvironment::proxy(&pki, &file))
    };
    for kind in [PeerProxy::Full, PeerProxy::Limited] {
        cells.check(format!("{kind:?} works"), || get(proxy(kind)?).map(drop));
    }
    cells.check("certificate and key work", || {
        get(GridEnvironment::certificate(&pki, &pki.user)).map(drop)
    });
    for kind in [
        PeerProxy::Expired,
        PeerProxy::Independent,
        PeerProxy::FullBelowLimited,
    ] {
        cells.check(format!("{kind:?} is refused"), || {
            let tried = get(proxy(kind)?);
            ensure!(tried.is_err(), "{tried:?}");
            Ok(())
        });
    }
    for (name, user) in [
        ("stranger", &pki.stranger),
        ("revoked", &pki.revoked),
        ("impostor", &pki.impostor),
    ] {
        cells.check(format!("{name} is refused"), || {
            let tried = get(GridEnvironment::certificate(&pki, user));
            ensure!(tried.is_err(), "{tried:?}");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn globus_url_copy_checks_the_host() {
    let client = require!(GlobusUrlCopy::find());
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let proxy = pki.proxy(PeerProxy::Full).unwrap();
    let client = client.with(GridEnvironment::proxy(&pki, &proxy));
    let mut cells = MatrixRow::new("globus-url-copy checks the host");
    for (name, host) in [
        ("another host", &pki.elsewhere),
        ("an unknown authority", &pki.untrusted_host),
        ("an expired certificate", &pki.expired_host),
    ] {
        cells.check(name, || {
            let store = TestStore::new()?;
            let server = globus::start_gsi_as(&store, &pki, host, &[])?;
            let to = file_url(&store.local());
            let tried = client.copy::<&str>(&[], &server.url("src/f1"), &to);
            ensure!(tried.is_err(), "{tried:?}");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn gfal_works_with_globus_gridftp_server_over_gsi() {
    let gfal = require!(Gfal::find());
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let proxy: PathBuf = pki.proxy(PeerProxy::Full).unwrap();
    let gfal = gfal.with(GridEnvironment::proxy(&pki, &proxy));
    let (store, other) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let server = globus::start_gsi(&store, &pki).unwrap();
    let second = globus::start_gsi(&other, &pki).unwrap();
    let copy = |from: &str, to: &str| -> Result<()> {
        gfal.run("copy", &["-f", "-v", from, to]).map(drop)
    };
    let mut cells = MatrixRow::new("gfal-copy, globus-gridftp-server, GSI");
    matrix::get(&mut cells, &store, &HARNESS_SIZES, |from, to| {
        copy(&server.url(from), &file_url(to))
    });
    matrix::put(&mut cells, &store, &HARNESS_SIZES, |from, to| {
        copy(&file_url(from), &server.url(to))
    });
    matrix::third_party(&mut cells, &other, &HARNESS_SIZES, |from, to| {
        copy(&server.url(from), &second.url(to))
    });
    cells.finish();
}
