//! Third-party transfers between two servers, of which at least one is longhaul, driven by `longhaul cp` and
//! by globus-url-copy.

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{ServeCommand, add_user};
use interop::matrix::{self, TestStore};
use interop::peer::globus_gridftp_server as globus;
use interop::peer::globus_url_copy::GlobusUrlCopy;
use interop::proxy::FtpProxy;
use interop::require;
use interop::test_files;
use interop::tree::{ASCII, TestTree};

/// Options for MODE S, and for MODE E with four streams.
const LONGHAUL_ROWS: [&[&str]; 4] = [
    &["--mode", "s"],
    &["-p", "4"],
    &["-p", "4", "--verify", "none"],
    &["-p", "4", "--buffer", "drs"],
];
const GLOBUS_ROWS: [&[&str]; 3] = [&[], &["-p", "4"], &["-fast", "-p", "4"]];

/// Transfers every size with both clients. `to` has the files of the destination.
fn drive(name: &str, to: &TestStore, from: &dyn Fn(&str) -> String, into: &dyn Fn(&str) -> String) {
    drive_by_longhaul(name, to, from, into);
    drive_by_globus(name, to, from, into);
}

fn drive_by_longhaul(
    name: &str,
    to: &TestStore,
    from: &dyn Fn(&str) -> String,
    into: &dyn Fn(&str) -> String,
) {
    let mut cells = MatrixRow::new(format!("{name} by longhaul cp"));
    for options in LONGHAUL_ROWS {
        matrix::third_party(&mut cells, to, &test_files::SIZES, |source, destination| {
            let (source, destination) = (from(source), into(destination));
            cp(&[options, &[&source, &destination]].concat()).map(drop)
        });
    }
    cells.finish();
}

fn drive_by_globus(
    name: &str,
    to: &TestStore,
    from: &dyn Fn(&str) -> String,
    into: &dyn Fn(&str) -> String,
) {
    let client = require!(GlobusUrlCopy::find());
    let mut cells = MatrixRow::new(format!("{name} by globus-url-copy"));
    for options in GLOBUS_ROWS {
        matrix::third_party(&mut cells, to, &test_files::SIZES, |source, destination| {
            client
                .copy(options, &from(source), &into(destination))
                .map(drop)
        });
    }
    cells.finish();
}

#[test]
fn third_party_transfers_work_from_longhaul_to_longhaul() {
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    drive(
        "longhaul to longhaul",
        &to,
        &|served| source.url(served),
        &|served| destination.url(served),
    );
}

#[test]
fn third_party_transfers_work_from_a_longhaul_server_to_itself() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    drive(
        "longhaul to itself",
        &store,
        &|served| server.url(served),
        &|served| server.url(served),
    );
}

