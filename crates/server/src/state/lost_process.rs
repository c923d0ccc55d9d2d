//! The end of a process that the server cannot do without. The sandbox permits no new processes, so the server ends, too, and
//! whatever has started it starts both again.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::config::ServerConfig;

/// A process that has ended before the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LostProcess {
    /// Without it no handshake of TLS or GSI succeeds.
    #[error("the process that holds the private key has ended")]
    KeyHolder,
    /// Without it no system account can log in.
    #[error("the process that asks PAM has ended")]
    PamChecker,
}

/// Waits until one of the processes ends; for ever if there is none.
pub(crate) async fn lost_process(config: &ServerConfig) -> LostProcess {
    let holder = config.key_holder.as_ref().map(|holder| holder.connection());
    let checker = config
        .pam_checker
        .as_ref()
        .map(|checker| checker.connection());
    tokio::select! {
        () = end_of(holder, LostProcess::KeyHolder) => LostProcess::KeyHolder,
        () = end_of(checker, LostProcess::PamChecker) => LostProcess::PamChecker,
    }
}

/// Waits until the other end of a socket pair is closed. Nothing is read from it.
async fn end_of(connection: Option<io::Result<OwnedFd>>, process: LostProcess) {
    let Some(connection) = connection else {
        return std::future::pending().await;
    };
    let (ended, end) = oneshot::channel();
    let watched = connection.and_then(|socket| {
        let watch = move || {
            // It ends with the server, too, which closes the connection.
            if wait_for_hang_up(&socket).is_ok() {
                let _ = ended.send(());
            }
        };
        thread::Builder::new().name("watch".to_owned()).spawn(watch)
    });
    if let Err(error) = watched {
        tracing::warn!(%error, ?process, "a process that the server needs is not watched");
    }
    if end.await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn wait_for_hang_up(socket: &OwnedFd) -> io::Result<()> {
    // Without any event asked for, poll(2) reports a hang-up alone.
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::empty())], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_process_is_lost_when_its_end_closes_and_not_when_it_answers() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let watched = ours.try_clone().map(OwnedFd::from);
        let end = tokio::spawn(end_of(Some(watched), LostProcess::KeyHolder));
        theirs.write_all(b"an answer").unwrap();
        let mut answer = [0; 9];
        (&ours).read_exact(&mut answer).unwrap();
        assert!(!end.is_finished());
        drop(theirs);
        end.await.unwrap();
    }
}
