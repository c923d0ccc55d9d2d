//! Reasons that servers do not give, found by looking at the path and its directory.

use proto::listing::Kind;
use proto::reply::Reply;

use super::replies::{self, Cause, cause};
use super::{Session, shown};
use crate::{Exit, Failure};

impl Session {
    /// The failure for a refusal to make or write something new at `path`: the directory that it
    /// should be in is looked at where the server says no more than "failed" or "no such file".
    pub(crate) async fn why_not_made(
        &mut self,
        path: &[u8],
        doing: &str,
        reply: &Reply,
    ) -> Failure {
        let plain = replies::refusal(self.name(), doing, reply);
        let silent = replies::is_unexplained(reply);
        if !silent && cause(reply) != Cause::Missing || !self.control.is_usable() {
            return plain;
        }
        let directory = directory_of(path);
        match self.is_dir(directory).await {
            Ok(false) => self.because(
                Exit::NotFound,
                doing,
                reply,
                &format!(
                    "there is no directory {} that this user can enter: make it first \
                     (`longhaul mkdir -p`)",
                    shown(directory)
                ),
            ),
            Ok(true) if silent => self.denied(doing, reply),
            Err(lost) if lost.transient => lost,
            _ => plain,
        }
    }

    /// The failure for a refusal to read or remove a `path`: of one that is there, most likely this
    /// user may not.
    pub(crate) async fn why_not_touched(
        &mut self,
        path: &[u8],
        doing: &str,
        reply: &Reply,
    ) -> Failure {
        let plain = replies::refusal(self.name(), doing, reply);
        let silent = replies::is_unexplained(reply) || replies::is_vague(reply);
        if !silent || !self.control.is_usable() {
            return plain;
        }
        match self.stat(path).await {
            Err(missing) if missing.exit == Exit::NotFound => {
                replies::missing(self.name(), &shown(path), reply)
            }
            Ok(entry) if entry.kind == Kind::File => self.denied(doing, reply),
            Err(lost) if lost.transient => lost,
            _ => plain,
        }
    }

    fn denied(&self, doing: &str, reply: &Reply) -> Failure {
        let why = "it gives no reason, so most likely this user may not: log in as one who may, or \
                   ask the server's administrator";
        self.because(Exit::Refused, doing, reply, why)
    }

    fn because(&self, exit: Exit, doing: &str, reply: &Reply, why: &str) -> Failure {
        let (server, said) = (self.name(), replies::shown(reply));
        Failure::new(exit, format!("{server} refused to {doing}: {said}; {why}"))
    }
}

/// The path without its last component; the root's is the root.
fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|b| *b == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}
