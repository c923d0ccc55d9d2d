//! The process that a user starts: it holds the demo's directory, and ends everything at a signal.
//!
//! All processes of the demo end with the one that started them (PR_SET_PDEATHSIG, prctl(2)), so a signal that cannot be
//! caught leaves none behind.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use copy::Exit;
use data::os::signals::is_ignored;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};

use super::folder::DemoFolder;
use crate::args::DemoArgs;
use crate::output::print_to_stderr;

/// Time in which the demo takes down its network, before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the demo in a process of its own, which ends with this one.
pub(super) fn supervise(args: &DemoArgs) -> Result<Exit> {
    let folder = DemoFolder::create(args.dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        // Caught before there is anything to end.
        let ending = EndingSignals::catch()?;
        let mut demo = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .arg("--parent")
            .arg(std::process::id().to_string())
            .arg("--folder")
            .arg(&folder.root)
            .spawn()
            .context("cannot start the demo")?;
        let pid = Pid::from_child(&demo);
        let waiting = tokio::task::spawn_blocking(move || demo.wait());
        wait(pid, waiting, ending).await
    });
    // Whatever happened, the demo is over.
    drop(folder);
    ended
}

/// Waits for the end of the demo, or of this process.
async fn wait(
    pid: Pid,
    mut waiting: JoinHandle<io::Result<ExitStatus>>,
    mut ending: EndingSignals,
) -> Result<Exit> {
    tokio::select! {
        ended = &mut waiting => return Ok(exit_of(ended??)),
        () = ending.any() => {}
    }
    for signal in [Signal::TERM, Signal::KILL] {
        let _ = kill_process(pid, signal);
        if tokio::time::timeout(PATIENCE, &mut waiting).await.is_ok() {
            break;
        }
    }
    Ok(Exit::Interrupted)
}

fn exit_of(status: ExitStatus) -> Exit {
    if let Some(signal) = status.signal() {
        print_to_stderr(&format!("longhaul demo: ended by signal {signal}"));
    }
    match status.code() {
        Some(0) => Exit::Done,
        Some(2) => Exit::Usage,
        Some(130) => Exit::Interrupted,
        _ => Exit::Local,
    }
}

/// The signals that end a process by default, and that users and systems send for that. Those that are ignored stay so.
struct EndingSignals(JoinSet<()>);

impl EndingSignals {
    fn catch() -> io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::alarm(),
        ];
        let mut coming = JoinSet::new();
        for kind in kinds {
            if !is_ignored(kind.as_raw_value())? {
                let mut caught = signal(kind)?;
                coming.spawn(async move {
                    let _ = caught.recv().await;
                });
            }
        }
        Ok(Self(coming))
    }

    /// Waits for the first one.
    async fn any(&mut self) {
        if self.0.join_next().await.is_none() {
            pending::<()>().await;
        }
    }
}

/// Has this process end with the one that started it, whose process ID is `parent`.
pub(super) fn end_with_parent(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let found = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    // It may have ended before.
    if u32::try_from(found).ok() != Some(parent) {
        anyhow::bail!("the demo has ended");
    }
    Ok(())
}

/// Becomes a program, which ends with the process that has started this one.
pub(super) fn exec(command: &[OsString]) -> Result<Infallible> {
    let error = Command::new(std::env::current_exe()?).args(command).exec();
    Err(error).context("cannot start a part of the demo")
}
