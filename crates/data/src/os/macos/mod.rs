//! Counterparts of the calls of Linux, for a client.

pub mod attributes;
pub mod caps;
pub mod clock;
pub mod congestion;
pub mod core_dumps;
pub mod disk;
pub mod lookup;
pub mod machine;
pub mod process;
pub mod random;
pub mod sending;
pub mod sharing;
pub mod sockopt;
pub(crate) mod splice;
pub mod stat;
mod sysctl;
pub mod tcp_info;
pub mod wake;
pub(crate) mod writeback;
pub mod zerocopy;

/// The refusal of a call that this system has not.
fn unsupported() -> std::io::Error {
    std::io::ErrorKind::Unsupported.into()
}
