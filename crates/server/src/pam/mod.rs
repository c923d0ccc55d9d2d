//! Logins of system accounts, which PAM checks.
//!
//! Modules of PAM read `/etc/shadow`, load libraries and start programs, as root. All that the sandbox forbids to
//! the process that serves, so another one asks them: it is started before the sandbox, gets a name, a password
//! and an address over a socket pair, and answers yes or no with a reason for the log (see [`process`]). A session
//! that is taken over can try passwords there, some at a time; it cannot read the hashes.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use proto::command::Secret;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{SendFlags, Shutdown, shutdown};
use tokio::sync::oneshot;

mod message;
pub mod process;
mod processes;
mod service;

#[cfg(feature = "fuzzing")]
pub use message::question_again;
pub(crate) use message::{PamAnswer, PamQuestion};
pub(crate) use process::MAX_ATTEMPTS;
pub use service::{PamSetupError, check_pam};

/// Longest wait until the process says that PAM can be asked.
const START_TIME: Duration = Duration::from_secs(20);
/// The process answers by itself when PAM takes too long; beyond this it hangs itself.
const ANSWER_TIME: Duration = Duration::from_secs(process::ATTEMPT_TIME.as_secs() + 5);

/// The hidden verb of the program that runs [`process::run`].
const VERB: &str = "pam-checker";

/// The process that asks PAM, as seen from the one that serves.
#[derive(Debug)]
pub struct PamChecker {
    connection: Arc<PamConnection>,
    child: Mutex<Child>,
    last: AtomicU32,
}

/// This end of the socket pair.
#[derive(Debug)]
struct PamConnection {
    socket: OwnedFd,
    waiting: Mutex<WaitingLogins>,
}

/// Questions without an answer.
#[derive(Debug, Default)]
struct WaitingLogins {
    /// Whether a thread reads answers.
    is_read: bool,
    /// Whether the process has ended.
    has_ended: bool,
    answers: HashMap<u32, oneshot::Sender<PamAnswer>>,
}

impl PamChecker {
    /// Starts the process for a service, accounts with this user ID and larger ones, and a server of the account
    /// `run_as`. Call it before the sandbox: what this process gives up later, that one keeps.
    ///
    /// # Errors
    /// See [`PamSetupError`].
    pub fn start(service: &str, min_uid: u32, run_as: Option<&str>) -> Result<Self, PamSetupError> {
        service::check_place(run_as)?;
        let failed = |error: io::Error| PamSetupError::Start(error.to_string());
        let (ours, theirs) = process::packet_pair().map_err(failed)?;
        sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(START_TIME))
            .map_err(|error| failed(error.into()))?;
        // The program itself: a binary that was replaced meanwhile would be another version.
        let child = Command::new("/proc/self/exe")
            .arg(VERB)
            .args([service, &min_uid.to_string()])
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(failed)?;
        let mut packet = Secret(Vec::new());
        let ready = process::receive(&ours, &mut packet).map_err(failed)?;
        match ready.and_then(|()| PamAnswer::decode(&packet.0)) {
            Some((_, PamAnswer::Granted)) => {}
            Some((_, PamAnswer::Refused(reason) | PamAnswer::Broken(reason))) => {
                return Err(PamSetupError::Unusable(reason));
            }
            None => return Err(PamSetupError::Start("it ended at once".to_owned())),
        }
        sockopt::set_socket_timeout(&ours, Timeout::Recv, None)
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            connection: Arc::new(PamConnection {
                socket: ours,
                waiting: Mutex::default(),
            }),
            child: Mutex::new(child),
            last: AtomicU32::new(0),
        })
    }

    /// Asks about a login. No more than [`MAX_ATTEMPTS`] are answered at a time.
    pub(crate) async fn ask(&self, question: PamQuestion) -> PamAnswer {
        if !question.fits() {
            return PamAnswer::Refused("the name or the password is too long".to_owned());
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let lost = |reason: &str| {
            let advice = "the process that asks PAM does not answer";
            PamAnswer::Broken(format!("{advice}: {reason}; restart the server"))
        };
        let answer = match self.connection.send(number, &question) {
            Ok(answer) => answer,
            Err(error) => return lost(&error.to_string()),
        };
        drop(question);
        let answered = tokio::time::timeout(ANSWER_TIME, answer).await;
        self.connection.waiting.lock().answers.remove(&number);
        match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => lost("it has ended"),
            Err(_) => lost("it hangs"),
        }
    }
}

impl PamChecker {
    /// Another descriptor of the connection, whose end is that of the process.
    pub(crate) fn connection(&self) -> io::Result<OwnedFd> {
        self.connection.socket.try_clone()
    }
}

impl Drop for PamChecker {
    fn drop(&mut self) {
        // The end of the connection ends the process; the sandbox permits no signals to other processes.
        let _ = shutdown(&self.connection.socket, Shutdown::Both);
        let mut child = self.child.lock();
        let _ = child.try_wait();
    }
}

impl PamConnection {
    /// Sends a question; returns where its answer will arrive.
    fn send(
        self: &Arc<Self>,
        number: u32,
        question: &PamQuestion,
    ) -> io::Result<oneshot::Receiver<PamAnswer>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Not at the start: the process confines itself while it has one thread.
        if !waiting.is_read {
            let connection = Arc::clone(self);
            let read = move || connection.read();
            thread::Builder::new().name("pam".to_owned()).spawn(read)?;
            waiting.is_read = true;
        }
        // It never waits: a process that does not read its questions must not hold up this one.
        let packet = question.encode(number);
        process::send_packet(&self.socket, &packet.0, SendFlags::DONTWAIT)?;
        waiting.answers.insert(number, sender);
        Ok(receiver)
    }

    /// Hands answers to those who wait for them, until the process ends.
    fn read(&self) {
        let mut packet = Secret(Vec::new());
        while let Ok(Some(())) = process::receive(&self.socket, &mut packet) {
            let Some((number, answer)) = PamAnswer::decode(&packet.0) else {
                continue;
            };
            // Who has gone needs no answer.
            if let Some(waiting) = self.waiting.lock().answers.remove(&number) {
                let _ = waiting.send(answer);
            }
        }
        let mut waiting = self.waiting.lock();
        waiting.has_ended = true;
        waiting.answers.clear();
    }
}
