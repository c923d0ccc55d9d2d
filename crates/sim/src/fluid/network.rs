//! Flows that share one bottleneck, step by step.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::control::FluidControl;
use super::flow::{FlowLimits, FluidFlow, StepContext};
use super::path::{BottleneckPath, FluidChange, FluidLoss, QueueDiscipline};
use super::{PACKET, SEGMENT};

/// Bounds of a step, seconds.
const STEP: (f64, f64) = (0.000_25, 0.008);
/// Steps per round trip, within these bounds.
const STEPS_PER_ROUND: f64 = 8.0;
/// Queue that the smallest router has, packets.
const LEAST_QUEUE: f64 = 10.0;
/// Target and interval of CoDel, seconds (RFC 8289).
const CODEL: (f64, f64) = (0.005, 0.1);

/// A competitor's times, and its flow while it runs.
#[derive(Debug, Clone, Copy)]
struct RunningCompetitor {
    from: f64,
    until: f64,
    flow: Option<usize>,
}

/// A bottleneck and its flows. A flow's index stays while it exists.
#[derive(Debug)]
pub(super) struct FluidNetwork {
    pub(super) flows: Vec<FluidFlow>,
    /// Whether the flow at this index exists.
    pub(super) open: Vec<bool>,
    random: Pcg64Mcg,
    discipline: QueueDiscipline,
    /// Segments per second.
    capacity: f64,
    /// Segments.
    queue_limit: f64,
    pub(super) queue: f64,
    red_average: f64,
    /// Segments per second, depth, tokens.
    policer: Option<(f64, f64, f64)>,
    loss: FluidLoss,
    limits: FlowLimits,
    changes: Vec<FluidChange>,
    competitors: Vec<RunningCompetitor>,
    /// Segments that competitors which have ended delivered, and the time that all have run, summed.
    ended_competitors: f64,
    competitor_seconds: f64,
    step: f64,
    index: u64,
    delay_steps: u64,
    max_delay_steps: usize,
    next_id: u64,
    slow_start_windows: f64,
}

impl FluidNetwork {
    pub(super) fn new(path: &BottleneckPath, seed: u64) -> Self {
        let steps = |rtt: f64, step: f64| ((rtt / step).round() as u64).max(1);
        let rough = (path.rtt / STEPS_PER_ROUND).clamp(STEP.0, STEP.1);
        let delay_steps = steps(path.rtt, rough);
        let step = path.rtt / delay_steps as f64;
        let longest = path.changes.iter().filter_map(|change| change.rtt);
        let longest = longest.fold(path.rtt, f64::max);
        let mut changes = path.changes.clone();
        changes.reverse();
        Self {
            flows: Vec::new(),
            open: Vec::new(),
            random: Pcg64Mcg::seed_from_u64(seed),
            discipline: path.discipline,
            capacity: path.rate / 8.0 / PACKET,
            queue_limit: (path.queue / PACKET).max(LEAST_QUEUE),
            queue: 0.0,
            red_average: 0.0,
            policer: path.policer.map(|policer| {
                let depth = policer.bucket / PACKET;
                (policer.rate / 8.0 / PACKET, depth, depth)
            }),
            loss: path.loss,
            limits: FlowLimits {
                receive_window: path.receive_window,
                send_buffer: path.send_buffer,
            },
            changes,
            competitors: path
                .competitors
                .iter()
                .map(|c| RunningCompetitor {
                    from: c.from,
                    until: c.until,
                    flow: None,
                })
                .collect(),
            ended_competitors: 0.0,
            competitor_seconds: 0.0,
            step,
            index: 0,
            delay_steps,
            max_delay_steps: usize::try_from(steps(longest, step)).unwrap_or(1),
            next_id: 1,
            slow_start_windows: 0.0,
        }
    }

    /// Time since the start, seconds.
    pub(super) fn now(&self) -> f64 {
        self.index as f64 * self.step
    }

    /// Length of a step, seconds.
    pub(super) fn step_length(&self) -> f64 {
        self.step
    }

    /// Round trip without queue, seconds.
    pub(super) fn base_rtt(&self) -> f64 {
        self.delay_steps as f64 * self.step
    }

    /// Queueing delay now, seconds.
    pub(super) fn queueing_delay(&self) -> f64 {
        self.queue / self.capacity
    }

    /// Mean payload rate of the competitors while they ran, bytes per second; `None` if none did.
    pub(super) fn competitor_rate(&self) -> Option<f64> {
        let running = self.competitors.iter().filter_map(|other| other.flow);
        let running: f64 = running
            .map(|flow| self.flows[flow].counters.delivered)
            .sum();
        let segments = self.ended_competitors + running;
        (self.competitor_seconds > 0.0).then(|| segments * SEGMENT / self.competitor_seconds)
    }

