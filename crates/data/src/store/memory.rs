//! Bytes in memory: listings to send and to receive, and tests.
