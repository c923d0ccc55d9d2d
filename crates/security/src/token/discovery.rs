//! Where a client finds its token (WLCG Bearer Token Discovery).

use zeroize::Zeroizing;

/// The reason why a token that was named cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenDiscoveryError(pub String);

/// Looks in BEARER_TOKEN, the file of BEARER_TOKEN_FILE, `$XDG_RUNTIME_DIR/bt_u$ID`, `/tmp/bt_u$ID`,
/// in this order. `None`: none is there.
///
/// # Errors
/// A place that is set has no valid token, or others may read its file.
pub fn discover_token() -> Result<Option<Zeroizing<String>>, TokenDiscoveryError> {
    todo!()
}
