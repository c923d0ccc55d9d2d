//! Transfer parameters: TYPE MODE STRU REST ALLO SBUF TREV LANG, and OPTS (RFC 2389 §4; RFC 3659 §7.9; GFD.20
//! §4.2).

use super::logged_in::LoggedInSession;
use super::{SessionAction, SessionConfig, replies};
use crate::command::{
    BufferDirection, DataType, OptsCommand, RestartMarker, RetrieveOption, TransferMode,
    TriggerEvent,
};
use crate::listing::FactSet;
use crate::sizing::MAX_BUFFER;
use crate::stripes::{MIN_STRIPE_BLOCK, StripeLayout};

impl LoggedInSession {
    /// TYPE
    pub(super) fn set_type(&mut self, type_: DataType) -> Vec<SessionAction> {
        self.parameters.type_ = type_;
        let letter = match type_ {
            DataType::Ascii => 'A',
            DataType::Image => 'I',
        };
        replies::reply(200, format!("Type set to {letter}."))
    }

    /// MODE. A change closes cached connections, since they can only continue in the mode they were
    /// used in. An address that has not been used yet stays valid.
    pub(super) fn set_mode(&mut self, mode: TransferMode) -> Vec<SessionAction> {
        let mut actions = self.change_mode(mode);
        let letter = match mode {
            TransferMode::Stream => 'S',
            TransferMode::Extended => 'E',
        };
        actions.extend(replies::reply(200, format!("Mode set to {letter}.")));
        actions
    }

    /// MODE without its reply.
    pub(super) fn change_mode(&mut self, mode: TransferMode) -> Vec<SessionAction> {
        let mut actions = Vec::new();
        if mode != self.parameters.mode {
            actions.extend(self.drop_cached_connections());
        }
        self.parameters.mode = mode;
        actions
    }

    /// REST. The transfer command decides later whether the marker fits.
    pub(super) fn rest(&mut self, restart: RestartMarker) -> Vec<SessionAction> {
        self.next_transfer.restart = Some(restart);
        replies::reply(
            350,
            "Restart Marker OK. Send STORE or RETR to initiate transfer.",
        )
    }

    /// ALLO: the driver compares the size with the free space and with what arrives.
    pub(super) fn allo(&mut self, bytes: u64) -> Vec<SessionAction> {
        self.next_transfer.store.announced_size = Some(bytes);
        replies::reply(200, "ALLO command successful.")
    }

    /// Sets the buffer size of data connections made from now on, bytes; 0 leaves it to the kernel.
    pub(super) fn set_buffer(&mut self, side: BufferDirection, bytes: u64) {
        // A peer may ask for any size; larger ones are reduced, as the kernel does.
        let bytes = (bytes > 0).then_some(bytes.min(MAX_BUFFER));
        match side {
            BufferDirection::Send => self.parameters.buffers.send = bytes,
            BufferDirection::Receive => self.parameters.buffers.receive = bytes,
            BufferDirection::Both => {
                self.parameters.buffers.send = bytes;
                self.parameters.buffers.receive = bytes;
            }
        }
    }

    /// TREV: marker periods of stores.
    pub(super) fn trev(&mut self, event: TriggerEvent, seconds: u32) -> Vec<SessionAction> {
        match event {
            TriggerEvent::RestartMarker => self.parameters.store_range_seconds = seconds,
            TriggerEvent::PerformanceMarker => self.parameters.store_perf_seconds = seconds,
        }
        replies::reply(200, "Command Successful.")
    }

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
    /// reduced without error: the receiver learns the number from the EOD count.
    fn retrieve_option(&mut self, config: &SessionConfig, option: RetrieveOption) {
        match option {
            RetrieveOption::Parallelism(streams) => {
                self.parameters.parallelism = streams.capped(config.max_streams);
            }
            RetrieveOption::Markers(seconds) => self.parameters.retrieve_perf_seconds = seconds,
            RetrieveOption::Checksum(algorithm) => self.parameters.retrieve_checksum = algorithm,
            RetrieveOption::Partitioned => self.parameters.layout = StripeLayout::Partitioned,
            RetrieveOption::Blocked => {
                self.parameters.layout = StripeLayout::Blocked {
                    block: self.parameters.stripe_block,
                };
            }
            RetrieveOption::BlockSize(bytes) => {
                let block = bytes.max(MIN_STRIPE_BLOCK);
                self.parameters.stripe_block = block;
                if let StripeLayout::Blocked { .. } = self.parameters.layout {
                    self.parameters.layout = StripeLayout::Blocked { block };
                }
            }
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

/// STRU: only F (file) is offered.
pub(super) fn stru(code: char) -> Vec<SessionAction> {
    if code.eq_ignore_ascii_case(&'F') {
        replies::reply(200, "STRU F ok.")
    } else {
        replies::reply(504, "Only STRU F is offered.")
    }
}

/// LANG: replies are in English.
pub(super) fn lang(tag: Option<&str>) -> Vec<SessionAction> {
    let primary = tag.map(|t| t.split('-').next().unwrap_or_default().trim().to_owned());
    // Subtags such as EN-US are accepted (RFC 2640 §4.1 uses RFC 1766 language tags).
    match primary.as_deref() {
        None => replies::reply(200, "lang set to EN."),
        Some(tag) if tag.is_empty() || tag.eq_ignore_ascii_case("EN") => {
            replies::reply(200, "lang set to EN.")
        }
        Some(_) => replies::reply(504, "Only LANG EN is offered."),
    }
}
