//! transfer_log
