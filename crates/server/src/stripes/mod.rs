//! Several machines for one transfer (GFD.20 section 3): a front end has the sessions, and data nodes have the data connections.
//! A front end divides a transfer among its nodes; each is a server of its own that carries out orders.

mod connection;
mod dealer;
mod directory;
mod load;
mod message;
mod rate_shares;
mod recent_rate;
mod set;
mod watch;

pub(crate) use connection::NodeConnection;
pub(crate) use dealer::{DealtOrder, RangeDealer};
pub(crate) use directory::{NodeDirectory, NodeState};
pub(crate) use load::{LoadMeter, MeteredPart, NodeLoad};
pub(crate) use message::{
    AliveTerms, FrontMessage, LEASE, NodeFailure, NodeFile, NodeListen, NodeMessage, NodeOrder,
    NodePart, PartProgress, PartReport, VERSION, WireRanges,
};
pub(crate) use rate_shares::RateShares;
pub(crate) use recent_rate::RecentRate;
pub(crate) use set::{NodeAccess, StripeSet};
pub(crate) use watch::watch_nodes;
