//! Lane that moves one chunk at a time: a session (between servers: one with each), its own or lent.

use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::Control;
use data::store::{Sink, Source};

use crate::Failure;
use crate::session::Session;
use crate::transfer::{Attempt, TransferSpec, get, put, third_party};

/// Something that takes its time.
pub(super) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// Something that is being opened.
pub(super) type Opening<T> = Pending<'static, Result<T, Failure>>;

/// Moves one chunk at a time.
pub(super) trait Lane: Send {
    /// Moves the part of the source that `spec` names to its place.
    fn chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        control: &'s Arc<Control>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> Pending<'s, Result<Attempt, Failure>>;

    /// Another one, between the same ends, with sessions of its own.
    fn another(&self) -> Opening<Box<dyn Lane>>;

    /// Whether a server stores the chunks.
    fn stores_at_server(&self) -> bool {
        true
    }

    /// Where commands are sent whose answers tell the round trip: the sending server's session, where
    /// there is one.
    fn session(&mut self) -> &mut Session;

    /// How long the chunk's command took that ended now and was begun at `begun`; `control` counted it.
    fn response_time(&self, control: &Control, begun: Instant) -> Duration {
        control.begun().unwrap_or(begun).elapsed()
    }

    /// Says goodbye on sessions of its own.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// A session that is the transfer's own, or lent to it.
pub(super) enum Held<'a> {
    /// By whoever asked for the transfer.
    Lent(&'a mut Session),
    /// Opened for it.
    Own(Box<Session>),
}

impl Deref for Held<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        match self {
            Self::Lent(session) => session,
            Self::Own(session) => session,
        }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        match self {
            Self::Lent(session) => session,
            Self::Own(session) => session,
        }
    }
}

impl Held<'_> {
    /// The session, if it was opened for this transfer.
    fn own(self) -> Option<Session> {
        match self {
            Self::Lent(_) => None,
            Self::Own(session) => Some(*session),
        }
    }
}

/// Says goodbye on these sessions, on all at the same time.
fn close_all<const N: usize>(sessions: [Option<Session>; N]) -> Pending<'static, ()> {
    let mut goodbyes = tokio::task::JoinSet::new();
    for session in sessions.into_iter().flatten() {
        goodbyes.spawn(session.close());
    }
    Box::pin(async move { while goodbyes.join_next().await.is_some() {} })
}

/// Between a server and this machine.
pub(super) struct Direct<'a> {
    pub(super) session: Held<'a>,
    pub(super) path: Arc<[u8]>,
    pub(super) here: Here,
}

/// This machine's end.
#[derive(Clone)]
pub(super) enum Here {
    /// The file comes here.
    Sink(Arc<dyn Sink>),
    /// It is here.
    Source(Arc<dyn Source>),
}

impl Lane for Direct<'_> {
    fn chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        control: &'s Arc<Control>,
        _: &'s (dyn Fn(u64) + Send + Sync),
    ) -> Pending<'s, Result<Attempt, Failure>> {
        let (session, path) = (&mut self.session, &self.path);
        match self.here.clone() {
            Here::Sink(sink) => Box::pin(get::get(session, path, sink, spec, control)),
            Here::Source(source) => Box::pin(put::put(session, source, path, spec, control)),
        }
    }

    fn another(&self) -> Opening<Box<dyn Lane>> {
        let (session, path) = (self.session.another(), Arc::clone(&self.path));
        let here = self.here.clone();
        Box::pin(async move {
            let lane: Box<dyn Lane> = Box::new(Direct {
                session: Held::Own(Box::new(session.await?)),
                path,
                here,
            });
            Ok(lane)
        })
    }

    fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    fn stores_at_server(&self) -> bool {
        matches!(self.here, Here::Source(_))
    }

    /// Of a get, the data side begins with the server's 150, a round trip after the command.
    fn response_time(&self, control: &Control, begun: Instant) -> Duration {
        let answered = match self.here {
            Here::Sink(_) => self.session.rtt(),
            Here::Source(_) => Duration::ZERO,
        };
        match control.begun() {
            Some(data) => data.elapsed() + answered,
            None => begun.elapsed(),
        }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        close_all([self.session.own()])
    }
}

/// From one server to another.
pub(super) struct Passing<'a> {
    pub(super) from: Held<'a>,
    pub(super) from_path: Arc<[u8]>,
    pub(super) to: Held<'a>,
    pub(super) to_path: Arc<[u8]>,
}

impl Lane for Passing<'_> {
    fn chunk<'s>(
        &'s mut self,
        spec: &'s TransferSpec,
        _: &'s Arc<Control>,
        progress: &'s (dyn Fn(u64) + Send + Sync),
    ) -> Pending<'s, Result<Attempt, Failure>> {
        let (from, to) = (&mut self.from, &mut self.to);
        let (from_path, to_path) = (&self.from_path, &self.to_path);
        let passing = third_party::third_party(from, from_path, to, to_path, spec, progress);
        Box::pin(passing)
    }

    fn another(&self) -> Opening<Box<dyn Lane>> {
        let (from, to) = (self.from.another(), self.to.another());
        let (from_path, to_path) = (Arc::clone(&self.from_path), Arc::clone(&self.to_path));
        Box::pin(async move {
            let (from, to) = tokio::try_join!(from, to)?;
            let lane: Box<dyn Lane> = Box::new(Passing {
                from: Held::Own(Box::new(from)),
                from_path,
                to: Held::Own(Box::new(to)),
                to_path,
            });
            Ok(lane)
        })
    }

    fn session(&mut self) -> &mut Session {
        &mut self.from
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        close_all([self.from.own(), self.to.own()])
    }
}
