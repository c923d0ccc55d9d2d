//! Where authorities, signing policies and revocation lists are found.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use openssl::x509::{X509, X509Ref};

use super::TrustError;
use super::policy::SigningPolicy;
use super::revocation::RevocationList;
use crate::x509::DistinguishedName;
use crate::x509::name::is_same;

/// Most files of one hash (`HASH.0`, `HASH.1`, ...) that are read.
const MOST_COLLISIONS: u32 = 16;
/// Longest file, bytes: the largest revocation lists have some 10 MB.
const LONGEST_FILE: u64 = 64 << 20;

/// A set of authorities.
#[derive(Debug)]
pub(super) enum AuthoritySource {
    /// In memory, by the hash of the subject.
    Certificates {
        /// Where they are from, for messages.
        name: String,
        by_hash: HashMap<u32, Vec<X509>>,
    },
    /// A directory with files named by hashes.
    Directory(Directory),
}

/// A hashed directory. Its files are read when a peer needs them, and again when they have changed.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    certificates: FileCache<Vec<X509>>,
    lists: FileCache<RevocationList>,
    policies: FileCache<SigningPolicy>,
}

impl AuthoritySource {
    pub(super) fn of_certificates(name: String, certificates: Vec<X509>) -> Self {
        let mut by_hash: HashMap<u32, Vec<X509>> = HashMap::new();
        for certificate in certificates {
            by_hash
                .entry(certificate.subject_name_hash())
                .or_default()
                .push(certificate);
        }
        Self::Certificates { name, by_hash }
    }

    /// Reads a PEM file.
    pub(super) fn of_file(path: &Path) -> Result<Self, TrustError> {
        let certificates = read_certificates(path)?;
        if certificates.is_empty() {
            return Err(TrustError::Store(format!(
                "{}: no certificate (a block -----BEGIN CERTIFICATE-----)",
                path.display()
            )));
        }
        Ok(Self::of_certificates(
            path.display().to_string(),
            certificates,
        ))
    }

    pub(super) fn of_directory(path: &Path) -> Self {
        Self::Directory(Directory {
            path: path.to_owned(),
            certificates: FileCache::default(),
            lists: FileCache::default(),
            policies: FileCache::default(),
        })
    }

    /// The place, for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Certificates { name, .. } => name.clone(),
            Self::Directory(directory) => directory.path.display().to_string(),
        }
    }

    /// The certificates whose subject has this hash.
    pub(super) fn certificates(&self, hash: u32) -> Result<Vec<X509>, TrustError> {
        match self {
            Self::Certificates { by_hash, .. } => {
                Ok(by_hash.get(&hash).cloned().unwrap_or_default())
            }
            Self::Directory(directory) => {
                let mut all = Vec::new();
                for number in 0..MOST_COLLISIONS {
                    let path = directory.path.join(format!("{hash:08x}.{number}"));
                    match directory.certificates.get(&path, read_certificates)? {
                        Some(found) => all.extend_from_slice(&found),
                        None => break,
                    }
                }
                Ok(all)
            }
        }
    }

    pub(super) fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Certificates { .. } => None,
            Self::Directory(directory) => Some(directory),
        }
    }
}

impl Directory {
    /// The revocation lists of an authority, with their files.
    pub(super) fn lists(
        &self,
        authority: &X509Ref,
    ) -> Result<Vec<(PathBuf, Arc<RevocationList>)>, TrustError> {
        let hash = authority.subject_name_hash();
        let mut lists = Vec::new();
        for number in 0..MOST_COLLISIONS {
            let path = self.path.join(format!("{hash:08x}.r{number}"));
            match self.lists.get(&path, RevocationList::read)? {
                Some(list) if is_same(list.list.issuer_name(), authority.subject_name()) => {
                    lists.push((path, list));
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(lists)
    }

    /// The signing policy for an authority: its file, and what it says if it exists.
    pub(super) fn policy(
        &self,
        authority: &X509Ref,
    ) -> Result<(PathBuf, Option<Arc<SigningPolicy>>), TrustError> {
        let hash = authority.subject_name_hash();
        let path = self.path.join(format!("{hash:08x}.signing_policy"));
        let policy = self.policies.get(&path, |path| {
            let text = read(path)?;
            SigningPolicy::parse(&String::from_utf8_lossy(&text))
                .map_err(|problem| failed(path, "read the signing policy", &problem))
        })?;
        Ok((path, policy))
    }
}

/// The content of files, read again when a file is another one or has changed.
#[derive(Debug)]
struct FileCache<T>(Mutex<HashMap<PathBuf, (FileVersion, Arc<T>)>>);

impl<T> Default for FileCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// The version of a file: device, inode, size, time of modification and
/// change (seconds, nanoseconds).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl<T> FileCache<T> {
    /// The content of a file; `None` if there is no file of this name.
    fn get(
        &self,
        path: &Path,
        read: impl FnOnce(&Path) -> Result<T, TrustError>,
    ) -> Result<Option<Arc<T>>, TrustError> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.lock().remove(path);
                return Ok(None);
            }
            Err(error) => return Err(failed(path, "read", &error)),
        };
        let version = FileVersion::of(&metadata);
        if let Some((known, content)) = self.lock().get(path)
            && *known == version
        {
            return Ok(Some(Arc::clone(content)));
        }
        // Not under the lock: a large revocation list takes some time.
        let content = Arc::new(read(path)?);
        self.lock()
            .insert(path.to_owned(), (version, Arc::clone(&content)));
        Ok(Some(content))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, (FileVersion, Arc<T>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error about a file.
pub(super) fn failed(path: &Path, action: &str, problem: &dyn std::fmt::Display) -> TrustError {
    TrustError::Store(format!("cannot {action} {}: {problem}", path.display()))
}

/// Reads a file of bounded size.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    let size = fs::metadata(path)
        .map_err(|error| failed(path, "read", &error))?
        .len();
    if size > LONGEST_FILE {
        return Err(failed(path, "read", &"it is longer than 64 MiB"));
    }
    fs::read(path).map_err(|error| failed(path, "read", &error))
}

fn read_certificates(path: &Path) -> Result<Vec<X509>, TrustError> {
    X509::stack_from_pem(&read(path)?)
        .map_err(|error| failed(path, "read the certificates of", &error))
}

/// Names of authorities, for messages.
pub(super) fn subject(certificate: &X509Ref) -> DistinguishedName {
    DistinguishedName::of(certificate.subject_name())
}
