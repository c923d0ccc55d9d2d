//! Rules that every policy for the number of streams keeps to, whatever it is shown: it never asks for more
//! than it may, never for less than one, never for nothing, comes to an end, and survives measurements
//! that are zero, stale, out of order, or absurd.

#![allow(
    clippy::cast_possible_truncation,
    reason = "what is simulated stays in range, and casts saturate"
)]

mod auto;
mod chunked;
mod fluid;
mod limits_checker;
