//! Copies whose files are moved by several nodes: over ssh, and as the tasks of a step of Slurm.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::TestStore;
use interop::peer::globus_gridftp_server;
use interop::peer::slurm::{self, Slurm};
use interop::peer::sshd::{self, Sshd};
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;
use rustix::process::{Pid, Signal, kill_process};

use super::ssh::wait_until;

/// Small files of the tree.
const FILES: usize = 120;
/// One file that nodes divide, bytes.
const LARGE: u64 = 300_000_000;

/// A tree at a longhaul server, and a place for its copy.
struct NodeTest {
    store: TestStore,
    server: LonghaulServer,
}

impl NodeTest {
    fn new() -> Result<Self> {
        let store = TestStore::new()?;
        let top = store.path("src/tree");
        std::fs::create_dir_all(top.join("d"))?;
        for n in 0..FILES {
            let size = 1_000 + 4_000 * n as u64;
            test_files::write(&top.join(format!("d/f {n}")), size, n as u64)?;
        }
        test_files::write(&top.join("large"), LARGE, 99)?;
        let log = path_argument(&store.scratch().join("transfers"));
        let server = ServeCommand::anonymous(store.root())
            .option("--transfer-log", &log)
            .start()?;
        Ok(Self { store, server })
    }

    fn source(&self) -> PathBuf {
        self.store.path("src/tree")
    }

    fn copy(&self) -> PathBuf {
        self.store.path("local/copy")
    }

    /// `longhaul cp` of the tree.
    fn command(&self, flags: &[&str]) -> Result<Command> {
        let ends = [self.server.url("src/tree"), path_argument(&self.copy())];
        let words = [&["-r"], flags, &[&ends[0], &ends[1]]].concat();
        copy::command(&words)
    }

    /// Each file was told to be complete once, is the same, and nothing else is there.
    fn check(&self, finished: &FinishedProgram) -> Result<()> {
        let mut told: HashMap<String, usize> = HashMap::new();
        for line in finished.stdout_text().lines() {
            let event: serde_json::Value = serde_json::from_str(line)?;
            if event["event"] == "finished" {
                let place = event["destination"].as_str().context("no destination")?;
                *told.entry(place.to_owned()).or_default() += 1;
            }
        }
        ensure!(told.len() == FILES + 1, "{} files were told of", told.len());
        ensure!(told.values().all(|times| *times == 1), "{told:?}");
        self.check_files()
    }

    fn check_files(&self) -> Result<()> {
        let difference = Command::new("diff")
            .arg("-r")
            .args([self.source(), self.copy()])
            .output()?;
        ensure!(difference.status.success(), "{difference:?}");
        Ok(())
    }
}

fn kill(pid: i32, signal: Signal) {
    // One that has ended meanwhile is as good.
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
}

/// ssh that reaches one server as hosts a, b and c.
fn hosts(store: &TestStore) -> Result<(Sshd, String)> {
    let sshd = sshd::start(store, "")?;
    let ssh = sshd.ssh_by_any_name();
    Ok((sshd, ssh))
}

#[test]
fn nodes_over_ssh_move_a_tree_and_share_a_large_file() {
    require!(sshd::find());
    let test = NodeTest::new().unwrap();
    let (sshd, ssh) = hosts(&test.store).unwrap();
    let flags = ["--ssh", &ssh, "--nodes", "a,b", "-v"];
    let finished = run::run(&mut test.command(&flags).unwrap()).unwrap();
    let finished = finished.expect_success().unwrap();
    test.check(&finished).unwrap();
    assert_eq!(sshd.logins(), 2);
    let summary = copy::summary(&finished).unwrap();
    assert_eq!(summary.verified, "crc32c");
    // Both have moved something, of the one large file, too.
    let words = finished.stderr_text() + &finished.stdout_text();
    for node in ["node a: ", "node b: "] {
        assert!(words.contains(node), "{words}");
    }
    let transfers = test.store.scratch().join("transfers");
    let transfers = std::fs::read_to_string(transfers).unwrap();
    assert!(transfers.matches("large").count() >= 4, "{transfers}");
}

