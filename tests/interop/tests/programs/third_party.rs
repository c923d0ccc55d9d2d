//! Third-party transfers: two servers, one of them or both longhaul, driven by `longhaul cp` and
//! by globus-url-copy.

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{ServeCommand, add_user};
use interop::matrix::{self, TestStore};
use interop::need;
use interop::peer::globus_gridftp_server as globus;
use interop::peer::globus_url_copy::GlobusUrlCopy;
use interop::test_files;
use interop::tree::TestTree;

/// MODE S, and MODE E with four streams, in each driver's words.
const LONGHAUL_ROWS: [&[&str]; 4] = [
    &["--mode", "s"],
    &["-p", "4"],
    &["-p", "4", "--verify", "none"],
    &["-p", "4", "--buffer", "drs"],
];
const GLOBUS_ROWS: [&[&str]; 3] = [&[], &["-p", "4"], &["-fast", "-p", "4"]];

/// Every size by both drivers. `to` is the destination's store.
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
    let client = need!(GlobusUrlCopy::find());
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
fn longhaul_to_longhaul() {
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
fn one_longhaul_to_itself() {
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
fn longhaul_to_globus() {
    need!(globus::find());
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
fn globus_to_longhaul() {
    need!(globus::find());
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
fn trees() {
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
    let apart = start_two_servers("users", false).unwrap();
    drive_by_longhaul(
        "a user between two hosts",
        &apart.to,
        &|served| apart.source.user_url(served),
        &|served| apart.destination.user_url(served),
    );
}

/// docs/server.md, "Third-party copies by other clients".
#[test]
fn other_clients_are_told_of_the_setting_that_their_third_party_copies_need() {
    let apart = start_two_servers("users", false).unwrap();
    let client = need!(GlobusUrlCopy::find());
    let from = apart.source.user_url("src/f65536");
    let to = apart.destination.user_url("up/a");
    let told = client.copy::<&str>(&[], &from, &to).unwrap_err();
    let told = format!("{told:?}");
    assert!(told.contains("foreign-data-addresses"), "{told}");
}

#[test]
fn users_may_have_data_at_any_host_when_the_server_allows_it() {
    let apart = start_two_servers("users", true).unwrap();
    drive_by_globus(
        "a user between two hosts",
        &apart.to,
        &|served| apart.source.user_url(served),
        &|served| apart.destination.user_url(served),
    );
}

#[test]
fn nobody_may_name_another_host_when_the_server_forbids_it() {
    let apart = start_two_servers("none", true).unwrap();
    let client = need!(GlobusUrlCopy::find());
    let from = apart.source.user_url("src/f65536");
    let to = apart.destination.user_url("up/a");
    client.copy::<&str>(&[], &from, &to).unwrap_err();
    matrix::ensure_only(&apart.to.path("up"), &["a"]).unwrap();
}

#[test]
fn anonymous_sessions_may_not_name_another_host() {
    let apart = start_two_servers("users", true).unwrap();
    let (from, to) = (
        apart.source.url("src/f65536"),
        apart.destination.url("up/a"),
    );
    copy::run(&["--retries", "0", &from, &to])
        .unwrap()
        .expect_failure()
        .unwrap();
    matrix::ensure_only(&apart.to.path("up"), &[]).unwrap();
    test_files::ensure_same(
        &test_files::shared(65_536).unwrap(),
        &apart.from.path("src/f65536"),
    )
    .unwrap();
}
