//! The client side of a control connection, without I/O: it tracks the settings in force at the server
//! and plans the commands that a transfer needs, in the order that existing servers expect.
//!
//! The driver in the `ftp` crate gets the steps of a transfer from [`CommandPlanner::pipelined_plan`],
//! sends them in order, and reports which ones the server accepted and refused. No setting is sent twice.
//! TYPE, MODE, OPTS, SBUF and the DRS address last as long as the control connection. A data
//! address lasts for one transfer in MODE S, and until the direction changes in MODE E. REST applies to
//! one transfer.
//!
//! [`SecurityExchange`] handles the security exchange before the login.

mod answers;
mod pipeline;
mod planner;
mod retrieval;
mod security_exchange;
mod series;

pub use answers::can_answer;
pub use pipeline::{IacHandling, is_toolkit_server, may_pipeline, supports_pipelining};
pub use planner::{
    CONGESTION_CONTROL_REFUSED, CommandPlanner, PlanStep, RIGHT_SIZING_UNSUPPORTED, RefusalEffect,
    ServerDrsAddress, TransferDirection, TransferRequirements, early_protection_commands,
};
pub use retrieval::{PartialRetrievalUnsupported, RetrievalPlan, longest_ranges, plan_retrieval};
pub use security_exchange::{ExchangeError, SecurityExchange, SecurityStep};
pub use series::{CommandLead, SeriesBreak, SeriesVerdict, SeriesWindow, judge_reply};
