//! OPTS (RFC 2389 §4; RFC 3659 §7.9; GFD.20 §4.2).

use super::replies;
use super::session_state::LoggedInSession;
use super::{SessionAction, SessionConfig};
use crate::command::{OptsCommand, RetrieveOption};
use crate::listing::FactSet;

impl LoggedInSession {
    /// OPTS
    pub(super) fn opts(&mut self, config: &SessionConfig, opts: OptsCommand) -> Vec<SessionAction> {
        match opts {
            OptsCommand::Retr(options) => {
                for option in options {
                    self.retrieve_option(config, option);
                }
            }
            OptsCommand::StoreChecksum(algorithm) => self.parameters.store_checksum = algorithm,
            OptsCommand::AllowDelayedPassive(allow) => self.parameters.allow_delayed = allow,
            OptsCommand::BufferSizing(sizing) => return self.set_buffer_sizing(config, sizing),
            OptsCommand::CongestionControl(name) => return self.set_congestion(config, name),
            OptsCommand::Facts(list) => return self.select_facts(list.as_deref()),
            OptsCommand::ChecksumMarkers(seconds) => self.parameters.checksum_seconds = seconds,
            // A recursive listing always continues after an unreadable directory and never follows
            // links to directories. Clients send these options regardless, so they are accepted.
            OptsCommand::MlsrOptions { deflate } => {
                self.parameters.deflate_trees = deflate.unwrap_or(self.parameters.deflate_trees);
            }
            OptsCommand::Utf8(_) => {}
            OptsCommand::Unknown(name) => {
                return replies::reply(501, format!("OPTS failed: unknown option {name}."));
            }
        }
        replies::options_accepted()
    }

    /// Applies one option of OPTS RETR. A request for more connections than the server allows is
    /// reduced without error: the receiver learns the number from the EOD count. Stripe layouts have
    /// no effect on a server with a single node.
    fn retrieve_option(&mut self, config: &SessionConfig, option: RetrieveOption) {
        match option {
            RetrieveOption::Parallelism(streams) => {
                self.parameters.parallelism = streams.capped(config.max_streams);
            }
            RetrieveOption::Markers(seconds) => self.parameters.retrieve_perf_seconds = seconds,
            RetrieveOption::Checksum(algorithm) => self.parameters.retrieve_checksum = algorithm,
            RetrieveOption::Partitioned
            | RetrieveOption::Blocked
            | RetrieveOption::BlockSize(_) => {}
        }
    }

    /// OPTS TUNE: sets the congestion control for sending. Cached connections are closed, since they
    /// were opened with the previous one.
    fn set_congestion(&mut self, config: &SessionConfig, name: String) -> Vec<SessionAction> {
        if !config.congestion_controls.contains(&name) {
            let text = match config.congestion_controls.join(" ") {
                none if none.is_empty() => "No congestion control is offered.".to_owned(),
                offered => format!("Congestion={name} is not offered; offered: {offered}."),
            };
            return replies::reply(504, text);
        }
        let mut actions = Vec::new();
        // The driver sets TCP_CONGESTION (tcp(7)) when it opens a connection.
        if name != self.parameters.congestion_control {
            actions.extend(self.drop_cached_connections());
        }
        self.parameters.congestion_control = name;
        actions.extend(replies::options_accepted());
        actions
    }

    fn select_facts(&mut self, list: Option<&str>) -> Vec<SessionAction> {
        self.parameters.facts = FactSet::parse(list.unwrap_or_default());
        let text = format!("MLST OPTS {}", self.parameters.facts.selected());
        replies::reply(200, text.trim_end())
    }
}
