//! From a transfer request to an order: what the session and the configuration add to it.

use std::sync::Arc;

use data::options::Congestion;
use proto::server::{FileError, FileErrorKind, TransferKind, TransferRequest};
use proto::stripes::Stripe;
use tune::Prior;

use super::{Driver, Who};
use crate::config::ServerConfig;
use crate::limits::Place;
use crate::transfer::{DataAddresses, LocalHandles, TransferOrder, TransferTerms};

impl Driver {
    /// The order, and the handles to carry it out with. Takes the session's channel.
    pub(super) fn order(
        &mut self,
        request: TransferRequest,
        place: Place,
    ) -> Result<(TransferOrder, LocalHandles), FileError> {
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
        let connections = match &request.delayed_passive {
            None => DataAddresses::of(self.channel.as_ref()),
            Some(listen) => DataAddresses::ToListen {
                options: self.ends.listen_options(listen, config)?,
                public: config.public_address,
            },
        };
        let order = TransferOrder {
            terms: terms(&request, config),
            request,
            stripe: Stripe::ONLY,
            connections,
            uploader,
        };
        let handles = LocalHandles {
            files,
            line: Arc::new(line),
            channel: self.channel.take(),
            streams: self.shared.streams_of(self.ends.peer.ip()),
            rate: config.transfer.rate.clone(),
            drs: self.drs.clone(),
            place,
        };
        Ok((order, handles))
    }
}

/// As configured, and as the client asked for.
fn terms(request: &TransferRequest, config: &ServerConfig) -> TransferTerms {
    let sends = matches!(request.what, TransferKind::Retrieve { .. });
    let configured = &config.transfer;
    TransferTerms {
        congestion: match sends {
            true => congestion(request, config),
            false => Congestion::System,
        },
        drs_interval: configured.drs_interval,
        io: configured.io,
        block: configured.block,
        stall: configured.stall,
        connect: configured.stall,
        most_connections: config.max_streams_per_transfer as usize,
        prior: Prior::default(),
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
