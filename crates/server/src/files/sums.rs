//! Checksums of whole files that are known already.

/// Remembered checksums, shared by all sessions.
#[derive(Debug, Default)]
pub struct Sums {}
