//! Quantities as people write and read them: one parser and one printer for the whole workspace.
//!
//! **Reading.** A number, then a unit; white space around and between them does not matter. The number
//! may have a fraction and an exponent. Prefixes are powers of ten (`k`, `M`, `G`, `T`, `P`) or, with an `i`,
//! of 1 024 (`Ki`, `Mi`, `Gi`, `Ti`, `Pi`); only for bytes against bits does upper or lower case matter.
//! A number without a unit means the same wherever a quantity is written:
//!
//! | quantity | function | a number alone |
//! | --- | --- | --- |
//! | size | [`size`] | bytes |
//! | rate | [`rate`] | bit/s; 1 to 999 are refused, because Mbit/s is often meant |
//! | rate in a table of measured values | [`rate_in_table`] | bit/s, however small |
//! | time that programs wait or run (`--timeout`) | [`seconds`] | seconds |
//! | time on a path (`--rtt`) | [`milliseconds`] | milliseconds |
//! | time that may be minutes or hours as well as milliseconds (`--budget`) | [`time`] | refused |
//! | probability | [`probability`] | a part of 1; 1 itself is refused, because 1 % is often meant |
//!
//! With a unit, every function of a kind reads the same texts alike.
//!
//! **Printing.** [`show`] is for people: three digits and the prefix that fits. [`exact`] and
//! [`Rate`]'s `Display` are for files: what they write reads back as the same value.
//!
//! Pure, and below all other crates: [`splitmix`] has the reproducible numbers that several of them need.

#![forbid(unsafe_code)]

pub mod exact;
mod rate;
mod read;
pub mod show;
pub mod splitmix;

pub use rate::{Rate, bytes_in, bytes_per_second};
pub use read::{
    UnitError, milliseconds, number, probability, rate, rate_in_table, seconds, size, time,
};
