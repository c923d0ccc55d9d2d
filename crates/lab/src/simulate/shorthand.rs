//! A simulation as it is written on a command line.

use std::time::Duration;

use serde::Deserialize;
use sim::link::{Loss, Queue};

use tune::streams::chunked::ChunkParameters;
use units::{Rate, UnitError};

use super::request::{SimRequest, congestion_named};
use crate::LabError;
use crate::topology::{NetworkOptions, Topology};

/// How long a file may take if nobody says.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Words of a command line, or of the `simulation` table of an experiment, on a simulation, as text;
/// `None`: the default of [`SimRequest`].
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SimShorthand {
    /// `--flows`: `4`, `1..64`, `1,2,4,8`, `auto`, `mi`, `mi+`, `aimd`, `probe`.
    pub flows: Option<String>,
    /// `--rate`: of the bottleneck, `100mbit`.
    pub rate: Option<String>,
    /// `--delay`: one-way, of the bottleneck, `10ms`. Not together with `rtt`.
    pub delay: Option<String>,
    /// `--rtt`: without queues; the access links' delays are within. Not together with `delay`.
    pub rtt: Option<String>,
    /// `--access-delay`: one-way, of each access link. Default with `rtt`: 0.
    pub access_delay: Option<String>,
    /// `--access-rate`: of the access links.
    pub access_rate: Option<String>,
    /// `--queue`: `1bdp` (of rate and round trip), a number of packets, a size, or `unlimited`.
    pub queue: Option<String>,
    /// `--loss`: `0.5%`.
    pub loss: Option<String>,
    /// `--window`: socket buffer of each connection, `64KiB`.
    pub window: Option<String>,
    /// `--cc`: `newreno` or `cubic`.
    #[serde(rename = "cc")]
    pub congestion: Option<String>,
    /// `--initial-window`: segments.
    pub initial_window: Option<u32>,
    /// `--delayed-ack`.
    pub delayed_ack: bool,
    /// `--packet`: bytes of a full IP packet.
    pub packet: Option<String>,
    /// `--time`: measured, `60s`; of a file the longest that it may take, an hour if left out.
    #[serde(rename = "time")]
    pub duration: Option<String>,
    /// `--warm-up`: before that, `20s`.
    pub warm_up: Option<String>,
    /// `--bytes`: file size, `1GB`.
    pub bytes: Option<String>,
    /// `--cross-traffic`: rate of it, `20mbit`.
    pub cross_traffic: Option<String>,
    /// `--autopar`: parameters of `mi`, `mi+`, `aimd`, `probe`: `eta=0.7,delta=5s`.
    pub autopar: Option<String>,
    /// `--jitter`: most that the sending host holds a packet back, `120us`.
    pub jitter: Option<String>,
    /// `--seed`.
    pub seed: Option<u64>,
}

