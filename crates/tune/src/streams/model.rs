//! Goodput of N parallel TCP connections in steady state: equations (1) and (2) of Ito, Ohsaki and
//! Imase (2008).

/// A path and its connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// B: bandwidth of the bottleneck, packets per second.
    pub bandwidth: f64,
    /// R: round trip, seconds.
    pub rtt: f64,
    /// W: window of each connection, packets.
    pub window: f64,
}
