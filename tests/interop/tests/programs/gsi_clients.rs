//! GSI clients (globus-url-copy, gfal2) against `longhaul serve`.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::serve::{LonghaulServer, ServeCommand, USER};
use interop::matrix::{self, TestStore};
use interop::peer::gfal::Gfal;
use interop::peer::globus_gridftp_server as globus;
use interop::peer::globus_url_copy::{GSI_PROTECTION, GlobusUrlCopy, file_url};
use interop::peer::{client_command, find_installed};
use interop::pki::environment::GridEnvironment;
use interop::pki::{PeerPki, PeerProxy};
use interop::require;
use interop::run;
use interop::test_files;
use interop::tree::{ASCII, TestTree, UNICODE};
use interop::wire_tap::WireTap;

use super::globus_client::ServedTestStore;

/// Besides, with four streams.
const PARALLEL_CREDENTIAL: [&str; 4] = ["-data-cred", "auto", "-p", "4"];

fn start(store: &TestStore, pki: &PeerPki) -> Result<LonghaulServer> {
    ServeCommand::new(store.root()).gsi(pki)?.start()
}

fn proxy(pki: &PeerPki) -> GridEnvironment {
    GridEnvironment::proxy(pki, &pki.proxy(PeerProxy::Full).unwrap())
}

/// Get and put of every size with these options in this environment.
fn both_ways(environment: impl FnOnce(&PeerPki) -> GridEnvironment, rows: &[&[&str]]) {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(environment(&pki));
    let store = TestStore::new().unwrap();
    let server = start(&store, &pki).unwrap();
    for options in rows {
        let mut cells = MatrixRow::new(format!("globus-url-copy GSI {}", options.join(" ")));
        let served = ServedTestStore::over_gsi(&store, &server);
        served.get_and_put(&mut cells, &client, options, &test_files::FEW_SIZES);
        cells.finish();
    }
}

#[test]
fn gsi_globus_url_copy_transfers_files() {
    both_ways(proxy, &GSI_PROTECTION[..5]);
}

#[test]
fn gsi_globus_url_copy_transfers_files_over_four_streams() {
    both_ways(proxy, &GSI_PROTECTION[5..]);
    both_ways(proxy, &[&PARALLEL_CREDENTIAL]);
}

#[test]
fn gsi_globus_url_copy_transfers_files_with_tls_1_2() {
    let tls_1_2 = |pki: &PeerPki| proxy(pki).tls_1_2();
    // With four streams in the rows of TLS 1.3.
    both_ways(tls_1_2, &GSI_PROTECTION[..5]);
    both_ways(tls_1_2, &[&PARALLEL_CREDENTIAL]);
}

#[test]
fn gsi_globus_url_copy_may_name_the_drivers_of_data_connections() {
    both_ways(
        proxy,
        &[
            &["-dcstack", "tcp"],
            &["-dcstack", "tcp,gsi", "-p", "2"],
            &["-dcstack", "tcp:sndbuf=65536", "-dcpriv"],
        ],
    );
}

#[test]
fn gsi_globus_url_copy_may_connect_by_address() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(proxy(&pki));
    let store = TestStore::new().unwrap();
    let server = start(&store, &pki).unwrap();
    let url = format!("gsiftp://{}/src/f65536", server.address());
    let to = store.local();
    server
        .explain(client.copy::<&str>(&[], &url, &file_url(&to)))
        .unwrap();
    matrix::check_and_remove(&test_files::shared(65_536).unwrap(), &to).unwrap();
}

#[test]
fn gsi_globus_url_copy_transfers_trees() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(proxy(&pki));
    let store = TestStore::new().unwrap();
    let tree = TestTree::generate(200, &[ASCII, UNICODE].concat());
    store.add_tree("tree", &tree).unwrap();
    let server = start(&store, &pki).unwrap();
    let mut cells = MatrixRow::new("globus-url-copy of a tree, GSI");
    let rows: [&[&str]; 4] = [
        &["-dcpriv"],
        &["-cc", "4", "-dcpriv"],
        &["-pp"],
        &["-fast", "-p", "2", "-dcpriv"],
    ];
    let served = ServedTestStore::over_gsi(&store, &server);
    for row in rows {
        served.get_and_put_tree(&mut cells, &client, row, &tree);
    }
    cells.finish();
}