#[test]
fn third_party_transfers_work_from_longhaul_to_globus() {
    require!(globus::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = globus::start(&to).unwrap();
    drive(
        "longhaul to globus",
        &to,
        &|served| source.url(served),
        &|served| destination.url(served),
    );
}

#[test]
fn third_party_transfers_work_from_globus_to_longhaul() {
    require!(globus::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = globus::start(&from).unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    drive(
        "globus to longhaul",
        &to,
        &|served| source.url(served),
        &|served| destination.url(served),
    );
}

#[test]
fn trees_are_copied_between_two_servers() {
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let tree = TestTree::thousand();
    from.add_tree("tree", &tree).unwrap();
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    let mut cells = MatrixRow::new("longhaul cp -r between two servers");
    for options in [&["-r"][..], &["-r", "-p", "4"]] {
        cells.check(options.join(" "), || {
            let served = to.upload();
            let (source, destination) = (source.url("src/tree"), destination.url(&served));
            cp(&[options, &[&source, &destination]].concat())?;
            tree.ensure_same_as(&to.path(&served))
        });
    }
    cells.finish();
}

/// Two servers on different addresses, each with the user `alice` and anonymous sessions.
struct TwoServers {
    from: TestStore,
    to: TestStore,
    source: interop::longhaul::serve::LonghaulServer,
    destination: interop::longhaul::serve::LonghaulServer,
}

fn start_two_servers(third_party: &str, foreign: bool) -> Result<TwoServers> {
    let (from, to) = (TestStore::new()?, TestStore::new()?);
    let start = |store: &TestStore, address: &str| {
        let users = store.path("users");
        add_user(&users, store.root())?;
        let serve = ServeCommand::anonymous(store.root())
            .listen(address)
            .option("--users", &path_argument(&users))
            .option("--third-party", third_party);
        match foreign {
            true => serve.flag("--foreign-data-addresses").start(),
            false => serve.start(),
        }
    };
    let source = start(&from, "127.0.0.1:0")?;
    let destination = start(&to, "127.0.0.2:0")?;
    Ok(TwoServers {
        from,
        to,
        source,
        destination,
    })
}

#[test]
fn longhaul_names_the_other_host_for_a_user() {
    let servers = start_two_servers("users", false).unwrap();
    drive_by_longhaul(
        "a user between two hosts",
        &servers.to,
        &|served| servers.source.user_url(served),
        &|served| servers.destination.user_url(served),
    );
}

/// docs/server.md, "Third-party copies by other clients".
#[test]
fn the_error_for_other_clients_names_the_setting_for_third_party_copies() {
    let servers = start_two_servers("users", false).unwrap();
    let client = require!(GlobusUrlCopy::find());
    let from = servers.source.user_url("src/f65536");
    let to = servers.destination.user_url("up/a");
    let error = client.copy::<&str>(&[], &from, &to).unwrap_err();
    let error = format!("{error:?}");
    assert!(error.contains("foreign-data-addresses"), "{error}");
}

#[test]
fn users_may_use_any_data_host_with_foreign_data_addresses() {
    let servers = start_two_servers("users", true).unwrap();
    drive_by_globus(
        "a user between two hosts",
        &servers.to,
        &|served| servers.source.user_url(served),
        &|served| servers.destination.user_url(served),
    );
}

#[test]
fn third_party_none_refuses_other_data_hosts() {
    let servers = start_two_servers("none", false).unwrap();
    let client = require!(GlobusUrlCopy::find());
    let from = servers.source.user_url("src/f65536");
    let to = servers.destination.user_url("up/a");
    client.copy::<&str>(&[], &from, &to).unwrap_err();
    matrix::ensure_only(&servers.to.path("up"), &["a"]).unwrap();
}

#[test]
fn anonymous_sessions_may_not_use_other_data_hosts() {
    let servers = start_two_servers("users", true).unwrap();
    let (from, to) = (
        servers.source.url("src/f65536"),
        servers.destination.url("up/a"),
    );
    copy::run(&["--retries", "0", &from, &to])
        .unwrap()
        .expect_failure()
        .unwrap();
    matrix::ensure_only(&servers.to.path("up"), &[]).unwrap();
    test_files::ensure_same(
        &test_files::shared(65_536).unwrap(),
        &servers.from.path("src/f65536"),
    )
    .unwrap();
}

/// Data between servers that cannot connect to each other passes through the client, which says so.
#[test]
fn servers_that_are_apart_have_their_data_relayed() {
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let tree = TestTree::generate(100, ASCII);
    from.add_tree("tree", &tree).unwrap();
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    let apart = FtpProxy::apart(source.address()).unwrap();
    let file = format!("src/{}", test_files::name(test_files::LARGE));
    for (options, served) in [(vec!["-p", "2"], file.as_str()), (vec!["-r"], "src/tree")] {
        let ends = [apart.url(served), destination.url("copy")];
        let [url, copied] = ends.each_ref().map(String::as_str);
        let finished = copy::run(&[&options[..], &["--retries", "0", url, copied]].concat());
        let finished = finished.unwrap().expect_success().unwrap();
        let warnings = copy::warnings(&finished);
        let said = warnings
            .iter()
            .filter(|warning| warning.contains("cannot connect to each other"));
        assert_eq!(said.count(), 1, "{warnings:?}");
        if served == file {
            let shared = test_files::shared(test_files::LARGE).unwrap();
            matrix::check_and_remove(&shared, &to.path("copy")).unwrap();
        } else {
            tree.ensure_same_as(&to.path("copy")).unwrap();
        }
    }
}
