//! The servers of a measurement: their start, and the wait until they are ready.

use std::process::Child;
use std::time::{Duration, Instant};

use super::{CellTask, ServerTask};
use crate::LabError;
use crate::experiment::process::{self, WaitEnd};

/// The longest time from the start of the servers until all of them listen.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The longest time from then until the commands that tell whether they are ready have succeeded. A test of a
/// path takes some seconds, and several times longer on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// The time between two calls of such a command.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Starts the servers, then waits until each listens and is ready. The servers that were started are in
/// `started` also after an error, so that the caller can terminate them.
///
/// # Errors
/// A server cannot be started, ends, or is not ready in time.
pub(super) fn start(task: &CellTask, started: &mut Vec<Child>) -> Result<(), LabError> {
    for server in &task.servers {
        started.push(task.start(&server.command, &server.name)?);
    }
    let give_up = Instant::now() + START_LIMIT;
    for (server, child) in task.servers.iter().zip(&mut *started) {
        wait_until_it_listens(task, server, child, give_up)?;
    }
    let give_up = Instant::now() + READY_LIMIT;
    for (server, child) in task.servers.iter().zip(started) {
        wait_until_ready(task, server, child, give_up)?;
    }
    Ok(())
}

fn wait_until_it_listens(
    task: &CellTask,
    server: &ServerTask,
    child: &mut Child,
    give_up: Instant,
) -> Result<(), LabError> {
    while !process::is_listening(child.id(), server.port, task.lab.is_some()) {
        ensure_running(task, server, child, "listened")?;
        if Instant::now() > give_up {
            let message = task.last_message(&server.name);
            let port = server.port;
            return Err(LabError::Program(format!(
                "the server does not listen on port {port}: {message}"
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Calls the server's command until it succeeds, if the server has one.
fn wait_until_ready(
    task: &CellTask,
    server: &ServerTask,
    child: &mut Child,
    give_up: Instant,
) -> Result<(), LabError> {
    let Some(command) = &server.ready else {
        return Ok(());
    };
    let name = format!("{}-ready", server.name);
    loop {
        let mut asking = task.start(command, &name)?;
        let end = process::wait(&mut asking, give_up, None);
        let end = end.map_err(|e| LabError::system("cannot observe the server", e))?;
        if matches!(end, WaitEnd::Ended(status) if status.success()) {
            return Ok(());
        }
        process::terminate(&mut asking)
            .map_err(|e| LabError::system("cannot observe the server", e))?;
        ensure_running(task, server, child, "was ready")?;
        if Instant::now() > give_up {
            let (waited, message) = (READY_LIMIT.as_secs(), task.last_message(&name));
            return Err(LabError::Program(format!(
                "the server was not ready after {waited} s: {message}"
            )));
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// # Errors
/// The server has ended.
fn ensure_running(
    task: &CellTask,
    server: &ServerTask,
    child: &mut Child,
    before: &str,
) -> Result<(), LabError> {
    let ended = child.try_wait();
    let ended = ended.map_err(|e| LabError::system("cannot observe the server", e))?;
    if ended.is_none() {
        return Ok(());
    }
    let message = task.last_message(&server.name);
    Err(LabError::Program(format!(
        "the server ended before it {before}: {message}"
    )))
}
