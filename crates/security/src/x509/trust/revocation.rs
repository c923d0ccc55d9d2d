//! Revocation lists (RFC 5280 §5): `HASH.r0` next to an authority, or in the same PEM file.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::error::ErrorStack;
use openssl::x509::{CrlStatus, X509, X509Crl, X509KeyUsage, X509Ref};
use parking_lot::Mutex;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::x509::name::is_same;
use crate::x509::time::system_time;
use crate::x509::{DistinguishedName, TrustError};

/// Frame of a list in a PEM file (RFC 7468 §6).
const PEM_BEGIN: &[u8] = b"-----BEGIN X509 CRL-----";
const PEM_END: &[u8] = b"-----END X509 CRL-----";

/// Most results of signature checks that a list keeps: of authorities of one name.
const MAX_KEYS: usize = 16;

/// A revocation list.
pub(super) struct RevocationList {
    list: X509Crl,
    /// The reason why the list cannot be used, although it can be read.
    unusable: Option<String>,
    /// Keys, DER, and whether they have signed the list: it takes long for a large one.
    keys: Mutex<Vec<(Vec<u8>, bool)>>,
}

impl std::fmt::Debug for RevocationList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RevocationList")
    }
}

impl RevocationList {
    /// The time of the next list, which ends this one's validity.
    pub(super) fn next_update(&self) -> Option<SystemTime> {
        self.list.next_update().and_then(system_time)
    }

    /// The reason why the list cannot be used.
    pub(super) fn problem(&self) -> Option<&str> {
        self.unusable.as_deref()
    }

    /// The content of a file: one list in DER, or any number in PEM.
    pub(super) fn of_der_or_pem(content: &[u8]) -> Result<Vec<Self>, ErrorStack> {
        let lists = Self::of_pem(content)?;
        if lists.is_empty() {
            return Ok(vec![Self::new(X509Crl::from_der(content)?)?]);
        }
        Ok(lists)
    }

    /// The lists of a PEM text, which may have other blocks, too.
    ///
    /// # Errors
    /// OpenSSL cannot read a list, or its end is missing.
    pub(super) fn of_pem(text: &[u8]) -> Result<Vec<Self>, ErrorStack> {
        let mut lists = Vec::new();
        let mut rest = text;
        while let Some(start) = start_of_line(rest, PEM_BEGIN) {
            let block = &rest[start..];
            let end = start_of_line(block, PEM_END).map_or(block.len(), |end| end + PEM_END.len());
            lists.push(Self::new(X509Crl::from_pem(&block[..end])?)?);
            rest = &block[end..];
        }
        Ok(lists)
    }

    fn new(list: X509Crl) -> Result<Self, ErrorStack> {
        Ok(Self {
            unusable: unsupported(&list.to_der()?),
            list,
            keys: Mutex::default(),
        })
    }

    /// Whether the list is that of an authority of this name.
    pub(super) fn is_of(&self, authority: &X509Ref) -> bool {
        is_same(self.list.issuer_name(), authority.subject_name())
    }

    /// Whether the key of this authority has signed the list.
    fn is_signed_by(&self, authority: &X509Ref) -> bool {
        let check = || -> Result<bool, ErrorStack> {
            let key = authority.public_key()?;
            let der = key.public_key_to_der()?;
            let mut keys = self.keys.lock();
            if let Some((_, is_signed)) = keys.iter().find(|(known, _)| *known == der) {
                return Ok(*is_signed);
            }
            let is_signed = self.list.verify(&key)?;
            if keys.len() < MAX_KEYS {
                keys.push((der, is_signed));
            }
            Ok(is_signed)
        };
        check().unwrap_or(false)
    }
}

/// The place of a line that begins with these bytes.
fn start_of_line(text: &[u8], line: &[u8]) -> Option<usize> {
    text.windows(line.len())
        .enumerate()
        .filter(|(_, window)| *window == line)
        .map(|(place, _)| place)
        .find(|&place| place == 0 || text[place - 1] == b'\n')
}

/// The feature of a list that is not supported: critical extensions, except a distribution point
/// that covers all certificates of the authority (RFC 5280 §5.2.5).
fn unsupported(der: &[u8]) -> Option<String> {
    let Ok((_, list)) = CertificateRevocationList::from_der(der) else {
        return Some("cannot be read".to_owned());
    };
    list.extensions()
        .iter()
        .filter(|extension| extension.critical)
        .find(|extension| match extension.parsed_extension() {
            ParsedExtension::IssuingDistributionPoint(point) => {
                point.only_contains_user_certs
                    || point.only_contains_ca_certs
                    || point.only_contains_attribute_certs
                    || point.indirect_crl
                    || point.only_some_reasons.is_some()
            }
            _ => true,
        })
        .map(|extension| {
            format!(
                "has the critical extension {}, which is not supported",
                extension.oid.to_id_string()
            )
        })
}

