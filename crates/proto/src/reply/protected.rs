//! Replies inside 631, 632 and 633 (RFC 2228 §5), after an exchange with tokens.
//!
//! Each line of a reply, with its ending, is protected alone: `632-base64` for all but the last line, and
//! `632 base64` for that one. Some servers put a whole multi-line reply into one token.

use super::Reply;
use crate::security::{MAX_TOKEN_LINE, SecurityToken, encode_base64};

/// Code of a reply with integrity and confidentiality. Peers send it always, since TLS gives both.
const PRIVATE: &str = "632";

/// Error in the protected replies of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectedReplyError<E> {
    /// A reply came in the clear; an attacker on the path may have injected it.
    #[error("the server sent a reply without protection")]
    Clear,
    /// A line is longer than [`MAX_TOKEN_LINE`].
    #[error("protected reply line longer than {MAX_TOKEN_LINE} bytes")]
    LineTooLong,
    /// The token is not base64, or too long.
    #[error("the protected reply is not base64")]
    Malformed,
    /// The mechanism refuses the token.
    #[error("the protection of the reply is not valid: {0}")]
    Invalid(E),
}

/// Removes the protection of replies. It takes the bytes of the connection, split anywhere, and returns
/// those that a [`super::ReplyReader`] reads.
///
/// After an error the connection must be closed. A clear 421 is passed on, since a server that ends the
/// session may be unable to protect its last words; nothing is accepted behind it.
#[derive(Debug, Default)]
pub struct ProtectedReplyReader {
    /// Line without its end yet.
    buffer: Vec<u8>,
    /// A clear 421 has arrived.
    closing: bool,
}

impl ProtectedReplyReader {
    /// Takes bytes from the connection and appends the plain bytes to `plain`. `unwrap` gets every token
    /// once and in order.
    ///
    /// # Errors
    /// See [`ProtectedReplyError`].
    pub fn feed<E>(
        &mut self,
        bytes: &[u8],
        mut unwrap: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
        plain: &mut Vec<u8>,
    ) -> Result<(), ProtectedReplyError<E>> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            // The check comes before the copy, so that memory stays bounded.
            if self.buffer.len() + piece.len() > MAX_TOKEN_LINE + b"\r\n".len() {
                return Err(ProtectedReplyError::LineTooLong);
            }
            self.buffer.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.buffer);
                self.take_line(line.trim_ascii_end(), &mut unwrap, plain)?;
            }
        }
        Ok(())
    }

    /// Whether bytes of an incomplete line are buffered.
    pub fn has_partial_line(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn take_line<E>(
        &mut self,
        line: &[u8],
        unwrap: &mut impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
        plain: &mut Vec<u8>,
    ) -> Result<(), ProtectedReplyError<E>> {
        if self.closing {
            return Err(ProtectedReplyError::Clear);
        }
        let Some(text) = protected_text(line) else {
            // Only one line: what follows a `421-` cannot be told from injected text.
            if !line.starts_with(b"421 ") {
                return Err(ProtectedReplyError::Clear);
            }
            self.closing = true;
            plain.extend_from_slice(line);
            plain.extend_from_slice(b"\r\n");
            return Ok(());
        };
        let token = SecurityToken::decode(text).map_err(|_| ProtectedReplyError::Malformed)?;
        let text = unwrap(token.as_bytes()).map_err(ProtectedReplyError::Invalid)?;
        // The globus server ends the text with NUL sometimes.
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        plain.extend_from_slice(text);
        if !text.ends_with(b"\n") {
            plain.extend_from_slice(b"\r\n");
        }
        Ok(())
    }
}

/// The base64 text of `631 text`, `632-text` and so on; `None` for a line without protection.
fn protected_text(line: &[u8]) -> Option<&[u8]> {
    match line {
        [b'6', b'3', b'1'..=b'3', b' ' | b'-', text @ ..] => Some(text),
        _ => None,
    }
}

