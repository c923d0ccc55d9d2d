//! Data nodes of a bucket.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::TestStore;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::peer::{PeerServer, moto, s3s_fs};
use interop::pki::PeerPki;
use interop::require;
use interop::run;
use interop::test_files;
use rustix::process::Signal;

use super::{
    LARGE, NODE_HOSTS, StripedServer, ensure_stripes, identified, node_of, parts_ended, with_nodes,
};
use crate::served_bucket::environment;

/// Longest time until nothing is left of an upload, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn start(
    bucket_server: &PeerServer,
    pki: &PeerPki,
    bucket: &str,
    nodes: usize,
) -> Result<StripedServer> {
    let root = format!("s3://{bucket}/");
    let variables = environment(bucket_server);
    let nodes = NODE_HOSTS.iter().cycle().take(nodes).map(|host| {
        let command = ServeCommand::new(root.as_ref()).environment(&variables);
        node_of(command, pki, host)
    });
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    let addresses: Vec<_> = nodes.iter().map(LonghaulServer::address).collect();
    let command = ServeCommand::anonymous(root.as_ref()).environment(&variables);
    let front = with_nodes(identified(command, pki), &addresses).start()?;
    Ok(StripedServer { front, nodes })
}

#[test]
fn longhaul_cp_uses_every_data_node_of_a_bucket() {
    let pki = require!(PeerPki::find());
    require!(moto::find());
    let mut cells = MatrixRow::new("longhaul cp, data nodes of a bucket");
    let file = test_files::shared(LARGE).unwrap();
    let store = TestStore::new().unwrap();
    let bucket_server = moto::start(&store, &["bucket", "other"]).unwrap();
    let server = start(&bucket_server, &pki, "bucket", 3).unwrap();
    let moves_with = |options: &[&str], from: &str, to: &str| {
        let copied = cp(&[options, &["-p", "2", from, to]].concat());
        server.explain(copied).map(drop)
    };
    let moves = |from: &str, to: &str, nodes: &[LonghaulServer]| -> Result<()> {
        let ended = || nodes.iter().map(parts_ended).collect::<Vec<_>>();
        let before = ended();
        moves_with(&[], from, to)?;
        let (after, mut all) = (ended(), before.iter());
        let all = after
            .iter()
            .all(|after| all.next().is_some_and(|before| before < after));
        ensure!(
            all,
            "not all nodes have moved something: {before:?}, {after:?}"
        );
        Ok(())
    };
    let object = server.front.url("object");
    cells.check("put", || {
        moves(&path_argument(&file), &object, &server.nodes)
    });
    cells.check("get", || {
        let local = store.local();
        moves(&object, &path_argument(&local), &server.nodes)?;
        test_files::ensure_same(&file, &local)
    });
    cells.check("put --offset", || {
        let (url, local) = (server.front.url("rest"), store.local());
        moves_with(&["--offset", "1000001"], &path_argument(&file), &url)?;
        moves_with(&[], &url, &path_argument(&local))?;
        let (all, arrived) = (std::fs::read(&file)?, std::fs::read(&local)?);
        ensure!(all[1_000_001..] == arrived, "the object has other bytes");
        Ok(())
    });
    cells.check("between two servers", || {
        let other = start(&bucket_server, &pki, "other", 2)?;
        let (copy, local) = (other.front.url("copy"), path_argument(&store.local()));
        moves(&object, &copy, &[])?;
        moves(&copy, &local, &other.nodes)?;
        test_files::ensure_same(&file, local.as_ref())
    });
    cells.finish();
}

#[test]
fn globus_url_copy_transfers_stripes_of_a_bucket() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    require!(s3s_fs::find());
    let store = TestStore::new().unwrap();
    let bucket_server = s3s_fs::start(&store).unwrap();
    let server = start(&bucket_server, &pki, s3s_fs::BUCKET, 2).unwrap();
    let mut cells = MatrixRow::new("globus-url-copy, data nodes of a bucket");
    for options in [&["-stripe"][..], &["-stripe", "-p", "4"]] {
        interop::matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
            let copied = client.copy(options, &server.front.url(from), &file_url(to));
            server.explain(copied).map(drop)
        });
        interop::matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
            let copied = client.copy(options, &file_url(from), &server.front.url(to));
            ensure_stripes(&server.explain(copied)?.stderr_text(), 2)
        });
    }
    cells.finish();
}

