//! Tokens of a security exchange in replies: `ADAT=` and base64 (RFC 2228 §5).

use super::Reply;
use crate::security::{SecurityToken, TokenError};

/// Text before a token.
const LABEL: &str = "ADAT=";

impl Reply {
    /// A reply whose text is a token: 335 and 235.
    pub fn with_token(code: u16, token: &SecurityToken) -> Self {
        Self::new(code, format!("{LABEL}{}", token.encode()))
    }

    /// Finds the token in the reply, if any.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn token(&self) -> Result<Option<SecurityToken>, TokenError> {
        let label = LABEL.as_bytes();
        let found = self.lines.iter().find_map(|line| {
            let at = line.windows(label.len()).position(|w| w == label)?;
            line.get(at + label.len()..)
        });
        let Some(text) = found else { return Ok(None) };
        let end = text.iter().position(u8::is_ascii_whitespace);
        SecurityToken::decode(&text[..end.unwrap_or(text.len())]).map(Some)
    }
}

/// The text of a reply, with everything after `ADAT=` replaced by `...`.
pub(super) fn without_token(text: &str) -> String {
    match text.find(LABEL) {
        Some(at) => format!("{}...", &text[..at + LABEL.len()]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_in_a_reply_is_found() {
        let of = |text: &str| Reply::new(335, text).token();
        let token = SecurityToken::new(b"foo".to_vec()).unwrap();
        let reply = Reply::with_token(235, &token);
        assert_eq!(reply, Reply::new(235, "ADAT=Zm9v"));
        assert_eq!(reply.token(), Ok(Some(token.clone())));
        assert_eq!(of("[ADAT=] ADAT="), Err(TokenError::Malformed));
        assert_eq!(of("Go on: ADAT=Zm9v and so on"), Ok(Some(token)));
        assert_eq!(of("ADAT must follow"), Ok(None));
        assert_eq!(of("ADAT=Zm"), Err(TokenError::Malformed));
    }

    #[test]
    fn logs_hide_the_token() {
        assert_eq!(without_token("a ADAT=Zm9v b"), "a ADAT=...");
    }
}