/// Checks that `certificate`, which `issuer` has signed, is in none of the lists with the issuer's name,
/// which come with their places. An authority without a list revokes nothing.
pub(super) fn check(
    lists: &[(String, Arc<RevocationList>)],
    certificate: &X509,
    issuer: &X509,
    now: SystemTime,
) -> Result<(), TrustError> {
    let refused = |problem: String| TrustError::Chain {
        subject: DistinguishedName::of_subject(certificate),
        problem,
    };
    let Some((first, _)) = lists.first() else {
        return Ok(());
    };
    // Another authority of the same name, with another key, has lists under the same hash.
    let mut own = lists
        .iter()
        .filter(|(_, list)| list.is_signed_by(issuer))
        .peekable();
    if own.peek().is_none() {
        return Err(refused(format!(
            "the revocation list {} is not signed by {}",
            first,
            DistinguishedName::of_subject(issuer)
        )));
    }
    if issuer
        .key_usage()
        .is_some_and(|usage| !usage.contains(X509KeyUsage::CRL_SIGN))
    {
        return Err(refused(format!(
            "{} has the revocation list {}, but may not sign any (key usage without cRLSign)",
            DistinguishedName::of_subject(issuer),
            first
        )));
    }
    for (path, list) in own {
        check_list(list, certificate, now).map_err(|problem| {
            refused(match problem {
                ListProblem::List(problem) => {
                    format!("the revocation list {} {problem}", path)
                }
                ListProblem::Certificate(problem) => format!("{problem} ({})", path),
            })
        })?;
    }
    Ok(())
}

/// The reason why a list refuses a certificate.
enum ListProblem {
    /// The list is at fault.
    List(String),
    /// The certificate is.
    Certificate(String),
}

fn check_list(
    list: &RevocationList,
    certificate: &X509,
    now: SystemTime,
) -> Result<(), ListProblem> {
    if let Some(problem) = &list.unusable {
        return Err(ListProblem::List(problem.clone()));
    }
    let list = &list.list;
    let this_update = system_time(list.last_update()).unwrap_or(UNIX_EPOCH);
    if now < this_update {
        return Err(ListProblem::List(format!(
            "is not valid before {} (thisUpdate)",
            list.last_update()
        )));
    }
    if let Some(next) = list.next_update()
        && now > system_time(next).unwrap_or(UNIX_EPOCH)
    {
        return Err(ListProblem::List(format!(
            "has expired on {next} (nextUpdate): fetch a new one (fetch-crl)"
        )));
    }
    match list.get_by_cert(certificate) {
        CrlStatus::Revoked(entry) => Err(ListProblem::Certificate(format!(
            "revoked on {}, serial number {}",
            entry.revocation_date(),
            serial(certificate)
        ))),
        CrlStatus::NotRevoked | CrlStatus::RemoveFromCrl(_) => Ok(()),
    }
}

fn serial(certificate: &X509) -> String {
    certificate
        .serial_number()
        .to_bn()
        .and_then(|number| number.to_hex_str())
        .map_or_else(|_| "unknown".to_owned(), |hex| hex.to_string())
}

#[cfg(test)]
mod tests {
    use crate::test_pki::{TestAuthority, TestCertificate, write_authority};
    use crate::x509::{CertificateUsage, TrustStore};
    use openssl::x509::X509Crl;
    use std::time::SystemTime;

    fn verify(authority: &TestAuthority, list: &X509Crl) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        write_authority(folder.path(), authority, None, Some(list));
        let store = TrustStore::from_path(folder.path()).unwrap();
        let user = authority.user("Ada");
        store
            .verify(
                &[user.leaf().clone()],
                CertificateUsage::TlsClient,
                SystemTime::now(),
            )
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn critical_extensions_that_narrow_a_list_are_refused() {
        let root = TestAuthority::new("/O=Grid/CN=Test root");
        let list = |critical: &[(&str, &[u8])]| root.revocation_list_with(&[], -60, 60, critical);
        // issuingDistributionPoint: empty, onlyContainsUserCerts, indirectCRL; deltaCRLIndicator.
        let (point, delta) = ("2.5.29.28", "2.5.29.27");
        verify(&root, &list(&[(point, &[0x30, 0])])).unwrap();
        for critical in [
            (point, &[0x30, 3, 0x81, 1, 0xff][..]),
            (point, &[0x30, 3, 0x84, 1, 0xff]),
            (delta, &[2, 1, 1]),
            ("1.2.3.4", &[5, 0]),
        ] {
            let error = verify(&root, &list(&[critical])).unwrap_err();
            let expected = format!("has the critical extension {}", critical.0);
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn an_authority_needs_the_right_to_revoke() {
        let mut template = TestCertificate::new("/O=Grid/CN=Test root");
        template.authority = true;
        template.may_revoke = false;
        let root = TestAuthority::self_signed(&template);
        let error = verify(&root, &root.revocation_list(&[])).unwrap_err();
        assert!(error.contains("without cRLSign"), "{error}");
    }
}
