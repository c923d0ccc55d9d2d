//! Opens sessions with storages of every kind.

use std::sync::Arc;
use std::time::Duration;

use data::store::durability::SyncPolicy;
use ftp::credentials::Credential;
use ftp::location::{Scheme, Server, StorageId};
use ftp::session::{ClientSession, ListingUse, SessionOpening};
use ftp::{Failure, FailureKind};
use proto::http::url::HttpUrl;

use crate::local::local_trees::LocalTrees;
use crate::storage::contract::Storage;
use crate::storage::files::LocalFiles;
use crate::storage::http::HttpStorage;
#[cfg(test)]
use crate::storage::memory;
use crate::storage::pipes::StandardStreams;
use crate::storage::s3::S3Storage;
use crate::storage::s3::settings::{S3Environment, S3Settings};
use crate::storage::sftp::SftpStorage;

/// Parameters for opening sessions with any storage.
#[derive(Debug)]
pub(crate) struct StorageAccess {
    /// Longest wait for a reply.
    pub(crate) timeout: Duration,
    /// Data connections may be with hosts other than the server.
    pub(crate) foreign_data: bool,
    /// Use of listings.
    pub(crate) listing_use: ListingUse,
    /// How names that are created on this machine get to disk.
    pub(crate) sync_policy: SyncPolicy,
    /// The directories of this machine below which no link is followed.
    pub(crate) trees: Arc<LocalTrees>,
}

impl StorageAccess {
    /// Opens a session with a storage. `opening` holds options for servers.
    ///
    /// # Errors
    /// `Unreachable` if the host name is unknown (permanent) or the server cannot be reached
    /// (transient). `Refused` if the login is refused.
    pub(crate) async fn open(
        &self,
        id: &StorageId,
        opening: SessionOpening<'_>,
    ) -> Result<Box<dyn Storage>, Failure> {
        match id {
            // Local storages need no session; opening them cannot fail.
            StorageId::LocalFiles => Ok(Box::new(LocalFiles::new(
                self.sync_policy,
                Arc::clone(&self.trees),
            ))),
            StorageId::StandardStreams => Ok(Box::new(StandardStreams)),
            StorageId::Server(server) => self.open_server(server, opening).await,
        }
    }

    async fn open_server(
        &self,
        server: &Server,
        opening: SessionOpening<'_>,
    ) -> Result<Box<dyn Storage>, Failure> {
        #[cfg(test)]
        if let Some(name) = server.host.strip_suffix(memory::DOMAIN) {
            return Ok(Box::new(memory::MemoryStorage::open(name)));
        }
        let is_further = opening.is_further;
        let lease = opening.lease.cloned();
        match server.scheme {
            Scheme::Ssh if server.security.is_sftp_only(server) => {
                self.open_sftp(server, lease).await
            }
            Scheme::Ssh => match self.open_session(server, opening).await {
                Err(failure)
                    // After one session, its end has another reason.
                    if failure.kind().leaves_sftp()
                        && !is_further
                        && !server.security.insists_on_far_end() =>
                {
                    self.open_sftp_instead(server, failure, lease).await
                }
                opened => opened,
            },
            Scheme::Ftp | Scheme::Ftps | Scheme::Gsiftp | Scheme::Sshftp => {
                self.open_session(server, opening).await
            }
            Scheme::Sftp => self.open_sftp(server, lease).await,
            Scheme::Http | Scheme::Https => {
                let query = server.query.as_deref();
                let secure = server.scheme == Scheme::Https;
                let target = HttpUrl::new(secure, &server.host, server.port, b"/", query);
                let (credential, security) = (&server.credential, &server.security);
                let session = HttpStorage::new(&target, credential, security, self.timeout)?;
                match secure {
                    true => security.note_in_force("https".to_owned()),
                    false => security.warn_of_clear_http_login(server),
                }
                Ok(Box::new(session))
            }
            Scheme::S3 => self.open_bucket(server),
        }
    }
}

impl StorageAccess {
    async fn open_session(
        &self,
        server: &Server,
        opening: SessionOpening<'_>,
    ) -> Result<Box<dyn Storage>, Failure> {
        let mut session = ClientSession::open_with(server, self.timeout, opening).await?;
        session.set_allow_foreign_data(self.foreign_data);
        session.set_listing_use(self.listing_use);
        Ok(Box::new(session))
    }

    fn open_bucket(&self, server: &Server) -> Result<Box<dyn Storage>, Failure> {
        let settings = bucket_settings(server)?;
        let security = &server.security;
        let session = S3Storage::new(&server.host, settings, security, self.timeout);
        match session.is_protected() {
            true => security.note_in_force("https".to_owned()),
            // Signatures show no key, and what is copied is not hidden.
            false if security.options().data_protection.excludes_clear() => {
                return Err(Failure::usage(format!(
                    "--data-protection {} cannot be had from the endpoint of {server}, which is clear: use https:",
                    security.options().data_protection.name()
                )));
            }
            false => {}
        }
        Ok(Box::new(session))
    }

    async fn open_sftp(
        &self,
        server: &Server,
        lease: Option<Arc<()>>,
    ) -> Result<Box<dyn Storage>, Failure> {
        let session = SftpStorage::open(server, self.timeout, self.sync_policy, lease).await?;
        server.security.note_in_force("ssh (SFTP)".to_owned());
        Ok(Box::new(session))
    }

    /// Goes on by SFTP where no session of longhaul can begin. Without SFTP, the first failure counts.
    async fn open_sftp_instead(
        &self,
        server: &Server,
        failure: Failure,
        lease: Option<Arc<()>>,
    ) -> Result<Box<dyn Storage>, Failure> {
        let session = match self.open_sftp(server, lease).await {
            Ok(session) => session,
            // The way to the host is broken, and not SFTP.
            Err(other) if other.may_retry() && other.kind().is_unreachable() => return Err(other),
            // Without a word from ssh, the host may be away.
            Err(_) if failure.may_retry() => return Err(failure.of_kind(FailureKind::Unreachable)),
            Err(_) => return Err(failure),
        };
        server.security.note_sftp_only(server);
        server.security.warn_once(&format!(
            "{failure}; going on by SFTP, which is slower (docs/ssh.md)"
        ));
        Ok(session)
    }
}

/// How a bucket is reached: `server` has its name, and perhaps a profile.
fn bucket_settings(server: &Server) -> Result<S3Settings, Failure> {
    let profile = match &server.credential {
        Credential::Password { user, .. } => Some(user.as_str()),
        _ => None,
    };
    S3Settings::load(profile, &S3Environment::of_process())
}

/// The URL of the server that has a bucket; `None`: it is Amazon's, or the settings cannot be used.
pub(crate) fn bucket_endpoint(server: &Server) -> Option<String> {
    let settings = bucket_settings(server).ok()?;
    settings.endpoint.map(|url| url.to_string())
}

#[cfg(test)]
mod tests;
