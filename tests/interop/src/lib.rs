//! Harness: starts real peers and longhaul, and compares files.
