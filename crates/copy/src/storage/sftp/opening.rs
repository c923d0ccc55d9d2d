//! Opens connections: ssh(1) logs in and asks for the subsystem.

use std::time::{Duration, Instant};

use ftp::failure::Operation;
use ftp::location::Server;
use ftp::protection::ChannelPlace;
use ftp::session::open_ssh_channel;
use ftp::ssh::{SshLogin, SshRun};
use ftp::{Failure, FailureKind};
use proto::sftp::{
    OpenFlags, SftpError, SftpLimits, SftpReply, SftpRequest, SftpStatusCode, SftpVersion,
    packet_len, put_init,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::changes;
use super::connection::SftpConnection;
use super::errors::{self, SftpFailed};

/// A file that is not there: a server that has checksums says so.
const NO_FILE: &[u8] = b"/nonexistent/longhaul";

/// How connections with a server are opened.
#[derive(Debug, Clone)]
pub(super) struct SftpOpener {
    pub(super) server: Server,
    pub(super) name: String,
    pub(super) timeout: Duration,
}

/// A connection that is new.
#[derive(Debug)]
pub(super) struct OpenedConnection {
    pub(super) connection: SftpConnection,
    /// The directory in which the login begins.
    pub(super) home: Vec<u8>,
    /// Of the first requests.
    pub(super) rtt: Duration,
}

/// A connection with a file open.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) connection: SftpConnection,
    pub(super) handle: Vec<u8>,
}

/// The end of the first dialogue.
enum Begun {
    Version(SftpVersion),
    /// The channel has ended.
    Ended,
    Broken(SftpError),
}

impl SftpOpener {
    /// Opens a connection, for a session.
    ///
    /// # Errors
    /// Those of the login; `NoProgram` and `NoCommands`: there is no SFTP.
    pub(super) async fn open(&self) -> Result<OpenedConnection, Failure> {
        let security = &self.server.security;
        if !security.needs_separate_logins(&self.server) {
            match self.open_shared().await {
                // It was found out meanwhile.
                Err(failure)
                    if failure.kind() == FailureKind::SessionLimit
                        && security.needs_separate_logins(&self.server) => {}
                opened => return opened,
            }
        }
        self.open_apart().await
    }

    /// Opens a connection over a login of its own if that needs nobody, else over the shared one.
    async fn open_apart(&self) -> Result<OpenedConnection, Failure> {
        let security = &self.server.security;
        if !security.has_refused_login(&self.server) {
            match self.open_by(SshLogin::Own, None).await {
                Err(failure) if failure.kind() == FailureKind::Refused => {
                    security.note_refused_login(&self.server);
                }
                opened => return opened,
            }
        }
        self.open_shared().await
    }

    /// Opens a connection over the shared login.
    async fn open_shared(&self) -> Result<OpenedConnection, Failure> {
        let place = self.server.security.channel_place(&self.server);
        let place = place.ok_or_else(|| self.taken())?;
        self.open_by(SshLogin::Shared, Some(place)).await
    }

    /// The failure of a session beside the only one that a login may carry.
    fn taken(&self) -> Failure {
        let reason = format!(
            "{} may mix the data of sessions that share a login, and lets nobody log in once more without a question",
            self.name
        );
        Failure::transient(FailureKind::SessionLimit, reason)
            .advise("use --concurrency 1, or a key that needs no question")
    }

    async fn open_by(
        &self,
        login: SshLogin,
        place: Option<ChannelPlace>,
    ) -> Result<OpenedConnection, Failure> {
        let may_stay = || {
            let security = &self.server.security;
            match &place {
                Some(place) if !security.may_keep_place(&self.server, place) => Err(self.taken()),
                _ => Ok(()),
            }
        };
        let run = SshRun::Subsystem("sftp");
        let channel = open_ssh_channel(&self.server, run, login, self.timeout).await?;
        // Another session may have found out meanwhile that this server mixes them.
        may_stay()?;
        let mut stream = channel.stream()?;
        let version = match timeout(channel.patience(), begin(&mut stream)).await {
            Ok(Begun::Version(version)) => version,
            Ok(Begun::Ended) => return Err(channel.failure().await),
            Ok(Begun::Broken(error)) => {
                let reason = format!("{} does not speak SFTP 3: {error}", self.name);
                return Err(Failure::protocol(reason)
                    .advise("shell files of the login there may print nothing"));
            }
            Err(_) => return Err(channel.silence()),
        };
        if !version.extensions.limits {
            // Only OpenSSH has them. Others may mix the packets of several channels (proftpd 1.3.8). Sessions that wait for this
            // login see it.
            self.server.security.note_separate_logins(&self.server);
        }
        channel.established();
        may_stay()?;
        let socket = stream.into_std();
        let socket = socket.map_err(|error| Failure::local(error.to_string()))?;
        let mut connection = SftpConnection::new(socket, version.extensions, self.timeout);
        connection.place = place;
        let name = self.name.clone();
        blocking(move || {
            let begun = Instant::now();
            let home = first_requests(&mut connection);
            let home = home.map_err(|failed| failed.failure(&name, &Operation::from("begin")))?;
            Ok(OpenedConnection {
                connection,
                home,
                rtt: begun.elapsed(),
            })
        })
        .await
    }

