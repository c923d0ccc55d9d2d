//! Knowledge of the path of a transfer before it begins, and what it measured.

use std::net::SocketAddr;
use std::time::Duration;

use data::rate::RateLimit;
use tune::forecast::ExpectedRate;
use tune::limiter::Role;
use tune::streams::initial;
use tune::{Prior, is_other_round_trip};

use super::path_advice::{NoAdvice, ServiceAdvice};
use super::path_memory::PathMemory;
use crate::batch::BatchContext;
use crate::storage::contract::Storage;
use ftp::transfer::{HostRemark, TransferAttempt};

/// A smaller transfer is over before advice helps, bytes.
const ADVISED_FROM: u64 = 4 << 20;

/// Knowledge of the path to or from a server, if this machine is one of its ends. By default there is none.
#[derive(Debug, Default)]
pub(crate) struct PathKnowledge {
    memory: Option<PathMemory>,
    /// Answer of an advice server, where there is no memory.
    advice: Option<ServiceAdvice>,
    /// The service that the user has named has none.
    no_advice: Option<NoAdvice>,
    known: Prior,
    /// The rate to expect, whatever limits it.
    goodput: Option<ExpectedRate>,
}

/// The path to a server. (A session cannot be shared between threads, so it does not wait for an answer here.)
#[derive(Debug)]
pub(crate) struct RemotePath {
    memory: Option<PathMemory>,
    service: Option<SocketAddr>,
    rtt: Duration,
    /// Role of this end.
    role: Role,
    /// The sender keeps the number of streams that it begins with.
    keeps_streams: bool,
}

impl RemotePath {
    /// The path of a session with `remote`.
    pub(crate) fn of(ctx: &BatchContext, remote: &dyn Storage, role: Role) -> Self {
        Self {
            memory: PathMemory::of(ctx.options.history.clone(), remote, role),
            service: remote.advice_service(),
            rtt: remote.capabilities().rtt,
            role,
            keeps_streams: role == Role::Receiver && !remote.capabilities().adapts_streams,
        }
    }
}

impl PathKnowledge {
    /// Finds out what is known of a path for a transfer of `size` bytes, if known: own transfers count before the
    /// advice of a server.
    pub(crate) async fn recall(&mut self, ctx: &BatchContext, path: RemotePath, size: Option<u64>) {
        let remembered = path.memory.as_ref().map(PathMemory::known);
        self.known = remembered.cloned().unwrap_or_default();
        self.goodput = path.memory.as_ref().and_then(PathMemory::goodput);
        self.memory = path.memory.clone();
        let is_small = size.is_some_and(|size| size < ADVISED_FROM);
        if !is_small && self.known.describe_settings().is_none() {
            self.take_advice(ctx, &path, size).await;
        }
        // Beside other files, and on connections that they have used, more streams than the path needs would only be in each other's way.
        self.known.is_alone = ctx.meter.active().len() <= 1 && ctx.meter.totals().moved == 0;
        if let Some(rate) = self.goodput(ctx).filter(|_| !is_small) {
            ctx.meter.expect(rate);
        }
    }

    async fn take_advice(&mut self, ctx: &BatchContext, path: &RemotePath, size: Option<u64>) {
        match ctx.advice.advice(path.service, path.rtt, path.role).await {
            Some(Ok(advice)) => self.advice = Some(advice),
            Some(Err(none)) => {
                self.no_advice = Some(none).filter(|_| ctx.advice.has_named_service());
            }
            None => {}
        }
        if let Some(advice) = &self.advice {
            self.known = advice.prior(path.role);
            // The service may have seen another way to this host, or answered with another client's: its rate starts no stream.
            let is_other = |known| !path.rtt.is_zero() && is_other_round_trip(known, path.rtt);
            if self.known.min_rtt.is_some_and(is_other) {
                self.known.path_rate = None;
            }
            self.goodput = self.goodput.or(advice.goodput(path.role));
            if path.keeps_streams {
                // Nobody would correct a number that is too small.
                let usual = initial::fixed_from_rtt(path.rtt, size, 0, u32::MAX).streams;
                self.known.streams = self.known.streams.filter(|n| Some(*n) > usual);
            }
        }
    }

    /// The rate to expect of a transfer, within the limit of the batch.
    pub(crate) fn goodput(&self, ctx: &BatchContext) -> Option<ExpectedRate> {
        let limit = ctx.options.streams.transfer.rate.as_ref();
        let limit = limit.map_or(u64::MAX, RateLimit::rate);
        self.goodput.map(|known| ExpectedRate {
            bytes_per_second: known.bytes_per_second.min(limit),
            ..known
        })
    }

    /// The advice that is followed, and of whom; `None`: own transfers count, or nothing is known.
    pub(crate) fn advice(&self) -> Option<String> {
        let advice = self.advice.as_ref()?;
        Some(format!("{}: {}", advice.service(), advice.text()))
    }

    /// Start values of a transfer.
    pub(crate) fn known(&self) -> &Prior {
        &self.known
    }

    /// Records what an attempt taught. `fetched`: this end received.
    pub(crate) async fn learn(
        &self,
        ctx: &BatchContext,
        fetched: bool,
        attempt: &mut TransferAttempt,
    ) {
        let TransferAttempt {
            report, remarks, ..
        } = attempt;
        if let Some(advice) = &self.advice {
            remarks.push(HostRemark {
                host: Some(advice.service()),
                verdict: None,
                text: Some(advice.text()),
            });
        }
        remarks.extend(self.no_advice.as_ref().map(NoAdvice::remark));
        ctx.advice.report(&report.evidence).await;
        let (Some(memory), options) = (&self.memory, &ctx.options.streams) else {
            return;
        };
        let mut evidence = report.evidence.clone();
        if fetched {
            // The sender knows better what limited it. Towards the end a receiver sees its streams end one by one.
            let sender = remarks.iter().find_map(|r| r.verdict.as_ref());
            if let Some(verdict) = sender {
                evidence.final_streams = verdict.streams.into();
                evidence.verdict = Some(verdict.clone());
            }
            memory.remark_requested_streams(options, remarks);
        }
        memory.record(options, &evidence).await;
    }
}