#[test]
fn killed_nodes_lose_nothing() {
    require!(sshd::find());
    let test = NodeTest::new().unwrap();
    let (sshd, ssh) = hosts(&test.store).unwrap();
    let flags = ["--ssh", &ssh, "--nodes", "a,b,c", "--limit-rate", "600M"];
    let mut command = test.command(&flags).unwrap();
    let killing = std::thread::scope(|scope| {
        let copying = scope.spawn(|| run::run(&mut command));
        let mut killed = 0;
        while !copying.is_finished() && killed < 6 {
            std::thread::sleep(Duration::from_millis(700));
            let nodes = sshd.nodes();
            if let Some(pid) = nodes.get(killed % nodes.len().max(1)) {
                kill(*pid, Signal::KILL);
                killed += 1;
            }
        }
        (copying.join().unwrap(), killed)
    });
    let (finished, killed) = killing;
    let finished = finished.unwrap();
    let failed = copy::failure_message(&finished);
    assert_eq!(failed, None, "{:?}", copy::warnings(&finished));
    test.check(&finished.expect_success().unwrap()).unwrap();
    assert!(killed >= 3, "{killed}");
}

/// A node that stands still is given up, and writes nothing when it goes on.
#[test]
fn a_node_that_stands_still_is_given_up() {
    require!(sshd::find());
    let test = NodeTest::new().unwrap();
    let (sshd, ssh) = hosts(&test.store).unwrap();
    let flags = [
        "--ssh",
        &ssh,
        "--nodes",
        "a,b",
        "--limit-rate",
        "400M",
        "--retries",
        "0",
    ];
    let mut command = test.command(&flags).unwrap();
    let finished = std::thread::scope(|scope| {
        let copying = scope.spawn(|| run::run(&mut command));
        wait_until("two nodes", || sshd.nodes().len() == 2);
        std::thread::sleep(Duration::from_millis(1500));
        let still = sshd.nodes()[0];
        kill(still, Signal::STOP);
        let finished = copying.join().unwrap();
        kill(still, Signal::CONT);
        finished
    });
    let finished = finished.unwrap().expect_success().unwrap();
    test.check(&finished).unwrap();
    assert!(
        copy::warnings(&finished)
            .iter()
            .any(|warning| warning.contains("is lost")),
        "{finished}"
    );
    wait_until("the end of the node", || sshd.nodes().is_empty());
    test.check_files().unwrap();
}

/// Processes that move parts for the copy of this file.
fn nodes_of(file: &Path) -> Vec<i32> {
    let parents: Vec<i32> = tasks(file).into_iter().map(|(_, pid)| pid).collect();
    let program = path_argument(&interop::longhaul::binary::path().unwrap());
    let mut found = super::ssh::processes_named(&program);
    found.retain(|(line, pid)| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        line.contains("\0node\0") && parent.is_some_and(|parent| parents.contains(&parent))
    });
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// Puts one file by two nodes, over an older and longer partial file, and then while a node is killed.
fn check_shared_puts(store: &TestStore, url: &str, stored: &Path) {
    let file = store.path("local/large");
    test_files::write(&file, 140_000_123, 5).unwrap();
    let put = |flags: &[&str]| {
        let ends = [path_argument(&file), url.to_owned()];
        let nodes = ["--nodes", "localhost,localhost", &ends[0], &ends[1]];
        copy::run(&[flags, &nodes].concat())
    };
    let older = {
        let mut name = stored.as_os_str().to_owned();
        name.push(".longhaul-partial");
        PathBuf::from(name)
    };
    std::fs::create_dir_all(older.parent().unwrap()).unwrap();
    let longer = std::fs::File::create(&older).unwrap();
    longer.set_len(150_000_000).unwrap();
    // The server's account has written it.
    let rights = std::fs::Permissions::from_mode(0o666);
    longer.set_permissions(rights).unwrap();
    // One node alone would need ten seconds, so that the other one has begun by then.
    let finished = put(&["-v", "--limit-rate", "200M"]).unwrap();
    let finished = finished.expect_success().unwrap();
    test_files::ensure_same(&file, stored).unwrap();
    assert!(!older.exists());
    let summary = copy::summary(&finished).unwrap();
    assert!(!summary.verified.is_empty(), "{finished}");
    let words = finished.stderr_text() + &finished.stdout_text();
    // Each node has a line, and a place in the summary.
    assert_eq!(words.matches("node localhost: ").count(), 4, "{words}");
    std::fs::remove_file(stored).unwrap();

    let finished = std::thread::scope(|scope| {
        let copying = scope.spawn(|| put(&["--limit-rate", "300M"]));
        wait_until("two nodes", || nodes_of(&file).len() == 2);
        std::thread::sleep(Duration::from_millis(700));
        kill(nodes_of(&file)[0], Signal::KILL);
        copying.join().unwrap().unwrap()
    });
    let lost = |warning: &String| warning.contains("is lost");
    assert!(copy::warnings(&finished).iter().any(lost), "{finished}");
    finished.expect_success().unwrap();
    test_files::ensure_same(&file, stored).unwrap();
    assert!(!older.exists());
}

