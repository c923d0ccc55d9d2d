//! OPTS (RFC 2389 §4; RFC 3659 §7.9; GFD.20 §4.2).

use super::replies;
use super::state::{Channel, LoggedIn};
use super::{Action, SessionConfig};
use crate::command::{Opts, RetrOption};
use crate::listing::FactSet;

impl LoggedIn {
    /// OPTS
    pub(super) fn opts(&mut self, config: &SessionConfig, opts: Opts) -> Vec<Action> {
        match opts {
            Opts::Retr(options) => {
                for option in options {
                    self.retrieve_option(config, option);
                }
            }
            Opts::StorChecksum(algorithm) => self.settings.store_sum = algorithm,
            Opts::AllowDelayed(allow) => self.settings.allow_delayed = allow,
            Opts::Sizing(sizing) => return self.set_sizing(config, sizing),
            Opts::Congestion(name) => return self.set_congestion(config, name),
            Opts::Facts(list) => return self.select_facts(list.as_deref()),
            Opts::ChecksumMarkers(seconds) => self.settings.checksum_seconds = seconds,
            // A recursive listing goes on past what it cannot read and never follows links to
            // directories, whatever is asked: both are accepted and nothing is to be set.
            Opts::Mlsr | Opts::Utf8(_) => {}
            Opts::Unknown(name) => {
                return replies::reply(501, format!("OPTS failed: unknown option {name}."));
            }
        }
        success()
    }

    /// More connections than the server gives are fewer, not an error: the receiver learns the
    /// number from the EOD count. With a single node every stripe layout is the same.
    fn retrieve_option(&mut self, config: &SessionConfig, option: RetrOption) {
        match option {
            RetrOption::Parallelism(streams) => {
                self.settings.parallelism = streams.capped(config.max_streams);
            }
            RetrOption::Markers(seconds) => self.settings.retrieve_perf_seconds = seconds,
            RetrOption::Partitioned | RetrOption::Blocked | RetrOption::BlockSize(_) => {}
        }
    }

    /// Congestion control of what is sent from now on. Cached connections run the last one.
    fn set_congestion(&mut self, config: &SessionConfig, name: String) -> Vec<Action> {
        if !config.congestion.contains(&name) {
            let text = match config.congestion.join(" ") {
                none if none.is_empty() => "No congestion control is offered.".to_owned(),
                offered => format!("Congestion={name} is not offered; offered: {offered}."),
            };
            return replies::reply(504, text);
        }
        let mut actions = Vec::new();
        if name != self.settings.congestion && self.channel.is_cached() {
            self.channel = Channel::None;
            actions.push(Action::DropChannel);
        }
        self.settings.congestion = name;
        actions.extend(success());
        actions
    }

    fn select_facts(&mut self, list: Option<&str>) -> Vec<Action> {
        self.settings.facts = FactSet::parse(list.unwrap_or_default());
        let text = format!("MLST OPTS {}", self.settings.facts.selected());
        replies::reply(200, text.trim_end())
    }
}

/// The answer of every OPTS that is taken and has no other.
pub(super) fn success() -> Vec<Action> {
    replies::reply(200, "OPTS Command Successful.")
}
