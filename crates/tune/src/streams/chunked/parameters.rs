//! Parameters of the paper, and interpretations of points that its text leaves open.

use std::fmt;
use std::time::Duration;

/// Parameters of the paper with its default values. The interpretations default to those with which ns-2
/// reproduces the paper's results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkParameters {
    /// N0: streams of the first chunk, at least 1.
    pub initial_streams: u32,
    /// η, above 0 up to 1.
    pub eta: f64,
    /// γ, above 1.
    pub gamma: f64,
    /// α, at least 1.
    pub alpha: f64,
    /// β, above 0, below 1.
    pub beta: f64,
    /// Δ: intended transfer time of a chunk.
    pub delta: Duration,
    /// ρ: weight of a new round trip in the running average, above 0, below 1.
    pub rho: f64,
    /// Largest number of streams, at least 1.
    pub max_streams: u32,
    /// Commands whose response times give R.
    pub rtt_commands: RttCommands,
    /// Optimum that MI+ ends with.
    pub optimum: Optimum,
}

/// Time at which the commands are sent whose response times give R (§3.3 does not say).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RttCommands {
    /// Ten per second while data flows: R includes the queue that the streams build. With these the modes
    /// end as in the paper.
    #[default]
    DuringChunks,
    /// One before each chunk: R is the round trip of an idle path.
    BetweenChunks,
    /// None of its own: R is measured by the commands that a transfer needs anyway, those of the login and the one that
    /// changes the number of streams (§3.3: "a passive measurement method"). They are sent while no data flows.
    OwnReplies,
}

/// The optimum that MI+ "numerically derives" (§3.4, step v).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Optimum {
    /// The number with the largest goodput by both terms of equation (1). With this MI+ ends as in the
    /// paper.
    #[default]
    BothTerms,
    /// The number with the largest second term of equation (1), as the text says. That term always falls
    /// with N, so that the result is always one stream.
    SecondTerm,
}

impl Default for ChunkParameters {
    fn default() -> Self {
        Self {
            initial_streams: 1,
            eta: 0.8,
            gamma: 2.0,
            alpha: 2.0,
            beta: 0.5,
            delta: Duration::from_secs(10),
            rho: 0.1,
            max_streams: 256,
            rtt_commands: RttCommands::default(),
            optimum: Optimum::default(),
        }
    }
}

/// A text that does not describe parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterError {
    /// The key, or the text in its place.
    pub key: String,
    /// Allowed values, for people.
    pub allowed: &'static str,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.key, self.allowed)
    }
}

impl std::error::Error for ParameterError {}

/// Allowed values of each key.
const KEYS: &str =
    "no such parameter; there are n0, eta, gamma, alpha, beta, delta, rho, most, rtt, and optimum";
const STREAMS: &str = "a number of streams, 1 to 1024";
const ETA: &str = "above 0, at most 1";
const GAMMA: &str = "above 1, at most 64";
const ALPHA: &str = "1 to 1024";
const SHARE: &str = "above 0 and below 1";
const DELTA: &str = "a time from 100ms to 1h, such as 10s";
const ROUND_TRIPS: &str =
    "flowing (while data flows), between (chunks), or replies (of the session's own commands)";
const OPTIMUM: &str = "both (terms of equation 1) or second (alone)";

/// Largest number of streams that a user may set.
const MOST_STREAMS: u32 = 1024;
const SHORTEST_DELTA: Duration = Duration::from_millis(100);
const LONGEST_DELTA: Duration = Duration::from_secs(3600);

impl ChunkParameters {
    /// Parses `eta=0.7,delta=5s,...`; missing keys keep their defaults. Keys: `n0`, `eta`, `gamma`, `alpha`,
    /// `beta`, `delta`, `rho`, `most`, `rtt` (`flowing`, `between`, `replies`), `optimum` (`both`, `second`).
    ///
    /// # Errors
    /// An unknown key, or a value outside its range. The error names both.
    pub fn parse(text: &str) -> Result<Self, ParameterError> {
        let mut parameters = Self::default();
        let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            parameters.set(key.trim(), value.trim())?;
        }
        // The keys come in any order: their relation is checked at the end.
        if parameters.initial_streams > parameters.max_streams {
            return Err(wrong("n0", "no more than 'most'"));
        }
        Ok(parameters)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ParameterError> {
        let streams = || {
            let number = value.parse().ok();
            number
                .filter(|n| (1..=MOST_STREAMS).contains(n))
                .ok_or_else(|| wrong(key, STREAMS))
        };
        let number = |fits: fn(f64) -> bool, allowed| {
            let number = value.parse().ok();
            number
                .filter(|n| fits(*n))
                .ok_or_else(|| wrong(key, allowed))
        };
        let share = || number(|n| n > 0.0 && n < 1.0, SHARE);
        match key {
            "n0" => self.initial_streams = streams()?,
            "most" => self.max_streams = streams()?,
            "eta" => self.eta = number(|n| n > 0.0 && n <= 1.0, ETA)?,
            "gamma" => self.gamma = number(|n| n > 1.0 && n <= 64.0, GAMMA)?,
            "alpha" => self.alpha = number(|n| (1.0..=1024.0).contains(&n), ALPHA)?,
            "beta" => self.beta = share()?,
            "rho" => self.rho = share()?,
            "delta" => self.delta = delta(value).ok_or_else(|| wrong(key, DELTA))?,
            "rtt" => {
                self.rtt_commands = match value {
                    "flowing" => RttCommands::DuringChunks,
                    "between" => RttCommands::BetweenChunks,
                    "replies" => RttCommands::OwnReplies,
                    _ => return Err(wrong(key, ROUND_TRIPS)),
                }
            }
            "optimum" => {
                self.optimum = match value {
                    "both" => Optimum::BothTerms,
                    "second" => Optimum::SecondTerm,
                    _ => return Err(wrong(key, OPTIMUM)),
                }
            }
            _ => return Err(wrong(key, KEYS)),
        }
        Ok(())
    }

