//! Data nodes that have a part of the files each: only those that have a file carry it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::cp;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, ServeCommand, add_user};
use interop::matrix::TestStore;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::pki::PeerPki;
use interop::require;
use interop::test_files;
use rustix::process::Signal;

use super::{LARGE, NODE_HOSTS, identified, node, parts_ended};

/// The directory of each node.
const DIRECTORIES: [&str; 2] = ["run1", "run2"];

/// The settings of a front end whose nodes have these directories.
fn tables(nodes: &[LonghaulServer], has: &[&str]) -> String {
    let table = |(node, directory): (&LonghaulServer, &&str)| {
        let address = node.address();
        format!("[[data-node]]\naddress = \"{address}\"\ndirectories = [\"/{directory}\"]\n")
    };
    nodes.iter().zip(has).map(table).collect()
}

/// A front end that sees two directories, of which its nodes have one each.
struct SharedOut {
    store: TestStore,
    front: LonghaulServer,
    nodes: Vec<LonghaulServer>,
}

impl SharedOut {
    fn start(pki: &PeerPki) -> Result<Self> {
        Self::start_with(pki, &DIRECTORIES, "")
    }

    /// `has` is the directory of each node, `account` that of the test's account.
    fn start_with(pki: &PeerPki, has: &[&str], account: &str) -> Result<Self> {
        let store = TestStore::new()?;
        for directory in DIRECTORIES {
            fs::create_dir_all(store.path(directory))?;
        }
        let nodes = NODE_HOSTS[..has.len()].iter();
        let nodes: Result<Vec<_>> = nodes.map(|host| node(store.root(), pki, host)).collect();
        let nodes = nodes?;
        let (settings, users) = (store.path("front.toml"), store.path("users"));
        fs::write(&settings, tables(&nodes, has))?;
        add_user(&users, &store.path(account))?;
        let command = ServeCommand::anonymous(store.root())
            .option("--config", &path_argument(&settings))
            .option("--users", &path_argument(&users))
            .flag("--foreign-data-addresses");
        let front = identified(command, pki).start()?;
        Ok(Self {
            store,
            front,
            nodes,
        })
    }

    /// Whether each node has carried out a part of a transfer since it had carried out so many.
    fn worked_since(&self, before: [usize; 2]) -> [bool; 2] {
        let parts = self.parts();
        [parts[0] > before[0], parts[1] > before[1]]
    }

    /// How many parts of transfers each node has carried out.
    fn parts(&self) -> [usize; 2] {
        [parts_ended(&self.nodes[0]), parts_ended(&self.nodes[1])]
    }

    /// Copies `file` to this URL and back; both by the nodes that are `used`.
    fn move_both_ways(&self, file: &Path, url: &str, used: [bool; 2]) -> Result<()> {
        let copies = self.store.local();
        let from = path_argument(file);
        for (from, to) in [(from.as_str(), url), (url, &path_argument(&copies))] {
            let before = self.parts();
            self.explain(cp(&["-p", "2", "--retries", "0", from, to]))?;
            let worked = self.worked_since(before);
            ensure!(worked == used, "{from} to {to}: moved by {worked:?}");
        }
        test_files::ensure_same(file, &copies)
    }

    fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let logs: Vec<String> = self.nodes.iter().map(LonghaulServer::log).collect();
        let result = result.map_err(|error| error.context(logs.join("\n")));
        self.front.explain(result)
    }
}

