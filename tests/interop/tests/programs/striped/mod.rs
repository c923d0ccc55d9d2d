//! Striped transfers: a front end with data nodes, by the clients that know SPAS and SPOR, and `longhaul cp` with a striped
//! globus-gridftp-server.

mod directories;
mod failures;
mod limits;
mod loads;
mod objects;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::{cp, cp_in};
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, ServeCommand, add_user};
use interop::matrix::{self, TestStore};
use interop::peer::globus_gridftp_server as globus;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::pki::environment::GridEnvironment;
use interop::pki::{PeerPki, PeerProxy};
use interop::require;
use interop::test_files;

/// Addresses of data nodes, which are those in the certificate of the tests' host.
const NODE_HOSTS: [&str; 3] = ["127.0.0.2", "127.0.0.90", "127.0.0.1"];
/// The subject of that certificate.
const SUBJECT: &str = r"/O=Grid/OU=interop/CN=host\/localhost";
/// Large enough for `longhaul cp` to ask for data nodes.
const LARGE: u64 = test_files::LARGE;

/// A front end and its data nodes.
struct StripedServer {
    front: LonghaulServer,
    nodes: Vec<LonghaulServer>,
}

/// Certificate and authorities of both kinds of server.
fn identified(command: ServeCommand, pki: &PeerPki) -> ServeCommand {
    let authority = path_argument(&pki.ca_file());
    command
        .certificate(&pki.host)
        .option("--node-ca", &authority)
}

fn node(root: &Path, pki: &PeerPki, host: &str) -> Result<LonghaulServer> {
    node_of(ServeCommand::new(root), pki, host)
}

fn node_of(command: ServeCommand, pki: &PeerPki, host: &str) -> Result<LonghaulServer> {
    let command = identified(command, pki)
        .listen(&format!("{host}:0"))
        .option("--ca-dir", &path_argument(&pki.ca_directory()))
        .option("--front-end", SUBJECT);
    command.start()
}

fn front(root: &Path, pki: &PeerPki, nodes: &[LonghaulServer]) -> Result<LonghaulServer> {
    let nodes: Vec<_> = nodes.iter().map(LonghaulServer::address).collect();
    front_of(root, pki, &nodes)
}

/// A front end that reaches its nodes at these addresses.
fn front_of(root: &Path, pki: &PeerPki, nodes: &[SocketAddr]) -> Result<LonghaulServer> {
    front_command(root, pki, nodes)?.start()
}

fn front_command(root: &Path, pki: &PeerPki, nodes: &[SocketAddr]) -> Result<ServeCommand> {
    let users = root.join("users");
    add_user(&users, root)?;
    let authority = path_argument(&pki.ca_file());
    let command = ServeCommand::anonymous(root).gsi(pki)?;
    let command = command.option("--node-ca", &authority);
    // Third-party transfers need an account.
    let command = command.option("--users", &path_argument(&users));
    Ok(with_nodes(command, nodes))
}

fn with_nodes(command: ServeCommand, nodes: &[SocketAddr]) -> ServeCommand {
    nodes.iter().fold(command, |command, node| {
        command.option("--data-node", &node.to_string())
    })
}

impl StripedServer {
    fn start(store: &TestStore, pki: &PeerPki, nodes: usize) -> Result<Self> {
        Self::start_at(store.root(), pki, nodes)
    }

    fn start_at(root: &Path, pki: &PeerPki, nodes: usize) -> Result<Self> {
        Self::start_with(root, pki, nodes, |front| front)
    }

    /// With further options of the front end.
    fn start_with(
        root: &Path,
        pki: &PeerPki,
        nodes: usize,
        options: impl FnOnce(ServeCommand) -> ServeCommand,
    ) -> Result<Self> {
        let nodes = NODE_HOSTS.iter().cycle().take(nodes);
        let nodes: Result<Vec<_>> = nodes.map(|host| node(root, pki, host)).collect();
        let nodes = nodes?;
        let addresses: Vec<_> = nodes.iter().map(LonghaulServer::address).collect();
        let front = options(front_command(root, pki, &addresses)?).start()?;
        Ok(Self { front, nodes })
    }

    /// For clients that name no other hosts (SITE DATAPEER).
    fn start_open(store: &TestStore, pki: &PeerPki, nodes: usize) -> Result<Self> {
        let open = |front: ServeCommand| front.flag("--foreign-data-addresses");
        Self::start_with(store.root(), pki, nodes, open)
    }

    fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let logs: Vec<String> = self.nodes.iter().map(LonghaulServer::log).collect();
        let result = result.with_context(|| format!("nodes:\n{}", logs.join("\n")));
        self.front.explain(result)
    }
}

/// Every 112 names as many stripes: globus-url-copy takes memory for those of the first one.
fn ensure_stripes(said: &str, stripes: usize) -> Result<()> {
    let counts = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Total Stripe Count: "));
    let counts: Vec<_> = counts.collect();
    let wanted = stripes.to_string();
    let all = !counts.is_empty() && counts.iter().all(|count| **count == wanted);
    ensure!(all, "{counts:?} stripes instead of {wanted}: {said}");
    Ok(())
}

#[test]
fn globus_url_copy_transfers_stripes() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = StripedServer::start(&store, &pki, 3).unwrap();
    let mut cells = MatrixRow::new("globus-url-copy, striped longhaul");
    for options in [&["-stripe"][..], &["-stripe", "-p", "4"]] {
        matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
            let copied = client.copy(options, &server.front.url(from), &file_url(to));
            server.explain(copied).map(drop)
        });
        matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
            let copied = client.copy(options, &file_url(from), &server.front.url(to));
            let copied = server.explain(copied)?;
            ensure_stripes(&copied.stderr_text(), 3)
        });
    }
    cells.finish();
}

#[test]
fn data_nodes_protect_what_their_front_end_would() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let client = client.with(GridEnvironment::proxy(
        &pki,
        &pki.proxy(PeerProxy::Full).unwrap(),
    ));
    let store = TestStore::new().unwrap();
    let server = StripedServer::start(&store, &pki, 2).unwrap();
    let mut cells = MatrixRow::new("globus-url-copy, striped longhaul, GSI");
    for protection in [&[][..], &["-dcpriv"], &["-dcsafe"], &["-nodcau"]] {
        let options = [&["-stripe", "-p", "2"], protection].concat();
        matrix::get(&mut cells, &store, &test_files::FEW_SIZES, |from, to| {
            let copied = client.copy(&options, &server.front.gsi_url(from), &file_url(to));
            server.explain(copied).map(drop)
        });
        matrix::put(&mut cells, &store, &test_files::FEW_SIZES, |from, to| {
            let copied = client.copy(&options, &file_url(from), &server.front.gsi_url(to));
            ensure_stripes(&server.explain(copied)?.stderr_text(), 2)
        });
    }
    cells.finish();
}

#[test]
fn longhaul_cp_uses_data_nodes_with_gsi() {
    let pki = require!(PeerPki::find());
    let own = GridEnvironment::proxy(&pki, &pki.proxy(PeerProxy::Full).unwrap());
    let file = test_files::shared(LARGE).unwrap();
    let mut cells = MatrixRow::new("longhaul cp, striped longhaul, GSI");
    for protection in ["authenticated", "private"] {
        cells.check(format!("put and get, {protection}"), || {
            let store = TestStore::new()?;
            let server = StripedServer::start(&store, &pki, 2)?;
            let (stored, to) = (server.front.gsi_url("stored"), store.local());
            let (from, back) = (path_argument(&file), path_argument(&to));
            let options = ["-p", "2", "--data-protection", protection];
            for (times, ends) in [(1, [&from, &stored]), (2, [&stored, &back])] {
                let ends = ends.map(String::as_str);
                server.explain(cp_in(&own, &[&options[..], &ends].concat()))?;
                let ended: Vec<_> = server.nodes.iter().map(parts_ended).collect();
                ensure!(ended == [times; 2], "parts of the nodes: {ended:?}");
            }
            test_files::ensure_same(&file, &to)
        });
    }
    cells.finish();
}

#[test]
fn longhaul_cp_uses_data_nodes_of_two_servers_with_gsi() {
    let pki = require!(PeerPki::find());
    let own = GridEnvironment::proxy(&pki, &pki.proxy(PeerProxy::Full).unwrap());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = StripedServer::start(&from, &pki, 2).unwrap();
    let destination = StripedServer::start(&to, &pki, 2).unwrap();
    std::fs::copy(test_files::shared(LARGE).unwrap(), from.path("sent")).unwrap();
    let ends = [
        source.front.gsi_url("sent"),
        destination.front.gsi_url("stored"),
    ];
    let mut cells = MatrixRow::new("longhaul cp, striped to striped, GSI");
    for (times, protection) in [(1, "authenticated"), (2, "private")] {
        cells.check(protection, || {
            let options = ["-p", "2", "--data-protection", protection];
            let copied = cp_in(
                &own,
                &[&options[..], &ends.each_ref().map(String::as_str)].concat(),
            );
            source.explain(destination.explain(copied))?;
            let nodes = source.nodes.iter().chain(&destination.nodes);
            let ended: Vec<_> = nodes.map(parts_ended).collect();
            ensure!(ended == [times; 4], "parts of the nodes: {ended:?}");
            let stored = to.path("stored");
            test_files::ensure_same(&from.path("sent"), &stored)?;
            Ok(std::fs::remove_file(stored)?)
        });
    }
    cells.finish();
}

