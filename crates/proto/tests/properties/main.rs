//! Properties of the wire types: what is written is read back, however it is split; whatever is
//! read, nothing panics; sets and counts agree with naive models.

mod blocks;
mod commands;
mod lines;
mod listings;
mod markers;
mod ranges;
mod replies;
mod split;
