//! The `longhaul` program: arguments, output, exit codes; nothing else.
#![forbid(unsafe_code)]
fn main() {}
