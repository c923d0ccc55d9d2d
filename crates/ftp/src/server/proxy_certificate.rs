//! The user's proxy credential: made, described, destroyed (`longhaul proxy`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use security::x509::{CertifiedKey, ProxyKind, ProxyOptions};
use smallfile::regular_file;
use zeroize::Zeroizing;

use crate::server::user_credential::{ADVICE, default_certificate_paths, unusable};
use crate::{Failure, FailureKind};

/// Bytes of a file that are searched for a key or a certificate; no credential is longer.
const MAX_CREDENTIAL: u64 = 1 << 20;

/// A proxy to be made.
#[derive(Debug, Clone)]
pub struct NewProxy {
    /// File of the proxy.
    pub file: PathBuf,
    /// The certificate to make it from; `None`: the user's own.
    pub certificate: Option<PathBuf>,
    /// The certificate's key; `None`: in the file of the certificate, or the user's own.
    pub key: Option<PathBuf>,
    /// Longest validity; the certificate's end bounds it.
    pub valid: Duration,
    /// A limited proxy.
    pub limited: bool,
    /// Number of further proxies that may be made from it; `None`: any.
    pub path_length: Option<u32>,
    /// RSA key size, bits; 2048 to 8192.
    pub key_bits: u32,
}

/// Facts of a proxy, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyFacts {
    /// Subject of the proxy.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// The identity behind it.
    pub identity: String,
    /// `RFC 3820 proxy`, `RFC 3820 limited proxy`, `certificate`...
    pub kind: &'static str,
    /// Kind and size of the key.
    pub strength: String,
    /// End of validity of the proxy and the certificates above it.
    pub expires: SystemTime,
}

impl ProxyFacts {
    /// Time left; zero if it has expired.
    pub fn time_left(&self) -> Duration {
        let left = self.expires.duration_since(SystemTime::now());
        left.unwrap_or_default()
    }

    /// End of validity, UTC.
    pub fn expires_text(&self) -> String {
        crate::server::user_credential::show_time(self.expires)
    }

    fn of(proxy: &CertifiedKey) -> Self {
        use security::x509::DistinguishedName;
        Self {
            subject: proxy.subject().to_string(),
            issuer: DistinguishedName::of(proxy.leaf().issuer_name()).to_string(),
            identity: proxy.identity().to_string(),
            kind: proxy.describe_kind(),
            strength: proxy.describe_key(),
            expires: proxy.expires(),
        }
    }
}

/// Makes a proxy and writes its file, readable for the user alone. `ask` gets the passphrase of an
/// encrypted key.
///
/// # Errors
/// `Refused`: the certificate or its key cannot be used. `Local`: the file cannot be written.
pub fn make_proxy(
    new: &NewProxy,
    ask: &dyn Fn(&Path) -> io::Result<Zeroizing<String>>,
) -> Result<ProxyFacts, Failure> {
    let issuer = load_issuer(new, ask)?;
    crate::server::user_credential::check_validity(&issuer, "your certificate")?;
    let options = ProxyOptions {
        kind: match new.limited {
            true => ProxyKind::Limited,
            false => ProxyKind::Full,
        },
        valid: new.valid,
        path_length: new.path_length,
        key_bits: new.key_bits,
    };
    let refused = |error: &dyn std::fmt::Display| {
        Failure::refused(format!("cannot make a proxy of your certificate: {error}"))
    };
    let proxy = issuer.new_proxy(&options).map_err(|e| refused(&e))?;
    let pem = proxy.to_pem().map_err(|e| refused(&e))?;
    write_atomically(&new.file, &pem).map_err(|error| {
        Failure::local(format!(
            "cannot write the proxy {}: {error}; name another file with --file",
            new.file.display()
        ))
    })?;
    Ok(ProxyFacts::of(&proxy))
}

fn load_issuer(
    new: &NewProxy,
    ask: &dyn Fn(&Path) -> io::Result<Zeroizing<String>>,
) -> Result<CertifiedKey, Failure> {
    let (certificate, key) = match (&new.certificate, &new.key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (Some(certificate), None) => (certificate.clone(), certificate.clone()),
        (None, _) => default_certificate_paths().ok_or_else(|| {
            let message =
                "there is no home directory to look for a certificate in: use --cert and --key";
            Failure::refused(message)
        })?,
    };
    let passphrase = match is_encrypted(&key) {
        true => Some(ask(&key).map_err(|error| {
            Failure::refused(format!(
                "cannot ask for the passphrase of {}: {error}; run this in a terminal",
                key.display()
            ))
        })?),
        false => None,
    };
    let passphrase = passphrase.as_ref().map(|text| text.as_bytes());
    CertifiedKey::from_files(&certificate, &key, passphrase).map_err(|error| {
        Failure::refused(format!(
            "cannot use your certificate: {error}; name a certificate and its key with --cert and --key"
        ))
    })
}

/// Whether a key file needs a passphrase: PKCS#8 (`ENCRYPTED PRIVATE KEY`) or the older form
/// (`Proc-Type: 4,ENCRYPTED`). A file that cannot be read is reported when it is loaded.
fn is_encrypted(key: &Path) -> bool {
    let Ok((file, _)) = regular_file::open(key) else {
        return false;
    };
    let mut text = Zeroizing::new(Vec::new());
    let word = b"ENCRYPTED";
    file.take(MAX_CREDENTIAL).read_to_end(&mut text).is_ok()
        && text.windows(word.len()).any(|window| window == word)
}

