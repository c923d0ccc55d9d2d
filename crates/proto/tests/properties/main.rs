//! Properties of the wire types: encoded values are decoded back for any split of the input, arbitrary
//! input never panics, and sets and counts agree with naive models.

mod blocks;
mod commands;
mod lines;
mod listings;
mod markers;
mod memory;
mod ranges;
mod replies;
mod split;
