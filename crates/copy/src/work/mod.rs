//! The work of a batch: taken from its plan, arranged in pieces, and moved.

pub(crate) mod file;
mod leftovers;
pub(crate) mod mover;
pub(crate) mod queue;
pub(crate) mod refusing;
pub(crate) mod session_plan;
