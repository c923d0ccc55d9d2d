//! `sshftp://[USER@]HOST[:PORT]/PATH`: ssh(1) starts the far end's own GridFTP server, as globus-url-copy does (`gridftp-ssh` of
//! the Grid Community Toolkit). Its data connections are clear.

use data::transport::ControlTransport;
use proto::carried::CarriedEnds;
use tokio::time::timeout;

use super::{CarriedSession, SshEnd, answer};
use crate::Failure;

/// The command that starts the server, if a user of globus-url-copy has chosen one.
const REMOTE_PROGRAM: &str = "GLOBUS_REMOTE_SSHFTP";

/// Prints the line that begins a session, so that what the login has printed before is passed over. An address of IPv6 loses
/// its zone, which means nothing elsewhere.
const LINE: &str = "sh -c 'set -- $SSH_CONNECTION; c=${1%%\\%*}; s=${3%%\\%*}; \
                    printf \"longhaul session 1 %s %s -\\r\\n\" \"${c:--}\" \"${s:--}\"'";

/// Starts the server: that of the user, or of the host.
const SERVER: &str = "sh -c 'for script in .globus/sshftp /etc/grid-security/sshftp; do test -f $script && exec $script; done; \
                      printf \"500 There is neither ~/.globus/sshftp nor /etc/grid-security/sshftp.\\r\\n\"'";

/// Starts a server at the far end, and waits until it is ready.
///
/// # Errors
/// As [`super::begin_session`].
pub(crate) async fn begin_sshftp(end: &SshEnd<'_>) -> Result<CarriedSession, Failure> {
    let command = command(std::env::var(REMOTE_PROGRAM).ok().as_deref());
    let channel = end.open_shared(command.clone()).await?;
    let mut transport = ControlTransport::carried(channel.stream()?);
    let first = answer(&mut transport, CarriedEnds::parse);
    match timeout(channel.patience(), first).await {
        Ok(Some(ends)) => Ok(CarriedSession::begun(channel, transport, ends, command)),
        Ok(None) => Err(channel.failure().await),
        Err(_) => Err(channel.silence()),
    }
}

/// The command for the login shell, whichever that is.
fn command(chosen: Option<&str>) -> String {
    let server = chosen.filter(|text| !text.is_empty()).unwrap_or(SERVER);
    format!("{LINE}; {server}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_far_end_tells_its_addresses_before_the_server_speaks() {
        for connection in [
            "192.0.2.1 4711 192.0.2.2 22",
            "fe80::1%eth0 4711 2001:db8::2 22",
            "",
        ] {
            let mut shell = Command::new("sh");
            shell.env("SSH_CONNECTION", connection);
            shell.args(["-c", &command(Some("printf '220 ready\\r\\n'"))]);
            let output = shell.output().unwrap().stdout;
            let (line, greeting) = output.split_at(output.len() - b"220 ready\r\n".len());
            assert_eq!(greeting, b"220 ready\r\n");
            let expected = connection.replace("%eth0", "");
            let expected = CarriedEnds::from_ssh_connection(&expected);
            assert_eq!(
                CarriedEnds::parse(line.strip_suffix(b"\n").unwrap()),
                Some(expected)
            );
        }
    }
}