/// Writes a file that only this user can read. Another process sees the old file or the new one.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    // A leftover of an earlier process with this number; `create_new` follows no link.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Reads a proxy.
///
/// # Errors
/// `Refused`: there is none, or it cannot be used. An expired one is no error.
pub fn describe_proxy(path: &Path) -> Result<ProxyFacts, Failure> {
    if !path.exists() {
        return Err(Failure::refused(format!(
            "there is no proxy {}: {ADVICE}",
            path.display()
        )));
    }
    let proxy = CertifiedKey::from_proxy_file(path).map_err(|error| unusable(&error))?;
    Ok(ProxyFacts::of(&proxy))
}

/// Overwrites and removes the file of a proxy.
///
/// # Errors
/// `Refused`: there is none. `Local`: it cannot be overwritten or removed, or is another user's or no
/// regular file.
pub fn destroy_proxy(path: &Path) -> Result<(), Failure> {
    let failure = |kind, problem: String| {
        let message = format!("cannot destroy the proxy {}: {problem}", path.display());
        Failure::new(kind, message)
    };
    overwrite(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failure(FailureKind::Refused, "there is none".to_owned()),
        _ => failure(FailureKind::Local, error.to_string()),
    })?;
    fs::remove_file(path).map_err(|error| failure(FailureKind::Local, error.to_string()))
}

fn overwrite(path: &Path) -> io::Result<()> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not a file of yours"));
    }
    // A file that holds no PEM is most likely named by mistake.
    let mut begin = Zeroizing::new(Vec::new());
    (&mut file).take(MAX_CREDENTIAL).read_to_end(&mut begin)?;
    let mark = b"-----BEGIN ";
    if !begin.is_empty() && !begin.windows(mark.len()).any(|window| window == mark) {
        return Err(io::Error::other("it holds no certificate"));
    }
    file.rewind()?;
    let zeros = vec![0; usize::try_from(meta.len()).unwrap_or(0).min(1 << 20)];
    file.write_all(&zeros)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use security::test_pki::{TestAuthority, write_certificates, write_credential, write_key};

    use super::*;

    fn no_passphrase(_: &Path) -> io::Result<Zeroizing<String>> {
        panic!("the key is not encrypted")
    }

    fn new_proxy(folder: &Path) -> NewProxy {
        let authority = TestAuthority::new("/O=Grid/CN=CA");
        let user = authority.user("Test User");
        write_certificates(&folder.join("usercert.pem"), &user);
        write_key(&folder.join("userkey.pem"), &user);
        NewProxy {
            file: folder.join("proxy.pem"),
            certificate: Some(folder.join("usercert.pem")),
            key: Some(folder.join("userkey.pem")),
            valid: Duration::from_secs(3600),
            limited: false,
            path_length: None,
            key_bits: 2048,
        }
    }

    #[test]
    fn a_new_proxy_is_for_the_user_alone_and_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let new = new_proxy(dir.path());
        let made = make_proxy(&new, &no_passphrase).unwrap();
        assert_eq!(made.kind, "RFC 3820 proxy");
        assert!(made.identity.ends_with("/CN=Test User"), "{made:?}");
        assert!(made.subject.starts_with(&made.identity));
        assert_eq!(made.strength, "RSA 2048 bits");
        let left = made.time_left().as_secs();
        assert!((3500..=3600).contains(&left), "{left}");
        let mode = fs::metadata(&new.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(describe_proxy(&new.file).unwrap(), made);
        let limited = NewProxy {
            limited: true,
            ..new.clone()
        };
        let made = make_proxy(&limited, &no_passphrase).unwrap();
        assert_eq!(made.kind, "RFC 3820 limited proxy");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_proxy_replaces_a_link_and_never_follows_it() {
        let dir = tempfile::tempdir().unwrap();
        let new = new_proxy(dir.path());
        let other = dir.path().join("other");
        fs::write(&other, "keep me").unwrap();
        symlink(&other, &new.file).unwrap();
        assert!(destroy_proxy(&new.file).is_err());
        make_proxy(&new, &no_passphrase).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "keep me");
        assert!(!fs::symlink_metadata(&new.file).unwrap().is_symlink());
    }

    #[test]
    fn a_destroyed_proxy_is_gone_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("proxy.pem");
        write_credential(&file, &TestAuthority::new("/CN=CA").user("U"));
        // A second name of the same file shows what was done to its bytes.
        let second = dir.path().join("second");
        fs::hard_link(&file, &second).unwrap();
        destroy_proxy(&file).unwrap();
        assert!(!file.exists());
        assert!(fs::read(&second).unwrap().iter().all(|byte| *byte == 0));
        let failure = destroy_proxy(&file).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        fs::write(&file, "my thesis").unwrap();
        assert!(
            destroy_proxy(&file)
                .unwrap_err()
                .to_string()
                .contains("no certificate")
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "my thesis");
    }

    #[test]
    fn a_key_or_proxy_that_is_no_regular_file_is_refused_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let new = new_proxy(dir.path());
        let pipe = crate::test_files::make_pipe(dir.path());
        for special in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            let with_key = NewProxy {
                key: Some(special.to_owned()),
                ..new.clone()
            };
            let failure = make_proxy(&with_key, &no_passphrase).unwrap_err();
            assert!(
                failure.to_string().contains("not a regular file"),
                "{failure}"
            );
            let failure = describe_proxy(special).unwrap_err();
            assert!(
                failure.to_string().contains("not a regular file"),
                "{failure}"
            );
        }
        // A pipe opens for writing, too, and nothing is written into it.
        let failure = destroy_proxy(&pipe).unwrap_err();
        assert!(
            failure.to_string().contains("not a file of yours"),
            "{failure}"
        );
        assert!(pipe.exists());
    }

    #[test]
    fn a_missing_proxy_is_refused_with_advice() {
        let failure = describe_proxy(Path::new("/nonexistent/proxy")).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(
            failure.to_string().contains("longhaul proxy init"),
            "{failure}"
        );
    }
}