#[test]
fn longhaul_cp_finds_the_data_nodes_that_have_the_file() {
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let mut cells = MatrixRow::new("longhaul cp, nodes with a directory each");
    for (name, used) in [
        ("run1/a", [true, false]),
        ("run2/b", [false, true]),
        ("c", [false, false]),
    ] {
        cells.check(name, || {
            let server = SharedOut::start(&pki)?;
            server.move_both_ways(&file, &server.front.url(name), used)?;
            test_files::ensure_same(&file, &server.store.path(name))
        });
    }
    cells.check("a directory that is made first", || {
        let server = SharedOut::start(&pki)?;
        let url = server.front.url("run2/new/");
        let from = path_argument(&file);
        server.explain(cp(&["-p", "2", "--retries", "0", "-r", &from, &url]))?;
        let name = file.file_name().context("a name")?;
        test_files::ensure_same(&file, &server.store.path("run2/new").join(name))
    });
    cells.check("two nodes for one directory", || {
        let server = SharedOut::start_with(&pki, &["run2", "run2"], "")?;
        server.move_both_ways(&file, &server.front.url("run2/x"), [true; 2])?;
        server.move_both_ways(&file, &server.front.url("run1/x"), [false; 2])
    });
    cells.check("an account below one of the directories", || {
        let server = SharedOut::start_with(&pki, &DIRECTORIES, "run1")?;
        server.move_both_ways(&file, &server.front.user_url("x"), [true, false])?;
        test_files::ensure_same(&file, &server.store.path("run1/x"))
    });
    cells.check("a node that does not answer", || {
        let mut server = SharedOut::start(&pki)?;
        let gone = server.nodes.remove(0);
        drop(gone);
        let (from, to) = (path_argument(&file), server.front.url("run1/x"));
        server.explain(cp(&["-p", "2", "--retries", "0", &from, &to]))?;
        test_files::ensure_same(&file, &server.store.path("run1/x"))
    });
    cells.finish();
}

#[test]
fn directories_of_data_nodes_that_change_at_sighup_are_those_of_the_next_session() {
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let mut server = SharedOut::start(&pki).unwrap();
    let url = server.front.url("run1/x");
    server.move_both_ways(&file, &url, [true, false]).unwrap();
    let seen = server.front.messages().len();
    let swapped = tables(&server.nodes, &[DIRECTORIES[1], DIRECTORIES[0]]);
    fs::write(server.store.path("front.toml"), swapped).unwrap();
    server.front.guard().signal(Signal::HUP).unwrap();
    let reloaded = server
        .front
        .wait_for_message(seen, &["settings", "reloaded"]);
    reloaded.unwrap();
    server.move_both_ways(&file, &url, [false, true]).unwrap();
}

/// After a large file of one directory, connections with its node are open, and the session is there.
#[test]
fn one_session_moves_large_and_small_files_of_all_nodes() {
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let server = SharedOut::start(&pki).unwrap();
    let tree = server.store.local();
    for directory in DIRECTORIES {
        let here = tree.join(directory);
        fs::create_dir_all(here.join("below")).unwrap();
        fs::copy(&file, here.join("a-large")).unwrap();
        for small in 0..20 {
            fs::write(here.join(format!("b-small{small}")), directory).unwrap();
        }
        fs::copy(&file, here.join("below/large")).unwrap();
        fs::write(here.join("below/small"), "below").unwrap();
    }
    let others = ["large", "other/large", "other/small", "z-large"];
    fs::create_dir(tree.join("other")).unwrap();
    for name in others {
        match name.ends_with("large") {
            true => drop(fs::copy(&file, tree.join(name)).unwrap()),
            false => fs::write(tree.join(name), "elsewhere").unwrap(),
        }
    }
    let back = server.store.local();
    fs::create_dir(&back).unwrap();
    let part = |name: &str| path_argument(&tree.join(name));
    let sources = ["large", "run1", "other", "run2", "z-large"].map(part);
    let mut runs = vec![(sources.to_vec(), server.front.url(""), [2, 2])];
    for (directory, used) in DIRECTORIES.iter().zip([[2, 0], [0, 2]]) {
        let from = vec![server.front.url(directory)];
        runs.push((from, path_argument(&back) + "/", used));
    }
    for (from, to, used) in runs {
        let mut arguments = vec!["-r", "-p", "2", "--concurrency", "1", "--retries", "0"];
        arguments.extend(from.iter().map(String::as_str));
        arguments.push(&to);
        let before = server.parts();
        server.explain(cp(&arguments)).unwrap();
        let now = server.parts();
        let parts = [now[0] - before[0], now[1] - before[1]];
        assert_eq!(parts, used, "{from:?} to {to}");
    }
    for directory in DIRECTORIES {
        for name in [
            "a-large",
            "b-small0",
            "b-small19",
            "below/large",
            "below/small",
        ] {
            let name = format!("{directory}/{name}");
            for copy in [server.store.path(&name), back.join(&name)] {
                test_files::ensure_same(&tree.join(&name), &copy).unwrap();
            }
        }
    }
    for name in others {
        test_files::ensure_same(&tree.join(name), &server.store.path(name)).unwrap();
    }
}