/// The nodes of a source do not know the parts of an object.
#[test]
fn bytes_that_are_scattered_among_data_nodes_of_a_bucket_are_refused() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    require!(moto::find());
    let store = TestStore::new().unwrap();
    let bucket_server = moto::start(&store, &["bucket"]).unwrap();
    let server = start(&bucket_server, &pki, "bucket", 2).unwrap();
    let source = StripedServer::start_open(&store, &pki, 2).unwrap();
    let name = test_files::name(LARGE);
    std::fs::copy(test_files::shared(LARGE).unwrap(), store.path(&name)).unwrap();
    let urls = [source.front.user_url(&name), server.front.url("object")];
    let refused = client.copy(&["-stripe"], &urls[0], &urls[1]).unwrap_err();
    let said = format!("{refused:#}");
    // The client shows what it hears first: the refusal, or that the source's connections were closed for it.
    let is_refused = said.contains("504") && said.contains("several data nodes");
    assert!(is_refused || said.contains("426 "), "{said}");
    let local = path_argument(&store.local());
    assert!(cp(&[&urls[1], &local]).is_err(), "an object was stored");
}

/// How a transfer is disturbed in its middle.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Disturbance {
    NodeKilled,
    NodeStopped,
    ClientKilled,
}

#[test]
fn a_copy_of_an_object_goes_on_without_a_data_node_and_nothing_is_left_of_what_ends() {
    let pki = require!(PeerPki::find());
    require!(moto::find());
    let mut cells = MatrixRow::new("longhaul cp, a disturbed data node of a bucket");
    let file = test_files::shared(LARGE).unwrap();
    let store = TestStore::new().unwrap();
    let bucket_server = moto::start(&store, &["bucket"]).unwrap();
    let unfinished = || -> Result<bool> {
        let mut command = longhaul()?;
        environment(&bucket_server).apply(&mut command);
        let words = ["rm", "--unfinished=0s", "-n", "s3://bucket/"];
        let run = run::run(command.args(words))?.expect_success()?;
        Ok(run.stdout_text().contains("object") || run.stderr_text().contains("object"))
    };
    use Disturbance as D;
    for (direction, disturbance) in [
        ("put", D::NodeKilled),
        ("put", D::NodeStopped),
        ("put", D::ClientKilled),
        ("get", D::NodeKilled),
        ("get", D::NodeStopped),
    ] {
        cells.check(format!("{direction}, {disturbance:?}"), || {
            let mut server = start(&bucket_server, &pki, "bucket", 2)?;
            let (url, local) = (server.front.url("object"), path_argument(&store.local()));
            let (from, to) = match direction {
                "put" => (path_argument(&file), url),
                _ => (url, local.clone()),
            };
            let limited = ["-p", "2", "--limit-rate", "300M", &from, &to];
            let mut running = RunningCopy::start(copy::command(&limited)?)?;
            running.wait_until_safe(20_000_000)?;
            let node = server.nodes.last_mut().context("no node")?;
            match disturbance {
                D::NodeKilled => node.guard().kill(),
                D::NodeStopped => node.guard().signal(Signal::STOP)?,
                D::ClientKilled => running.kill(),
            }
            if disturbance != D::ClientKilled {
                let status = running.wait_for_end()?;
                ensure!(status.success(), "{}", server.front.log());
            }
            if disturbance == D::NodeStopped {
                // It wakes up, and sends parts of an upload that is over.
                let node = server.nodes.last_mut().context("no node")?;
                node.guard().signal(Signal::CONT)?;
            }
            let deadline = Instant::now() + LIMIT;
            while unfinished()? {
                ensure!(Instant::now() < deadline, "{}", server.front.log());
                std::thread::sleep(Duration::from_millis(200));
            }
            match direction {
                "get" => test_files::ensure_same(&file, local.as_ref()),
                _ => Ok(()),
            }
        });
    }
    cells.finish();
}

#[test]
fn data_nodes_of_another_bucket_store_nothing() {
    let pki = require!(PeerPki::find());
    require!(moto::find());
    let store = TestStore::new().unwrap();
    let bucket_server = moto::start(&store, &["bucket", "other"]).unwrap();
    let file = path_argument(&test_files::shared(LARGE).unwrap());
    let StripedServer { nodes, front } = start(&bucket_server, &pki, "other", 1).unwrap();
    drop(front);
    let addresses: Vec<_> = nodes.iter().map(LonghaulServer::address).collect();
    let command =
        ServeCommand::anonymous("s3://bucket/".as_ref()).environment(&environment(&bucket_server));
    let front = with_nodes(identified(command, &pki), &addresses)
        .start()
        .unwrap();
    let put = cp(&["-p", "2", "--retries", "0", &file, &front.url("object")]);
    assert!(put.is_err(), "{}", front.log());
}
