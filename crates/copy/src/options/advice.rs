//! Options of a copy about network-advice services.

use proto::command::Secret;

/// Whom a copy asks for advice on the paths of its transfers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AdvisorChoice {
    /// The service that a server announces in its FEAT reply.
    #[default]
    Announced,
    /// Nobody.
    Off,
    /// This one: a host, or HOST:PORT.
    Server(String),
}

/// Use of network-advice services.
#[derive(Debug, Clone, Default)]
pub struct AdviceOptions {
    /// Whom to ask. Advice counts where earlier transfers taught nothing, and delays a transfer by a round trip or
    /// 200 ms at most.
    pub choice: AdvisorChoice,
    /// Token with which measurements of finished transfers are reported to [`AdvisorChoice::Server`]; `None`: none
    /// are.
    pub token: Option<Secret>,
}
