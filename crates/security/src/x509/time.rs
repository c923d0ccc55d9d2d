//! Times of certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use openssl::x509::X509Ref;

/// A certificate's time; `None` before 1970 or if it is no time.
pub(super) fn system_time(time: &Asn1TimeRef) -> Option<SystemTime> {
    let since = Asn1Time::from_unix(0).ok()?.diff(time).ok()?;
    let seconds = i64::from(since.days) * 86_400 + i64::from(since.secs);
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// The time for a certificate; times before 1970 are 1970.
pub(super) fn certificate_time(time: SystemTime) -> Result<Asn1Time, ErrorStack> {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    Asn1Time::from_unix(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// End of validity; 1970 (always expired) if it cannot be read.
pub(super) fn end(certificate: &X509Ref) -> SystemTime {
    system_time(certificate.not_after()).unwrap_or(UNIX_EPOCH)
}

/// Checks that a certificate is valid at `now`.
///
/// # Errors
/// The problem with the time at fault.
pub(super) fn check_validity(certificate: &X509Ref, now: SystemTime) -> Result<(), String> {
    // A start before 1970 has passed.
    let start = system_time(certificate.not_before()).unwrap_or(UNIX_EPOCH);
    if now < start {
        return Err(format!("not valid before {}", certificate.not_before()));
    }
    if now > end(certificate) {
        return Err(format!("expired on {}", certificate.not_after()));
    }
    Ok(())
}
