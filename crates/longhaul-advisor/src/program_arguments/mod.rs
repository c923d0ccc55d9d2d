//! The arguments of a program that runs with advice: the data server that they name, and the place of the flags.

pub(crate) mod data_server;
pub(crate) mod insertion;
pub(crate) mod transfer;
