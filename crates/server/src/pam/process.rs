//! The process that asks PAM, and those that it starts: one for each login.
//!
//! The first reads questions and starts a process for each, so that a module that hangs, crashes or leaves
//! something behind is part of one login. It takes no more than a few at a time, ends those that take too long
//! with all that they started, and ends with the server.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use data::os::core_dumps;
use data::os::pam::{PamLibrary, PamRefusal};
use proto::command::Secret;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, set_parent_process_death_signal, waitid,
};

use super::message::{MAX_PACKET, PamAnswer, PamQuestion};
use super::processes::AttemptProcesses;
use super::service::{check_account, check_service};

/// Most logins that wait for PAM at a time.
pub(crate) const MAX_ATTEMPTS: usize = 16;
/// Longest time that PAM may take for a login. Modules may ask a telephone or a distant directory.
pub(super) const ATTEMPT_TIME: Duration = Duration::from_secs(30);

/// The hidden verb of the program that runs [`run_attempt`].
pub(super) const ATTEMPT_VERB: &str = "pam-attempt";

/// The ends of a connection of packets.
pub(super) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok(pair)
}

/// The next packet; `None` at the end of the connection, also if a packet is too long.
pub(super) fn receive(socket: impl AsFd, packet: &mut Secret) -> io::Result<Option<()>> {
    packet.0.clear();
    packet.0.resize(MAX_PACKET, 0);
    let (_, length) = loop {
        match recv(&socket, packet.0.as_mut_slice(), RecvFlags::TRUNC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    // With TRUNC the length is that of the whole packet.
    match length {
        1..=MAX_PACKET => {
            packet.0.truncate(length);
            Ok(Some(()))
        }
        _ => Ok(None),
    }
}

pub(super) fn send_packet(socket: impl AsFd, packet: &[u8], flags: SendFlags) -> io::Result<()> {
    send(socket, packet, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Serves questions from standard input, a socket of packets, until it closes. Run it in a process of its own, as the
/// account whose rights PAM's modules need. The first packet that it sends says whether PAM can be asked.
///
/// # Errors
/// Standard input is no such socket, or the connection broke.
pub fn run(service: &str, least_uid: u32) -> io::Result<()> {
    forbid_core_dumps();
    let socket = Arc::new(io::stdin().as_fd().try_clone_to_owned()?);
    let ready = check_service(service)
        .and_then(|()| PamLibrary::load().map(drop).map_err(Into::into))
        .map_or_else(
            |error| PamAnswer::Broken(error.to_string()),
            |()| PamAnswer::Granted,
        );
    send_packet(&socket, &ready.encode(0), SendFlags::empty())?;
    let running = Arc::new(AtomicUsize::new(0));
    let processes = Arc::new(AttemptProcesses::adopting()?);
    let mut packet = Secret(Vec::new());
    while receive(&socket, &mut packet)?.is_some() {
        // Only the server sends packets, and it sends no others.
        let Some((number, question)) = PamQuestion::decode(&packet.0) else {
            continue;
        };
        let command = attempt_command(service, least_uid);
        let (to, counted) = (Arc::clone(&socket), Arc::clone(&running));
        if counted.fetch_add(1, Ordering::SeqCst) >= MAX_ATTEMPTS {
            counted.fetch_sub(1, Ordering::SeqCst);
            let busy = format!("{MAX_ATTEMPTS} logins wait for PAM already");
            answer(&to, number, &PamAnswer::Broken(busy));
            continue;
        }
        let started_by = Arc::clone(&processes);
        let attempt = move || {
            let judged = attempt(&started_by, command, &question);
            // Before the answer: who has it may ask again.
            counted.fetch_sub(1, Ordering::SeqCst);
            answer(&to, number, &judged);
        };
        let started = thread::Builder::new()
            .name("attempt".to_owned())
            .spawn(attempt);
        if let Err(error) = started {
            running.fetch_sub(1, Ordering::SeqCst);
            let broken = PamAnswer::Broken(format!("no thread to ask PAM: {error}"));
            answer(&socket, number, &broken);
        }
    }
    processes.end_all();
    Ok(())
}

fn answer(socket: &OwnedFd, number: u32, answer: &PamAnswer) {
    // A server that has ended needs no answer.
    let _ = send_packet(socket, &answer.encode(number), SendFlags::empty());
}

/// The process for one login.
fn attempt_command(service: &str, least_uid: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(ATTEMPT_VERB)
        .arg(service)
        .arg(least_uid.to_string())
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Not ended by an interrupt at the terminal: the server decides when.
        .process_group(0);
    command
}

/// Has a process of its own ask PAM.
fn attempt(
    processes: &AttemptProcesses,
    mut command: Command,
    question: &PamQuestion,
) -> PamAnswer {
    let begun = packet_pair().and_then(|(ours, theirs)| {
        sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(ATTEMPT_TIME))?;
        let child = processes.spawn(command.stdin(Stdio::from(theirs)))?;
        // The command has a copy of the other end: closed, the end of the process can be seen.
        drop(command);
        Ok((ours, child))
    });
    let (ours, mut child) = match begun {
        Ok(begun) => begun,
        Err(error) => return PamAnswer::Broken(format!("cannot start a process: {error}")),
    };
    let mut packet = Secret(Vec::new());
    let asked = send_packet(&ours, &question.encode(0).0, SendFlags::empty());
    let received = asked.and_then(|()| receive(&ours, &mut packet));
    let said = match &received {
        Ok(Some(())) => PamAnswer::decode(&packet.0).map(|(_, answer)| answer),
        _ => None,
    };
    let timed_out = matches!(&received, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    let end = end_of(processes, &mut child, timed_out);
    said.unwrap_or(PamAnswer::Broken(end))
}

/// Ends a process with all that it started, and says how it ended.
fn end_of(processes: &AttemptProcesses, child: &mut Child, timed_out: bool) -> String {
    // A process that has closed its end without a signal of ours is ending: its own signal tells more.
    if !timed_out {
        wait_a_moment(Pid::from_child(child));
    }
    match (timed_out, processes.end(child)) {
        (true, _) => format!(
            "no answer within {} s: a module hangs",
            ATTEMPT_TIME.as_secs()
        ),
        (false, Ok(status)) => match status.signal() {
            Some(signal) => format!("a module crashed: signal {signal}"),
            None => format!("a module ended the process: {status}"),
        },
        (false, Err(error)) => format!("a module ended the process: {error}"),
    }
}

/// Waits for the end of a process that ends soon, and leaves its status for `wait`.
fn wait_a_moment(process: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    for _ in 0..200 {
        match waitid(WaitId::Pid(process), options) {
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
}

/// Asks PAM about the one login that standard input brings, and answers there. Run it in a process of its own, which ends
/// afterwards.
///
/// # Errors
/// Standard input is no socket of packets, or it closed.
pub fn run_attempt(service: &str, least_uid: u32) -> io::Result<()> {
    forbid_core_dumps();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    // The copy closes when a module starts a program; standard input would not.
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    let mut packet = Secret(Vec::new());
    let asked = receive(&socket, &mut packet)?.and_then(|()| PamQuestion::decode(&packet.0));
    drop(packet);
    let (number, question) = asked.ok_or(io::ErrorKind::InvalidData)?;
    let judged = judge(service, least_uid, &question);
    send_packet(&socket, &judged.encode(number), SendFlags::empty())
}

fn judge(service: &str, least_uid: u32, question: &PamQuestion) -> PamAnswer {
    if let Err(reason) = check_account(&question.user, least_uid) {
        return PamAnswer::Refused(reason);
    }
    // Each time: without a file PAM would apply the rules of the service `other`.
    if let Err(error) = check_service(service) {
        return PamAnswer::Broken(error.to_string());
    }
    let library = match PamLibrary::load() {
        Ok(library) => library,
        Err(error) => return PamAnswer::Broken(error.to_string()),
    };
    let host = question.peer.to_canonical().to_string();
    match library.check(question.for_service(service, &host)) {
        Ok(()) => PamAnswer::Granted,
        Err(refusal @ PamRefusal::Start(_)) => PamAnswer::Broken(refusal.to_string()),
        Err(refusal) => PamAnswer::Refused(refusal.to_string()),
    }
}

fn forbid_core_dumps() {
    if let Err(error) = core_dumps::forbid_core_dumps() {
        tracing::warn!(%error, "cannot forbid core dumps");
    }
}