#[test]
fn third_party_transfers_work_between_different_numbers_of_stripes() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("globus-url-copy, striped to striped");
    for (senders, receivers) in [(3, 2), (2, 3), (1, 3), (3, 1)] {
        let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
        let source = StripedServer::start_open(&from, &pki, senders).unwrap();
        let destination = StripedServer::start_open(&to, &pki, receivers).unwrap();
        for layout in [&[][..], &["-sbs", "100000"]] {
            let options = [&["-stripe", "-p", "2"], layout].concat();
            let sizes = &test_files::FEW_SIZES;
            matrix::third_party(&mut cells, &to, sizes, |served, target| {
                let served = source.front.user_url(served);
                let target = destination.front.user_url(target);
                let copied = client.copy(&options, &served, &target);
                source.explain(destination.explain(copied)).map(drop)
            });
        }
    }
    cells.finish();
}

/// How many parts a node has carried out, by its log.
fn parts_ended(node: &LonghaulServer) -> usize {
    node.messages().matches("a part has ended").count()
}

/// How many nodes have done something.
fn parts(nodes: &[LonghaulServer]) -> usize {
    let has_moved = |node: &&LonghaulServer| parts_ended(node) > 0;
    nodes.iter().filter(has_moved).count()
}

#[test]
fn longhaul_cp_uses_every_data_node() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, striped longhaul");
    let file = test_files::shared(LARGE).unwrap();
    let name = test_files::name(LARGE);
    cells.check("get", || {
        let store = TestStore::new()?;
        let server = StripedServer::start(&store, &pki, 3)?;
        let to = store.local();
        std::fs::copy(&file, store.path(&name))?;
        let copied = cp(&["-p", "2", &server.front.url(&name), &path_argument(&to)]);
        server.explain(copied)?;
        test_files::ensure_same(&file, &to)?;
        ensure!(parts(&server.nodes) == 3, "not all nodes have sent");
        Ok(())
    });
    cells.check("put", || {
        let store = TestStore::new()?;
        let server = StripedServer::start(&store, &pki, 3)?;
        let copied = cp(&[
            "-p",
            "2",
            &path_argument(&file),
            &server.front.url("stored"),
        ]);
        server.explain(copied)?;
        test_files::ensure_same(&file, &store.path("stored"))?;
        ensure!(parts(&server.nodes) == 3, "not all nodes have received");
        Ok(())
    });
    cells.finish();
}

#[test]
fn eight_data_nodes_share_one_transfer() {
    let pki = require!(PeerPki::find());
    let client = require!(GlobusUrlCopy::find());
    let mut cells = MatrixRow::new("eight data nodes");
    let file = test_files::shared(LARGE).unwrap();
    let store = TestStore::new().unwrap();
    // Slow enough for all of them to have a part.
    let limited = |front: ServeCommand| {
        let front = front.flag("--foreign-data-addresses");
        front.option("--limit-rate", "400M")
    };
    let server = StripedServer::start_with(store.root(), &pki, 8, limited).unwrap();
    std::fs::copy(&file, store.path("served")).unwrap();
    let mut check = |name: &str, copy: &dyn Fn() -> Result<PathBuf>| {
        cells.check(name, || {
            let counts = || server.nodes.iter().map(parts_ended).collect::<Vec<_>>();
            let before = counts();
            let stored = server.explain(copy())?;
            test_files::ensure_same(&file, &stored)?;
            let after = counts();
            let have_moved = before.iter().zip(&after).all(|(one, other)| one < other);
            ensure!(have_moved, "not all nodes have moved something: {after:?}");
            Ok(())
        });
    };
    check("longhaul cp, get", &|| {
        let to = store.local();
        cp(&["-p", "2", &server.front.url("served"), &path_argument(&to)])?;
        Ok(to)
    });
    check("longhaul cp, put", &|| {
        let (from, to) = (path_argument(&file), server.front.url("stored"));
        cp(&["-p", "2", &from, &to])?;
        Ok(store.path("stored"))
    });
    check("globus-url-copy, put", &|| {
        let to = server.front.url("theirs");
        let said = client
            .copy(&["-stripe"], &file_url(&file), &to)?
            .stderr_text();
        ensure_stripes(&said, 8)?;
        Ok(store.path("theirs"))
    });
    let others = TestStore::new().unwrap();
    let other = StripedServer::start_open(&others, &pki, 8).unwrap();
    check("globus-url-copy, eight to eight", &|| {
        let from = server.front.user_url("served");
        let to = other.front.user_url("stored");
        let said = other.explain(client.copy(&["-stripe"], &from, &to))?;
        ensure_stripes(&said.stderr_text(), 8)?;
        ensure!(parts(&other.nodes) == 8, "not all nodes have received");
        Ok(others.path("stored"))
    });
    cells.finish();
}

