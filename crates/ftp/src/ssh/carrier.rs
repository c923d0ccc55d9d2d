//! Data connections that ssh carries to a port of the far end, which this machine cannot reach.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use data::tunnel::DataCarrier;
use socket2::{SockRef, Socket};

use super::host::SshHost;
use super::{SshProcess, SshRun, SshTarget};
use crate::FailureKind;

/// Most logins beside the shared one: sshd refuses some of ten that have not been let in yet (MaxStartups in sshd_config(5)).
pub(super) const MAX_LOGINS: usize = 8;
/// Most channels of the shared login.
const MAX_SHARED: usize = 10;
/// Buffers between this program and ssh, bytes, each way: what waits there is neither sent nor received.
const PIPE_BYTES: usize = 256 << 10;

/// Carries data connections to one host.
#[derive(Debug)]
pub(crate) struct SshCarrier {
    pub(super) host: Arc<SshHost>,
    pub(super) target: SshTarget,
    /// The command of the far end, for the login shell.
    pub(super) command: String,
    /// Longest wait for a login.
    pub(super) connect_time: Duration,
}

/// The channels to a host at a time.
#[derive(Debug, Default)]
pub(super) struct HostChannels {
    /// Sessions, all over the shared login.
    sessions: usize,
    /// Data connections over the shared login.
    shared: usize,
    /// Which of the further logins carries a data connection now. One that has ended its connection stays for the next.
    own: [bool; MAX_LOGINS],
    /// A login of its own was refused: nobody is asked again.
    only_shared: bool,
}

/// The place of a session among the channels of a host, as long as it is held.
#[derive(Debug)]
pub(super) struct SessionPlace(Arc<SshHost>);

impl SessionPlace {
    /// A place, if one is left beside those of data connections: sshd permits ten channels of a login (MaxSessions in
    /// sshd_config(5)).
    pub(super) fn take(host: &Arc<SshHost>) -> Option<Self> {
        let carries_data = host.carries_data();
        let mut channels = host.channels.lock();
        let most = match channels.only_shared {
            true => MAX_SHARED / 2,
            false => MAX_SHARED - 2,
        };
        (!carries_data || channels.sessions < most).then(|| {
            channels.sessions += 1;
            Self(Arc::clone(host))
        })
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        self.0.channels.lock().sessions -= 1;
    }
}

impl DataCarrier for SshCarrier {
    fn name(&self) -> String {
        format!("ssh to {}", self.target)
    }

    fn start(&self) -> io::Result<Socket> {
        let login = self.host.channels.lock().take()?;
        let started = self.start_over(login);
        if started.is_err() {
            self.host.channels.lock().leave(login);
        }
        started
    }
}

/// The login that carries a data connection: a further one by its number, or the shared one.
type CarryingLogin = Option<usize>;

impl HostChannels {
    /// A login for one more data connection.
    fn take(&mut self) -> io::Result<CarryingLogin> {
        // All channels of one login share a TCP connection, and its losses.
        let free = self.own.iter_mut().enumerate().find(|(_, used)| !**used);
        if let (Some((number, used)), true, false) = (free, self.shared > 0, self.only_shared) {
            *used = true;
            return Ok(Some(number));
        }
        if self.sessions + self.shared >= MAX_SHARED {
            return Err(io::Error::other("the login carries no further connection"));
        }
        self.shared += 1;
        Ok(None)
    }

    fn leave(&mut self, login: CarryingLogin) {
        match login {
            Some(number) => self.own[number] = false,
            None => self.shared -= 1,
        }
    }
}

impl SshCarrier {
    fn start_over(&self, login: CarryingLogin) -> io::Result<Socket> {
        let (near, far) = connected_pair()?;
        let run = SshRun::Command(self.command.clone());
        let command = match login {
            Some(number) => {
                self.host
                    .command_with_login(&self.target, self.connect_time, run, Some(number))
            }
            None => self
                .host
                .command_of_data(&self.target, self.connect_time, run),
        };
        let process = SshProcess::start(command, far)
            .map_err(|failure| io::Error::other(failure.to_string()))?;
        let host = Arc::clone(&self.host);
        let (target, run) = (self.target.clone(), SshRun::Command(self.command.clone()));
        process.on_end(move |status, said| {
            let failure = || super::words::failure(&target, &run, status, said).kind();
            let is_refused = login.is_some()
                && !status.is_some_and(|status| status.success())
                && failure() == FailureKind::Refused;
            let mut channels = host.channels.lock();
            channels.leave(login);
            channels.only_shared |= is_refused;
        });
        Ok(near)
    }
}

/// Two ends of a TCP connection on this machine: the options of a data connection have a meaning for them.
fn connected_pair() -> io::Result<(Socket, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let own = near.local_addr()?;
    let far = loop {
        // Anybody on this machine may connect first.
        let (far, peer) = listener.accept()?;
        if peer == own {
            break far;
        }
    };
    for end in [&near, &far] {
        let socket = SockRef::from(end);
        socket.set_send_buffer_size(PIPE_BYTES)?;
        socket.set_recv_buffer_size(PIPE_BYTES)?;
        socket.set_tcp_nodelay(true)?;
    }
    Ok((near.into(), far))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn data_connections_use_logins_again_and_leave_room_for_sessions() {
        let mut channels = HostChannels::default();
        let mut taken: Vec<_> = (0..4).map(|_| channels.take().unwrap()).collect();
        assert_eq!(taken, [None, Some(0), Some(1), Some(2)]);
        channels.leave(taken.remove(2));
        assert_eq!(channels.take().unwrap(), Some(1));
        let mut refused = HostChannels {
            only_shared: true,
            sessions: MAX_SHARED - 2,
            ..HostChannels::default()
        };
        assert_eq!([(); 2].map(|()| refused.take().unwrap()), [None, None]);
        assert!(refused.take().is_err());
    }

    #[test]
    fn a_pair_is_connected_with_itself() {
        let (mut near, mut far) = connected_pair().unwrap();
        near.write_all(b"to the far end").unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = String::new();
        far.read_to_string(&mut received).unwrap();
        assert_eq!(received, "to the far end");
    }
}