#[test]
fn nodes_store_the_parts_of_one_file_at_a_server() {
    let store = TestStore::new().unwrap();
    let log = store.scratch().join("transfers");
    let server = ServeCommand::anonymous(store.root())
        .option("--transfer-log", &path_argument(&log))
        .start()
        .unwrap();
    let stored = store.path("up/large");
    check_shared_puts(&store, &server.url("up/large"), &stored);
    let transfers = || std::fs::read_to_string(&log).unwrap().lines().count();
    let parts = transfers();
    assert!(parts >= 8, "{parts}");
    // Nothing would prove the whole: one node sends it, and not the process that holds the plan.
    let file = path_argument(&store.path("local/large"));
    let url = server.url("up/whole");
    let options = ["--verify", "none", "-v", "--nodes", "localhost,localhost"];
    let finished = copy::run(&[&options[..], &[&file, &url]].concat()).unwrap();
    let finished = finished.expect_success().unwrap();
    let words = finished.stderr_text() + &finished.stdout_text();
    assert_eq!(words.matches("node localhost: ").count(), 2, "{words}");
    assert_eq!(transfers(), parts + 1);
}

#[test]
fn nodes_store_the_parts_of_one_file_at_a_globus_server() {
    require!(globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = globus_gridftp_server::start(&store).unwrap();
    let stored = store.path("up/large");
    let url = format!("ftp://{}{}", server.address(), path_argument(&stored));
    check_shared_puts(&store, &url, &stored);
}

#[test]
fn a_server_that_refuses_the_parts_that_it_announces_gets_the_file_as_a_whole() {
    require!(globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = globus_gridftp_server::start_without(&store, "ESTO").unwrap();
    let (file, stored) = (store.path("local/large"), store.path("up/large"));
    test_files::write(&file, LARGE, 5).unwrap();
    let url = format!("ftp://{}{}", server.address(), path_argument(&stored));
    let file_argument = path_argument(&file);
    let words = ["--nodes", "localhost,localhost", &file_argument, &url];
    let finished = copy::run(&words).unwrap();
    let finished = finished.expect_success().unwrap();
    let is_told = |warning: &String| warning.contains("the file is sent as a whole");
    assert!(copy::warnings(&finished).iter().any(is_told), "{finished}");
    test_files::ensure_same(&file, &stored).unwrap();
    let left = std::fs::read_dir(stored.parent().unwrap()).unwrap();
    assert_eq!(left.count(), 1, "the claim of the shared file is gone");
}

#[test]
fn nodes_that_are_not_there_are_named() {
    require!(sshd::find());
    let test = NodeTest::new().unwrap();
    let (_sshd, ssh) = hosts(&test.store).unwrap();
    let nowhere = "ssh -oHostName=127.0.0.1 -oPort=1";
    for (ssh, program, nodes, code) in [
        (nowhere, None, "a", 5),
        (ssh.as_str(), Some("/no/such/longhaul"), "a", 5),
        (nowhere, None, "a,localhost", 0),
    ] {
        let _ = std::fs::remove_dir_all(test.copy());
        let mut flags = vec!["--retries", "0", "--ssh", ssh, "--nodes", nodes];
        if let Some(program) = program {
            flags.extend(["--ssh-program", program]);
        }
        let finished = run::run(&mut test.command(&flags).unwrap()).unwrap();
        let finished = finished.expect_code(code).unwrap();
        let said = finished.stdout_text();
        assert!(said.contains("node a is lost"), "{said}");
    }
    test.check_files().unwrap();
}

#[test]
fn sync_uses_nodes_and_deletes_itself() {
    require!(sshd::find());
    let test = NodeTest::new().unwrap();
    std::fs::create_dir_all(test.copy()).unwrap();
    std::fs::write(test.copy().join("old"), b"old").unwrap();
    let ends = [test.server.url("src/tree"), path_argument(&test.copy())];
    let flags = ["sync", "--delete", "--nodes", "localhost,localhost"];
    let mut command = interop::longhaul::binary::longhaul().unwrap();
    command.args(flags).args(&ends);
    run::run(&mut command).unwrap().expect_success().unwrap();
    test.check_files().unwrap();
}

/// The processes of tasks: their words end with the destination.
fn tasks(destination: &Path) -> Vec<(String, i32)> {
    let program = path_argument(&interop::longhaul::binary::path().unwrap());
    let mut found = super::ssh::processes_named(&program);
    found.retain(|(line, _)| line.contains(&path_argument(destination)));
    found
}

fn rank(pid: i32) -> Option<usize> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let rank = variables.find_map(|variable| variable.strip_prefix(b"SLURM_PROCID="))?;
    std::str::from_utf8(rank).ok()?.parse().ok()
}

#[test]
fn the_tasks_of_a_slurm_step_share_a_copy() {
    require!(slurm::find());
    let test = NodeTest::new().unwrap();
    let slurm = Slurm::start(&test.store, 3).unwrap();
    let batches = test.store.path("batches");
    let step = |flags: &[&str]| {
        let mut command = test.command(flags).unwrap();
        command.env("LONGHAUL_BATCHES", &batches);
        slurm.srun(3, &command).unwrap()
    };
    let finished = run::run(&mut step(&["-v"]))
        .unwrap()
        .expect_success()
        .unwrap();
    test.check(&finished).unwrap();
    std::fs::remove_dir_all(test.copy()).unwrap();

    // A task that is killed: the others do its work.
    let mut slowly = step(&["--limit-rate", "600M"]);
    let finished = std::thread::scope(|scope| {
        let copying = scope.spawn(|| run::run(&mut slowly));
        wait_until("bytes", || test.copy().join("d/f 3").exists());
        kill(of_rank(&test, 2).expect("task 2"), Signal::KILL);
        copying.join().unwrap()
    });
    // srun ends with the code of the task that was killed.
    test.check(&finished.unwrap()).unwrap();
    std::fs::remove_dir_all(test.copy()).unwrap();

    // The first task has the plan. When it is killed, another one takes its place, and goes on with the journal.
    let mut slowly = step(&["--limit-rate", "600M"]);
    let finished = std::thread::scope(|scope| {
        let copying = scope.spawn(|| run::run(&mut slowly));
        wait_until("bytes", || test.copy().join("d/f 3").exists());
        kill(of_rank(&test, 0).expect("task 0"), Signal::KILL);
        copying.join().unwrap().unwrap()
    });
    test.check_files().unwrap();
    let told = finished.stderr_text();
    assert!(told.contains("task 0 is lost"), "{finished}");
    let summary = copy::summary(&finished).unwrap();
    assert_eq!(summary.verified, "crc32c");

    // A copy that fails before anything moves ends all tasks.
    let missing = [test.server.url("src/none"), path_argument(&test.copy())];
    let mut command = copy::command(&["-r", &missing[0], &missing[1]]).unwrap();
    command.env("LONGHAUL_BATCHES", &batches);
    let finished = run::run(&mut slurm.srun(3, &command).unwrap()).unwrap();
    finished.expect_failure().unwrap();
}

fn of_rank(test: &NodeTest, wanted: usize) -> Option<i32> {
    let tasks = tasks(&test.copy()).into_iter();
    tasks
        .map(|(_, pid)| pid)
        .find(|pid| rank(*pid) == Some(wanted))
}

#[test]
fn tasks_of_a_slurm_step_with_different_commands_copy_alone() {
    require!(slurm::find());
    let store = TestStore::new().unwrap();
    let slurm = Slurm::start(&store, 2).unwrap();
    let program = path_argument(&interop::longhaul::binary::path().unwrap());
    let from = path_argument(&test_files::shared(test_files::SIZES[2]).unwrap());
    let to = path_argument(&store.path("local/of-task-"));
    let mut shell = Command::new("sh");
    let script = format!("{program} cp -q {from} {to}$SLURM_PROCID");
    shell.args(["-c", &script]);
    shell.env("LONGHAUL_BATCHES", store.path("batches"));
    let finished = run::run(&mut slurm.srun(2, &shell).unwrap()).unwrap();
    finished.expect_success().unwrap();
    for task in 0..2 {
        let copied = PathBuf::from(format!("{to}{task}"));
        test_files::ensure_same(Path::new(&from), &copied).unwrap();
    }
}
