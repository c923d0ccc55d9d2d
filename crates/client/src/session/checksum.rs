//! Checksums that the server computes.

use proto::checksum::ChecksumAlgorithm;
use proto::command::{Command, OptsCommand};
use proto::reply::Reply;

use super::{ClientSession, display_path, replies};
use crate::{CopyFailure, Exit};

/// Requests a 113 marker every 5 s, which is less than any sensible reply timeout.
const REQUEST_MARKERS: Command = Command::Opts(OptsCommand::ChecksumMarkers(5));

impl ClientSession {
    /// Requests a checksum with CKSM (GFD.47), or XCRC, XMD5, ... on plain servers. Returns
    /// lower-case hex digits of full length. Each 113 marker restarts the reply timeout.
    ///
    /// A reply without a checksum from a server that announced the algorithm is requested a second
    /// time: a command or reply damaged in transit must not look like a server that cannot compute
    /// checksums.
    ///
    /// # Errors
    /// `Protocol` when the server cannot compute this checksum, otherwise the refusal by its class;
    /// `Integrity`, transient, when it reports success and no checksum can be read.
    pub async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        self.check_path(path)?;
        let line = self.checksum_command_line(algorithm, offset, length, path)?;
        // Plain servers' XCRC and XMD5 send no markers, and OPTS CKSM would be an error there.
        if self.features().checksum_algorithms.contains(&algorithm) {
            self.request_checksum_markers().await?;
        }
        let first = self.request_checksum(&line).await?;
        if let Some(checksum) = checksum_in_reply(algorithm, &first) {
            return Ok(checksum);
        }
        let second = self.request_checksum(&line).await?;
        checksum_in_reply(algorithm, &second)
            .ok_or_else(|| self.missing_checksum_failure(algorithm, path, &second))
    }

    /// The checksums of ranges (offset and length), as [`ClientSession::checksum`] returns them.
    /// They are requested in one pipeline where the server supports it, else one after the other.
    ///
    /// # Errors
    /// As [`ClientSession::checksum`]; the first one.
    pub(crate) async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, CopyFailure> {
        let mut checksums = Vec::with_capacity(ranges.len());
        if !self.supports_pipelining() || !self.features().checksum_algorithms.contains(&algorithm)
        {
            for (offset, length) in ranges {
                let checksum = self.checksum(algorithm, *offset, Some(*length), path);
                checksums.push(checksum.await?);
            }
            return Ok(checksums);
        }
        self.check_path(path)?;
        self.request_checksum_markers().await?;
        let commands: Vec<Command> = ranges
            .iter()
            .map(|(offset, length)| cksm_command(algorithm, *offset, Some(*length), path))
            .collect();
        // All requests are sent before the first reply is read, which saves a round trip per range.
        self.control.send_pipelined(&commands).await?;
        let mut replies = Vec::with_capacity(ranges.len());
        for _ in ranges {
            // All replies are read even if one is a refusal: an unread reply would be taken for the
            // answer to the next command.
            replies.push(self.control.final_reply_with_markers().await?);
        }
        for reply in &replies {
            let checksum = checksum_in_reply(algorithm, reply);
            checksums.push(
                checksum.ok_or_else(|| self.missing_checksum_failure(algorithm, path, reply))?,
            );
        }
        Ok(checksums)
    }

    /// The checksums of whole files, each as [`ClientSession::checksum`] returns it, in one pipeline where the server
    /// supports it.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) async fn file_checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        paths: &[&[u8]],
    ) -> Result<Vec<Result<String, CopyFailure>>, CopyFailure> {
        let mut checksums = Vec::with_capacity(paths.len());
        let can_pipeline =
            self.supports_pipelining() && self.features().checksum_algorithms.contains(&algorithm);
        if !can_pipeline || paths.iter().any(|path| self.check_path(path).is_err()) {
            for path in paths {
                checksums.push(self.checksum(algorithm, 0, None, path).await);
            }
            return Ok(checksums);
        }
        self.request_checksum_markers().await?;
        let commands: Vec<Command> = paths
            .iter()
            .map(|path| cksm_command(algorithm, 0, None, path))
            .collect();
        self.control.send_pipelined(&commands).await?;
        for path in paths {
            let reply = self.control.final_reply_with_markers().await?;
            let checksum = checksum_in_reply(algorithm, &reply);
            checksums.push(
                checksum.ok_or_else(|| self.missing_checksum_failure(algorithm, path, &reply)),
            );
        }
        Ok(checksums)
    }

    /// The commands that [`ClientSession::checksum`] will send, for sending them ahead. Empty where
    /// the server has no CKSM.
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
        let checksum = cksm_command(algorithm, offset, length, path);
        markers.into_iter().chain([checksum]).collect()
    }

    async fn request_checksum(&mut self, line: &[u8]) -> Result<Reply, CopyFailure> {
        self.control.send_line(line.to_vec()).await?;
        self.control.final_reply_with_markers().await
    }

    /// The command line that requests the checksum.
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
        // XCRC, XMD5 and the like checksum only whole files.
        let is_whole_file = offset == 0 && length.is_none();
        let verb = x_checksum_verb(algorithm)
            .filter(|_| is_whole_file && features.x_checksum_algorithms.contains(&algorithm))
            .ok_or_else(|| self.unsupported_checksum_failure(algorithm))?;
        Ok([verb.as_bytes(), b" ", path].concat())
    }

    /// Asks for 113 markers once. Without them a long computation is silent and looks like a dead
    /// server.
    async fn request_checksum_markers(&mut self) -> Result<(), CopyFailure> {
        if !self.checksum_markers_requested {
            self.control.call(&REQUEST_MARKERS).await?;
            self.checksum_markers_requested = true;
        }
        Ok(())
    }

    /// The failure for a reply without a checksum.
    fn missing_checksum_failure(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &[u8],
        reply: &Reply,
    ) -> CopyFailure {
        if !reply.is_success() {
            let operation = format!("compute {} of {}", algorithm.name(), display_path(path));
            return replies::refusal_failure(self.name(), &operation, reply);
        }
        CopyFailure::transient(
            Exit::Integrity,
            format!(
                "{} sent no {} checksum of {}: {}; use --verify none or another algorithm",
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
                "{} cannot compute {} of this; choose an algorithm that it supports (cksum -a, cp --verify), \
                 or use cp --verify none",
                self.name(),
                algorithm.name()
            ),
            transient: false,
            no_room: false,
            away: false,
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

/// The command of plain servers for the checksum of a whole file.
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

/// The checksum in a reply.
pub(crate) fn checksum_in_reply(algorithm: ChecksumAlgorithm, reply: &Reply) -> Option<String> {
    reply
        .is_success()
        .then(|| find_checksum_hex(algorithm, &reply.text()))?
}

/// The checksum in a reply's text: the first word that is hex of the right length. Some servers
/// drop leading zeros of 32-bit checksums.
fn find_checksum_hex(algorithm: ChecksumAlgorithm, text: &str) -> Option<String> {
    let full_length = algorithm.hex_len();
    let is_checksum = |word: &&str| {
        // Only 32-bit checksums are shortened; a short word would match too much text otherwise.
        let right_length =
            word.len() == full_length || (full_length == 8 && (1..8).contains(&word.len()));
        right_length && word.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let word = text
        .split(|c: char| c.is_whitespace() || c == '"')
        .find(is_checksum)?;
    Some(format!("{:0>full_length$}", word.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_padded_and_lower_case() {
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
