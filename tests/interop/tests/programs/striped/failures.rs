//! Data nodes that fail in mid-transfer: killed, stopped, cut off, without room, behind a file system that does not answer.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::network_cut::CuttableRelay;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::pki::PeerPki;
use interop::require;
use interop::stalling_view::StallingView;
use interop::test_files;
use interop::volume::{FullVolume, FullVolumeKind};
use rustix::process::Signal;

use super::{LARGE, NODE_HOSTS, StripedServer, front, front_of, node, node_of, parts};

/// Three seconds for [`LARGE`].
const RATE: [&str; 2] = ["--limit-rate", "300M"];
/// Safe bytes after which a node fails.
const BEGUN: u64 = 20_000_000;
/// Longest time of a copy that goes on with the other nodes, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Copies [`LARGE`] in this direction while `fail` takes a node away, and checks the copy.
fn copy_while(
    server: &StripedServer,
    store: &TestStore,
    direction: &str,
    fail: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let file = test_files::shared(LARGE)?;
    let (local, name) = (store.local(), test_files::name(LARGE));
    let (from, to) = match direction {
        "get" => {
            std::fs::copy(&file, store.path(&name))?;
            (server.front.url(&name), path_argument(&local))
        }
        _ => (path_argument(&file), server.front.url("stored")),
    };
    let options = [&["-p", "2"][..], &RATE, &[&from, &to]].concat();
    let mut running = RunningCopy::start(copy::command(&options)?)?;
    running.wait_until_safe(BEGUN)?;
    fail()?;
    let failed = Instant::now();
    let status = server.explain(running.wait_for_end())?;
    ensure!(status.success(), "{}", server.front.log());
    ensure!(
        failed.elapsed() < LIMIT,
        "it took {:?}:\n{}",
        failed.elapsed(),
        server.front.log()
    );
    let stored = match direction {
        "get" => local,
        _ => store.path("stored"),
    };
    test_files::ensure_same(&file, &stored)
}

/// The other end is told an address of the nodes at which nobody listens, and from which none of them connects.
fn start_out_of_reach(store: &TestStore, pki: &PeerPki, nodes: usize) -> Result<StripedServer> {
    let nodes = NODE_HOSTS.iter().take(nodes).map(|host| {
        let command = ServeCommand::new(store.root());
        node_of(command.option("--public-address", "127.0.0.77"), pki, host)
    });
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    let front = front(store.root(), pki, &nodes)?;
    Ok(StripedServer { front, nodes })
}

#[test]
fn the_front_end_serves_where_data_nodes_and_the_other_end_do_not_reach_each_other() {
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let mut cells = MatrixRow::new("longhaul cp, data nodes out of reach");
    for nodes in [1, 2] {
        cells.check(format!("{nodes}: put, get"), || {
            let store = TestStore::new()?;
            let server = start_out_of_reach(&store, &pki, nodes)?;
            let (url, copied) = (server.front.url("x"), store.local());
            for (from, to) in [
                (&path_argument(&file), &url),
                (&url, &path_argument(&copied)),
            ] {
                server.explain(cp(&["-p", "2", "--retries", "1", from, to]))?;
            }
            test_files::ensure_same(&file, &copied)
        });
        cells.check(format!("{nodes}: between servers"), || {
            let (from, to) = (TestStore::new()?, TestStore::new()?);
            let source = StripedServer::start(&from, &pki, nodes)?;
            let destination = start_out_of_reach(&to, &pki, nodes)?;
            std::fs::copy(&file, from.path("x"))?;
            let urls = [source.front.user_url("x"), destination.front.user_url("y")];
            let fixed = ["-p", "2", "--retries", "1", "--verify", "none"];
            let copied = cp(&[&fixed[..], &[&urls[0], &urls[1]]].concat());
            source.explain(destination.explain(copied))?;
            test_files::ensure_same(&file, &to.path("y"))
        });
    }
    cells.finish();
}

#[test]
fn a_copy_survives_the_death_of_a_data_node() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, a data node is killed");
    for direction in ["get", "put"] {
        cells.check(direction, || {
            let store = TestStore::new()?;
            let mut server = StripedServer::start(&store, &pki, 2)?;
            let doomed = server.nodes.pop().map(|mut node| {
                move || {
                    node.guard().kill();
                    Ok(())
                }
            });
            doomed.map_or(Ok(()), |kill| copy_while(&server, &store, direction, kill))
        });
    }
    cells.finish();
}

/// It stands still when the copy begins, so that it has part in the plan and moves nothing, and is killed then.
#[test]
fn a_copy_goes_on_when_a_data_node_dies_before_its_first_byte() {
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let mut cells =
        MatrixRow::new("longhaul cp, a data node is killed before it has moved anything");
    for direction in ["get", "put"] {
        cells.check(direction, || {
            let store = TestStore::new()?;
            let mut server = StripedServer::start(&store, &pki, 2)?;
            let mut doomed = server.nodes.remove(1);
            std::fs::copy(&file, store.path("x"))?;
            let (url, local) = (server.front.url("x"), store.local());
            // The front end knows that the node is there.
            server.explain(cp(&["-p", "2", &url, &path_argument(&local)]))?;
            let moved = parts(std::slice::from_ref(&doomed));
            ensure!(moved > 0, "the node has no part in a copy");
            std::fs::remove_file(&local)?;
            doomed.guard().signal(Signal::STOP)?;
            let (from, to, copied) = match direction {
                "get" => (url, path_argument(&local), local),
                _ => {
                    let stored = server.front.url("stored");
                    (path_argument(&file), stored, store.path("stored"))
                }
            };
            let mut running = RunningCopy::start(copy::command(&["-p", "2", &from, &to])?)?;
            std::thread::sleep(Duration::from_millis(1500));
            doomed.guard().kill();
            let ended = Instant::now();
            let status = server.explain(running.wait_for_end())?;
            ensure!(status.success(), "{}", server.front.log());
            ensure!(ended.elapsed() < LIMIT, "it took {:?}", ended.elapsed());
            test_files::ensure_same(&file, &copied)
        });
    }
    cells.finish();
}

