//! Options of a simulation, as they stand on a command line or in an experiment's file.

use std::str::FromStr;
use std::time::Duration;

use link::{Loss, Queue};
use sim::tcp::{CongestionAlgorithm, LossRecovery, WindowGrowth};
use tune::sizing::advice::PathSpec;
use tune::streams::chunked::ChunkParameters;
use units::{Rate, UnitError};

use super::request::{FlowCounts, SimRequest, refused};
use crate::LabError;
use emulator::topology::{NetworkOptions, Topology};

/// Deadline of a file's transfer without the option `time`.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(3600);

/// Names of all options.
const OPTIONS: [&str; 25] = [
    "flows",
    "rate",
    "delay",
    "rtt",
    "access-delay",
    "access-rate",
    "access",
    "queue",
    "loss",
    "window",
    "receiver",
    "cc",
    "sender",
    "initial-window",
    "delayed-ack",
    "packet",
    "time",
    "warm-up",
    "bytes",
    "sessions",
    "stagger",
    "cross-traffic",
    "autopar",
    "jitter",
    "seed",
];

/// Options as pairs of name and value. Names are those of the command line without dashes; a flag has
/// an empty value.
struct SimOptions<'a>(&'a [(String, String)]);

impl SimOptions<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let option = self.0.iter().find(|(known, _)| known == name);
        option.map(|(_, value)| value.as_str())
    }

    /// Parses the quantity of option `name`; `None`: the option is not given.
    fn parse_quantity<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Result<Option<T>, LabError> {
        let value = self.get(name).map(parse).transpose();
        value.map_err(|error| refused(name, error))
    }

    /// Parses the whole number of option `name`; `None`: the option is not given.
    fn parse_number<T: FromStr>(&self, name: &str) -> Result<Option<T>, LabError> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| refused(name, "not a whole number"))
        };
        self.get(name).map(parse).transpose()
    }
}