#[test]
fn servers_with_such_nodes_copy_to_each_other() {
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let mut cells = MatrixRow::new("between servers, nodes with a directory each");
    for (from, to, used) in [
        ("run2/sent", "run1/stored", true),
        ("sent", "run1/stored", false),
        ("run2/sent", "stored", false),
    ] {
        cells.check(format!("{from} to {to}"), || {
            let (source, destination) = (SharedOut::start(&pki)?, SharedOut::start(&pki)?);
            fs::copy(&file, source.store.path(from))?;
            let urls = [source.front.user_url(from), destination.front.user_url(to)];
            let copied = cp(&["-p", "2", "--verify", "none", &urls[0], &urls[1]]);
            source.explain(destination.explain(copied))?;
            test_files::ensure_same(&file, &destination.store.path(to))?;
            let worked = (
                source.worked_since([0; 2]),
                destination.worked_since([0; 2]),
            );
            ensure!(
                worked == ([false, used], [used, false]),
                "moved by {worked:?}"
            );
            Ok(())
        });
    }
    cells.finish();
}

/// Its SPAS comes before the path, in the directory of the login, and for one address it sends PORT.
#[test]
fn globus_url_copy_is_served_by_the_front_end() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let file = test_files::shared(LARGE).unwrap();
    let server = SharedOut::start(&pki).unwrap();
    let (url, second) = (server.front.url("run2/x"), server.front.url("run1/x"));
    let to = server.store.local();
    for (from, to) in [
        (&file_url(&file), &url),
        (&url, &second),
        (&url, &file_url(&to)),
    ] {
        server.explain(client.copy(&["-stripe"], from, to)).unwrap();
        assert_eq!(server.worked_since([0; 2]), [false; 2], "{from} to {to}");
    }
    test_files::ensure_same(&file, &server.store.path("run1/x")).unwrap();
    test_files::ensure_same(&file, &to).unwrap();
}

/// Sends a command; returns all lines of its reply.
fn reply(connection: &mut BufReader<TcpStream>, command: &str) -> Result<String> {
    write!(connection.get_mut(), "{command}\r\n")?;
    read_reply(connection)
}

fn read_reply(connection: &mut BufReader<TcpStream>) -> Result<String> {
    let mut text = String::new();
    loop {
        let begin = text.len();
        ensure!(
            connection.read_line(&mut text)? > 0,
            "the session has ended"
        );
        let code = text[begin..].get(..4).unwrap_or_default();
        if code.ends_with(' ') && code.trim_end().parse::<u16>().is_ok() {
            return Ok(text);
        }
    }
}

#[test]
fn data_nodes_that_listen_and_have_another_directory_store_nothing() {
    let pki = require!(PeerPki::find());
    let server = SharedOut::start(&pki).unwrap();
    let connection = TcpStream::connect(server.front.address()).unwrap();
    let mut connection = BufReader::new(connection);
    read_reply(&mut connection).unwrap();
    let mut send = |command: &str| reply(&mut connection, command).unwrap();
    for command in ["USER anonymous", "PASS x", "TYPE I", "MODE E", "CWD /run2"] {
        let said = send(command);
        assert!(said.starts_with(['2', '3']), "{command}: {said}");
    }
    let listening = send("SPAS");
    let said = send("STOR /run1/x");
    assert!(said.starts_with(['4', '5']), "{said}");
    assert!(said.contains("before SPAS"), "{said}");
    assert!(!server.store.path("run1/x").exists());
    // They still listen. One EOD, and the number of them: an empty file.
    let at = listening.lines().nth(1).unwrap().trim();
    let numbers: Vec<u16> = at.split(',').map(|part| part.parse().unwrap()).collect();
    let port = numbers[4] * 256 + numbers[5];
    let mut data = TcpStream::connect((NODE_HOSTS[1], port)).unwrap();
    let mut end = [0; 17];
    (end[0], end[16]) = (0x48, 1);
    data.write_all(&end).unwrap();
    assert!(send("STOR /run2/x").starts_with("150"));
    let last = loop {
        let said = read_reply(&mut connection).unwrap();
        // A marker.
        if !said.starts_with('1') {
            break said;
        }
    };
    assert!(last.starts_with("226"), "{last}");
    assert_eq!(fs::metadata(server.store.path("run2/x")).unwrap().len(), 0);
}
