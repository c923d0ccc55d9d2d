//! Habits of a server that sessions find out, and tell to the ones after them.

use std::time::{Duration, Instant};

use super::ClientSession;

/// How long a server whose data nodes could not be used is used without them: a node may have failed for a moment only.
const WITHOUT_STRIPES: Duration = Duration::from_secs(300);

/// Habits of a server that a session finds out, so that further ones need not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerHabits {
    /// It refused a pipelined command, or the connection was lost during a pipelined login: one command is sent at a
    /// time, whatever the greeting says.
    pub lockstep: bool,
    /// It refuses paths in full: commands name files in the current directory.
    pub names_only: bool,
    /// Its MLSD shows the directory itself, as RFC 3659 section 7.7.1 permits.
    pub(crate) facts_show_itself: bool,
    /// Its `LIST -a` shows the directory itself.
    pub(crate) rows_show_itself: bool,
    /// Its data nodes could not be used: until then it is used as one server.
    pub(crate) without_stripes_until: Option<Instant>,
    /// Longest time to a greeting.
    pub greeting: Duration,
    /// Whether REST has effect.
    pub(crate) restart: RestartEffect,
}

/// Whether REST has effect: some servers accept and ignore it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RestartEffect {
    /// It has not been seen yet.
    #[default]
    Unknown,
    /// A transfer has begun where REST said.
    Seen,
    /// More came than the rest of a file.
    Missing,
}

impl ServerHabits {
    /// These, with one command at a time.
    pub(super) fn in_lockstep(self) -> Self {
        Self {
            lockstep: true,
            ..self
        }
    }

    /// Whether the server is used as one without data nodes.
    pub(crate) fn is_without_stripes(self) -> bool {
        let until = self.without_stripes_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// The knowledge of both.
    pub fn or(self, other: Self) -> Self {
        Self {
            lockstep: self.lockstep || other.lockstep,
            names_only: self.names_only || other.names_only,
            facts_show_itself: self.facts_show_itself || other.facts_show_itself,
            rows_show_itself: self.rows_show_itself || other.rows_show_itself,
            without_stripes_until: self.without_stripes_until.max(other.without_stripes_until),
            greeting: self.greeting.max(other.greeting),
            restart: self.restart.max(other.restart),
        }
    }
}

impl ClientSession {
    /// Notes whether REST has effect.
    pub(crate) fn note_restart(&mut self, effect: RestartEffect) {
        self.habits.restart = effect;
        if effect == RestartEffect::Missing {
            self.planner.on_restart_ignored();
        }
    }

    /// For some minutes the server is used as one without data nodes, also by later sessions.
    pub(crate) fn forget_stripes(&mut self) {
        self.habits.without_stripes_until = Some(Instant::now() + WITHOUT_STRIPES);
    }

    /// The habits that this session knows.
    pub fn habits(&self) -> ServerHabits {
        self.habits
    }
}
