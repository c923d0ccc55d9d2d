//! Where authorities, signing policies and revocation lists are found.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use openssl::x509::{X509, X509Ref};

use smallfile::regular_file;

use super::file_cache::FileCache;
use super::policy::SigningPolicy;
use super::revocation::RevocationList;
use crate::x509::TrustError;

/// Most files of one hash (`HASH.0`, `HASH.1`, ...) that are read.
const MAX_COLLISIONS: u32 = 16;
/// Longest file, bytes: the largest revocation lists have some 10 MB.
const MAX_FILE: u64 = 64 << 20;
/// Ending of the names of signing policies.
const POLICY: &str = "signing_policy";

/// A set of authorities.
#[derive(Debug)]
pub(super) enum AuthoritySource {
    /// In memory, by the hash of the subject.
    Certificates {
        /// Where they are from, for messages.
        name: String,
        by_hash: HashMap<u32, Vec<X509>>,
        lists: Vec<Arc<RevocationList>>,
    },
    /// A directory with files named by hashes.
    Directory(Box<Directory>),
}

/// A hashed directory. Its files are read when a peer needs them, and again when they have changed.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    certificates: FileCache<Vec<X509>>,
    lists: FileCache<Vec<Arc<RevocationList>>>,
    policies: FileCache<SigningPolicy>,
    /// Whether the directory has signing policies.
    policy_presence: FileCache<bool>,
    /// It has had some at least.
    is_grid: AtomicBool,
}

impl AuthoritySource {
    pub(super) fn of_certificates(
        name: String,
        certificates: Vec<X509>,
        lists: Vec<RevocationList>,
    ) -> Self {
        let mut by_hash: HashMap<u32, Vec<X509>> = HashMap::new();
        for certificate in certificates {
            by_hash
                .entry(certificate.subject_name_hash())
                .or_default()
                .push(certificate);
        }
        Self::Certificates {
            name,
            by_hash,
            lists: lists.into_iter().map(Arc::new).collect(),
        }
    }

    /// Reads a PEM file of authorities and, possibly, revocation lists.
    pub(super) fn of_file(path: &Path) -> Result<Self, TrustError> {
        let text = read(path)?;
        let lists = RevocationList::of_pem(&text)
            .map_err(|error| TrustError::of_file(path, "read the revocation list in", &error))?;
        let certificates = certificates_of(&text, path)?;
        if certificates.is_empty() {
            return Err(TrustError::Store(format!(
                "{}: no certificate (a block -----BEGIN CERTIFICATE-----)",
                path.display()
            )));
        }
        Ok(Self::of_certificates(
            path.display().to_string(),
            certificates,
            lists,
        ))
    }

    pub(super) fn of_directory(path: &Path) -> Self {
        let directory = Directory {
            path: path.to_owned(),
            certificates: FileCache::default(),
            lists: FileCache::default(),
            policies: FileCache::default(),
            policy_presence: FileCache::default(),
            is_grid: AtomicBool::new(false),
        };
        // Later the process may not list it any more.
        directory.is_grid();
        Self::Directory(Box::new(directory))
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
                for path in directory.numbered(hash, "") {
                    if let Some(found) = directory.certificates.get(&path, read_certificates)? {
                        all.extend_from_slice(&found);
                    }
                }
                Ok(all)
            }
        }
    }

    /// The revocation lists of an authority, with their places.
    pub(super) fn lists(
        &self,
        authority: &X509Ref,
    ) -> Result<Vec<(String, Arc<RevocationList>)>, TrustError> {
        match self {
            Self::Certificates { name, lists, .. } => Ok(lists
                .iter()
                .filter(|list| list.is_of(authority))
                .map(|list| (name.clone(), Arc::clone(list)))
                .collect()),
            Self::Directory(directory) => directory.lists(authority),
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
    /// Whether the directory has signing policies, or has had some: then it is one of a grid, in which
    /// an authority without a policy may sign nothing.
    pub(super) fn is_grid(&self) -> bool {
        if !self.is_grid.load(Ordering::Relaxed) {
            // A directory that cannot be listed stays what it was.
            let found = self.policy_presence.get(&self.path, has_policies);
            if found.is_ok_and(|found| found.is_some_and(|found| *found)) {
                self.is_grid.store(true, Ordering::Relaxed);
            }
        }
        self.is_grid.load(Ordering::Relaxed)
    }

    /// The revocation lists of an authority, with the names of their files.
    pub(super) fn lists(
        &self,
        authority: &X509Ref,
    ) -> Result<Vec<(String, Arc<RevocationList>)>, TrustError> {
        let hash = authority.subject_name_hash();
        let mut lists = Vec::new();
        for path in self.numbered(hash, "r") {
            let Some(read) = self.lists.get(&path, read_lists)? else {
                continue;
            };
            let own = read.iter().filter(|list| list.is_of(authority));
            lists.extend(own.map(|list| (path.display().to_string(), Arc::clone(list))));
        }
        Ok(lists)
    }

    /// The files of a hash: `HASH.0`, `HASH.1`, ..., with `kind` before the number. One that is missing ends nothing: whoever
    /// removes the first file of a hash does not withdraw the others.
    fn numbered(&self, hash: u32, kind: &str) -> impl Iterator<Item = PathBuf> {
        (0..MAX_COLLISIONS).map(move |number| self.path.join(format!("{hash:08x}.{kind}{number}")))
    }

    /// The signing policy for an authority: its file, and what it says if it exists.
    pub(super) fn policy(
        &self,
        authority: &X509Ref,
    ) -> Result<(PathBuf, Option<Arc<SigningPolicy>>), TrustError> {
        let hash = authority.subject_name_hash();
        let path = self.path.join(format!("{hash:08x}.{POLICY}"));
        let policy = self.policies.get(&path, |path| {
            let text = read(path)?;
            SigningPolicy::parse(&String::from_utf8_lossy(&text))
                .map_err(|problem| TrustError::of_file(path, "read the signing policy", &problem))
        })?;
        Ok((path, policy))
    }
}

/// Reads a file of bounded size.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    let mut text = Vec::new();
    regular_file::open(path)
        .and_then(|file| regular_file::read(file, MAX_FILE, &mut text))
        .map_err(|error| TrustError::of_file(path, "read", &error))?;
    Ok(text)
}

fn read_certificates(path: &Path) -> Result<Vec<X509>, TrustError> {
    certificates_of(&read(path)?, path)
}

fn read_lists(path: &Path) -> Result<Vec<Arc<RevocationList>>, TrustError> {
    let lists = RevocationList::of_der_or_pem(&read(path)?)
        .map_err(|error| TrustError::of_file(path, "read the revocation list", &error))?;
    Ok(lists.into_iter().map(Arc::new).collect())
}

fn certificates_of(pem: &[u8], path: &Path) -> Result<Vec<X509>, TrustError> {
    X509::stack_from_pem(pem)
        .map_err(|error| TrustError::of_file(path, "read the certificates of", &error))
}

/// Whether a directory has a file `NAME.signing_policy`.
fn has_policies(directory: &Path) -> Result<bool, TrustError> {
    let cannot = |error| TrustError::of_file(directory, "read", &error);
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let name = PathBuf::from(entry.map_err(cannot)?.file_name());
        if name.extension().is_some_and(|ending| ending == POLICY) {
            return Ok(true);
        }
    }
    Ok(false)
}
