//! Lane that moves one chunk at a time: a session (between servers: one with each), its own or lent.

use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use data::store::{Sink, Source};

use crate::CopyFailure;
use crate::session::ClientSession;
use crate::transfer::{TransferAttempt, TransferSpec, get, put, third_party};

/// Something that takes its time.
pub(super) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// Something that is being opened.
pub(super) type OpeningFuture<T> = BoxedFuture<'static, Result<T, CopyFailure>>;

/// Moves one chunk at a time.
pub(super) trait ChunkSession: Send {
    /// Moves the part of the source that `spec` names to its place.
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        control: &'s Arc<TransferControl>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, CopyFailure>>;

    /// Another one, between the same ends, with sessions of its own.
    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>>;

    /// Whether a server stores the chunks.
    fn stores_at_server(&self) -> bool {
        true
    }

    /// Where commands are sent whose answers tell the round trip: the sending server's session, where
    /// there is one.
    fn session(&mut self) -> &mut ClientSession;

    /// How long the chunk's command took that ended now and was begun at `begun`; `control` counted it.
    fn response_time(&self, control: &TransferControl, begun: Instant) -> Duration {
        control.started_at().unwrap_or(begun).elapsed()
    }

    /// Says goodbye on sessions of its own.
    fn close(self: Box<Self>) -> BoxedFuture<'static, ()>;
}

/// A session that is the transfer's own, or lent to it.
pub(super) enum HeldSession<'a> {
    /// By whoever asked for the transfer.
    Borrowed(&'a mut ClientSession),
    /// Opened for it.
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

/// Says goodbye on these sessions, on all at the same time.
fn close_all<const N: usize>(sessions: [Option<ClientSession>; N]) -> BoxedFuture<'static, ()> {
    let mut goodbyes = tokio::task::JoinSet::new();
    for session in sessions.into_iter().flatten() {
        goodbyes.spawn(session.close());
    }
    Box::pin(async move { while goodbyes.join_next().await.is_some() {} })
}

/// Between a server and this machine.
pub(super) struct DirectChunkSession<'a> {
    pub(super) session: HeldSession<'a>,
    pub(super) path: Arc<[u8]>,
    pub(super) local_store: LocalStore,
}

/// This machine's end.
#[derive(Clone)]
pub(super) enum LocalStore {
    /// The file comes here.
    Sink(Arc<dyn Sink>),
    /// It is here.
    Source(Arc<dyn Source>),
}

impl ChunkSession for DirectChunkSession<'_> {
    fn transfer_chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        control: &'s Arc<TransferControl>,
        _: &'s (dyn Fn(u64) + Send + Sync),
    ) -> BoxedFuture<'s, Result<TransferAttempt, CopyFailure>> {
        let (session, path) = (&mut self.session, &self.path);
        match self.local_store.clone() {
            LocalStore::Sink(sink) => Box::pin(get::get(session, path, sink, spec, control)),
            LocalStore::Source(source) => Box::pin(put::put(session, source, path, spec, control)),
        }
    }

    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>> {
        let (session, path) = (self.session.open_another(), Arc::clone(&self.path));
        let here = self.local_store.clone();
        Box::pin(async move {
            let lane: Box<dyn ChunkSession> = Box::new(DirectChunkSession {
                session: HeldSession::Owned(Box::new(session.await?)),
                path,
                local_store: here,
            });
            Ok(lane)
        })
    }

    fn session(&mut self) -> &mut ClientSession {
        &mut self.session
    }

    fn stores_at_server(&self) -> bool {
        matches!(self.local_store, LocalStore::Source(_))
    }

    /// Of a get, the data side begins with the server's 150, a round trip after the command.
    fn response_time(&self, control: &TransferControl, begun: Instant) -> Duration {
        let answered = match self.local_store {
            LocalStore::Sink(_) => self.session.rtt(),
            LocalStore::Source(_) => Duration::ZERO,
        };
        match control.started_at() {
            Some(data) => data.elapsed() + answered,
            None => begun.elapsed(),
        }
    }

    fn close(self: Box<Self>) -> BoxedFuture<'static, ()> {
        close_all([self.session.into_owned()])
    }
}

/// From one server to another.
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
    ) -> BoxedFuture<'s, Result<TransferAttempt, CopyFailure>> {
        let (from, to) = (&mut self.from, &mut self.to);
        let (from_path, to_path) = (&self.from_path, &self.to_path);
        let passing = third_party::third_party(from, from_path, to, to_path, spec, progress);
        Box::pin(passing)
    }

    fn open_another(&self) -> OpeningFuture<Box<dyn ChunkSession>> {
        let (from, to) = (self.from.open_another(), self.to.open_another());
        let (from_path, to_path) = (Arc::clone(&self.from_path), Arc::clone(&self.to_path));
        Box::pin(async move {
            let (from, to) = tokio::try_join!(from, to)?;
            let lane: Box<dyn ChunkSession> = Box::new(ThirdPartyChunkSession {
                from: HeldSession::Owned(Box::new(from)),
                from_path,
                to: HeldSession::Owned(Box::new(to)),
                to_path,
            });
            Ok(lane)
        })
    }

    fn session(&mut self) -> &mut ClientSession {
        &mut self.from
    }

    fn close(self: Box<Self>) -> BoxedFuture<'static, ()> {
        close_all([self.from.into_owned(), self.to.into_owned()])
    }
}
