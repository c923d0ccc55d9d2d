//! Parsing of header fields and bodies of HTTP and WebDAV servers (RFC 9110, RFC 9530, RFC 4918).

pub mod content_range;
pub mod copy_report;
pub mod date;
pub mod digest;
pub mod multistatus;
pub mod url;