impl SimRequest {
    /// Reads pairs of option name (without dashes) and value. Options that are not given have their
    /// defaults.
    ///
    /// # Errors
    /// [`LabError::Usage`]: an option is unknown, a value cannot be parsed, both `rtt` and `delay` are
    /// given, or [`SimRequest::check`] refuses the request.
    pub fn from_options(options: &[(String, String)]) -> Result<Self, LabError> {
        let unknown = options
            .iter()
            .find(|(name, _)| !OPTIONS.contains(&name.as_str()));
        if let Some((name, _)) = unknown {
            return Err(refused(name, "there is no such option"));
        }
        let given = SimOptions(options);
        let mut request = Self::default();
        let flows = given.get("flows").map(str::parse).transpose()?;
        request.flows = flows.unwrap_or(request.flows);
        request.rate = given
            .parse_quantity("rate", units::rate)?
            .unwrap_or(request.rate);
        let access_rate = given.parse_quantity("access-rate", units::rate)?;
        request.access_rate = access_rate.unwrap_or(request.access_rate);
        request.bytes = given.parse_quantity("bytes", units::size)?;
        request.sessions = given.parse_number("sessions")?;
        let stagger = given.parse_quantity("stagger", units::seconds)?;
        request.stagger = stagger.unwrap_or_default();
        request.cross_traffic = given.parse_quantity("cross-traffic", units::rate)?;
        let jitter = given.parse_quantity("jitter", units::milliseconds)?;
        request.jitter = jitter.unwrap_or_default();
        let warm_up = given.parse_quantity("warm-up", units::seconds)?;
        request.warm_up = warm_up.unwrap_or(request.warm_up);
        if let Some(text) = given.get("autopar") {
            if request.finder().is_none() {
                let why = "needs --flows mi, mi+, aimd or probe, which find the number";
                return Err(refused("autopar", why));
            }
            request.autopar = ChunkParameters::parse(text).map_err(|e| refused("autopar", e))?;
        }
        let default_time = if request.file().is_some() {
            DEFAULT_DEADLINE
        } else {
            request.duration
        };
        request.duration = given
            .parse_quantity("time", units::seconds)?
            .unwrap_or(default_time);
        if let Some(share) = given.parse_quantity("loss", units::probability)? {
            request.loss = Loss::Independent(share);
        }
        if let Some(bytes) = given.parse_quantity("packet", units::size)? {
            // `check` refuses a packet of u32::MAX bytes.
            request.packet = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        request.congestion = match given.get("cc") {
            None | Some("newreno") => CongestionAlgorithm::NewReno,
            Some("cubic") => CongestionAlgorithm::Cubic,
            Some(other) => {
                let why = format!("'{other}' is not simulated; use newreno or cubic");
                return Err(refused("cc", why));
            }
        };
        request.recovery = match given.get("sender") {
            None | Some("sack") => LossRecovery::Sack,
            Some("sack-timer") => LossRecovery::SackAndTimer,
            Some("ns2-reno") => LossRecovery::Ns2Reno,
            Some(other) => {
                let why = format!("'{other}' is not simulated; use sack, sack-timer or ns2-reno");
                return Err(refused("sender", why));
            }
        };
        request.receiver = match given.get("receiver") {
            None | Some("fixed") => WindowGrowth::Fixed,
            Some("drs") => WindowGrowth::RightSizing,
            Some("linux") => WindowGrowth::LinuxAutotuning,
            Some(other) => {
                let why = format!("'{other}' is not simulated; use fixed, drs or linux");
                return Err(refused("receiver", why));
            }
        };
        request.initial_window = given.parse_number("initial-window")?;
        request.delayed_ack = given.get("delayed-ack").is_some();
        request.shared_access = match given.get("access") {
            None | Some("own") => false,
            Some("shared") => true,
            Some(other) => {
                let why = format!("'{other}' is neither own nor shared");
                return Err(refused("access", why));
            }
        };
        request.seed = given.parse_number("seed")?.unwrap_or(request.seed);
        request.read_delays(&given)?;
        if let Some(text) = given.get("window") {
            request.window = parse_window(text, &request)?;
        }
        // A queue in BDPs needs the rate and the delays.
        if let Some(text) = given.get("queue") {
            request.queue = parse_queue(text, request.rate, request.base_rtt())?;
        }
        request.check()?;
        Ok(request)
    }

    /// Reads `rtt` or `delay`, and `access-delay`. An `rtt` includes the delays of the access links, which
    /// are then 0 by default, so that the bottleneck has all of it.
    fn read_delays(&mut self, given: &SimOptions<'_>) -> Result<(), LabError> {
        let delay = given.parse_quantity("delay", units::milliseconds)?;
        let rtt = given.parse_quantity("rtt", units::milliseconds)?;
        let access = given.parse_quantity("access-delay", units::milliseconds)?;
        let default_access = if rtt.is_some() {
            Duration::ZERO
        } else {
            self.access_delay
        };
        self.access_delay = access.unwrap_or(default_access);
        self.delay = match (rtt, delay) {
            (Some(_), Some(_)) => {
                let why = "--rtt and --delay set the same delay: give only one of them";
                return Err(LabError::Usage(why.to_owned()));
            }
            (Some(rtt), None) => (rtt / 2)
                .checked_sub(2 * self.access_delay)
                .ok_or_else(|| {
                    let why = "shorter than the delays of the access links, which a round trip passes \
                               four times";
                    refused("rtt", why)
                })?,
            (None, delay) => delay.unwrap_or(self.delay),
        };
        Ok(())
    }
}

/// Parses a window: a size, or the name of a published formula for the path of `request`.
fn parse_window(text: &str, request: &SimRequest) -> Result<u64, LabError> {
    let path = PathSpec {
        rate_bps: request.rate.as_bits_per_second(),
        rtt: request.base_rtt(),
    };
    match text {
        "bdp" => Ok(path.bdp_bytes()),
        "bdp/(p-1)" => {
            let streams = match &request.flows {
                FlowCounts::Each(counts) if counts.len() == 1 => counts[0],
                _ => 0,
            };
            let why = "bdp/(p-1) needs one number of connections, 2 or more";
            path.taught_stream_buffer(streams)
                .ok_or_else(|| refused("window", why))
        }
        size => units::size(size).map_err(|error| refused("window", error)),
    }
}

/// Parses a queue size as `longhaul lab net` does, for a path of this rate and round trip.
fn parse_queue(text: &str, rate: Rate, rtt: Duration) -> Result<Queue, LabError> {
    let path = NetworkOptions {
        rate: Some(rate.to_string()),
        rtt: Some(format!("{}ns", rtt.as_nanos())),
        queue: Some(text.to_owned()),
        ..NetworkOptions::default()
    };
    let topology = Topology::from_options(None, &path)?;
    let path = topology.paths.first();
    Ok(path.map_or(Queue::Unlimited, |path| path.forward.queue))
}

#[cfg(test)]
mod tests {
    use super::super::request::DEFAULT_FILE;
    use super::*;

    fn request(options: &[(&str, &str)]) -> Result<SimRequest, LabError> {
        let option = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let options: Vec<(String, String)> = options.iter().map(option).collect();
        SimRequest::from_options(&options)
    }

