//! Checksums that the server computes.

use proto::checksum::ChecksumAlgorithm;
use proto::command::{Command, OptsCommand};
use proto::reply::Reply;

use super::{ClientSession, display_path, replies};
use crate::Failure;
use crate::failure::{Operation, Sentence};

/// Requests a 113 marker every 5 s, which is less than any sensible reply timeout.
const REQUEST_MARKERS: Command = Command::Opts(OptsCommand::ChecksumMarkers(5));

/// Size from which a server computes the checksum while the file moves, over a second session. For
/// smaller files it is requested afterwards on the same session, which costs one round trip and no
/// login.
pub const CONCURRENT_FROM: u64 = 1 << 20;

impl ClientSession {
    /// Requests a checksum with CKSM (GFD.47), or XCRC, XMD5, ... on plain servers. Returns
    /// lower-case hex digits of full length. Each 113 marker restarts the reply timeout.
    ///
    /// A reply without a checksum from a server that announced the algorithm is requested a second
    /// time: a command or reply damaged in transit must not look like a server that cannot compute
    /// checksums.
    ///
    /// # Errors
    /// `Protocol` when the server cannot compute this checksum, or reports success and no checksum can be read; otherwise
    /// the refusal by its class.
    pub async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, Failure> {
        self.check_path(path)?;
        let spelled = self.spell(path).await?;
        let lines = self.checksum_command_lines(algorithm, offset, length, &spelled)?;
        // Plain servers' XCRC and XMD5 send no markers, and OPTS CKSM would be an error there.
        if self.features().checksum_algorithms.contains(&algorithm) {
            self.request_checksum_markers().await?;
        }
        let [first, second] = &lines;
        let reply = self.request_checksum(first).await?;
        if let Some(checksum) = checksum_in_reply(algorithm, &reply, path) {
            return Ok(checksum);
        }
        let reply = self.request_checksum(second).await?;
        checksum_in_reply(algorithm, &reply, path)
            .ok_or_else(|| self.missing_checksum_failure(algorithm, path, &reply))
    }

    /// The checksums of ranges (offset and length), as [`ClientSession::checksum`] returns them.
    /// They are requested in one pipeline where the server supports it, else one after the other.
    ///
    /// # Errors
    /// As [`ClientSession::checksum`]; the first one.
    pub async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
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
            match checksum_in_reply(algorithm, reply, path) {
                Some(checksum) => checksums.push(checksum),
                None => return Err(self.missing_checksum_failure(algorithm, path, reply)),
            }
        }
        Ok(checksums)
    }

    /// The checksums of whole files, each as [`ClientSession::checksum`] returns it, in one pipeline where the server
    /// supports it.
    ///
    /// # Errors
    /// The session is lost.
    pub async fn file_checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        paths: &[&[u8]],
    ) -> Result<Vec<Result<String, Failure>>, Failure> {
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
            let checksum = checksum_in_reply(algorithm, &reply, path);
            checksums.push(
                checksum.ok_or_else(|| self.missing_checksum_failure(algorithm, path, &reply)),
            );
        }
        Ok(checksums)
    }

    /// The commands that [`ClientSession::checksum`] will send, for sending them ahead. Empty where
    /// the server has no CKSM.
    pub fn checksum_commands(
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

    async fn request_checksum(&mut self, line: &[u8]) -> Result<Reply, Failure> {
        self.control.send_line(line.to_vec()).await?;
        self.control.final_reply_with_markers().await
    }

    /// The command lines that request the checksum: the first one, and the one for a second attempt.
    fn checksum_command_lines(
        &self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<[Vec<u8>; 2], Failure> {
        let features = self.features();
        if features.checksum_algorithms.contains(&algorithm) {
            let line = cksm_command(algorithm, offset, length, path).encode();
            return Ok([line.clone(), line]);
        }
        // XCRC, XMD5 and the like checksum only whole files.
        let is_whole_file = offset == 0 && length.is_none();
        let verb = x_checksum_verb(algorithm)
            .filter(|_| is_whole_file && features.x_checksum_algorithms.contains(&algorithm))
            .ok_or_else(|| self.unsupported_checksum_failure(algorithm))?;
        let plain = [verb.as_bytes(), b" ", path].concat();
        // A start and an end may follow the path, so ProFTPD and others want it in quotes where it has blanks. Others
        // take the quotes for a part of the name.
        let first = match path.contains(&b' ') {
            true => [verb.as_bytes(), b" \"", path, b"\""].concat(),
            false => plain.clone(),
        };
        Ok([first, plain])
    }

    /// Asks for 113 markers once. Without them a long computation is silent and looks like a dead
    /// server.
    async fn request_checksum_markers(&mut self) -> Result<(), Failure> {
        if !self.checksum_markers_requested {
            self.control.call(&REQUEST_MARKERS).await?;
            self.checksum_markers_requested = true;
        }
        Ok(())
    }

    /// The failure for a reply without a checksum. A server that reports success does not have this checksum, whatever it
    /// announced: it is not asked again.
    fn missing_checksum_failure(
        &mut self,
        algorithm: ChecksumAlgorithm,
        path: &[u8],
        reply: &Reply,
    ) -> Failure {
        if !reply.is_success() {
            let operation = Operation::on_path(format!("compute {} of", algorithm.name()), path);
            return replies::refusal_failure(self.name(), &operation, reply);
        }
        self.planner.on_checksum_missing(algorithm);
        let reason = Sentence::from(format!(
            "{} sent no {} checksum of ",
            self.name(),
            algorithm.name()
        ))
        .name(display_path(path))
        .words(": ")
        .reply(reply);
        Failure::protocol(reason).advise("choose another algorithm (--verify)")
    }

    fn unsupported_checksum_failure(&self, algorithm: ChecksumAlgorithm) -> Failure {
        Failure::protocol(format!(
            "{} cannot compute {} of this; choose an algorithm that it supports (cksum -a, cp --verify), \
                 or use cp --verify none",
            self.name(),
            algorithm.name()
        ))
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
        ChecksumAlgorithm::Adler32
        | ChecksumAlgorithm::Crc32c
        | ChecksumAlgorithm::Crc64Nvme
        | ChecksumAlgorithm::Blake3 => None,
    }
}

/// The checksum of the file `path` in a reply.
pub fn checksum_in_reply(
    algorithm: ChecksumAlgorithm,
    reply: &Reply,
    path: &[u8],
) -> Option<String> {
    reply
        .is_success()
        .then(|| algorithm.find_in_reply(reply, path))?
}
