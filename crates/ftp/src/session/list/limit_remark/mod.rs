//! Words by which servers say that a listing lacks entries, although its reply is one of success.

use proto::echo::replace_path;
use proto::reply::Reply;

use crate::session::replies::{Meaning, means};

/// The line of a reply to the listing of `path` that says so, with its code.
pub(super) fn limit_remark(reply: &Reply, path: &[u8]) -> Option<Vec<u8>> {
    let says_so = |line: &&Vec<u8>| {
        // A reply may repeat the path, which may hold any word.
        let text = replace_path(&line.to_ascii_lowercase(), &path.to_ascii_lowercase(), b"");
        means(&String::from_utf8_lossy(&text), Meaning::IncompleteListing)
    };
    let line = reply.lines.iter().find(says_so)?;
    Some([format!("{} ", reply.code).as_bytes(), line.trim_ascii()].concat())
}

#[cfg(test)]
mod tests;
