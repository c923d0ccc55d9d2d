//! The emulator from outside: networks are built, commands run in them, and nothing is left.
//!
//! The program under test is `examples/lab_net.rs`. What needs root or a TUN device says `SKIPPED`
//! where there is none.

mod command;
mod ending;
mod refusals;
mod settings;
mod support;
mod unprivileged;
