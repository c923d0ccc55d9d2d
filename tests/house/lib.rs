//! The rules of CONTRIBUTING.md that a program can check; they stand in `tests/rules.rs`.