    /// Opens a flow, which sends after a handshake of one round trip; returns its index.
    pub(super) fn open(&mut self, control: FluidControl) -> usize {
        let rtt = self.base_rtt() + self.queueing_delay();
        let flow = FluidFlow::new(
            self.next_id,
            control,
            self.limits,
            self.now() + rtt,
            (rtt, self.max_delay_steps),
            &mut self.random,
        );
        self.next_id += 1;
        if let Some(free) = self.open.iter().position(|open| !open) {
            self.flows[free] = flow;
            self.open[free] = true;
            return free;
        }
        self.flows.push(flow);
        self.open.push(true);
        self.flows.len() - 1
    }

    /// Ends a flow.
    pub(super) fn close(&mut self, index: usize) {
        self.open[index] = false;
        self.queue = (self.queue - self.flows[index].queued).max(0.0);
        self.flows[index].queued = 0.0;
    }

    /// Sets the congestion control of a live flow.
    pub(super) fn set_control(&mut self, index: usize, control: FluidControl) {
        use rand::RngExt;
        let phase = self.random.random_range(0..7);
        let flow = &mut self.flows[index];
        if flow.congestion.control() != control {
            flow.congestion.change(control, flow.rtt, phase);
        }
    }

    /// Runs one step. The caller has filled the send buffers.
    pub(super) fn step(&mut self) {
        self.index += 1;
        self.apply_events();
        let context = StepContext {
            index: self.index,
            now: self.now(),
            step: self.step,
            delay_steps: self.delay_steps,
            capacity: self.capacity,
            slow_start_windows: self.slow_start_windows,
            loss: self.loss.ratio,
            burst: self.loss.burst,
        };
        let mut windows = 0.0;
        let rtt = self.base_rtt() + self.queueing_delay();
        let is_fair = self.discipline == QueueDiscipline::FqCodel;
        for (flow, _) in self
            .flows
            .iter_mut()
            .zip(&self.open)
            .filter(|(_, open)| **open)
        {
            if !is_fair {
                flow.rtt = rtt;
            }
            flow.step(&context, &mut self.random);
            if flow.congestion.cwnd < flow.congestion.ssthresh && context.now >= flow.silent_until {
                windows += flow.congestion.cwnd;
            }
        }
        self.slow_start_windows = windows;
        self.police(&context);
        if is_fair {
            self.serve_fairly(&context);
        } else {
            self.serve_in_order(&context);
        }
        self.drop_overflow(&context);
    }

    fn apply_events(&mut self) {
        let now = self.now();
        while let Some(change) = self.changes.last().copied()
            && change.at <= now
        {
            self.changes.pop();
            if let Some(rate) = change.rate {
                self.capacity = rate / 8.0 / PACKET;
            }
            if let Some(rtt) = change.rtt {
                self.delay_steps = ((rtt / self.step).round() as u64).max(1);
            }
            self.loss.ratio = change.loss.unwrap_or(self.loss.ratio);
        }
        for index in 0..self.competitors.len() {
            let competitor = self.competitors[index];
            let runs = (competitor.from..competitor.until).contains(&now);
            match competitor.flow {
                None if runs => {
                    let flow = self.open(FluidControl::Cubic);
                    self.competitors[index].flow = Some(flow);
                }
                Some(flow) if !runs => {
                    self.ended_competitors += self.flows[flow].counters.delivered;
                    self.close(flow);
                    self.competitors[index].flow = None;
                }
                Some(flow) => {
                    self.flows[flow].unsent = 1e6;
                    self.competitor_seconds += self.step;
                }
                None => {}
            }
        }
    }

    fn police(&mut self, context: &StepContext) {
        let Some((rate, depth, tokens)) = &mut self.policer else {
            return;
        };
        *tokens = (*tokens + *rate * context.step).min(*depth);
        let offered: f64 = open_flows(&mut self.flows, &self.open)
            .map(|flow| flow.arrivals)
            .sum();
        let excess = (offered - *tokens).max(0.0);
        *tokens = (*tokens - offered).max(0.0);
        if excess <= 0.0 {
            return;
        }
        let share = excess / offered;
        for flow in open_flows(&mut self.flows, &self.open) {
            let expected = flow.arrivals * share;
            flow.drop_arrivals(context, expected, &mut self.random);
            flow.pay_from_arrivals();
        }
    }

