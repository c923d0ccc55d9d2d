//! How large a listing may be.

/// Limits of a listing. A caller that keeps the entries needs about 300 bytes for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListingLimits {
    /// Bytes of text.
    pub(super) bytes: u64,
    /// Lines of text.
    pub(super) lines: u64,
}

/// Limits of a listing that is kept in memory.
pub(super) const IN_MEMORY_LIMITS: ListingLimits = ListingLimits {
    bytes: 512 << 20,
    lines: 2_000_000,
};

/// Limits of a listing whose entries are passed on as they arrive. No real directory exceeds them.
pub(super) const STREAMING_LIMITS: ListingLimits = ListingLimits {
    bytes: 64 << 30,
    lines: 100_000_000,
};
