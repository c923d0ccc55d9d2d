//! Goodput of N parallel TCP connections in steady state: equations (1) and (2) of Ito, Ohsaki and Imase
//! (2008), and their inverse for the bandwidth, which cannot be measured.
//!
//! With (2) inserted, (1) becomes simpler: √(6 + 21p\*) / √p\* is 2x + 3 with x = BR/N, so that the second
//! term of (1) is B (1 − p\*). That term falls with N on every path, and the window term rises with N. The
//! largest goodput is where the two terms meet.

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

/// Largest bandwidth, packets per second, and largest window, packets. Larger inputs count as this, so
/// that every result is finite.
const LARGEST: f64 = 1e15;
/// Smallest and largest round trip, seconds.
const ROUND_TRIPS: (f64, f64) = (1e-9, 1e6);
/// Steps of the bisection; enough for the precision of an f64.
const HALVINGS: u32 = 100;

impl ModelPath {
    /// G of equation (1): goodput of `connections`, packets per second.
    pub fn goodput(&self, connections: u32) -> f64 {
        self.window_bound(connections)
            .min(self.loss_bound(connections))
    }

    /// First term of equation (1), NW/R: all windows once per round trip, packets per second.
    pub fn window_bound(&self, connections: u32) -> f64 {
        let path = self.bounded();
        f64::from(connections) * path.window / path.rtt
    }

    /// Second term of equation (1): rate that the congestion windows allow, packets per second. It falls as
    /// the number of connections grows.
    pub fn loss_bound(&self, connections: u32) -> f64 {
        if connections == 0 {
            return 0.0;
        }
        let path = self.bounded();
        let n = f64::from(connections);
        n / path.rtt * congestion_window(path.bandwidth * path.rtt / n)
    }

    /// p\* of equation (2): packet loss ratio, 0..=1.
    pub fn loss(&self, connections: u32) -> f64 {
        let path = self.bounded();
        loss_at(path.bandwidth * path.rtt / f64::from(connections.max(1)))
    }

    /// Number of connections, 1..=`most`, with the largest goodput by equation (1); the smallest such number.
    /// It is about BR/W.
    pub fn best_connections(&self, most: u32) -> u32 {
        let window_limited = |n: u32| self.window_bound(n) < self.loss_bound(n);
        let (mut low, mut high) = (1, most.max(1));
        // The window term rises and the loss term falls, so that bisection finds the last number of
        // connections that the windows limit.
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

    /// The same path with all values in their ranges.
    fn bounded(&self) -> Self {
        Self {
            bandwidth: bounded(self.bandwidth, 0.0, LARGEST),
            rtt: bounded(self.rtt, ROUND_TRIPS.0, ROUND_TRIPS.1),
            window: bounded(self.window, 0.0, LARGEST),
        }
    }
}

/// B, packets per second, from the `goodput` (packets per second) of `connections` whose windows did not
/// limit, at a round trip of `rtt` seconds. It inverts equations (1) and (2), which has no closed form. 0 if
/// there is no goodput or no connection.
pub fn bandwidth(goodput: f64, connections: u32, rtt: f64) -> f64 {
    let goodput = bounded(goodput, 0.0, LARGEST);
    if connections == 0 || goodput == 0.0 {
        return 0.0;
    }
    let rtt = bounded(rtt, ROUND_TRIPS.0, ROUND_TRIPS.1);
    let n = f64::from(connections);
    let window = goodput * rtt / n;
    // Losses cost less than two packets of a window, which bounds the solution from above.
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

/// Mean congestion window of a connection, packets: the second term of equation (1) times R/N, with
/// `share` = BR/N.
fn congestion_window(share: f64) -> f64 {
    let loss = loss_at(share);
    if loss <= 0.0 {
        return share;
    }
    let root = (6.0 + 21.0 * loss).sqrt() / loss.sqrt();
    ((1.0 - loss) / 2.0 * (root - 3.0)).max(0.0)
}

/// Equation (2) with BR/N = `share`. For shares so small that it has no solution, every packet is lost.
fn loss_at(share: f64) -> f64 {
    let inverse = -2.0 + 2.0 * share + 2.0 / 3.0 * share * share;
    if inverse > 1.0 { 1.0 / inverse } else { 1.0 }
}

/// `number` within bounds; NaN becomes the lower bound.
fn bounded(number: f64, least: f64, largest: f64) -> f64 {
    if number.is_nan() {
        return least;
    }
    number.clamp(least, largest)
}

#[cfg(test)]
mod tests;