    fn serve_in_order(&mut self, context: &StepContext) {
        if self.discipline == QueueDiscipline::Red {
            self.drop_early(context);
        }
        let mut queue = 0.0;
        for flow in open_flows(&mut self.flows, &self.open) {
            flow.queued += flow.arrivals;
            queue += flow.queued;
        }
        let share = if queue > 0.0 {
            (self.capacity * context.step / queue).min(1.0)
        } else {
            0.0
        };
        for flow in open_flows(&mut self.flows, &self.open) {
            let served = flow.queued * share;
            if served > 0.0 {
                flow.queued -= served;
                flow.on_served(context, served);
            }
        }
        self.queue = queue * (1.0 - share);
    }

    /// RED with the recommendation of Floyd and Jacobson (1993), thresholds relative to the queue's size.
    fn drop_early(&mut self, context: &StepContext) {
        let weight = (self.capacity * context.step * 0.002).min(1.0);
        self.red_average += (self.queue - self.red_average) * weight;
        let fill = self.red_average / self.queue_limit;
        let probability = ((fill - 0.25) / 0.5 * 0.1).clamp(0.0, 1.0);
        if probability > 0.0 {
            for flow in open_flows(&mut self.flows, &self.open) {
                flow.drop_arrivals(context, flow.arrivals * probability, &mut self.random);
                flow.pay_from_arrivals();
            }
        }
    }

    /// Equal shares for all flows that have something queued; CoDel drops from each.
    fn serve_fairly(&mut self, context: &StepContext) {
        let mut left = self.capacity * context.step;
        let mut unserved = 0_u32;
        for flow in open_flows(&mut self.flows, &self.open) {
            flow.queued += flow.arrivals;
            unserved += u32::from(flow.queued > 0.0);
        }
        let mut share = left / f64::from(unserved.max(1));
        // Flows with less than their share leave the rest to the others.
        for _ in 0..4 {
            let below = open_flows(&mut self.flows, &self.open)
                .filter(|flow| flow.queued > 0.0 && flow.queued <= share);
            let (count, sum) = below.fold((0, 0.0), |(n, sum), flow| (n + 1, sum + flow.queued));
            if count >= unserved {
                break;
            }
            let next = (self.capacity * context.step - sum) / f64::from(unserved - count);
            if next <= share * 1.001 {
                break;
            }
            share = next;
        }
        let base = self.base_rtt();
        self.queue = 0.0;
        for flow in open_flows(&mut self.flows, &self.open) {
            let served = flow.queued.min(share).min(left);
            left -= served;
            flow.queued -= served;
            if served > 0.0 {
                flow.on_served(context, served);
            }
            let sojourn = flow.queued / (share / context.step).max(1e-9);
            flow.rtt = base + sojourn;
            if codel_drops(&mut flow.codel, context.now, sojourn) {
                flow.drop_arrivals(context, 1.0, &mut self.random);
            }
            flow.pay_from_queue();
            self.queue += flow.queued;
        }
    }

    fn drop_overflow(&mut self, context: &StepContext) {
        let excess = self.queue - self.queue_limit;
        if excess <= 0.0 {
            return;
        }
        let offered: f64 = open_flows(&mut self.flows, &self.open)
            .map(|flow| flow.arrivals)
            .sum();
        if offered <= 0.0 {
            return;
        }
        let share = (excess / offered).min(1.0);
        for flow in open_flows(&mut self.flows, &self.open) {
            flow.drop_arrivals(context, flow.arrivals * share, &mut self.random);
            self.queue -= flow.pay_from_queue();
        }
    }
}

impl FluidNetwork {
    /// Payload in all open flows' windows, bytes.
    pub(super) fn window_bytes(&self, indices: impl Iterator<Item = usize>) -> f64 {
        indices
            .map(|index| (self.flows[index].in_flight + self.flows[index].unsent) * SEGMENT)
            .sum()
    }
}

fn open_flows<'a>(
    flows: &'a mut [FluidFlow],
    open: &'a [bool],
) -> impl Iterator<Item = &'a mut FluidFlow> {
    flows
        .iter_mut()
        .zip(open)
        .filter_map(|(flow, open)| open.then_some(flow))
}

/// CoDel's control law: whether it drops a segment now.
fn codel_drops(state: &mut (f64, f64, f64), now: f64, sojourn: f64) -> bool {
    let (target, interval) = CODEL;
    let (above_since, count, next) = state;
    if sojourn < target {
        *above_since = f64::INFINITY;
        *count = (*count - 2.0).max(0.0);
        return false;
    }
    if above_since.is_infinite() {
        *above_since = now;
        *next = now + interval;
        return false;
    }
    if now < *next {
        return false;
    }
    *count += 1.0;
    *next = now + interval / count.sqrt();
    true
}
