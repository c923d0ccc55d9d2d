//! A throw-away public key infrastructure: certificate authorities, a grid directory, certificates of
//! hosts and users, proxies, gridmaps. The openssl command makes all of it.

pub mod authority;
pub mod environment;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use anyhow::{Result, anyhow};

use crate::peer::find_installed;
use crate::scratch::ScratchFolder;
use authority::{CLIENT, ORGANISATION, PeerAuthority, PeerCertificate, PeerRequest, SERVER};

/// Names and addresses of the test servers.
const SERVER_NAMES: &str =
    "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2,IP:127.0.0.90,IP:::1\n";

/// Validity of usual certificates, days.
const DAYS: i32 = 30;

/// Kinds of proxy certificates of [`PeerPki::user`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerProxy {
    /// RFC 3820 with all rights.
    Full,
    /// RFC 3820 with Globus's limited policy.
    Limited,
    /// RFC 3820 with all rights, expired yesterday.
    Expired,
    /// RFC 3820 with a policy language that makes it an identity of its own.
    Independent,
    /// Full, below a proxy whose path length allows no further one.
    TooLong,
    /// Full, below a limited one: its holder tries to regain rights.
    FullBelowLimited,
}

impl PeerProxy {
    /// The certificates from the user's downwards: serial number, extension, validity in days.
    fn steps(self) -> &'static [(u32, &'static str, i32)] {
        const FULL: &str = "language:id-ppl-inheritAll";
        const LIMITED: &str = "language:1.3.6.1.4.1.3536.1.1.1.9";
        match self {
            Self::Full => &[(1001, FULL, DAYS)],
            Self::Limited => &[(1002, LIMITED, DAYS)],
            Self::Expired => &[(1003, FULL, -1)],
            Self::Independent => &[(1004, "language:id-ppl-independent", DAYS)],
            Self::TooLong => &[
                (1005, "language:id-ppl-inheritAll,pathlen:0", DAYS),
                (1006, FULL, DAYS),
            ],
            Self::FullBelowLimited => &[(1007, LIMITED, DAYS), (1008, FULL, DAYS)],
        }
    }
}

/// All certificates of the tests.
#[derive(Debug)]
pub struct PeerPki {
    scratch: ScratchFolder,
    /// The authority that peers trust.
    pub authority: PeerAuthority,
    /// An authority that nobody trusts.
    pub other_authority: PeerAuthority,
    /// The host `localhost`, with the loopback addresses.
    pub host: PeerCertificate,
    /// The host `elsewhere.example`.
    pub elsewhere: PeerCertificate,
    /// The host `localhost`, expired yesterday.
    pub expired_host: PeerCertificate,
    /// The host `localhost`, by the authority that nobody trusts.
    pub untrusted_host: PeerCertificate,
    /// The user who is in the gridmaps.
    pub user: PeerCertificate,
    /// A user who is in no gridmap.
    pub stranger: PeerCertificate,
    /// A user who is in the gridmaps, but whose certificate is revoked.
    pub revoked: PeerCertificate,
    /// A certificate with the name of [`PeerPki::user`], by the authority that nobody trusts.
    pub impostor: PeerCertificate,
}

impl PeerPki {
    /// The infrastructure of this test process, made for the first test that needs it and removed after
    /// the last. The error says which program is missing.
    pub fn find() -> Result<Arc<Self>, String> {
        find_installed("openssl")?;
        Self::shared().map_err(|error| format!("cannot make certificates: {error:#}"))
    }

    fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<PeerPki>> = Mutex::new(Weak::new());
        let mut shared = SHARED
            .lock()
            .map_err(|_| anyhow!("another test failed to make them"))?;
        if let Some(made) = shared.upgrade() {
            return Ok(made);
        }
        let made = Arc::new(Self::make()?);
        *shared = Arc::downgrade(&made);
        Ok(made)
    }

    fn make() -> Result<Self> {
        let scratch = ScratchFolder::new()?;
        let authority = PeerAuthority::new(&scratch.join("ca"), "Interop Test CA")?;
        let other_authority = PeerAuthority::new(&scratch.join("other"), "Unknown CA")?;
        let localhost = format!("{SERVER}{SERVER_NAMES}");
        let elsewhere = format!("{SERVER}subjectAltName=DNS:elsewhere.example\n");
        let made = Self {
            host: authority.issue("host", r"host\/localhost", &localhost, DAYS)?,
            elsewhere: authority.issue("elsewhere", "elsewhere.example", &elsewhere, DAYS)?,
            expired_host: authority.issue("expired", "localhost", &localhost, -1)?,
            untrusted_host: other_authority.issue("host", "localhost", &localhost, DAYS)?,
            user: authority.issue("user", "Test User", CLIENT, DAYS)?,
            stranger: authority.issue("stranger", "Stranger", CLIENT, DAYS)?,
            revoked: authority.issue("revoked", "Revoked User", CLIENT, DAYS)?,
            impostor: other_authority.issue("user", "Test User", CLIENT, DAYS)?,
            authority,
            other_authority,
            scratch,
        };
        let directory = made.ca_directory();
        let hash = made.authority.install(&directory)?;
        made.authority
            .revoke(&[&made.revoked], &directory.join(format!("{hash}.r0")))?;
        made.other_authority.install(&made.other_ca_directory())?;
        Ok(made)
    }

    /// The directory of trusted authorities, with signing policy and revocations.
    #[must_use]
    pub fn ca_directory(&self) -> PathBuf {
        self.scratch.join("certificates")
    }

    /// A directory with only the authority that nobody trusts.
    #[must_use]
    pub fn other_ca_directory(&self) -> PathBuf {
        self.scratch.join("other-certificates")
    }

    /// Certificate of the trusted authority, a PEM file.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.authority.certificate()
    }

    /// Writes a gridmap that maps [`PeerPki::user`] and [`PeerPki::revoked`] to an account.
    pub fn write_gridmap(&self, path: &Path, account: &str) -> Result<()> {
        let lines = ["Test User", "Revoked User"]
            .map(|name| format!("\"{ORGANISATION}/CN={name}\" {account}\n"));
        Ok(std::fs::write(path, lines.concat())?)
    }

    /// Path of a new file with a proxy of [`PeerPki::user`]: proxy, key, and the chain up to the user.
    pub fn proxy(&self, kind: PeerProxy) -> Result<PathBuf> {
        self.proxy_of(&self.user, "Test User", kind)
    }

    /// Like [`PeerPki::proxy`], of any certificate with this common name.
    pub fn proxy_of(&self, user: &PeerCertificate, name: &str, kind: PeerProxy) -> Result<PathBuf> {
        let folder = tempfile::Builder::new().tempdir_in(self.scratch.path())?;
        // The file lives as long as the infrastructure.
        let folder = folder.keep();
        let mut subject = format!("{ORGANISATION}/CN={name}");
        let (mut issuer, mut parts) = (user.clone(), vec![user.certificate.clone()]);
        for &(serial, policy, days) in kind.steps() {
            subject.push_str(&format!("/CN={serial}"));
            let extensions = format!(
                "keyUsage=critical,digitalSignature,keyEncipherment\nproxyCertInfo=critical,{policy}\n"
            );
            let request = PeerRequest {
                folder: &folder,
                file: &format!("proxy{serial}"),
                subject: &subject,
                serial: Some(serial),
                extensions: &extensions,
            };
            let (certificate, key) = (issuer.certificate, issuer.key);
            issuer = request.sign(
                &certificate.display().to_string(),
                &key.display().to_string(),
                days,
            )?;
            parts.insert(0, issuer.certificate.clone());
        }
        parts.insert(1, issuer.key);
        let file = folder.join("proxy.pem");
        let parts: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
        authority::write_private(&file, &parts)?;
        Ok(file)
    }
}