    /// The same parameters clamped to their ranges; NaN and infinity become the paper's value.
    pub(super) fn bounded(self) -> Self {
        // Programs may set the fields without the parser.
        let paper = Self::default();
        let within = |number: f64, least: f64, largest: f64, otherwise: f64| {
            if number.is_finite() {
                number.clamp(least, largest)
            } else {
                otherwise
            }
        };
        let most = self.max_streams.clamp(1, MOST_STREAMS);
        Self {
            initial_streams: self.initial_streams.clamp(1, most),
            eta: within(self.eta, 0.01, 1.0, paper.eta),
            gamma: within(self.gamma, 1.01, 64.0, paper.gamma),
            alpha: within(self.alpha, 1.0, 1024.0, paper.alpha),
            beta: within(self.beta, 0.01, 0.99, paper.beta),
            delta: self.delta.clamp(SHORTEST_DELTA, LONGEST_DELTA),
            rho: within(self.rho, 0.001, 0.999, paper.rho),
            max_streams: most,
            ..self
        }
    }
}

fn wrong(key: &str, allowed: &'static str) -> ParameterError {
    ParameterError {
        key: key.to_owned(),
        allowed,
    }
}

/// Parses the time of a chunk: `10s`, `500ms`, `2m`, `1h`; a plain number is seconds.
fn delta(text: &str) -> Option<Duration> {
    let time = units::seconds(text).ok()?;
    (SHORTEST_DELTA..=LONGEST_DELTA)
        .contains(&time)
        .then_some(time)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_text_gives_the_papers_defaults() {
        let parameters = ChunkParameters::parse("").unwrap();
        assert_eq!(parameters, ChunkParameters::default());
        assert_eq!(parameters.bounded(), parameters);
    }

    #[test]
    fn every_key_is_parsed() {
        let text = "n0=2, eta=0.7,gamma=3,alpha=4,beta=0.25,delta=500ms,rho=0.2,most=64,\
                    rtt=between,optimum=second";
        let expected = ChunkParameters {
            initial_streams: 2,
            eta: 0.7,
            gamma: 3.0,
            alpha: 4.0,
            beta: 0.25,
            delta: Duration::from_millis(500),
            rho: 0.2,
            max_streams: 64,
            rtt_commands: RttCommands::BetweenChunks,
            optimum: Optimum::SecondTerm,
        };
        assert_eq!(ChunkParameters::parse(text), Ok(expected));
        assert_eq!(expected.bounded(), expected);
    }

    #[test]
    fn every_way_to_measure_round_trips_has_a_name() {
        let commands = |name: &str| {
            let parameters = ChunkParameters::parse(&format!("rtt={name}"));
            parameters.unwrap().rtt_commands
        };
        assert_eq!(commands("flowing"), RttCommands::DuringChunks);
        assert_eq!(commands("between"), RttCommands::BetweenChunks);
        assert_eq!(commands("replies"), RttCommands::OwnReplies);
    }

    #[test]
    fn chunk_times_are_parsed_with_or_without_a_unit() {
        let delta = |text: &str| ChunkParameters::parse(&format!("delta={text}")).map(|p| p.delta);
        assert_eq!(delta("5"), Ok(Duration::from_secs(5)));
        assert_eq!(delta("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(delta("0.5s"), Ok(Duration::from_millis(500)));
        for odd in ["", "s", "99ms", "2h", "-1s", "1d", "inf", "nan", "1 s s"] {
            assert_eq!(delta(odd), Err(wrong("delta", DELTA)), "{odd}");
        }
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_allowed_range() {
        for (text, key, allowed) in [
            ("eta=0", "eta", ETA),
            ("eta=1.01", "eta", ETA),
            ("eta=nan", "eta", ETA),
            ("eta", "eta", ETA),
            ("gamma=1", "gamma", GAMMA),
            ("gamma=inf", "gamma", GAMMA),
            ("alpha=0.5", "alpha", ALPHA),
            ("beta=1", "beta", SHARE),
            ("rho=0", "rho", SHARE),
            ("n0=0", "n0", STREAMS),
            ("most=1025", "most", STREAMS),
            ("most=1,n0=2", "n0", "no more than 'most'"),
            ("rtt=sometimes", "rtt", ROUND_TRIPS),
            ("optimum=best", "optimum", OPTIMUM),
            ("eta=0.5,colour=red", "colour", KEYS),
        ] {
            assert_eq!(
                ChunkParameters::parse(text),
                Err(wrong(key, allowed)),
                "{text}"
            );
        }
        let said = ChunkParameters::parse("eta=2").unwrap_err().to_string();
        assert_eq!(said, "'eta': above 0, at most 1");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = ChunkParameters::parse(&text);
        }

        #[test]
        fn parsed_values_are_within_their_ranges(text in "(eta|gamma|beta|rho|delta|n0)=[0-9.]{1,5}") {
            if let Ok(parameters) = ChunkParameters::parse(&text) {
                let bounded = parameters.bounded();
                prop_assert!((bounded.eta - parameters.eta).abs() <= 0.01);
                prop_assert_eq!(bounded.initial_streams, parameters.initial_streams);
                prop_assert_eq!(bounded.delta, parameters.delta);
            }
        }
    }
}