#[test]
fn gsi_credentials_are_accepted_and_refused() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = start(&store, &pki).unwrap();
    let get = |environment: GridEnvironment| {
        let to = file_url(&store.local());
        client
            .with(environment)
            .copy::<&str>(&[], &server.gsi_url("src/f1"), &to)
    };
    let of_kind = |kind| {
        pki.proxy(kind)
            .map(|file| GridEnvironment::proxy(&pki, &file))
    };
    let mut cells = MatrixRow::new("credentials");
    for kind in [PeerProxy::Full, PeerProxy::Limited] {
        cells.check(format!("{kind:?} works"), || {
            server.explain(get(of_kind(kind)?)).map(drop)
        });
    }
    cells.check("certificate and key work", || {
        server
            .explain(get(GridEnvironment::certificate(&pki, &pki.user)))
            .map(drop)
    });
    for kind in [
        PeerProxy::Expired,
        PeerProxy::Independent,
        PeerProxy::TooLong,
        PeerProxy::FullBelowLimited,
    ] {
        cells.check(format!("{kind:?} is refused"), || {
            let tried = get(of_kind(kind)?);
            ensure!(tried.is_err(), "{tried:?}");
            Ok(())
        });
    }
    for (name, user, logged) in [
        ("a stranger", &pki.stranger, "Stranger"),
        ("a revoked certificate", &pki.revoked, "revoked"),
        ("an unknown authority", &pki.impostor, "Unknown CA"),
    ] {
        cells.check(format!("{name} is refused, and the log says why"), || {
            let tried = get(GridEnvironment::certificate(&pki, user));
            ensure!(tried.is_err(), "{tried:?}");
            let log = server.log();
            ensure!(log.contains(logged), "no {logged:?} in {log}");
            Ok(())
        });
    }
    cells.check("the server serves on", || {
        server.explain(get(of_kind(PeerProxy::Full)?)).map(drop)
    });
    cells.finish();
}

/// Proxies of Globus's own program, of each kind.
#[test]
fn gsi_proxies_of_grid_proxy_init_work() {
    let client = require!(GlobusUrlCopy::find());
    let program = require!(find_installed("grid-proxy-init"));
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = start(&store, &pki).unwrap();
    let mut cells = MatrixRow::new("grid-proxy-init");
    let rows: [&[&str]; 5] = [
        &[],
        &["-limited"],
        &["-draft"],
        &["-path-length", "1"],
        &["-bits", "4096"],
    ];
    for options in rows {
        cells.check(options.join(" "), || {
            let file = store.local();
            let mut command = client_command(&program);
            GridEnvironment::certificate(&pki, &pki.user).apply(&mut command);
            command
                .args(["-q", "-cert"])
                .arg(&pki.user.certificate)
                .arg("-key")
                .arg(&pki.user.key)
                .arg("-out")
                .arg(&file)
                .args(options);
            run::run(&mut command)?.expect_success()?;
            let client = client.with(GridEnvironment::proxy(&pki, &file));
            let to = file_url(&store.local());
            server
                .explain(client.copy(&["-dcpriv"], &server.gsi_url("src/f65536"), &to))
                .map(drop)
        });
    }
    cells.finish();
}

/// The account of the URL must be one that the gridmap lists.
#[test]
fn gsi_accounts_are_those_of_the_gridmap() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(proxy(&pki));
    let store = TestStore::new().unwrap();
    let server = start(&store, &pki).unwrap();
    let get = |user: &str| {
        let url = server
            .gsi_url("src/f1")
            .replace("//", &format!("//{user}@"));
        client.copy::<&str>(&[], &url, &file_url(&store.local()))
    };
    server.explain(get(USER)).unwrap();
    get("bob").unwrap_err();
}

#[test]
fn gsi_globus_url_copy_transfers_between_two_servers() {
    let client = require!(GlobusUrlCopy::find());
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let client = client.with(proxy(&pki));
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = start(&from, &pki).unwrap();
    let destination = start(&to, &pki).unwrap();
    let globus_from = globus::start_gsi(&from, &pki).unwrap();
    let globus_to = globus::start_gsi(&to, &pki).unwrap();
    let sizes = [0, 20_000_000];
    for options in GSI_PROTECTION.into_iter().chain([&PARALLEL_CREDENTIAL[..]]) {
        let row = options.join(" ");
        let mut cells = MatrixRow::new(format!("globus-url-copy third party, longhaul, {row}"));
        matrix::third_party(&mut cells, &to, &sizes, |from, to| {
            let copied = client.copy(options, &source.gsi_url(from), &destination.gsi_url(to));
            source.explain(destination.explain(copied)).map(drop)
        });
        cells.finish();
        let mut cells = MatrixRow::new(format!("globus-url-copy third party, to globus, {row}"));
        matrix::third_party(&mut cells, &to, &sizes, |from, to| {
            let copied = client.copy(options, &source.gsi_url(from), &globus_to.url(to));
            source.explain(copied).map(drop)
        });
        cells.finish();
        let mut cells = MatrixRow::new(format!("globus-url-copy third party, from globus, {row}"));
        matrix::third_party(&mut cells, &to, &sizes, |from, to| {
            let copied = client.copy(options, &globus_from.url(from), &destination.gsi_url(to));
            destination.explain(copied).map(drop)
        });
        cells.finish();
    }
}

