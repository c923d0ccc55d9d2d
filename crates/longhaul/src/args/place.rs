//! Paths and URLs on the command line. They may have bytes that are not UTF-8, as names of files may.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use ftp::location::Location;

/// Parser of a path or URL: the text that the client reads.
pub(super) fn place() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|argument: OsString| Location::argument(&argument))
}
