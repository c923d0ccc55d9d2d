//! Input and output of the running service besides questions: logs of data servers, and notices of
//! anomalies.

pub mod logs;
pub mod notices;