/// Together with `-nodcau`, globus-url-copy sends no PROT at all, so that no server can know of `-dcpriv`;
/// `--require-protection data` refuses that.
#[test]
fn gsi_protection_is_never_dropped() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    require!(WireTap::find());
    let client = client.with(proxy(&pki));
    let store = TestStore::new().unwrap();
    let server = start(&store, &pki).unwrap();
    let mut cells = MatrixRow::new("content on the wire, GSI");
    let rows: [(u64, &[&str], bool); 4] = [
        (91, &[], true),
        (92, &["-dcpriv"], false),
        (93, &["-dcpriv", "-p", "4"], false),
        (94, &["-dcsafe"], false),
    ];
    for (seed, options, expected) in rows {
        cells.check(options.join(" "), || {
            let own = format!("src/secret{seed}");
            let seed = seed << 32 | u64::from(std::process::id());
            test_files::write(&store.path(&own), 1_000_000, seed)?;
            let tap = WireTap::start(&store.path(&own))?;
            let (from, to) = (server.gsi_url(&own), file_url(&store.local()));
            server.explain(client.copy(options, &from, &to))?;
            let (from, to) = (file_url(&store.path(&own)), server.gsi_url(&store.upload()));
            server.explain(client.copy(options, &from, &to))?;
            let seen = tap.has_seen_content()?;
            ensure!(seen == expected, "content on the wire: {seen}");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn gsi_clear_data_is_refused_where_protection_is_required() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(proxy(&pki));
    let store = TestStore::new().unwrap();
    let server = ServeCommand::new(store.root())
        .gsi(&pki)
        .unwrap()
        .option("--require-protection", "data")
        .start()
        .unwrap();
    let get = |options: &[&str]| {
        let to = file_url(&store.local());
        client.copy(options, &server.gsi_url("src/f65536"), &to)
    };
    for options in [&[][..], &["-nodcau"], &["-nodcau", "-dcpriv"]] {
        assert!(get(options).is_err(), "{options:?}");
    }
    server.explain(get(&["-dcpriv"])).unwrap();
}

#[test]
fn gsi_globus_url_copy_checks_the_host() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(proxy(&pki));
    let store = TestStore::new().unwrap();
    let gridmap = store.path("gridmap");
    pki.write_gridmap(&gridmap, USER).unwrap();
    let server = ServeCommand::new(store.root())
        .certificate(&pki.elsewhere)
        .option("--gridmap", &gridmap.to_string_lossy())
        .option("--ca-dir", &pki.ca_directory().to_string_lossy())
        .start()
        .unwrap();
    let to = file_url(&store.local());
    client
        .copy::<&str>(&[], &server.gsi_url("src/f1"), &to)
        .unwrap_err();
    let subject = "/O=Grid/OU=interop/CN=elsewhere.example";
    let options = ["-ss", subject, "-nodcau"];
    server
        .explain(client.copy(&options, &server.gsi_url("src/f1"), &to))
        .unwrap();
}

#[test]
fn gsi_gfal_copies_lists_and_removes() {
    let gfal = require!(Gfal::find());
    let pki = require!(PeerPki::find());
    let gfal = gfal.with(proxy(&pki));
    let (store, other) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let server = start(&store, &pki).unwrap();
    let second = start(&other, &pki).unwrap();
    let run = |verb: &str, arguments: &[&str]| server.explain(gfal.run(verb, arguments));
    let copy = |options: &[&str], from: &str, to: &str| -> Result<()> {
        run("copy", &[&["-f", "-v"], options, &[from, to]].concat()).map(drop)
    };
    let mut cells = MatrixRow::new("gfal-copy, GSI");
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        copy(&[], &server.gsi_url(from), &file_url(to))
    });
    matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
        copy(&[], &file_url(from), &server.gsi_url(to))
    });
    for options in [&[][..], &["-n", "4"], &["-K", "ADLER32"]] {
        matrix::third_party(&mut cells, &other, &[0, 20_000_000], |from, to| {
            copy(options, &server.gsi_url(from), &second.gsi_url(to))
        });
    }
    cells.check("ls, stat, sum, mkdir, rename, rm", || {
        let listed = run("ls", &["-l", &server.gsi_url("src")])?;
        ensure!(listed.stdout_text().contains("f65535"), "{listed}");
        let shown = run("stat", &[&server.gsi_url("src/f65535")])?;
        ensure!(shown.stdout_text().contains("65535"), "{shown}");
        let sum = run("sum", &[&server.gsi_url("src/f0"), "ADLER32"])?;
        ensure!(sum.stdout_text().trim().ends_with("00000001"), "{sum}");
        run("mkdir", &["-p", &server.gsi_url("up/a/b")])?;
        run(
            "copy",
            &[&server.gsi_url("src/f1"), &server.gsi_url("up/a/b/f")],
        )?;
        let renamed = [server.gsi_url("up/a/b/f"), server.gsi_url("up/a/b/g")];
        run("rename", &[&renamed[0], &renamed[1]])?;
        test_files::ensure_same(&test_files::shared(1)?, &store.path("up/a/b/g"))?;
        run("rm", &["-r", &server.gsi_url("up/a")]).map(drop)
    });
    cells.finish();
}
