//! rclone against `longhaul serve`: a short form of its own suites. It has several sessions, and uses any of them for the next
//! command.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::TestStore;
use interop::peer::rclone::Rclone;
use interop::require;
use interop::run::FinishedProgram;
use interop::tree::{ASCII, TestTree, UNICODE};

const FILES: usize = 300;

struct RcloneSession {
    store: TestStore,
    server: LonghaulServer,
    rclone: Rclone,
}

impl RcloneSession {
    fn start(program: std::path::PathBuf) -> Result<Self> {
        let store = TestStore::new()?;
        let server = ServeCommand::anonymous(store.root()).start()?;
        let rclone = Rclone::with_server(program, server.address())?;
        Ok(Self {
            store,
            server,
            rclone,
        })
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> FinishedProgram {
        self.server.explain(self.rclone.run(arguments)).unwrap()
    }
}

fn tree() -> TestTree {
    TestTree::generate(FILES, &[ASCII, UNICODE].concat())
}

#[test]
fn rclone_copies_and_checks_trees_in_both_directions() {
    let session = RcloneSession::start(require!(Rclone::find())).unwrap();
    let tree = tree();
    session.store.add_tree("tree", &tree).unwrap();
    let (local, served) = (session.store.local(), session.store.upload());
    let (remote_source, remote_copy) = (
        session.rclone.remote("src/tree"),
        session.rclone.remote(&served),
    );
    let local_text = local.to_string_lossy().into_owned();
    session.run(&["copy", &remote_source, &local_text]);
    tree.ensure_same_as(&local).unwrap();
    session.run(&["copy", &local_text, &remote_copy]);
    tree.ensure_same_as(&session.store.path(&served)).unwrap();
    session.run(&["check", "--download", &local_text, &remote_copy]);
    session.run(&["check", &remote_source, &remote_copy]);
}

#[test]
fn rclone_syncs_what_has_changed_and_nothing_else() {
    let session = RcloneSession::start(require!(Rclone::find())).unwrap();
    let (local, served) = (session.store.local(), session.store.upload());
    tree().write(&local).unwrap();
    let sync = |session: &RcloneSession| {
        let arguments = [
            "sync",
            &local.to_string_lossy(),
            &session.rclone.remote(&served),
        ];
        session.run(&arguments)
    };
    sync(&session);
    let again = sync(&session).stderr_text();
    ensure_nothing(&again).unwrap();
    // Content of the same length and another time, a new file, and one that is gone.
    let [changed, new, gone] = ["changed", "new", "gone"].map(|name| local.join(name));
    fs::write(&changed, "before").unwrap();
    fs::write(&gone, "gone").unwrap();
    sync(&session);
    fs::write(&changed, "behind").unwrap();
    let time = SystemTime::now() - Duration::from_secs(100_000);
    File::open(&changed).unwrap().set_modified(time).unwrap();
    fs::write(&new, "new").unwrap();
    fs::remove_file(&gone).unwrap();
    sync(&session);
    let expected = TestTree::read(&local).unwrap();
    expected
        .ensure_same_as(&session.store.path(&served))
        .unwrap();
    ensure_nothing(&sync(&session).stderr_text()).unwrap();
}

fn ensure_nothing(said: &str) -> Result<()> {
    ensure!(
        said.contains("There was nothing to transfer"),
        "something was transferred: {said}"
    );
    Ok(())
}