#[test]
fn a_stopped_data_node_writes_nothing_when_it_wakes_up_and_is_used_again() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, a data node is stopped");
    for direction in ["get", "put"] {
        cells.check(direction, || {
            let store = TestStore::new()?;
            let mut server = StripedServer::start(&store, &pki, 2)?;
            let mut stopped = server.nodes.remove(1);
            let stop = || stopped.guard().signal(Signal::STOP);
            copy_while(&server, &store, direction, stop)?;
            // Another content under the same name, with what the node has received of the first one still in its memory.
            let other = store.scratch().join("other");
            test_files::write(&other, LARGE, 77)?;
            let again = |name: &str| {
                let (from, to) = (path_argument(&other), server.front.url(name));
                server.explain(cp(&["-p", "2", &from, &to])).map(drop)
            };
            again("stored")?;
            stopped.guard().signal(Signal::CONT)?;
            let deadline = Instant::now() + LIMIT;
            // At least once: when it wakes up, it may say at once that its old part has ended.
            loop {
                again("another")?;
                // A file that is there already would not be copied.
                std::fs::rename(store.path("another"), store.path("last"))?;
                if parts(std::slice::from_ref(&stopped)) > 0 {
                    break;
                }
                ensure!(Instant::now() < deadline, "the node is not used again");
            }
            test_files::ensure_same(&other, &store.path("stored"))?;
            test_files::ensure_same(&other, &store.path("last"))
        });
    }
    cells.finish();
}

#[test]
fn a_copy_goes_on_when_a_data_node_is_cut_off() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, no way to a data node");
    for direction in ["get", "put"] {
        cells.check(direction, || {
            let store = TestStore::new()?;
            let nodes = [NODE_HOSTS[0], NODE_HOSTS[1]];
            let nodes: Result<Vec<_>> = nodes
                .map(|at| node(store.root(), &pki, at))
                .into_iter()
                .collect();
            let nodes = nodes?;
            let relay = CuttableRelay::start(nodes[1].address())?;
            let front = front_of(store.root(), &pki, &[nodes[0].address(), relay.address()])?;
            let server = StripedServer { front, nodes };
            copy_while(&server, &store, direction, || {
                relay.cut();
                Ok(())
            })?;
            // The node hears of nothing, and ends its part by itself.
            let said = server.nodes[1].wait_for_message(0, &["a part has ended"]);
            server.explain(said).map(drop)
        });
    }
    cells.finish();
}

#[test]
fn a_copy_goes_on_when_the_file_system_of_a_data_node_stalls() {
    let pki = require!(PeerPki::find());
    require!(StallingView::is_supported());
    let mut cells = MatrixRow::new("longhaul cp, a stalling file system");
    for direction in ["get", "put"] {
        cells.check(direction, || {
            let store = TestStore::new()?;
            let on = store.scratch().folder("view")?;
            let view = StallingView::mount(store.root(), &on)?;
            let nodes = vec![
                node(store.root(), &pki, NODE_HOSTS[0])?,
                node(&on, &pki, NODE_HOSTS[1])?,
            ];
            let front = front(store.root(), &pki, &nodes)?;
            let server = StripedServer { front, nodes };
            let copied = copy_while(&server, &store, direction, || view.stall());
            view.go_on()?;
            copied?;
            let log = server.front.messages();
            ensure!(
                log.contains("a data node is lost"),
                "the node was not given up:\n{log}"
            );
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn a_full_disk_of_data_nodes_is_reported_and_leaves_no_file() {
    let pki = require!(PeerPki::find());
    require!(FullVolume::is_supported());
    let client = require!(GlobusUrlCopy::find());
    let mut cells = MatrixRow::new("a full disk of striped longhaul");
    for kind in [FullVolumeKind::Tmpfs, FullVolumeKind::Ext4] {
        cells.check(format!("{kind:?}"), || {
            // Room for the file, so that it is not refused at once.
            let volume = FullVolume::of_size(kind, 2 * LARGE, LARGE + (8 << 20))?;
            let root = volume.folder();
            let server = StripedServer::start_at(&root, &pki, 2)?;
            let file = path_argument(&test_files::shared(LARGE)?);
            let to = server.front.url("large");
            let options = [&["-p", "2", "--retries", "0"][..], &RATE, &[&file, &to]].concat();
            let full = std::thread::scope(|scope| {
                let copying = scope.spawn(|| copy::run(&options));
                volume.wait_until_stored(BEGUN)?;
                volume.fill_up()?;
                copying.join().map_err(|_| anyhow::anyhow!("panic"))?
            })?;
            let full = server.explain(full.expect_code(7))?;
            let said = copy::failure_message(&full).unwrap_or_default();
            ensure!(
                said.contains("No space left") && said.contains("data node"),
                "{full}"
            );
            ensure!(!root.join("large").exists(), "it has its final name");
            // All nodes can still send.
            volume.make_room()?;
            let small = test_files::shared(65_536)?;
            std::fs::copy(&small, root.join("small"))?;
            volume.fill_up()?;
            let to = volume.other_file_system().join("small");
            let got = client.copy(&["-stripe"], &server.front.url("small"), &file_url(&to));
            server.explain(got)?;
            test_files::ensure_same(&small, &to)?;
            // With room the rest is stored.
            volume.make_room()?;
            server.explain(cp(&options))?;
            test_files::ensure_same(&test_files::shared(LARGE)?, &root.join("large"))
        });
    }
    cells.finish();
}
