//! Knowledge of paths in a service or a store, and advice from it.
//!
//! Measurements of one quantity form a [`Series`]; [`dispersion`] turns packet trains into the bandwidth of
//! the bottleneck; [`advise`] turns [`PathFacts`] into settings, and [`qos`] into a class of service.
//! [`ValueCorrelation`], [`TestInterval`] and [`ByteBudget`] bound what active tests cost. [`prior_from_evidence`] is the memory of
//! one transfer for the next.
//!
//! The rules are those of Tierney, Gunter, Lee, Stoufer and Evans, "Enabling Network-Aware Applications"
//! (HPDC 2001), called "the paper" here. As everywhere in this crate, time and randomness are arguments.

mod advise;
mod byte_budget;
mod correlation;
pub mod dispersion;
mod facts;
mod prior_from_evidence;
mod qos;
mod series;
mod test_interval;

pub use advise::{PathAdvice, advise};
pub use byte_budget::ByteBudget;
pub use correlation::ValueCorrelation;
pub use facts::{ClientLimits, PathFacts, ProcessorCapacity, SendingEnd, Spread};
pub use prior_from_evidence::{EVIDENCE_EXPIRES_AFTER, prior_from_evidence};
pub use qos::{Dscp, QosNeed, QosVerdict, TrafficPurpose, qos};
pub use series::{Series, SeriesEvent};
pub use test_interval::{IntervalBounds, TestInterval};
