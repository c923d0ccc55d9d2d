//! Checksums that the server computes.

use proto::checksum::ChecksumAlgorithm;
use proto::command::{Command, OptsCommand};
use proto::reply::Reply;

use super::{ClientSession, display_path, replies};
use crate::{CopyFailure, Exit};

/// Asks for 113 markers, more often than any sensible time-out.
const REQUEST_MARKERS: Command = Command::Opts(OptsCommand::ChecksumMarkers(5));

impl ClientSession {
    /// CKSM (GFD.47), or XCRC/XMD5/... on plain servers, as lower-case hex of full length. The
    /// time-out counts from the last 113 marker.
    ///
    /// A server that announced the sum and then answers without one is asked a second time: a
    /// command or reply that was damaged on the way must not pass for a server that cannot sum.
    ///
    /// # Errors
    /// `Protocol` when the server cannot compute the sum, otherwise the refusal by its class;
    /// `Integrity`, transient, when it says it did and no sum can be read.
    pub async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        self.check_path(path)?;
        let line = self.checksum_command_line(algorithm, offset, length, path)?;
        if self.features().checksum_algorithms.contains(&algorithm) {
            self.request_checksum_markers().await?;
        }
        let first = self.request_checksum(&line).await?;
        if let Some(sum) = checksum_in_reply(algorithm, &first) {
            return Ok(sum);
        }
        let second = self.request_checksum(&line).await?;
        checksum_in_reply(algorithm, &second)
            .ok_or_else(|| self.missing_checksum_failure(algorithm, path, &second))
    }

    /// The sums of ranges (offset and length), as [`ClientSession::checksum`] has them: asked for in one
    /// flight where the server takes commands ahead, else one after the other.
    ///
    /// # Errors
    /// As [`ClientSession::checksum`]; the first one.
    pub(crate) async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, CopyFailure> {
        let mut sums = Vec::with_capacity(ranges.len());
        if !self.supports_pipelining() || !self.features().checksum_algorithms.contains(&algorithm)
        {
            for (offset, length) in ranges {
                let sum = self.checksum(algorithm, *offset, Some(*length), path);
                sums.push(sum.await?);
            }
            return Ok(sums);
        }
        self.check_path(path)?;
        self.request_checksum_markers().await?;
        let questions: Vec<Command> = ranges
            .iter()
            .map(|(offset, length)| cksm_command(algorithm, *offset, Some(*length), path))
            .collect();
        self.control.send_pipelined(&questions).await?;
        let mut replies = Vec::with_capacity(ranges.len());
        for _ in ranges {
            replies.push(self.control.final_reply_with_markers().await?);
        }
        for reply in &replies {
            let sum = checksum_in_reply(algorithm, reply);
            sums.push(sum.ok_or_else(|| self.missing_checksum_failure(algorithm, path, reply))?);
        }
        Ok(sums)
    }

    /// Questions that [`ClientSession::checksum`] will ask, to be asked ahead; none where the server has no CKSM.
    pub(crate) fn checksum_commands(
        &self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Vec<Command> {
        if !self.features().checksum_algorithms.contains(&algorithm) {
            return Vec::new();
        }
        let markers = (!self.checksum_markers_requested).then_some(REQUEST_MARKERS);
        let sum = cksm_command(algorithm, offset, length, path);
        markers.into_iter().chain([sum]).collect()
    }

    async fn request_checksum(&mut self, line: &[u8]) -> Result<Reply, CopyFailure> {
        self.control.send_line(line.to_vec()).await?;
        self.control.final_reply_with_markers().await
    }

    /// The command line that asks for the sum.
    fn checksum_command_line(
        &self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<Vec<u8>, CopyFailure> {
        let features = self.features();
        if features.checksum_algorithms.contains(&algorithm) {
            return Ok(cksm_command(algorithm, offset, length, path).encode());
        }
        let whole = offset == 0 && length.is_none();
        let verb = x_checksum_verb(algorithm)
            .filter(|_| whole && features.x_checksum_algorithms.contains(&algorithm))
            .ok_or_else(|| self.unsupported_checksum_failure(algorithm))?;
        Ok([verb.as_bytes(), b" ", path].concat())
    }

    /// Without markers a long sum is silent and indistinguishable from a dead server.
    async fn request_checksum_markers(&mut self) -> Result<(), CopyFailure> {
        if !self.checksum_markers_requested {
            self.control.call(&REQUEST_MARKERS).await?;
            self.checksum_markers_requested = true;
        }
        Ok(())
    }

    /// Why there is none.
    fn missing_checksum_failure(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &[u8],
        reply: &Reply,
    ) -> CopyFailure {
        if !reply.is_success() {
            let doing = format!("compute {} of {}", algorithm.name(), display_path(path));
            return replies::refusal_failure(self.name(), &doing, reply);
        }
        CopyFailure::transient(
            Exit::Integrity,
            format!(
                "{} answered no {} sum for {}: {}; use --verify none or another algorithm",
                self.name(),
                algorithm.name(),
                display_path(path),
                replies::display_reply(reply)
            ),
        )
    }

    fn unsupported_checksum_failure(&self, algorithm: ChecksumAlgorithm) -> CopyFailure {
        CopyFailure {
            exit: Exit::Protocol,
            message: format!(
                "{} cannot compute {} of this; name an algorithm that it has (cksum -a, cp --verify), \
                 or use cp --verify none",
                self.name(),
                algorithm.name()
            ),
            transient: false,
        }
    }
}

fn cksm_command(
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    path: &[u8],
) -> Command {
    Command::Cksm {
        algorithm,
        offset,
        length,
        path: path.to_vec(),
    }
}

/// The verb of plain servers that sums a whole file.
fn x_checksum_verb(algorithm: ChecksumAlgorithm) -> Option<&'static str> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some("XCRC"),
        ChecksumAlgorithm::Md5 => Some("XMD5"),
        ChecksumAlgorithm::Sha1 => Some("XSHA1"),
        ChecksumAlgorithm::Sha256 => Some("XSHA256"),
        ChecksumAlgorithm::Sha512 => Some("XSHA512"),
        ChecksumAlgorithm::Adler32 | ChecksumAlgorithm::Crc32c | ChecksumAlgorithm::Blake3 => None,
    }
}

