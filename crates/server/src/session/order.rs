//! From a transfer request to an order: what the session and the configuration add to it.

use std::sync::Arc;

use data::job::Settings;
use data::options::{Congestion, TransferOptions};
use proto::server::{FileError, FileErrorKind, TransferKind, TransferRequest};
use proto::sizing::Sizing;
use tune::Prior;

use super::{Driver, Who};
use crate::config::ServerConfig;
use crate::limits::Place;
use crate::transfer::{Delayed, TransferOrder};

impl Driver {
    /// Takes the session's channel.
    pub(super) fn order(
        &mut self,
        request: TransferRequest,
        place: Place,
    ) -> Result<TransferOrder, FileError> {
        let Who::User(login) = &self.who else {
            return Err(not_logged_in());
        };
        let files = login.files.clone();
        let line = self.control.line().map_err(|e| busy(e.to_string()))?;
        let uploader = login.uploader(self.ends.peer.ip());
        if let Some(listen) = &request.delayed_passive {
            self.expect_data_from(listen);
        }
        let config = &self.shared.config;
        let listen = match &request.delayed_passive {
            None => None,
            Some(listen) => Some(Delayed {
                options: self.ends.listen_options(listen, config)?,
                public: config.public_address,
                streams: self.shared.streams_of(self.ends.peer.ip()),
            }),
        };
        let sends = matches!(request.what, TransferKind::Retrieve { .. });
        let options = TransferOptions {
            buffers: request.buffers,
            congestion: match sends {
                true => congestion(&request, config),
                false => Congestion::System,
            },
            ..config.transfer.clone()
        };
        let settings = Settings {
            options,
            mode: request.mode,
            type_: request.type_,
            streams: request.streams.start as usize,
            most_streams: request.streams.most as usize,
            least_streams: request.streams.least as usize,
            most_connections: config.max_streams_per_transfer as usize,
            adapt: sends && request.streams.is_open(),
            prior: Prior::default(),
            sum: None,
            connect: config.transfer.stall,
            drs: self
                .drs
                .clone()
                .filter(|_| request.buffers.sizing == Sizing::Drs),
            close_after: false,
        };
        Ok(TransferOrder {
            request,
            files,
            uploader,
            line: Arc::new(line),
            channel: self.channel.take(),
            listen,
            settings,
            place,
        })
    }
}

/// `auto` is what the server does by itself, which its administrator may have set to another one.
fn congestion(request: &TransferRequest, config: &ServerConfig) -> Congestion {
    match request.congestion.as_str() {
        "" | "auto" => config.transfer.congestion.clone(),
        asked => Congestion::parse(asked),
    }
}

/// A refusal for want of something that comes back.
pub(super) fn busy(text: String) -> FileError {
    FileError {
        kind: FileErrorKind::Busy,
        errno: None,
        text,
    }
}

/// A refusal of what only a user may do.
pub(super) fn not_logged_in() -> FileError {
    FileError {
        kind: FileErrorKind::Denied,
        errno: None,
        text: "not logged in".to_owned(),
    }
}
