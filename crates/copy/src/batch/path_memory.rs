//! Measurements of earlier transfers over the path of a file, and the measurement of this one.

use std::net::IpAddr;
use std::time::Duration;

use data::options::CongestionChoice;
use history::{PathHistory, PathKey};
use tune::forecast::ExpectedRate;
use tune::limiter::Role;
use tune::{Evidence, Prior};

use crate::options::{Parallelism, StreamOptions};
use crate::storage::contract::Storage;
use ftp::ModeChoice;
use ftp::transfer::HostRemark;

/// The memory of one path, in one direction.
#[derive(Debug, Clone)]
pub(crate) struct PathMemory {
    history: PathHistory,
    key: PathKey,
    known: Prior,
    goodput: Option<ExpectedRate>,
    /// Whether the transfer itself may teach something.
    learns: bool,
}

impl PathMemory {
    /// The memory of the path between this machine and `remote`. `None` if there is no memory, or no connection by
    /// which the path is known.
    pub(crate) fn of(
        history: Option<PathHistory>,
        remote: &dyn Storage,
        role: Role,
    ) -> Option<Self> {
        let history = history?;
        let (local, peer) = remote.path_ends()?;
        let rtt = remote.capabilities().rtt;
        let memory = Self::at(local, peer, rtt, role, history);
        Some(Self {
            learns: remote.finds_settings(),
            ..memory
        })
    }

    fn at(local: IpAddr, peer: IpAddr, rtt: Duration, role: Role, history: PathHistory) -> Self {
        let key = PathKey::new(local, peer, role);
        let known = history.prior(&key, rtt);
        let goodput = history.goodput(&key, rtt);
        Self {
            history,
            key,
            known,
            goodput,
            learns: true,
        }
    }

    /// The knowledge.
    pub(crate) fn known(&self) -> &Prior {
        &self.known
    }

    /// The goodput of earlier transfers.
    pub(crate) fn goodput(&self) -> Option<ExpectedRate> {
        self.goodput
    }

    /// Records what a transfer with these options taught. A transfer whose streams, mode, buffers, congestion control
    /// or rate the user chose shows that choice, not what the path needs: it teaches nothing.
    pub(crate) async fn record(&self, options: &StreamOptions, evidence: &Evidence) {
        if !self.learns || !is_tuned(options) {
            return;
        }
        let (history, key, evidence) = (self.history.clone(), self.key, evidence.clone());
        // Another process may hold the lock for a moment.
        let recording = tokio::task::spawn_blocking(move || history.record(key, &evidence));
        if let Err(error) = recording.await {
            tracing::warn!(%error, "the measurement of a transfer is lost");
        }
    }

    /// Adds to the remarks with how many streams the server was asked to begin, if that is by memory.
    pub(crate) fn remark_requested_streams(
        &self,
        options: &StreamOptions,
        remarks: &mut Vec<HostRemark>,
    ) {
        let asked = Prior {
            streams: self.known.streams,
            ..Prior::default()
        };
        let Some(streams) = asked.describe_settings() else {
            return;
        };
        if options.parallelism != Parallelism::Auto {
            return;
        }
        let text = format!("it asked for {streams}, as an earlier transfer had ended");
        match remarks.iter_mut().find(|remark| remark.host.is_none()) {
            Some(own) => {
                own.text = Some(match own.text.take() {
                    Some(before) => format!("{before}; {text}"),
                    None => text,
                });
            }
            None => remarks.push(HostRemark {
                host: None,
                verdict: None,
                text: Some(text),
            }),
        }
    }
}

/// Whether the policies of this program chose all settings.
fn is_tuned(options: &StreamOptions) -> bool {
    options.parallelism == Parallelism::Auto
        && options.mode != ModeChoice::Stream
        && options.transfer.congestion == CongestionChoice::Auto
        && options.transfer.buffers.pinned_bytes().is_none()
        && options.transfer.rate.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::rate::RateLimit;
    use tune::limiter::Limiter;
    use tune::streams::auto::LimiterVerdict;

    const ENDS: (IpAddr, IpAddr) = (
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
    );
    const RTT: Duration = Duration::from_millis(100);

    fn evidence() -> Evidence {
        Evidence {
            bytes: 1 << 30,
            elapsed: Duration::from_secs(10),
            min_rtt: RTT,
            streams: 20,
            peak_streams: 20,
            final_streams: 20,
            verdict: Some(LimiterVerdict {
                limiter: Limiter::CongestionWindow,
                streams: 20,
                congestion_control: "cubic".to_owned(),
                remedy: None,
            }),
            ..Evidence::for_role(Role::Receiver)
        }
    }

    fn tuned() -> StreamOptions {
        let mut options = StreamOptions::default();
        options.transfer.congestion = CongestionChoice::Auto;
        options
    }

    /// Streams that are known after a transfer with these options.
    async fn known_after(change: impl FnOnce(&mut StreamOptions)) -> Option<u32> {
        let directory = tempfile::tempdir().unwrap();
        let history = PathHistory::at(directory.path().join("paths.json"));
        let mut options = tuned();
        change(&mut options);
        let memory = PathMemory::at(ENDS.0, ENDS.1, RTT, Role::Receiver, history.clone());
        memory.record(&options, &evidence()).await;
        PathMemory::at(ENDS.0, ENDS.1, RTT, Role::Receiver, history)
            .known
            .streams
    }

    #[tokio::test]
    async fn a_transfer_that_the_user_has_tuned_teaches_nothing() {
        assert_eq!(known_after(|_| ()).await, Some(20));
        assert_eq!(
            known_after(|o| o.parallelism = Parallelism::Fixed(12)).await,
            None
        );
        assert_eq!(known_after(|o| o.mode = ModeChoice::Stream).await, None);
        let named =
            |o: &mut StreamOptions| o.transfer.congestion = CongestionChoice::Named("cubic".into());
        assert_eq!(known_after(named).await, None);
        let limited = |o: &mut StreamOptions| o.transfer.rate = Some(RateLimit::new(1 << 30));
        assert_eq!(known_after(limited).await, None);
        let pinned = |o: &mut StreamOptions| {
            o.transfer.buffers = proto::sizing::SocketBuffers::pinned(1 << 20);
        };
        assert_eq!(known_after(pinned).await, None);
    }

    #[test]
    fn the_remark_joins_the_one_of_this_machine() {
        let history = PathHistory::at("/nonexistent/paths.json".into());
        let mut memory = PathMemory::at(ENDS.0, ENDS.1, RTT, Role::Receiver, history);
        let mut remarks = Vec::new();
        memory.remark_requested_streams(&tuned(), &mut remarks);
        assert_eq!(remarks, []);
        memory.known = Prior::with_streams(12);
        let asked = "it asked for 12 streams, as an earlier transfer had ended";
        memory.remark_requested_streams(&tuned(), &mut remarks);
        assert_eq!(remarks[0].text.as_deref(), Some(asked));
        remarks[0].text = Some("the buffer is capped".to_owned());
        memory.remark_requested_streams(&tuned(), &mut remarks);
        let text = remarks[0].text.as_deref().unwrap();
        assert_eq!(
            (remarks.len(), text),
            (1, &*format!("the buffer is capped; {asked}"))
        );
        let chosen = StreamOptions {
            parallelism: Parallelism::Fixed(2),
            ..tuned()
        };
        let mut remarks = Vec::new();
        memory.remark_requested_streams(&chosen, &mut remarks);
        assert_eq!(remarks, []);
    }
}
