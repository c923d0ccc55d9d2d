//! A second view of a folder, with the same inodes, whose file system can be made to answer nobody: bindfs, in user space.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::process::ProcessGuard;
use crate::volume;

const START_LIMIT: Duration = Duration::from_secs(20);

/// A mounted view; unmounted on drop.
pub struct StallingView {
    mounted: PathBuf,
    daemon: ProcessGuard,
}

impl StallingView {
    /// Whether this machine can mount one; the error says why not.
    pub fn is_supported() -> Result<(), String> {
        let found = Command::new("bindfs").arg("--version").output();
        match (
            found,
            Path::new("/dev/fuse").exists() && crate::peer::is_root(),
        ) {
            (Ok(_), true) => Ok(()),
            (Err(_), _) => Err("bindfs is not installed".to_owned()),
            (_, false) => Err("bindfs needs root and /dev/fuse".to_owned()),
        }
    }

    /// Mounts a view of `folder` on the empty folder `on`.
    pub fn mount(folder: &Path, on: &Path) -> Result<Self> {
        let mut command = Command::new("bindfs");
        command.args(["-f", "--multithreaded"]).args([folder, on]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = ProcessGuard::spawn(&mut command)?;
        let view = Self {
            mounted: on.to_owned(),
            daemon,
        };
        let marker = folder.join(".view");
        std::fs::write(&marker, "")?;
        let deadline = Instant::now() + START_LIMIT;
        while !on.join(".view").exists() {
            ensure!(Instant::now() < deadline, "bindfs does not mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_file(&marker)?;
        Ok(view)
    }

    /// Answers nobody until [`StallingView::go_on`].
    pub fn stall(&self) -> Result<()> {
        self.daemon.signal(Signal::STOP)
    }

    /// Answers again.
    pub fn go_on(&self) -> Result<()> {
        self.daemon.signal(Signal::CONT)
    }
}

impl Drop for StallingView {
    fn drop(&mut self) {
        // Whoever waits for the file system gets an error, and can end.
        self.daemon.kill();
        volume::unmount(&self.mounted);
    }
}
