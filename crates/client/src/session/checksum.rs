//! Checksums that the server computes.

use proto::checksum::Algorithm;
use proto::command::{Command, Opts};
use proto::reply::Reply;

use super::{Session, replies, shown};
use crate::{Exit, Failure};

/// Asks for 113 markers, more often than any sensible time-out.
const MARKERS: Command = Command::Opts(Opts::ChecksumMarkers(5));

impl Session {
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
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, Failure> {
        self.check_path(path)?;
        let line = self.question(algorithm, offset, length, path)?;
        if self.features().checksums.contains(&algorithm) {
            self.ask_for_markers().await?;
        }
        let first = self.ask(&line).await?;
        if let Some(sum) = sum_in(algorithm, &first) {
            return Ok(sum);
        }
        let second = self.ask(&line).await?;
        sum_in(algorithm, &second).ok_or_else(|| self.no_sum(algorithm, path, &second))
    }

    /// The sums of ranges (offset and length), as [`Session::checksum`] has them: asked for in one
    /// flight where the server takes commands ahead, else one after the other.
    ///
    /// # Errors
    /// As [`Session::checksum`]; the first one.
    pub(crate) async fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let mut sums = Vec::with_capacity(ranges.len());
        if !self.takes_ahead() || !self.features().checksums.contains(&algorithm) {
            for (offset, length) in ranges {
                let sum = self.checksum(algorithm, *offset, Some(*length), path);
                sums.push(sum.await?);
            }
            return Ok(sums);
        }
        self.check_path(path)?;
        self.ask_for_markers().await?;
        let questions: Vec<Command> = ranges
            .iter()
            .map(|(offset, length)| cksm(algorithm, *offset, Some(*length), path))
            .collect();
        self.control.send_all(&questions).await?;
        let mut replies = Vec::with_capacity(ranges.len());
        for _ in ranges {
            replies.push(self.control.final_reply_of_long_work().await?);
        }
        for reply in &replies {
            let sum = sum_in(algorithm, reply);
            sums.push(sum.ok_or_else(|| self.no_sum(algorithm, path, reply))?);
        }
        Ok(sums)
    }

    /// Questions that [`Session::checksum`] will ask, to be asked ahead; none where the server has no CKSM.
    pub(crate) fn checksum_questions(
        &self,
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Vec<Command> {
        if !self.features().checksums.contains(&algorithm) {
            return Vec::new();
        }
        let markers = (!self.checksum_markers).then_some(MARKERS);
        let sum = cksm(algorithm, offset, length, path);
        markers.into_iter().chain([sum]).collect()
    }

    async fn ask(&mut self, line: &[u8]) -> Result<Reply, Failure> {
        self.control.send_line(line.to_vec()).await?;
        self.control.final_reply_of_long_work().await
    }

    /// The command line that asks for the sum.
    fn question(
        &self,
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let features = self.features();
        if features.checksums.contains(&algorithm) {
            return Ok(cksm(algorithm, offset, length, path).encode());
        }
        let whole = offset == 0 && length.is_none();
        let verb = x_verb(algorithm)
            .filter(|_| whole && features.x_checksums.contains(&algorithm))
            .ok_or_else(|| self.cannot_sum(algorithm))?;
        Ok([verb.as_bytes(), b" ", path].concat())
    }

    /// Without markers a long sum is silent and indistinguishable from a dead server.
    async fn ask_for_markers(&mut self) -> Result<(), Failure> {
        if !self.checksum_markers {
            self.control.call(&MARKERS).await?;
            self.checksum_markers = true;
        }
        Ok(())
    }

    /// Why there is none.
    fn no_sum(&self, algorithm: Algorithm, path: &[u8], reply: &Reply) -> Failure {
        if !reply.is_success() {
            let doing = format!("compute {} of {}", algorithm.name(), shown(path));
            return replies::refusal(self.name(), &doing, reply);
        }
        Failure::transient(
            Exit::Integrity,
            format!(
                "{} answered no {} sum for {}: {}; use --verify none or another algorithm",
                self.name(),
                algorithm.name(),
                shown(path),
                replies::shown(reply)
            ),
        )
    }

    fn cannot_sum(&self, algorithm: Algorithm) -> Failure {
        Failure {
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

fn cksm(algorithm: Algorithm, offset: u64, length: Option<u64>, path: &[u8]) -> Command {
    Command::Cksm {
        algorithm,
        offset,
        length,
        path: path.to_vec(),
    }
}

/// The verb of plain servers that sums a whole file.
fn x_verb(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::Crc32 => Some("XCRC"),
        Algorithm::Md5 => Some("XMD5"),
        Algorithm::Sha1 => Some("XSHA1"),
        Algorithm::Sha256 => Some("XSHA256"),
        Algorithm::Sha512 => Some("XSHA512"),
        Algorithm::Adler32 | Algorithm::Crc32c | Algorithm::Blake3 => None,
    }
}

/// The sum that a reply carries.
fn sum_in(algorithm: Algorithm, reply: &Reply) -> Option<String> {
    reply
        .is_success()
        .then(|| find_hex(algorithm, &reply.text()))?
}

/// The sum in a reply's text: the first word that is hex of the right length. Sums of 32 bits come
/// without their leading zeros from some servers.
fn find_hex(algorithm: Algorithm, text: &str) -> Option<String> {
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
        let hex = |a, t| find_hex(a, t);
        assert_eq!(hex(Algorithm::Adler32, "1a0b"), Some("00001a0b".into()));
        assert_eq!(
            hex(Algorithm::Crc32, "XCRC DEADBEEF"),
            Some("deadbeef".into())
        );
        assert_eq!(
            hex(Algorithm::Md5, "\"/a b\" D41D8CD98F00B204E9800998ECF8427E"),
            Some("d41d8cd98f00b204e9800998ecf8427e".into())
        );
        assert_eq!(hex(Algorithm::Md5, "deadbeef"), None);
        assert_eq!(hex(Algorithm::Sha1, ""), None);
    }
}
