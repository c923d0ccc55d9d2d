//! Transfer parameters: TYPE MODE STRU REST ALLO SBUF TREV LANG.

use super::SessionAction;
use super::replies;
use super::session_state::LoggedInSession;
use crate::command::{BufferDirection, DataType, RestartMarker, TransferMode, TriggerEvent};
use crate::sizing::MAX_BUFFER;

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
        let mut actions = Vec::new();
        if mode != self.parameters.mode {
            actions.extend(self.drop_cached_connections());
        }
        self.parameters.mode = mode;
        let letter = match mode {
            TransferMode::Stream => 'S',
            TransferMode::Extended => 'E',
        };
        actions.extend(replies::reply(200, format!("Mode set to {letter}.")));
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
