//! The client's side of the dialogue, as decisions: what a server is known to be set to, and which
//! commands bring it to what a transfer needs, in the order that existing servers expect.
//!
//! The driver in the `client` crate asks [`CommandPlanner::flights`] for the steps of a transfer, carries
//! them out in order, and reports back what was accepted and refused. Nothing is sent twice: a
//! setting lives as long as the control connection (TYPE, MODE, OPTS, SBUF), and so does the DRS
//! channel's address; a data address one transfer in MODE S and until the direction changes in
//! MODE E, REST exactly one transfer.
//!
//! Before the login, [`SecurityExchange`] says what belongs to a security exchange.

mod pipeline;
mod planner;
mod retrieval;
mod right_sizing;
mod security_exchange;
mod step;

pub use pipeline::{IacHandling, may_pipeline, supports_pipelining};
pub use planner::{CONGESTION_CONTROL_REFUSED, CommandPlanner};
pub use retrieval::{PartialRetrievalUnsupported, RetrievalPlan, longest_ranges, plan_retrieval};
pub use right_sizing::{RIGHT_SIZING_UNSUPPORTED, ServerDrsAddress};
pub use security_exchange::{ExchangeError, SecurityExchange, SecurityStep};
pub use step::{PlanStep, RefusalEffect, TransferDirection, TransferRequirements};
