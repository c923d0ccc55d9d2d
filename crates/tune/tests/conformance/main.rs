//! Rules that every tuner of the number of streams obeys for arbitrary input. It never asks for more than
//! it may or for less than one stream, never for an empty chunk, settles on a stable path, and survives
//! measurements that are zero, stale, out of order or absurd.

#![allow(
    clippy::cast_possible_truncation,
    reason = "what is simulated stays in range, and casts saturate"
)]

mod auto;
mod chunked;
mod fluid;
mod limits_checker;
