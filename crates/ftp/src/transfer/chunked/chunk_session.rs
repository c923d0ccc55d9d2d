//! Sessions that move one chunk at a time: one with a server, or one with each of two servers.

use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use data::store::{Sink, Source};

use crate::Failure;
use crate::session::ClientSession;
use crate::transfer::subject::TransferSubject;
use crate::transfer::{TransferAttempt, TransferSpec, get, put, third_party};

/// Boxed future, for the methods of a trait object.
pub(super) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// Future that opens a session.
pub(super) type OpeningFuture<T> = BoxedFuture<'static, Result<T, Failure>>;

/// Moves one chunk at a time.
pub(super) trait ChunkSession: Send {
    /// Moves the part of the source that `spec` names to its offset in the destination.
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        control: &'s Arc<TransferControl>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, Failure>>;

    /// Opens another chunk session between the same ends.
    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>>;

    /// Whether a server stores the chunks.
    fn stores_at_server(&self) -> bool {
        true
    }

    /// The session for RTT samples: that of the sending server, where there is one.
    fn session(&mut self) -> &mut ClientSession;

    /// Duration of the chunk's command, which ends now and was sent at `sent_at`. `control` counted
    /// the chunk's bytes.
    fn response_time(&self, control: &TransferControl, sent_at: Instant) -> Duration {
        control.started_at().unwrap_or(sent_at).elapsed()
    }

    /// Closes the sessions that were opened for the transfer.
    fn close(self: Box<Self>) -> BoxedFuture<'static, ()>;
}

/// A session that is borrowed, or owned by the transfer.
pub(super) enum HeldSession<'a> {
    /// Borrowed from the caller of the transfer.
    Borrowed(&'a mut ClientSession),
    /// Opened for the transfer.
    Owned(Box<ClientSession>),
}

impl Deref for HeldSession<'_> {
    type Target = ClientSession;

    fn deref(&self) -> &ClientSession {
        match self {
            Self::Borrowed(session) => session,
            Self::Owned(session) => session,
        }
    }
}

impl DerefMut for HeldSession<'_> {
    fn deref_mut(&mut self) -> &mut ClientSession {
        match self {
            Self::Borrowed(session) => session,
            Self::Owned(session) => session,
        }
    }
}

impl HeldSession<'_> {
    /// The session, if it was opened for this transfer.
    fn into_owned(self) -> Option<ClientSession> {
        match self {
            Self::Borrowed(_) => None,
            Self::Owned(session) => Some(*session),
        }
    }
}

/// Closes these sessions concurrently.
fn close_all<const N: usize>(sessions: [Option<ClientSession>; N]) -> BoxedFuture<'static, ()> {
    // Each QUIT may wait for a reply, so they run concurrently.
    let mut closing = tokio::task::JoinSet::new();
    for session in sessions.into_iter().flatten() {
        closing.spawn(session.close());
    }
    Box::pin(async move { while closing.join_next().await.is_some() {} })
}

/// A chunk session between a server and this machine.
pub(super) struct DirectChunkSession<'a> {
    pub(super) session: HeldSession<'a>,
    pub(super) path: Arc<[u8]>,
    pub(super) local_store: LocalStore,
}

/// The store on this machine.
#[derive(Clone)]
pub(super) enum LocalStore {
    /// The file is received here.
    Sink(Arc<dyn Sink>),
    /// The file is sent from here.
    Source(Arc<dyn Source>),
}

impl ChunkSession for DirectChunkSession<'_> {
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        control: &'s Arc<TransferControl>,
        _: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, Failure>> {
        let (session, path) = (&mut self.session, &self.path);
        match self.local_store.clone() {
            LocalStore::Sink(sink) => Box::pin(get::get(session, path, sink, spec, control)),
            LocalStore::Source(source) => Box::pin(put::put(session, source, path, spec, control)),
        }
    }

    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>> {
        let (session, path) = (self.session.open_another(), Arc::clone(&self.path));
        let local_store = self.local_store.clone();
        Box::pin(async move {
            let opened: Box<dyn ChunkSession> = Box::new(DirectChunkSession {
                session: HeldSession::Owned(Box::new(session.await?)),
                path,
                local_store,
            });
            Ok(opened)
        })
    }

    fn session(&mut self) -> &mut ClientSession {
        &mut self.session
    }

    fn stores_at_server(&self) -> bool {
        matches!(self.local_store, LocalStore::Source(_))
    }

    /// The data side of a get starts with the server's 150, one round trip after the command.
    fn response_time(&self, control: &TransferControl, sent_at: Instant) -> Duration {
        let command_rtt = match self.local_store {
            LocalStore::Sink(_) => self.session.rtt(),
            LocalStore::Source(_) => Duration::ZERO,
        };
        match control.started_at() {
            Some(data_start) => data_start.elapsed() + command_rtt,
            None => sent_at.elapsed(),
        }
    }

    fn close(self: Box<Self>) -> BoxedFuture<'static, ()> {
        close_all([self.session.into_owned()])
    }
}

/// A chunk session between two servers.
pub(super) struct ThirdPartyChunkSession<'a> {
    pub(super) from: HeldSession<'a>,
    pub(super) from_path: Arc<[u8]>,
    pub(super) to: HeldSession<'a>,
    pub(super) to_path: Arc<[u8]>,
}

impl ChunkSession for ThirdPartyChunkSession<'_> {
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        _: &'s Arc<TransferControl>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, Failure>> {
        let (from, to) = (&mut self.from, &mut self.to);
        let (from_path, to_path) = (&self.from_path, &self.to_path);
        let transfer = {
            let subject = TransferSubject::File {
                from: from_path,
                to: to_path,
            };
            third_party::third_party(from, to, subject, spec, progress)
        };
        Box::pin(transfer)
    }

    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>> {
        let (from, to) = (self.from.open_another(), self.to.open_another());
        let (from_path, to_path) = (Arc::clone(&self.from_path), Arc::clone(&self.to_path));
        Box::pin(async move {
            let (from, to) = tokio::try_join!(from, to)?;
            let opened: Box<dyn ChunkSession> = Box::new(ThirdPartyChunkSession {
                from: HeldSession::Owned(Box::new(from)),
                from_path,
                to: HeldSession::Owned(Box::new(to)),
                to_path,
            });
            Ok(opened)
        })
    }

    fn session(&mut self) -> &mut ClientSession {
        &mut self.from
    }

    fn close(self: Box<Self>) -> BoxedFuture<'static, ()> {
        close_all([self.from.into_owned(), self.to.into_owned()])
    }
}
