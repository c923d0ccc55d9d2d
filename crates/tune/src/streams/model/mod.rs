//! Goodput of N parallel TCP connections in steady state: equations (1) and (2) of Ito, Ohsaki and
//! Imase (2008), forwards, and backwards for what cannot be measured.
//!
//! What (2) puts into (1) simplifies: √(6 + 21p\*) / √p\* is 2x + 3 with x = BR/N, so that the second
//! term of (1) is B (1 − p\*). It falls with N, whatever the path, and the largest goodput lies where
//! the windows, whose term rises with N, stop to be the limit.

/// A path and its connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelPath {
    /// B: bandwidth of the bottleneck, packets per second.
    pub bandwidth: f64,
    /// R: round trip, seconds.
    pub rtt: f64,
    /// W: window of each connection, packets.
    pub window: f64,
}

/// Largest bandwidth, packets per second, and largest window, packets, that are reckoned with; what
/// is larger counts as this, so that every result is finite.
const LARGEST: f64 = 1e15;
/// Round trips that are reckoned with, seconds.
const ROUND_TRIPS: (f64, f64) = (1e-9, 1e6);
/// Halvings of the interval in which a solution lies: as exact as an f64.
const HALVINGS: u32 = 100;

impl ModelPath {
    /// G of equation (1): what `connections` carry, packets per second, 0 or more.
    pub fn goodput(&self, connections: u32) -> f64 {
        self.window_bound(connections)
            .min(self.loss_bound(connections))
    }

    /// The first term of equation (1), NW/R: all windows once a round trip, packets per second.
    pub fn window_bound(&self, connections: u32) -> f64 {
        let path = self.bounded();
        f64::from(connections) * path.window / path.rtt
    }

    /// The second term of equation (1): what the congestion windows carry, packets per second. It
    /// falls as `connections` grow.
    pub fn loss_bound(&self, connections: u32) -> f64 {
        if connections == 0 {
            return 0.0;
        }
        let path = self.bounded();
        let n = f64::from(connections);
        n / path.rtt * congestion_window(path.bandwidth * path.rtt / n)
    }

    /// p\* of equation (2): the share of packets that is lost, 0..=1.
    pub fn loss(&self, connections: u32) -> f64 {
        let path = self.bounded();
        loss_at(path.bandwidth * path.rtt / f64::from(connections.max(1)))
    }

    /// The number of connections, 1..=`most`, with the largest goodput by equation (1), the fewest of
    /// equally good ones. That is about BR/W.
    pub fn best_connections(&self, most: u32) -> u32 {
        let window_limited = |n: u32| self.window_bound(n) < self.loss_bound(n);
        let (mut low, mut high) = (1, most.max(1));
        // The one term rises and the other falls: `low` is limited by the windows, or is 1, and what
        // is above `high` is not.
        while low < high {
            let middle = high - (high - low) / 2;
            if window_limited(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let next = low.saturating_add(1).min(most.max(1));
        if self.goodput(next) > self.goodput(low) {
            next
        } else {
            low
        }
    }

    /// The same path with numbers that can be reckoned with.
    fn bounded(&self) -> Self {
        Self {
            bandwidth: bounded(self.bandwidth, 0.0, LARGEST),
            rtt: bounded(self.rtt, ROUND_TRIPS.0, ROUND_TRIPS.1),
            window: bounded(self.window, 0.0, LARGEST),
        }
    }
}

/// B, packets per second, from a `goodput` (packets per second) that `connections` reached at a round
/// trip of `rtt` seconds and that their windows did not limit: equations (1) and (2) backwards, which
/// have no closed form. 0 of nothing.
pub fn bandwidth(goodput: f64, connections: u32, rtt: f64) -> f64 {
    let goodput = bounded(goodput, 0.0, LARGEST);
    if connections == 0 || goodput == 0.0 {
        return 0.0;
    }
    let rtt = bounded(rtt, ROUND_TRIPS.0, ROUND_TRIPS.1);
    let n = f64::from(connections);
    let window = goodput * rtt / n;
    // A share of packets is lost that is never as much as two of a window.
    let (mut low, mut high) = (window, window + 2.0);
    for _ in 0..HALVINGS {
        let middle = low.midpoint(high);
        if congestion_window(middle) < window {
            low = middle;
        } else {
            high = middle;
        }
    }
    high * n / rtt
}

/// A connection's mean congestion window, packets, where its share of the path holds `share` = BR/N
/// of them: the second term of equation (1) times R/N.
fn congestion_window(share: f64) -> f64 {
    let loss = loss_at(share);
    if loss <= 0.0 {
        return share;
    }
    let root = (6.0 + 21.0 * loss).sqrt() / loss.sqrt();
    ((1.0 - loss) / 2.0 * (root - 3.0)).max(0.0)
}

/// Equation (2) with BR/N = `share`. Where a share is so small that the equation has no answer, all is
/// lost.
fn loss_at(share: f64) -> f64 {
    let inverse = -2.0 + 2.0 * share + 2.0 / 3.0 * share * share;
    if inverse > 1.0 { 1.0 / inverse } else { 1.0 }
}

/// `number` within bounds; what is no number is the least.
fn bounded(number: f64, least: f64, largest: f64) -> f64 {
    if number.is_nan() {
        return least;
    }
    number.clamp(least, largest)
}

#[cfg(test)]
mod tests;
