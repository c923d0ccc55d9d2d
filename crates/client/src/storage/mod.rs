//! Storages (this machine's files, servers): the contract ([`contract`]), and everything that fulfils it.

use std::time::Duration;

use data::store::durability::SyncPolicy;
use proto::http::target::Target;

use crate::Failure;
use crate::location::{Scheme, Server, StorageId};
use crate::session::{Opening, Session};

#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod contract;
mod files;
mod ftp;
mod http;
#[cfg(test)]
pub(crate) mod memory;
mod pipes;
pub(crate) mod within;

use contract::Storage;
use files::Files;
use http::Http;
#[cfg(test)]
pub(crate) use http::webdav;
use pipes::Pipes;

/// How sessions with all storages are opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    /// Longest wait for an answer.
    pub(crate) timeout: Duration,
    /// Data connections may be with other hosts than a server's own.
    pub(crate) foreign_data: bool,
    /// How names that are made on this machine get to disk.
    pub(crate) sync_policy: SyncPolicy,
}

impl Access {
    /// A session with a storage, ready to be asked. `opening` says how it begins with a server.
    ///
    /// # Errors
    /// `Unreachable` when a server cannot be found (final) or reached (transient); `Refused` when the
    /// login is refused.
    pub(crate) async fn open(
        self,
        id: &StorageId,
        opening: Opening<'_>,
    ) -> Result<Box<dyn Storage>, Failure> {
        match id {
            StorageId::Here => Ok(Box::new(Files::new(self.sync_policy))),
            StorageId::Pipe => Ok(Box::new(Pipes)),
            StorageId::Server(server) => self.open_server(server, opening).await,
        }
    }

    async fn open_server(
        self,
        server: &Server,
        opening: Opening<'_>,
    ) -> Result<Box<dyn Storage>, Failure> {
        match server.scheme {
            Scheme::Ftp | Scheme::Gsiftp => {
                let mut session = Session::begin(server, self.timeout, opening).await?;
                session.allow_foreign_data(self.foreign_data);
                Ok(Box::new(session))
            }
            Scheme::Http | Scheme::Https => {
                let query = server.query.as_deref();
                let secure = server.scheme == Scheme::Https;
                let target = Target::new(secure, &server.host, server.port, b"/", query);
                let session = Http::new(&target, &server.credential, self.timeout)?;
                Ok(Box::new(session))
            }
            #[cfg(test)]
            Scheme::Memory => Ok(Box::new(memory::Memory::open(&server.host))),
        }
    }
}

#[cfg(test)]
mod tests;
