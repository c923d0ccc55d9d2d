//! A host's network namespace.

use std::fs::File;

use nix::sched::{CloneFlags, setns, unshare};

use super::privilege;
use crate::LabError;

/// Name of every host's interface.
pub(super) const INTERFACE: &str = "lab0";

/// A host's network namespace. It exists as long as this value or a process in it.
#[derive(Debug)]
pub(super) struct HostNamespace {
    /// The host's name.
    pub(super) host: String,
    /// The open `/proc/PID/ns/net` of the namespace.
    pub(super) file: File,
}

impl HostNamespace {
    /// Creates a namespace and calls `work` in it.
    ///
    /// # Errors
    /// [`LabError::Refused`]: the system forbids it; or an error of `work`.
    pub(super) fn create<T: Send>(
        host: &str,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<(Self, T), LabError> {
        on_thread(host, || {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| privilege::no_namespace("network", "user.max_net_namespaces", e))?;
            // The open file keeps the namespace alive after its thread has ended.
            let file = File::open("/proc/thread-self/ns/net")
                .map_err(|e| LabError::system("cannot open a network namespace", e))?;
            let namespace = Self {
                host: host.to_owned(),
                file,
            };
            Ok((namespace, work()?))
        })
    }

    /// Calls `work` in the namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered; or an error of `work`.
    pub(super) fn enter<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        on_thread(&self.host, || {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .map_err(|e| LabError::system(format!("cannot enter host {}", self.host), e))?;
            work()
        })
    }

    /// Packets that this host dropped because the emulator did not read its device fast enough.
    ///
    /// # Errors
    /// The namespace cannot be entered, or its counters cannot be read.
    pub(super) fn overruns(&self) -> Result<u64, LabError> {
        self.enter(|| {
            // `thread-self`, because /proc/self is the main thread, which is in another
            // namespace.
            let table = std::fs::read_to_string("/proc/thread-self/net/dev")
                .map_err(|e| LabError::system("cannot read the interface counters", e))?;
            parse_transmit_drops(&table).ok_or_else(|| {
                LabError::Program(format!(
                    "host {} has no interface {INTERFACE} any more",
                    self.host
                ))
            })
        })
    }
}

/// Runs `work` on a thread of its own: setns(2) and unshare(2) change only the calling thread.
fn on_thread<T: Send>(
    host: &str,
    work: impl FnOnce() -> Result<T, LabError> + Send,
) -> Result<T, LabError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(format!("host {host}"))
            .spawn_scoped(scope, work)
            .map_err(|e| LabError::system("cannot start a thread", e))?;
        thread
            .join()
            // A panic of `work` has to reach the caller, or the lab would continue without this
            // host.
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Reads the transmit drops from `/proc/net/dev`: eight receive columns, then the transmit columns bytes,
/// packets, errors and drops.
fn parse_transmit_drops(table: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_transmit_columns() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes ...\n    \
                     lo:  10 1 0 7 0 0 0 0  10 1 0 8 0 0 0 0\n  \
                     lab0: 5000 40 0 3 0 0 0 0 6000 50 0 42 0 0 0 0\n";
        assert_eq!(parse_transmit_drops(table), Some(42));
        assert_eq!(
            parse_transmit_drops("lab01: 1 2 3 4 5 6 7 8 9 10 11 12 13"),
            None
        );
        assert_eq!(parse_transmit_drops(""), None);
    }
}
