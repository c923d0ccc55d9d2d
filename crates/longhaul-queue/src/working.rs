//! `worker` and `serve`: both run until SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;

use command_line::flags::queue::{QueueServeArgs, WorkerArgs};
use command_line::log::log_to_stderr;
use command_line::output::{print_line, print_to_stderr};
use command_line::programs;
use queue::copy::is_name;
use queue::decisions::lease::{LONGEST, LeaseTime, SHORTEST};
use queue::http;
use queue::store::TransferQueue;
use queue::worker::{Worker, WorkerSettings, load_credentials};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use units::Exit;

use crate::asking::{QueueFailure, block_on, open};

pub(crate) fn work(args: WorkerArgs) -> Result<Exit, QueueFailure> {
    log_to_stderr(args.log, "info");
    if !(SHORTEST..=LONGEST).contains(&args.lease) {
        return Err(QueueFailure::Usage(
            "--lease: use a time from 2s to 24h".to_owned(),
        ));
    }
    let credentials = match &args.credentials {
        Some(file) => load_credentials(file)?,
        None => Default::default(),
    };
    let program = programs::find("longhaul").ok_or_else(|| {
        QueueFailure::Missing(
            "a worker needs the program longhaul, which is neither beside longhaul-queue nor on PATH"
                .to_owned(),
        )
    })?;
    let settings = WorkerSettings {
        name: name(args.name)?,
        slots: usize::from(args.jobs),
        lease: LeaseTime::new(args.lease),
        poll: args.poll,
        state: state(args.state)?,
        program,
        credentials,
    };
    let (database, listen) = (args.database, args.listen);
    block_on(async {
        let ending = Ending::watch()?;
        let queue = open(&database)?;
        let shown = listen.map(|address| show(queue.clone(), address));
        if let Some(shown) = shown {
            print_to_stderr(&format!("the queue is shown on http://{}", shown.await?));
        }
        let worker = Worker::open(settings, queue).await?;
        // The worker must run even if nothing reads its standard output.
        let ready = || drop(print_line("ready"));
        worker.run(ready, ending.wait()).await;
        Ok(Exit::Done)
    })
}

pub(crate) fn serve(args: &QueueServeArgs) -> Result<Exit, QueueFailure> {
    log_to_stderr(args.log, "info");
    block_on(async {
        let ending = Ending::watch()?;
        let queue = open(&args.database)?;
        let address = show(queue, args.listen).await?;
        let _ = print_line(&format!("listening on {address}"));
        ending.wait().await;
        Ok(Exit::Done)
    })
}

/// Shows the queue from now on; returns the address.
async fn show(queue: TransferQueue, asked: SocketAddr) -> Result<SocketAddr, QueueFailure> {
    let failed = || QueueFailure::local(format!("cannot listen on {asked}"));
    let listener = TcpListener::bind(asked).await.map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    tokio::spawn(http::serve(queue, listener));
    Ok(address)
}

fn name(given: Option<String>) -> Result<String, QueueFailure> {
    let name = given.unwrap_or_else(|| {
        let host = rustix::system::uname();
        host.nodename().to_string_lossy().into_owned()
    });
    match is_name(&name) {
        true => Ok(name),
        false => Err(QueueFailure::Usage(format!(
            "'{name}' cannot be the name of a worker: use letters, digits and -_.@ (--name)"
        ))),
    }
}

fn state(given: Option<PathBuf>) -> Result<PathBuf, QueueFailure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let below_home = || {
        let own = variable("XDG_STATE_HOME").map(PathBuf::from);
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        own.or_else(home).map(|state| state.join("longhaul/worker"))
    };
    given
        // systemd.exec(5)
        .or_else(|| variable("STATE_DIRECTORY").map(PathBuf::from))
        .or_else(below_home)
        .ok_or_else(|| QueueFailure::Usage("there is no home directory: give --state".to_owned()))
}

/// SIGTERM and SIGINT.
struct Ending {
    terminate: Signal,
    interrupt: Signal,
}

impl Ending {
    /// Watches from now on, so that an early signal is not lost.
    fn watch() -> Result<Self, QueueFailure> {
        let watch = |kind| signal(kind).map_err(QueueFailure::local("cannot watch for signals"));
        Ok(Self {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
        })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