impl SimRequest {
    /// Reads what a command line says; the rest is default.
    ///
    /// # Errors
    /// [`LabError::Usage`]: a text that is no such quantity, `rtt` beside `delay`, or what
    /// [`SimRequest::check`] refuses.
    pub fn from_shorthand(said: &SimShorthand) -> Result<Self, LabError> {
        let mut request = Self::default();
        if let Some(text) = &said.flows {
            request.flows = text.parse()?;
        }
        read(&mut request.rate, "--rate", &said.rate, units::rate)?;
        read(
            &mut request.access_rate,
            "--access-rate",
            &said.access_rate,
            units::rate,
        )?;
        read(&mut request.window, "--window", &said.window, units::size)?;
        read(
            &mut request.duration,
            "--time",
            &said.duration,
            units::milliseconds,
        )?;
        read(
            &mut request.warm_up,
            "--warm-up",
            &said.warm_up,
            units::milliseconds,
        )?;
        read(
            &mut request.jitter,
            "--jitter",
            &said.jitter,
            units::milliseconds,
        )?;
        request.bytes = optional("--bytes", &said.bytes, units::size)?;
        if let Some(text) = &said.autopar {
            if request.tuned().is_none() {
                let why = "it is for --flows mi, mi+, aimd and probe, which find the number";
                return Err(named("--autopar", why));
            }
            request.autopar = ChunkParameters::parse(text).map_err(|e| named("--autopar", e))?;
        }
        if request.file().is_some() && said.duration.is_none() {
            request.duration = PATIENCE;
        }
        request.cross_traffic = optional("--cross-traffic", &said.cross_traffic, units::rate)?;
        if let Some(share) = optional("--loss", &said.loss, units::probability)? {
            request.loss = Loss::Independent(share);
        }
        if let Some(bytes) = optional("--packet", &said.packet, units::size)? {
            request.packet = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        if let Some(name) = &said.congestion {
            request.congestion = congestion_named(name)?;
        }
        request.initial_window = said.initial_window;
        request.delayed_ack = said.delayed_ack;
        request.seed = said.seed.unwrap_or(request.seed);
        request.read_delays(said)?;
        if let Some(text) = &said.queue {
            request.queue = queue(text, request.rate, request.base_rtt())?;
        }
        request.check()?;
        Ok(request)
    }

    fn read_delays(&mut self, said: &SimShorthand) -> Result<(), LabError> {
        read(&mut self.delay, "--delay", &said.delay, units::milliseconds)?;
        let rtt = optional("--rtt", &said.rtt, units::milliseconds)?;
        if rtt.is_some() && said.delay.is_some() {
            return Err(LabError::Usage(
                "--rtt and --delay say the same thing: give one of them".to_owned(),
            ));
        }
        if rtt.is_some() {
            self.access_delay = Duration::ZERO;
        }
        read(
            &mut self.access_delay,
            "--access-delay",
            &said.access_delay,
            units::milliseconds,
        )?;
        if let Some(rtt) = rtt {
            self.delay = (rtt / 2)
                .checked_sub(2 * self.access_delay)
                .ok_or_else(|| {
                    LabError::Usage(
                    "--rtt: the four times that the access links are passed take longer than this"
                        .to_owned(),
                )
                })?;
        }
        Ok(())
    }
}

/// As `longhaul lab net` reads it, for a path of this rate and round trip.
fn queue(text: &str, rate: Rate, rtt: Duration) -> Result<Queue, LabError> {
    let topology = Topology::from_options(
        None,
        &NetworkOptions {
            rate: Some(rate.to_string()),
            rtt: Some(format!("{}ns", rtt.as_nanos())),
            queue: Some(text.to_owned()),
            ..NetworkOptions::default()
        },
    )?;
    Ok(topology
        .paths
        .first()
        .map_or(Queue::Unlimited, |path| path.forward.queue))
}

fn read<T>(
    field: &mut T,
    option: &str,
    text: &Option<String>,
    parse: impl Fn(&str) -> Result<T, UnitError>,
) -> Result<(), LabError> {
    if let Some(value) = optional(option, text, parse)? {
        *field = value;
    }
    Ok(())
}

fn optional<T>(
    option: &str,
    text: &Option<String>,
    parse: impl Fn(&str) -> Result<T, UnitError>,
) -> Result<Option<T>, LabError> {
    text.as_deref()
        .map(|text| parse(text).map_err(|e| named(option, e)))
        .transpose()
}

fn named(option: &str, error: impl std::fmt::Display) -> LabError {
    LabError::Usage(format!("{option}: {error}"))
}

#[cfg(test)]
mod tests {

    use super::*;
    use sim::tcp::CongestionAlgorithm;

    use crate::simulate::Flows;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn nothing_said_is_the_default() {
        let request = SimRequest::from_shorthand(&SimShorthand::default()).unwrap();
        assert_eq!(request, SimRequest::default());
        assert_eq!(request.base_rtt(), Duration::from_millis(24));
    }