/// The sum that a reply carries.
fn checksum_in_reply(algorithm: ChecksumAlgorithm, reply: &Reply) -> Option<String> {
    reply
        .is_success()
        .then(|| find_checksum_hex(algorithm, &reply.text()))?
}

/// The sum in a reply's text: the first word that is hex of the right length. Sums of 32 bits come
/// without their leading zeros from some servers.
fn find_checksum_hex(algorithm: ChecksumAlgorithm, text: &str) -> Option<String> {
    let full = algorithm.hex_len();
    let fits = |word: &&str| {
        let right_length = word.len() == full || (full == 8 && (1..8).contains(&word.len()));
        right_length && word.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let word = text
        .split(|c: char| c.is_whitespace() || c == '"')
        .find(fits)?;
    Some(format!("{:0>full$}", word.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_normalised() {
        let hex = |a, t| find_checksum_hex(a, t);
        assert_eq!(
            hex(ChecksumAlgorithm::Adler32, "1a0b"),
            Some("00001a0b".into())
        );
        assert_eq!(
            hex(ChecksumAlgorithm::Crc32, "XCRC DEADBEEF"),
            Some("deadbeef".into())
        );
        assert_eq!(
            hex(
                ChecksumAlgorithm::Md5,
                "\"/a b\" D41D8CD98F00B204E9800998ECF8427E"
            ),
            Some("d41d8cd98f00b204e9800998ecf8427e".into())
        );
        assert_eq!(hex(ChecksumAlgorithm::Md5, "deadbeef"), None);
        assert_eq!(hex(ChecksumAlgorithm::Sha1, ""), None);
    }
}