    /// Opens one more connection, for a file.
    pub(super) async fn open_file(
        &self,
        path: &[u8],
        flags: OpenFlags,
        mark: Option<u32>,
    ) -> Result<OpenedFile, Failure> {
        let mut connection = self.open_apart().await?.connection;
        let (path, name) = (path.to_vec(), self.name.clone());
        blocking(move || {
            let handle = open_again(&mut connection, &path, flags, mark);
            let operation = Operation::on_path("open", &path);
            let handle = handle.map_err(|failed| failed.failure(&name, &operation))?;
            Ok(OpenedFile { connection, handle })
        })
        .await
    }
}

/// Opens a file that another connection has open, if it has the mark.
pub(super) fn open_again(
    connection: &mut SftpConnection,
    path: &[u8],
    flags: OpenFlags,
    mark: Option<u32>,
) -> Result<Vec<u8>, SftpFailed> {
    let handle = connection.open(&SftpRequest::Open(path, flags))?;
    if mark.is_some() {
        let found = changes::attributes(connection, &SftpRequest::HandleStat(&handle))?;
        if found.accessed != mark {
            let busy = Failure::new(FailureKind::DestinationBusy, "another copy has its name");
            return Err(SftpFailed::Other(busy));
        }
    }
    Ok(handle)
}

/// Runs work on a thread for blocking calls.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::local(error.to_string())))
}

async fn begin(stream: &mut UnixStream) -> Begun {
    let mut packet = Vec::new();
    put_init(&mut packet);
    let mut length = [0; 4];
    let exchanged = async {
        stream.write_all(&packet).await?;
        stream.read_exact(&mut length).await
    };
    if exchanged.await.is_err() {
        return Begun::Ended;
    }
    let length = match packet_len(&length) {
        Ok(length) => length.unwrap_or_default() - 4,
        Err(error) => return Begun::Broken(error),
    };
    packet.resize(length, 0);
    if stream.read_exact(&mut packet).await.is_err() {
        return Begun::Ended;
    }
    match SftpVersion::parse(&packet) {
        Ok(version) => Begun::Version(version),
        Err(error) => Begun::Broken(error),
    }
}

/// Asks for the directory and the limits, and for a checksum: some servers do not announce that they have it (proftpd 1.3.8).
fn first_requests(connection: &mut SftpConnection) -> Result<Vec<u8>, SftpFailed> {
    let further = match connection.extensions.limits {
        true => SftpRequest::Limits,
        false => SftpRequest::CheckFile {
            path: NO_FILE,
            algorithm: "sha256",
            offset: 0,
            length: 0,
        },
    };
    let requests = [SftpRequest::RealPath(b"."), further];
    let timeout = connection.timeout();
    let mut replies = connection.call_all(&requests, timeout)?.into_iter();
    let home = match replies.next() {
        Some(SftpReply::Names(names)) if names.len() == 1 => {
            names.into_iter().next().map(|name| name.name)
        }
        Some(other) => return Err(errors::unexpected(other)),
        None => None,
    };
    match replies.next() {
        Some(SftpReply::Extended(answer)) if connection.extensions.limits => {
            connection.limits = SftpLimits::parse(&answer).map_err(SftpFailed::Broken)?;
        }
        Some(SftpReply::Status(status)) if status.code == SftpStatusCode::NoSuchFile => {
            connection.extensions.check_file = true;
        }
        _ => {}
    }
    home.ok_or(SftpFailed::Unasked)
}