    #[test]
    fn everything_said() {
        let request = SimRequest::from_shorthand(&SimShorthand {
            flows: text("1,2..4"),
            rate: text("1gbit"),
            rtt: text("100ms"),
            queue: text("1bdp"),
            loss: text("0.5%"),
            window: text("1MiB"),
            congestion: text("cubic"),
            initial_window: Some(4),
            delayed_ack: true,
            packet: text("9000"),
            duration: text("10s"),
            warm_up: text("5s"),
            bytes: text("1GB"),
            cross_traffic: text("20mbit"),
            jitter: text("12us"),
            seed: Some(7),
            ..SimShorthand::default()
        })
        .unwrap();
        assert_eq!(request.flows, Flows::Counts(vec![1, 2, 3, 4]));
        assert_eq!(request.rate, Rate::bits_per_second(1_000_000_000));
        assert_eq!(request.base_rtt(), Duration::from_millis(100));
        assert_eq!(request.delay, Duration::from_millis(50));
        assert_eq!(request.queue, Queue::Bytes(12_500_000));
        assert_eq!(request.loss, Loss::Independent(0.005));
        assert_eq!(request.window, 1 << 20);
        assert_eq!(request.congestion, CongestionAlgorithm::Cubic);
        assert_eq!(request.initial_window, Some(4));
        assert!(request.delayed_ack);
        assert_eq!(request.packet, 9000);
        assert_eq!(request.duration, Duration::from_secs(10));
        assert_eq!(request.warm_up, Duration::from_secs(5));
        assert_eq!(request.bytes, Some(1_000_000_000));
        assert_eq!(
            request.cross_traffic,
            Some(Rate::bits_per_second(20_000_000))
        );
        assert_eq!(request.jitter, Duration::from_micros(12));
        assert_eq!(request.seed, 7);
    }

    #[test]
    fn a_file_may_take_its_time() {
        let said = |time: Option<String>| SimShorthand {
            bytes: text("1GB"),
            duration: time,
            ..SimShorthand::default()
        };
        let patient = SimRequest::from_shorthand(&said(None)).unwrap();
        assert_eq!(patient.duration, Duration::from_secs(3600));
        let hasty = SimRequest::from_shorthand(&said(text("5s"))).unwrap();
        assert_eq!(hasty.duration, Duration::from_secs(5));
    }

    #[test]
    fn the_access_links_are_within_the_round_trip() {
        let request = SimRequest::from_shorthand(&SimShorthand {
            rtt: text("100ms"),
            access_delay: text("5ms"),
            ..SimShorthand::default()
        })
        .unwrap();
        assert_eq!(request.delay, Duration::from_millis(40));
        assert_eq!(request.base_rtt(), Duration::from_millis(100));
    }

    #[test]
    fn mistakes_name_their_option() {
        let refused =
            |said: SimShorthand| SimRequest::from_shorthand(&said).unwrap_err().to_string();
        let blank = SimShorthand::default;
        let rate = refused(SimShorthand {
            rate: text("fast"),
            ..blank()
        });
        assert!(rate.starts_with("--rate: 'fast'"), "{rate}");
        let none = refused(SimShorthand {
            rate: text("0"),
            ..blank()
        });
        assert!(none.starts_with("--rate:"), "{none}");
        let cc = refused(SimShorthand {
            congestion: text("vegas"),
            ..blank()
        });
        assert!(cc.contains("newreno"), "{cc}");
        let both = refused(SimShorthand {
            rtt: text("1s"),
            delay: text("1s"),
            ..blank()
        });
        assert!(both.contains("--rtt and --delay"), "{both}");
        let short = refused(SimShorthand {
            rtt: text("1ms"),
            access_delay: text("1ms"),
            ..blank()
        });
        assert!(short.starts_with("--rtt:"), "{short}");
        let queue = refused(SimShorthand {
            queue: text("some"),
            ..blank()
        });
        assert!(queue.starts_with("--queue:"), "{queue}");
    }
}
