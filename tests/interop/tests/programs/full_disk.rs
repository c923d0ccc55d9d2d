//! Trees and a file system that is full: at the destination, at the server, and below the journal of the batch. The copy says so
//! once, no file has its final name with another content, and `--resume` finishes when there is room.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::ServeCommand;
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::tree::TestTree;
use interop::volume::{FullVolume, FullVolumeKind};

/// Room for about a third of the tree, bytes.
const ROOM: u64 = 1 << 20;
/// Options with which small files travel in bundles, and one by one.
const WAYS: [&[&str]; 2] = [&[], &["--verify", "sha256"]];
const KINDS: [FullVolumeKind; 2] = [FullVolumeKind::Tmpfs, FullVolumeKind::Ext4];

/// A copy of a tree to a full volume.
struct FullCopy {
    source: String,
    destination: String,
    /// The copy on this machine.
    arrives: PathBuf,
    state: PathBuf,
}

impl FullCopy {
    fn command(&self, options: &[&str]) -> Result<Command> {
        let mut command = longhaul()?;
        command
            .args(["cp", "-r", "--no-history"])
            .args(options)
            .args([&self.source, &self.destination])
            .env("XDG_STATE_HOME", &self.state)
            .env("LONGHAUL_BATCHES", self.state.join("batches"));
        Ok(command)
    }

    /// Files below the state directory.
    fn journals(&self) -> Result<usize> {
        match self.state.exists() {
            true => Ok(TestTree::read(&self.state)?.len()),
            false => Ok(0),
        }
    }

    /// One message says why files failed, and one how many more did.
    fn ensure_said_once(&self, full: &FinishedProgram) -> Result<()> {
        let mut messages = copy::messages(full);
        // The last line says how to go on.
        messages.retain(|message| !message.contains(" is safe; "));
        let [failure, rest] = messages.as_slice() else {
            anyhow::bail!("not one failure and the number of the others: {full}");
        };
        ensure!(
            failure.contains("No space left on device") && failure.contains("make room"),
            "{failure}"
        );
        ensure!(rest.contains("the same for"), "{rest}");
        Ok(())
    }

    /// Copies until the volume is full, makes room, and copies the rest.
    fn fill_and_resume(&self, tree: &TestTree, volume: &FullVolume, way: &[&str]) -> Result<()> {
        let full = run::run(&mut self.command(way)?)?.expect_code(1)?;
        self.ensure_said_once(&full)?;
        let text = full.stderr_text();
        ensure!(
            text.lines().any(|line| line.contains(" failed: ")),
            "{text}"
        );
        tree.ensure_contains(&self.arrives)?;
        let there = TestTree::read(&self.arrives)?;
        ensure!(there.len() > tree.len() / 10, "{} files fit", there.len());
        volume.make_room()?;
        let again = [way, &["--resume", "--json"]].concat();
        let resumed = run::run(&mut self.command(&again)?)?.expect_success()?;
        let moved = copy::summary(&resumed)?.files;
        ensure!(
            (1..tree.len() as u64).contains(&moved),
            "{moved} files moved by {resumed}"
        );
        // Also no file with an unfinished name.
        tree.ensure_same_as(&self.arrives)?;
        let journals = self.journals()?;
        ensure!(journals == 0, "{journals} journals are left");
        Ok(())
    }
}

fn each_volume_and_way(check: impl Fn(&TestTree, &FullVolume, &Path, &[&str]) -> Result<()>) {
    let tree = TestTree::thousand();
    for kind in KINDS {
        for way in WAYS {
            let volume = FullVolume::new(kind, ROOM).unwrap();
            let source = volume.other_file_system().folder("source/t").unwrap();
            tree.write(&source).unwrap();
            let checked = check(&tree, &volume, &source, way);
            checked
                .with_context(|| format!("{kind:?} {way:?}"))
                .unwrap();
        }
    }
}

#[test]
fn a_get_of_a_tree_to_a_full_disk_says_so_once_and_resumes() {
    require!(FullVolume::is_supported());
    each_volume_and_way(|tree, volume, source, way| {
        let server = ServeCommand::anonymous(source.parent().context("a parent")?).start()?;
        let arrives = volume.folder().join("got");
        let copy = FullCopy {
            source: server.url("t"),
            destination: path_argument(&arrives),
            arrives,
            state: volume.other_file_system().join("state"),
        };
        server.explain(copy.fill_and_resume(tree, volume, way))
    });
}

#[test]
fn a_put_of_a_tree_to_a_full_server_says_so_once_and_resumes() {
    require!(FullVolume::is_supported());
    each_volume_and_way(|tree, volume, source, way| {
        let server = ServeCommand::anonymous(&volume.folder()).start()?;
        let copy = FullCopy {
            source: path_argument(source),
            destination: server.url("got"),
            arrives: volume.folder().join("got"),
            state: volume.other_file_system().join("state"),
        };
        server.explain(copy.fill_and_resume(tree, volume, way))
    });
}

#[test]
fn a_copy_to_a_disk_without_any_room_exits_with_7() {
    require!(FullVolume::is_supported());
    for kind in KINDS {
        let volume = FullVolume::new(kind, 0).unwrap();
        let source = volume.other_file_system().folder("source").unwrap();
        TestTree::thousand().write(&source).unwrap();
        // Empty files fit on any disk.
        let options = ["--min-size", "1"];
        let copy = FullCopy {
            source: path_argument(&source),
            destination: path_argument(&volume.folder().join("got")),
            arrives: volume.folder().join("got"),
            state: volume.other_file_system().join("state"),
        };
        let full = run::run(&mut copy.command(&options).unwrap()).unwrap();
        copy.ensure_said_once(&full.expect_code(7).unwrap())
            .unwrap();
        let full = run::run(&mut copy.command(&[&options[..], &["--json"]].concat()).unwrap());
        let full = full.unwrap().expect_code(7).unwrap();
        let events = full.stdout_text();
        let failed = events.lines().filter(|l| l.contains(r#""event":"failed""#));
        let failed = failed.count() as u64;
        assert_eq!(failed, copy::summary(&full).unwrap().failed, "{full}");
    }
}

#[test]
fn a_batch_whose_journal_finds_no_room_is_copied_with_one_warning() {
    require!(FullVolume::is_supported());
    for kind in KINDS {
        // Less than the plan of the tree.
        let volume = FullVolume::new(kind, 8 << 10).unwrap();
        let tree = TestTree::thousand();
        let source = volume.other_file_system().folder("source/t").unwrap();
        tree.write(&source).unwrap();
        let server = ServeCommand::anonymous(source.parent().unwrap())
            .start()
            .unwrap();
        let copy = FullCopy {
            source: server.url("t"),
            destination: path_argument(&volume.other_file_system().join("got")),
            arrives: volume.other_file_system().join("got"),
            state: volume.folder().join("state"),
        };
        let copied = run::run(&mut copy.command(&["--json"]).unwrap()).unwrap();
        let copied = copied.expect_success().unwrap();
        let warnings = copy::warnings(&copied);
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(warning.contains("journal cannot be written"), "{warning}");
        tree.ensure_same_as(&copy.arrives).unwrap();
        assert_eq!(copy.journals().unwrap(), 0);
    }
}