    #[test]
    fn every_option_sets_its_field_and_other_fields_keep_their_defaults() {
        assert_eq!(request(&[]).unwrap(), SimRequest::default());
        assert_eq!(SimRequest::default().base_rtt(), Duration::from_millis(24));
        let all = request(&[
            ("flows", "1,2..4"),
            ("rate", "1gbit"),
            ("rtt", "100ms"),
            ("access-delay", "5ms"),
            ("access-rate", "10gbit"),
            ("access", "shared"),
            ("queue", "1bdp"),
            ("loss", "0.5%"),
            ("window", "1MiB"),
            ("receiver", "drs"),
            ("cc", "cubic"),
            ("sender", "sack"),
            ("initial-window", "4"),
            ("delayed-ack", ""),
            ("packet", "9000"),
            ("time", "10s"),
            ("warm-up", "5s"),
            ("bytes", "1GB"),
            ("cross-traffic", "20mbit"),
            ("jitter", "12us"),
            ("seed", "7"),
        ]);
        let expected = SimRequest {
            flows: FlowCounts::Each(vec![1, 2, 3, 4]),
            rate: Rate::bits_per_second(1_000_000_000),
            delay: Duration::from_millis(40),
            access_delay: Duration::from_millis(5),
            access_rate: Rate::bits_per_second(10_000_000_000),
            shared_access: true,
            queue: Queue::Bytes(12_500_000),
            loss: Loss::Independent(0.005),
            window: 1 << 20,
            receiver: WindowGrowth::RightSizing,
            congestion: CongestionAlgorithm::Cubic,
            recovery: LossRecovery::Sack,
            initial_window: Some(4),
            delayed_ack: true,
            packet: 9000,
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(5),
            bytes: Some(1_000_000_000),
            sessions: None,
            stagger: Duration::ZERO,
            cross_traffic: Some(Rate::bits_per_second(20_000_000)),
            jitter: Duration::from_micros(12),
            autopar: ChunkParameters::default(),
            seed: 7,
        };
        assert_eq!(all.unwrap(), expected);
    }

    #[test]
    fn a_file_has_a_deadline_of_an_hour_and_the_papers_size_by_default() {
        let seconds = |options: &[(&str, &str)]| request(options).unwrap().duration.as_secs();
        assert_eq!(seconds(&[("bytes", "1GB")]), 3600);
        assert_eq!(seconds(&[("bytes", "1GB"), ("time", "5s")]), 5);
        let probe = request(&[("flows", "probe")]).unwrap();
        assert_eq!(
            (probe.file(), probe.effective_initial_window()),
            (Some(DEFAULT_FILE), 2)
        );
        assert_eq!(SimRequest::default().file(), None);
        assert_eq!(
            request(&[("bytes", "1GB")])
                .unwrap()
                .effective_initial_window(),
            10
        );
    }

    #[test]
    fn a_window_may_be_a_published_formula() {
        let window = |flows: &str, window: &str| {
            let options = [
                ("rate", "1gbit"),
                ("rtt", "100ms"),
                ("flows", flows),
                ("window", window),
            ];
            request(&options).map(|request| request.window)
        };
        assert_eq!(window("1", "bdp").unwrap(), 12_500_000);
        assert_eq!(window("5", "bdp/(p-1)").unwrap(), 3_125_000);
        assert_eq!(window("5", "64KiB").unwrap(), 65_536);
        for flows in ["1", "2..4", "mi"] {
            let error = window(flows, "bdp/(p-1)").unwrap_err().to_string();
            assert!(error.starts_with("--window: bdp/(p-1)"), "{error}");
        }
    }

    #[test]
    fn errors_name_their_option() {
        for (options, named) in [
            (&[("rate", "fast")][..], "--rate: 'fast'"),
            (&[("rate", "0")], "--rate: a bottleneck"),
            (&[("cc", "vegas")], "--cc: 'vegas'"),
            (&[("sender", "tahoe")], "--sender: 'tahoe'"),
            (&[("receiver", "bsd")], "--receiver: 'bsd'"),
            (&[("access", "none")], "--access: 'none'"),
            (
                &[("sender", "ns2-reno"), ("cc", "cubic")],
                "--sender: ns2-reno has",
            ),
            (&[("rtt", "1s"), ("delay", "1s")], "--rtt and --delay"),
            (
                &[("rtt", "1ms"), ("access-delay", "1ms")],
                "--rtt: shorter than",
            ),
            (
                &[("sessions", "65"), ("flows", "mi")],
                "--sessions: must be",
            ),
            (&[("sessions", "2")], "--sessions: needs"),
            (
                &[("sessions", "2"), ("flows", "mi"), ("bytes", "1MB")],
                "--sessions: they send",
            ),
            (
                &[("sessions", "3"), ("flows", "mi"), ("stagger", "11s")],
                "--stagger: the last",
            ),
            (&[("queue", "some")], "--queue:"),
            (&[("autopar", "eta=0.7")], "--autopar: needs --flows"),
            (&[("seed", "x")], "--seed: not a whole number"),
            (
                &[("initial-window", "0")],
                "--initial-window: must be 1 to 1000",
            ),
            (&[("flaws", "1")], "--flaws: there is no such option"),
        ] {
            let message = request(options).unwrap_err().to_string();
            assert!(message.starts_with(named), "{message}");
        }
    }
}