impl Reply {
    /// Encodes the reply, each line protected alone. `protect` gets the lines in order, with their
    /// endings.
    ///
    /// # Errors
    /// Those of `protect`.
    pub fn encode_protected<E>(
        &self,
        mut protect: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let mut plain = Vec::new();
        self.encode(&mut plain);
        let mut out = Vec::new();
        let mut lines = plain.split_inclusive(|b| *b == b'\n').peekable();
        while let Some(line) = lines.next() {
            let token = encode_base64(&protect(line)?);
            let separator = if lines.peek().is_some() { '-' } else { ' ' };
            out.extend_from_slice(format!("{PRIVATE}{separator}{token}\r\n").as_bytes());
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReplyReader;
    use super::*;

    /// The fake mechanism puts the number of the message before it, so that order and repetition show.
    fn protect(count: &mut u8) -> impl FnMut(&[u8]) -> Result<Vec<u8>, ()> {
        move |plain| {
            *count += 1;
            Ok([&[*count], plain].concat())
        }
    }

    fn unwrap(count: &mut u8) -> impl FnMut(&[u8]) -> Result<Vec<u8>, ()> {
        move |token| {
            *count += 1;
            token.strip_prefix(&[*count]).map(<[u8]>::to_vec).ok_or(())
        }
    }

    fn feed(
        wire: &[u8],
        unwrap: impl FnMut(&[u8]) -> Result<Vec<u8>, ()>,
    ) -> Result<Vec<Reply>, ProtectedReplyError<()>> {
        let mut plain = Vec::new();
        ProtectedReplyReader::default().feed(wire, unwrap, &mut plain)?;
        let mut replies = Vec::new();
        ReplyReader::new().feed(&plain, &mut replies).unwrap();
        Ok(replies)
    }

    /// The wire line of a plain text without protection of the fake mechanism.
    fn token(code: &str, plain: &str) -> Vec<u8> {
        format!("{code}{}\r\n", encode_base64(plain.as_bytes())).into_bytes()
    }

    fn as_is(token: &[u8]) -> Result<Vec<u8>, ()> {
        Ok(token.to_vec())
    }

    #[test]
    fn each_line_of_a_reply_is_protected_alone() {
        let feat = Reply::with_inner_lines(211, "Features", vec![b"SIZE".to_vec()], "End.");
        let wire = feat.encode_protected(protect(&mut 0)).unwrap();
        let text = String::from_utf8(wire.clone()).unwrap();
        let starts: Vec<&str> = text.lines().map(|line| &line[..4]).collect();
        assert_eq!(starts, ["632-", "632-", "632 "]);
        assert_eq!(feed(&wire, unwrap(&mut 0)), Ok(vec![feat.clone()]));
        assert_eq!(feat.encode_protected(|_| Err(5)), Err(5));
        // Split anywhere.
        for cut in 0..wire.len() {
            let (mut reader, mut plain, mut count) =
                (ProtectedReplyReader::default(), Vec::new(), 0);
            for part in [&wire[..cut], &wire[cut..]] {
                reader.feed(part, unwrap(&mut count), &mut plain).unwrap();
            }
            assert!(!reader.has_partial_line());
            let mut replies = Vec::new();
            ReplyReader::new().feed(&plain, &mut replies).unwrap();
            assert_eq!(replies, std::slice::from_ref(&feat));
        }
    }

    #[test]
    fn all_forms_of_peers_are_read() {
        let done = Reply::new(226, "Done.");
        for (code, plain) in [
            ("631 ", "226 Done.\r\n"),
            ("632 ", "226 Done.\r\n\0"),
            ("633 ", "226 Done."),
            ("632-", "226 Done.\0"),
        ] {
            let read = feed(&token(code, plain), as_is);
            assert_eq!(read, Ok(vec![done.clone()]), "{code}{plain:?}");
        }
        let whole = token("632 ", "211-Features\r\n SIZE\r\n211 End.\r\n");
        assert_eq!(feed(&whole, as_is).unwrap()[0].lines.len(), 3);
    }

    #[test]
    fn a_reply_in_the_clear_is_an_error() {
        let protected = token("632 ", "200 ok\r\n");
        for line in [
            &b"226 Done.\r\n"[..],
            b"\r\n",
            b"421-Bye\r\n",
            b"634 AAAA\r\n",
            b"632AAAA\r\n",
        ] {
            let read = feed(&[&protected, line].concat(), as_is);
            assert_eq!(read, Err(ProtectedReplyError::Clear), "{line:?}");
        }
        let bye = b"421 Shutting down.\r\n";
        assert_eq!(
            feed(bye, as_is),
            Ok(vec![Reply::new(421, "Shutting down.")])
        );
        let behind = feed(&[&bye[..], &protected].concat(), as_is);
        assert_eq!(behind, Err(ProtectedReplyError::Clear));
    }

    #[test]
    fn invalid_tokens_are_errors() {
        assert_eq!(
            feed(b"632 !!!!\r\n", as_is),
            Err(ProtectedReplyError::Malformed)
        );
        assert_eq!(
            feed(b"632 AAAA\r\n", |_| Err(())),
            Err(ProtectedReplyError::Invalid(()))
        );
        let long = vec![b'6'; MAX_TOKEN_LINE + 3];
        assert_eq!(feed(&long, as_is), Err(ProtectedReplyError::LineTooLong));
        // A repeated token is out of sequence.
        let wire = Reply::new(200, "ok")
            .encode_protected(protect(&mut 0))
            .unwrap();
        let repeated = feed(&wire.repeat(2), unwrap(&mut 0));
        assert_eq!(repeated, Err(ProtectedReplyError::Invalid(())));
    }
}