#[test]
fn longhaul_cp_moves_stripes_between_two_servers() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, striped to striped");
    let file = test_files::shared(LARGE).unwrap();
    // Where one of them has no stripes, the other has none for this transfer.
    for (senders, receivers, used) in [
        (3, 2, [2, 2]),
        (2, 3, [2, 3]),
        (3, 0, [0, 0]),
        (0, 2, [0, 0]),
    ] {
        cells.check(format!("{senders} to {receivers}"), || {
            let (from, to) = (TestStore::new()?, TestStore::new()?);
            let source = StripedServer::start(&from, &pki, senders)?;
            let destination = StripedServer::start(&to, &pki, receivers)?;
            std::fs::copy(&file, from.path("served"))?;
            let urls = [
                source.front.user_url("served"),
                destination.front.user_url("stored"),
            ];
            let copied = cp(&["-p", "2", "--verify", "none", &urls[0], &urls[1]]);
            source.explain(destination.explain(copied))?;
            test_files::ensure_same(&file, &to.path("stored"))?;
            let parts = [parts(&source.nodes), parts(&destination.nodes)];
            ensure!(parts == used, "{parts:?} nodes have moved something");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn longhaul_cp_goes_on_with_the_front_ends_where_the_source_refuses_the_nodes() {
    let pki = require!(PeerPki::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = StripedServer::start(&from, &pki, 2).unwrap();
    let destination = StripedServer::start(&to, &pki, 2).unwrap();
    let file = test_files::shared(LARGE).unwrap();
    std::fs::copy(&file, from.path("served")).unwrap();
    // An anonymous session may connect to the client's host alone.
    let (served, stored) = (
        source.front.url("served"),
        destination.front.user_url("stored"),
    );
    let copied = cp(&["-p", "2", &served, &stored]);
    source.explain(destination.explain(copied)).unwrap();
    test_files::ensure_same(&file, &to.path("stored")).unwrap();
    assert_eq!(
        [&source, &destination].map(|server| parts(&server.nodes)),
        [0, 0]
    );
}

#[test]
fn longhaul_cp_moves_stripes_to_and_from_a_striped_globus_server() {
    let pki = require!(PeerPki::find());
    require!(globus::find());
    let mut cells = MatrixRow::new("longhaul cp, striped longhaul and striped globus");
    let (ours, theirs) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let globus = globus::start_striped(&theirs, 3).unwrap();
    let file = test_files::shared(LARGE).unwrap();
    for store in [&ours, &theirs] {
        std::fs::copy(&file, store.path("served")).unwrap();
    }
    for nodes in [2, 3] {
        for direction in ["to", "from"] {
            cells.check(format!("{direction} globus, {nodes} nodes"), || {
                let server = StripedServer::start(&ours, &pki, nodes)?;
                let served = ours.upload();
                let (from, to, stored) = match direction {
                    "to" => (
                        server.front.user_url("served"),
                        globus.front.url(&served),
                        theirs.path(&served),
                    ),
                    _ => (
                        globus.front.url("served"),
                        server.front.user_url(&served),
                        ours.path(&served),
                    ),
                };
                let copied = cp(&["-p", "2", &from, &to]).context(globus.front.log());
                server.explain(copied)?;
                test_files::ensure_same(&file, &stored)?;
                ensure!(
                    parts(&server.nodes) == nodes,
                    "not all nodes have moved something"
                );
                Ok(())
            });
        }
    }
    cells.finish();
}

#[test]
fn ftps_data_nodes_are_inside_the_tls_session_of_their_front_end() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, striped longhaul, TLS");
    let file = test_files::shared(LARGE).unwrap();
    let authority = path_argument(&pki.ca_file());
    let (certificate, key) = (
        path_argument(&pki.user.certificate),
        path_argument(&pki.user.key),
    );
    // With a certificate of the client, data connections need the same one.
    for (reuse, shown) in [
        ("any", &[][..]),
        ("required", &[]),
        ("any", &["--cert", &certificate, "--key", &key]),
    ] {
        let store = TestStore::new().unwrap();
        let options = |front: ServeCommand| {
            let front = front.option("--tls-session-reuse", reuse);
            match shown {
                [] => front,
                _ => front
                    .option("--client-certs", "required")
                    .option("--client-ca", &authority),
            }
        };
        for direction in ["get", "put"] {
            cells.check(
                format!("{direction}, session reuse {reuse}, {} shown", shown.len()),
                || {
                    let server = StripedServer::start_with(store.root(), &pki, 3, options)?;
                    let url = |name: &str| {
                        let port = server.front.address().port();
                        format!("ftps://localhost:{port}/{name}")
                    };
                    std::fs::copy(&file, store.path("served"))?;
                    let stored = match direction {
                        "get" => store.local(),
                        _ => store.path(&store.upload()),
                    };
                    let (from, to) = match direction {
                        "get" => (url("served"), path_argument(&stored)),
                        _ => (
                            path_argument(&file),
                            url(&stored.strip_prefix(store.root())?.to_string_lossy()),
                        ),
                    };
                    let fixed = ["-p", "2", "--retries", "0", "--ca", &authority];
                    let copied = cp(&[&fixed[..], shown, &[&from, &to]].concat());
                    server.explain(copied)?;
                    test_files::ensure_same(&file, &stored)?;
                    ensure!(
                        parts(&server.nodes) == 3,
                        "not all nodes have moved something"
                    );
                    Ok(())
                },
            );
        }
    }
    cells.finish();
}

#[test]
fn a_data_node_serves_its_front_ends_alone() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let (store, elsewhere) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let file = test_files::shared(20_000_000).unwrap();
    let put = |front: &LonghaulServer, to: &str| {
        let copied = client.copy(&["-stripe"], &file_url(&file), &front.url(to));
        copied.map(|copied| copied.stderr_text())
    };
    // Another front end: the transfer has one stripe.
    let stranger = identified(ServeCommand::new(store.root()), &pki)
        .option("--front-end", "/CN=another")
        .start()
        .unwrap();
    let strangers = [stranger];
    let alone = front(store.root(), &pki, &strangers).unwrap();
    let said = put(&alone, "alone").unwrap();
    assert!(said.contains("Total Stripe Count: 1"), "{said}");
    test_files::ensure_same(&file, &store.path("alone")).unwrap();
    let said = strangers[0].messages();
    assert!(said.contains("is not in front-end"), "{said}");
    // Another file system: nothing may be stored there, and nothing is said to be.
    let apart = node(elsewhere.root(), &pki, NODE_HOSTS[0]).unwrap();
    std::fs::write(elsewhere.path("apart"), "unchanged").unwrap();
    let others = [apart];
    let apart_front = front(store.root(), &pki, &others).unwrap();
    let error = put(&apart_front, "apart").unwrap_err();
    assert!(
        format!("{error:#}").contains("another file here"),
        "{error:#}"
    );
    let kept = std::fs::read_to_string(elsewhere.path("apart")).unwrap();
    assert_eq!(kept, "unchanged");
}

#[test]
fn longhaul_cp_works_with_a_striped_globus_server() {
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let server = globus::start_striped(&store, 3).unwrap();
    let file = test_files::shared(LARGE).unwrap();
    let name = test_files::name(LARGE);
    std::fs::copy(&file, store.path(&name)).unwrap();
    let mut cells = MatrixRow::new("longhaul cp, striped globus-gridftp-server");
    for options in [&[][..], &["-p", "4"]] {
        cells.check(format!("get {}", options.join(" ")), || {
            let to = store.local();
            let (from, to_path) = (server.front.url(&name), path_argument(&to));
            let arguments = [options, &[&from, &to_path]].concat();
            cp(&arguments).context(server.front.log())?;
            test_files::ensure_same(&file, &to)
        });
        cells.check(format!("put {}", options.join(" ")), || {
            let served = store.upload();
            let (from, to) = (path_argument(&file), server.front.url(&served));
            let arguments = [options, &[&from, &to]].concat();
            cp(&arguments).context(server.front.log())?;
            test_files::ensure_same(&file, &store.path(&served))
        });
    }
    cells.finish();
}
