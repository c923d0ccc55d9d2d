//! Entrances to private parsers, for the fuzz targets alone.

use crate::x509::{self, DistinguishedName};

/// Whether a signing policy lets an authority sign a subject.
///
/// # Errors
/// Line number and problem of the policy.
pub fn may_sign(policy: &str, authority: &str, subject: &str) -> Result<bool, String> {
    let name = |text: &str| DistinguishedName::from_text(text);
    x509::may_sign(policy, &name(authority), &name(subject))
}
