//! Parsers and printers of quantities: sizes, rates, times and probabilities, once for the whole workspace.
//!
//! **Parsing.** A quantity is a number and a unit; white space around and between them is ignored. The number
//! may have a fraction and an exponent. Prefixes are powers of ten (`k`, `M`, `G`, `T`, `P`) or, with an `i`,
//! of 1 024 (`Ki`, `Mi`, `Gi`, `Ti`, `Pi`). Upper and lower case differ only for bytes (`B`) and bits (`b`).
//! A number without a unit has one meaning per quantity:
//!
//! | quantity | function | number without a unit |
//! | --- | --- | --- |
//! | size | [`size`] | bytes |
//! | rate | [`rate`] | bit/s; 1 to 999 are refused, because Mbit/s is often meant |
//! | rate in a table of measured values | [`rate_in_table`] | bit/s, also below 1000 |
//! | time for which programs wait or run (`--timeout`) | [`seconds`] | seconds |
//! | time for which something is valid (`proxy init --valid`) | [`hours`] | hours |
//! | delay on a path (`--rtt`) | [`milliseconds`] | milliseconds |
//! | time of any magnitude (`--budget`) | [`time`] | refused |
//! | probability | [`probability`] | a part of 1; 1 itself is refused, because 1 % is often meant |
//!
//! With a unit, all functions for one quantity accept the same texts and return the same values.
//!
//! **Printing.** [`show`] is for people: three digits and a suitable prefix. [`exact`] and [`Rate`]'s
//! `Display` are for files: their text parses back to the same value.
//!
//! [`names`] has the one rule for names of congestion controls, [`Exit`] the one meaning of each exit code.
//!
//! The crate is pure and depends on no other crate of the workspace. [`message_rate`] keeps a peer to a rate of messages. [`splitmix`] has the reproducible
//! pseudo-random numbers that several crates need.

#![forbid(unsafe_code)]

pub mod exact;
mod exit;
pub mod message_rate;
pub mod names;
mod rate;
mod read;
pub mod show;
pub mod splitmix;

pub use exit::Exit;
pub use rate::{Rate, bytes_in, bytes_per_second};
pub use read::{
    UnitError, hours, milliseconds, number, probability, rate, rate_in_table, seconds, size, time,
};
