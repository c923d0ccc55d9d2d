//! State of the files of a grid directory, for reports to people. Peers are verified by
//! [`super::TrustStore::verify`].

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use openssl::x509::X509;

use super::is_authority_file;
use super::source::{AuthoritySource, Directory, read};
use crate::x509::time::end;
use crate::x509::{DistinguishedName, TrustError};

/// An authority of a directory, and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityState {
    /// File of the certificate, `HASH.NUMBER`.
    pub file: PathBuf,
    /// Subject.
    pub subject: DistinguishedName,
    /// End of validity of the certificate.
    pub expires: SystemTime,
    /// `HASH.signing_policy`, which grid connections need.
    pub policy: AuthorityFile,
    /// `HASH.r0`: the revocation list. Without one the authority revokes nothing.
    pub revocation: AuthorityFile,
}

/// A file beside the certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorityFile {
    /// There is none.
    Missing,
    /// It can be used, until the given time if it ends.
    Usable(Option<SystemTime>),
    /// It is there and cannot be used, for this reason.
    Unusable(String),
}

/// The authorities of a directory, by file name, and the reasons why other files with such names are
/// no certificates.
///
/// # Errors
/// [`TrustError::Store`]: the directory cannot be read.
pub fn inspect_authorities(
    folder: &Path,
) -> Result<(Vec<AuthorityState>, Vec<TrustError>), TrustError> {
    let cannot = |error| TrustError::of_file(folder, "read", &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if name.to_str().is_some_and(is_authority_file) {
            files.push(folder.join(name));
        }
    }
    files.sort();
    let source = AuthoritySource::of_directory(folder);
    let (mut authorities, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        match read_authority(&file) {
            Ok(certificate) => {
                authorities.extend(source.directory().map(|d| state(d, file, &certificate)));
            }
            Err(problem) => problems.push(problem),
        }
    }
    Ok((authorities, problems))
}

fn read_authority(file: &Path) -> Result<X509, TrustError> {
    X509::from_pem(&read(file)?)
        .map_err(|error| TrustError::of_file(file, "read the certificate of", &error))
}

fn state(directory: &Directory, file: PathBuf, certificate: &X509) -> AuthorityState {
    let policy = match directory.policy(certificate) {
        Ok((_, Some(_))) => AuthorityFile::Usable(None),
        Ok((_, None)) => AuthorityFile::Missing,
        Err(problem) => AuthorityFile::Unusable(problem.to_string()),
    };
    AuthorityState {
        file,
        subject: DistinguishedName::of_subject(certificate),
        expires: end(certificate),
        policy,
        revocation: revocation(directory, certificate),
    }
}

fn revocation(directory: &Directory, certificate: &X509) -> AuthorityFile {
    let lists = match directory.lists(certificate) {
        Ok(lists) => lists,
        Err(problem) => return AuthorityFile::Unusable(problem.to_string()),
    };
    // Of several lists the one that is valid the longest counts.
    let newest = lists.iter().max_by_key(|(_, list)| list.next_update());
    let Some((path, newest)) = newest else {
        return AuthorityFile::Missing;
    };
    match newest.problem() {
        Some(problem) => AuthorityFile::Unusable(format!("{path} {problem}")),
        None => AuthorityFile::Usable(newest.next_update()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::{TestAuthority, write_authority, write_revocation_list};

    #[test]
    fn each_authority_has_the_state_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        let whole = TestAuthority::new("/O=Grid/CN=Whole");
        write_authority(place, &whole, Some(&whole.signing_policy(&["*"])), None);
        write_revocation_list(place, &whole, &whole.revocation_list(&[]));
        let bare = TestAuthority::new("/O=Grid/CN=Bare");
        write_authority(place, &bare, None, None);
        let wrong = TestAuthority::new("/O=Grid/CN=Wrong");
        write_authority(place, &wrong, Some("no policy"), None);
        std::fs::write(place.join("0badcafe.0"), "no certificate").unwrap();
        let (found, problems) = inspect_authorities(place).unwrap();
        let state = |name: &str| {
            let is_named = |a: &&AuthorityState| a.subject.as_str().ends_with(name);
            found.iter().find(is_named).unwrap()
        };
        assert_eq!(found.len(), 3);
        assert_eq!(state("Whole").policy, AuthorityFile::Usable(None));
        let AuthorityFile::Usable(Some(until)) = state("Whole").revocation else {
            panic!("{:?}", state("Whole"));
        };
        assert!(until > SystemTime::now());
        assert_eq!(state("Bare").policy, AuthorityFile::Missing);
        assert_eq!(state("Bare").revocation, AuthorityFile::Missing);
        assert!(matches!(&state("Wrong").policy, AuthorityFile::Unusable(_)));
        assert!(
            problems[0].to_string().contains("0badcafe.0"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(inspect_authorities(Path::new("/nowhere")).is_err());
    }
}
