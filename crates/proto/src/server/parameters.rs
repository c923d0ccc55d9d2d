//! Transfer parameters and protection: TYPE MODE STRU REST ALLO SBUF TREV DCAU PBSZ PROT LANG.

use super::Action;
use super::replies;
use super::state::{Channel, LoggedIn};
use crate::command::{BufferSide, Dcau, Mode, Prot, Restart, TrevEvent, Type};
use crate::sizing::MAX_BUFFER;

impl LoggedIn {
    /// TYPE
    pub(super) fn set_type(&mut self, type_: Type) -> Vec<Action> {
        self.settings.type_ = type_;
        let letter = match type_ {
            Type::Ascii => 'A',
            Type::Image => 'I',
        };
        replies::reply(200, format!("Type set to {letter}."))
    }

    /// MODE. Cached connections belong to the mode they were used in: a change closes them, for
    /// the peer of a MODE S transfer must not be sent blocks. A prepared address stays.
    pub(super) fn set_mode(&mut self, mode: Mode) -> Vec<Action> {
        let mut actions = Vec::new();
        if mode != self.settings.mode && self.channel.is_cached() {
            self.channel = Channel::None;
            actions.push(Action::DropChannel);
        }
        self.settings.mode = mode;
        let letter = match mode {
            Mode::Stream => 'S',
            Mode::Extended => 'E',
        };
        actions.extend(replies::reply(200, format!("Mode set to {letter}.")));
        actions
    }

    /// REST; whether it fits the transfer is known only when that starts.
    pub(super) fn rest(&mut self, restart: Restart) -> Vec<Action> {
        self.next.restart = Some(restart);
        replies::reply(
            350,
            "Restart Marker OK. Send STORE or RETR to initiate transfer.",
        )
    }

    /// ALLO: advisory.
    pub(super) fn allo(&mut self, bytes: u64) -> Vec<Action> {
        self.next.store.allocate = Some(bytes);
        replies::reply(200, "ALLO command successful.")
    }

    /// Buffer sizes for data connections made from now on; 0 leaves them to the kernel.
    pub(super) fn set_buffer(&mut self, side: BufferSide, bytes: u64) {
        let bytes = (bytes > 0).then_some(bytes.min(MAX_BUFFER));
        match side {
            BufferSide::Send => self.settings.buffers.send = bytes,
            BufferSide::Receive => self.settings.buffers.receive = bytes,
            BufferSide::Both => {
                self.settings.buffers.send = bytes;
                self.settings.buffers.receive = bytes;
            }
        }
    }

    /// TREV: marker periods of stores.
    pub(super) fn trev(&mut self, event: TrevEvent, seconds: u32) -> Vec<Action> {
        match event {
            TrevEvent::Restart => self.settings.range_seconds = seconds,
            TrevEvent::Perf => self.settings.perf_seconds = seconds,
        }
        replies::reply(200, "Command Successful.")
    }
}

/// STRU: files only.
pub(super) fn structure(code: char) -> Vec<Action> {
    if code.eq_ignore_ascii_case(&'F') {
        replies::reply(200, "STRU F ok.")
    } else {
        replies::reply(504, "Only STRU F is offered.")
    }
}

/// DCAU: there is no security context that could authenticate a data channel.
pub(super) fn dcau(mode: &Dcau) -> Vec<Action> {
    let letter = match mode {
        Dcau::None => return replies::reply(200, "DCAU N."),
        Dcau::SelfAuth => 'A',
        Dcau::Subject(_) => 'S',
    };
    let text = format!(
        "DCAU {letter} needs a session with GSSAPI security; this server offers only DCAU N."
    );
    replies::reply(504, text)
}

/// PROT: data connections are clear.
pub(super) fn prot(level: Prot) -> Vec<Action> {
    let letter = match level {
        Prot::Clear => return replies::reply(200, "Protection level set to C."),
        Prot::Safe => 'S',
        Prot::Confidential => 'E',
        Prot::Private => 'P',
    };
    replies::reply(536, format!("{letter} protection level not supported."))
}

/// LANG: replies are in English.
pub(super) fn language(tag: Option<&str>) -> Vec<Action> {
    let primary = tag.map(|t| t.split('-').next().unwrap_or_default().trim().to_owned());
    match primary.as_deref() {
        None => replies::reply(200, "lang set to EN."),
        Some(tag) if tag.is_empty() || tag.eq_ignore_ascii_case("EN") => {
            replies::reply(200, "lang set to EN.")
        }
        Some(_) => replies::reply(504, "Only LANG EN is offered."),
    }
}
