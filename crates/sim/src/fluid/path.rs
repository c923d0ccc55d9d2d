//! A path of the fluid simulator.

/// A path from a sender to a receiver, with the limits of both ends.
#[derive(Debug, Clone, PartialEq)]
pub struct BottleneckPath {
    /// Rate of the bottleneck on the wire, bits per second.
    pub rate: f64,
    /// Round trip without queues, seconds.
    pub rtt: f64,
    /// Size of the bottleneck's queue, bytes.
    pub queue: f64,
    /// Rule by which the queue drops and serves.
    pub discipline: QueueDiscipline,
    /// Policer before the bottleneck.
    pub policer: Option<FluidPolicer>,
    /// Losses without congestion.
    pub loss: FluidLoss,
    /// Largest receive window of a stream, bytes. The window grows to it with the data that arrive.
    pub receive_window: f64,
    /// Largest send buffer of a stream, bytes as the kernel reports it.
    pub send_buffer: f64,
    /// Limit at an end.
    pub end: EndLimit,
    /// Changes of the path, in order of time.
    pub changes: Vec<FluidChange>,
    /// Other flows over the bottleneck.
    pub competitors: Vec<Competitor>,
}

/// Rule by which a queue drops and serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDiscipline {
    /// First in, first out; drops at the end when it is full.
    DropTail,
    /// Random early detection: drops from a quarter of its size on, with up to 10 % at three quarters and everything above the size.
    Red,
    /// A queue per flow with equal shares of the rate, each with CoDel (RFC 8290).
    FqCodel,
}

/// A token bucket that drops without a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FluidPolicer {
    /// Rate, bits per second.
    pub rate: f64,
    /// Depth of the bucket, bytes.
    pub bucket: f64,
}

/// Losses without congestion.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FluidLoss {
    /// Share of the segments that are lost, 0..1.
    pub ratio: f64,
    /// Mean number of segments lost in a row; 1 or less: independent losses.
    pub burst: f64,
}

/// Limit at an end of the path. Rates are bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EndLimit {
    /// None.
    Unlimited,
    /// The sender reads its store at this rate, over all streams.
    Source(f64),
    /// The receiver writes its store at this rate, over all streams.
    Sink(f64),
    /// Each stream of the sender is limited to this rate by its processor.
    PerStream(f64),
}

/// A change of the path at one moment. `None` leaves a property as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FluidChange {
    /// Time since the start, seconds.
    pub at: f64,
    /// Rate of the bottleneck, bits per second.
    pub rate: Option<f64>,
    /// Round trip without queues, seconds.
    pub rtt: Option<f64>,
    /// Share of the segments that are lost.
    pub loss: Option<f64>,
}

/// A CUBIC flow of somebody else, which always has data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Competitor {
    /// Time of its start, seconds.
    pub from: f64,
    /// Time of its end, seconds; infinite if it stays.
    pub until: f64,
}

impl BottleneckPath {
    /// A path with a drop-tail queue of `bdp` bandwidth-delay products, without loss and limits of the
    /// ends. `rate` is in bits per second, `rtt` in seconds.
    pub fn new(rate: f64, rtt: f64, bdp: f64) -> Self {
        Self {
            rate,
            rtt,
            queue: rate / 8.0 * rtt * bdp,
            discipline: QueueDiscipline::DropTail,
            policer: None,
            loss: FluidLoss::default(),
            receive_window: 1e10,
            send_buffer: 1e10,
            end: EndLimit::Unlimited,
            changes: Vec::new(),
            competitors: Vec::new(),
        }
    }

    /// Bandwidth-delay product, bytes.
    pub fn bdp(&self) -> f64 {
        self.rate / 8.0 * self.rtt
    }

    /// Time after which nothing about the path changes any more, seconds.
    pub fn last_event(&self) -> f64 {
        let changes = self.changes.iter().map(|change| change.at);
        let others = self.competitors.iter().flat_map(|c| [c.from, c.until]);
        changes
            .chain(others)
            .filter(|at| at.is_finite())
            .fold(0.0, f64::max)
    }
}
