//! `bottleneck`: the bandwidth of the slowest link, from this end alone, by the dispersion of trains of echo requests
//! (what pipechar measured for the Enable paper). Replies are as long as requests, so the result is the smaller bandwidth
//! of the two directions, and a lower bound of each.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;
use tune::path::dispersion::{TrainLimits, TrainPlan};

use super::blocking::{Cancelled, run_blocking};
use super::probe_socket::EchoSocket;
use super::train::{EchoTrain, LONGEST_TRAIN};
use super::{
    HeldBackBy, Load, PathTest, StartDecision, Target, TestFailure, TestProfile, Unavailable,
    Weight,
};
use crate::measurement::{Measurement, Quantity};

/// Name of the test.
pub(super) const NAME: &str = "bottleneck";

/// Size of a request, bytes with the IP header.
const BYTES: u16 = 1500;
/// Longest silence on a path of unknown round trip.
const SILENCE: Duration = Duration::from_secs(2);
/// Shortest silence that ends a train, beyond the round trip.
const MIN_SILENCE: Duration = Duration::from_millis(300);
/// Largest relative error of a lower bound.
const MOST_ERROR: f64 = 0.5;
/// Processor use above which this host's own delays would be measured.
const BUSY: f64 = 0.9;

/// The bandwidth of the bottleneck by packet trains.
#[derive(Debug, Default)]
pub struct BottleneckTest;

#[async_trait]
impl PathTest for BottleneckTest {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: NAME,
            weight: Weight::Light,
            concurrency: 1,
            fills_path: true,
            interval: Duration::from_secs(30 * 60),
            held_back_by: HeldBackBy::AnyTransfer,
            measures: &[Quantity::Bandwidth],
        }
    }

    fn most_bytes(&self, _target: &Target) -> u64 {
        // Requests and as many replies.
        2 * TrainLimits::default().max_bytes
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        super::require_echo(NAME)
    }

    fn can_run(&self, target: &Target, load: &Load) -> StartDecision {
        // Where nothing is known, a result with a large error is of use.
        if load.cpu > BUSY && target.bandwidth_bps.is_some() {
            return StartDecision::Wait("the processors are busy".to_owned());
        }
        self.profile().held_back_by.decide(load)
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        let target = target.clone();
        let client = target.client;
        run_blocking(NAME, client, move |cancelled| measure(&target, &cancelled)).await
    }
}

/// Sends trains until the estimate is good enough.
fn measure(target: &Target, cancelled: &Cancelled) -> Result<Measurement, TestFailure> {
    let client = target.client;
    let failed = |action| move |source| TestFailure::system(NAME, client, action, source);
    let socket = EchoSocket::open(client).map_err(failed("open an echo socket"))?;
    let mut plan = TrainPlan::new(u32::from(BYTES), TrainLimits::default());
    if let Some(known) = target.bandwidth_bps {
        plan = plan.confirming(known);
    }
    let mut silence = target.rtt.map_or(SILENCE, |rtt| rtt * 2 + MIN_SILENCE);
    let (mut sequence, mut answered, mut cost, mut hop_limit) = (0_u16, 0_usize, 0, None);
    let mut lengths = Vec::new();
    while let Some(shape) = plan.next_train() {
        let packets = u16::try_from(shape.packets).unwrap_or(LONGEST_TRAIN);
        let train = EchoTrain {
            packets: packets.min(LONGEST_TRAIN),
            bytes: usize::from(BYTES),
            first_sequence: sequence,
            silence,
        };
        let answers = train
            .send(&socket, cancelled)
            .map_err(failed("send a train"))?;
        if cancelled.is_set() {
            return Err(TestFailure::unusable(NAME, client, "cancelled"));
        }
        sequence = sequence.wrapping_add(packets);
        answered += answers.from_client.len();
        cost += u64::from(answers.sent) * u64::from(BYTES) + answers.received_bytes;
        hop_limit = answers.hop_limit.or(hop_limit);
        lengths.push(answers.sent);
        if answered == 0 {
            // A longer train would be lost as well.
            return Err(TestFailure::NoAnswer {
                test: NAME.to_owned(),
                client,
                waited: silence,
            });
        }
        if let Some(rtt) = answers.first_round_trip {
            silence = (rtt * 2 + MIN_SILENCE).min(SILENCE);
        }
        plan.on_train(&answers.from_client);
    }
    let Some(estimate) = plan.estimate() else {
        let reason = format!("{answered} answers make no train; the client may limit their rate");
        return Err(TestFailure::unusable(NAME, client, reason));
    };
    // A sender that waited for its processor measured itself. A narrow lower bound is still of use.
    if estimate.is_lower_bound && estimate.relative_error() > MOST_ERROR {
        let reason = "this host was too busy to send trains without gaps";
        return Err(TestFailure::unusable(NAME, client, reason));
    }
    let bps = estimate.bps as f64;
    Ok(Measurement {
        client,
        test: NAME.to_owned(),
        at: Timestamp::now(),
        values: vec![
            (Quantity::Bandwidth, bps),
            (Quantity::ReverseBandwidth, bps),
        ],
        detail: Some(json!({
            "low_bps": estimate.spread.0,
            "high_bps": estimate.spread.1,
            "relative_error": estimate.relative_error(),
            "is_lower_bound": estimate.is_lower_bound,
            "trains": lengths,
            "hop_limit": hop_limit,
        })),
        cost_bytes: cost,
    })
}
