//! A certificate authority that the openssl command operates, so that what it issues owes nothing to
//! the program under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::peer::find_installed;
use crate::run;

/// Subject below which every certificate of the tests is.
pub const ORGANISATION: &str = "/O=Grid/OU=interop";

/// Extensions of a certificate for a server and both ends of a data connection.
pub const SERVER: &str = "basicConstraints=critical,CA:FALSE\n\
     keyUsage=critical,digitalSignature,keyEncipherment\n\
     extendedKeyUsage=serverAuth,clientAuth\n";

/// Extensions of a user's certificate.
pub const CLIENT: &str = "basicConstraints=critical,CA:FALSE\n\
     keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth\n";

/// A certificate and its private key, as PEM files.
#[derive(Debug, Clone)]
pub struct PeerCertificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, which only its owner may read.
    pub key: PathBuf,
}

impl PeerCertificate {
    /// Path of a file with the certificate and the key, as some servers want them.
    pub fn joined(&self) -> Result<PathBuf> {
        let path = self.certificate.with_extension("joined.pem");
        write_private(&path, &[&self.certificate, &self.key])?;
        Ok(path)
    }
}

/// A certificate authority in a folder of its own.
#[derive(Debug)]
pub struct PeerAuthority {
    folder: PathBuf,
    subject: String,
}

impl PeerAuthority {
    /// Creates the key and the self-signed certificate of an authority with this common name.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let subject = format!("{ORGANISATION}/CN={name}");
        openssl(
            folder,
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 3650 -sha256 \
             -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
             -subj",
            &[&subject],
        )?;
        std::fs::write(folder.join("index.txt"), "")?;
        std::fs::write(folder.join("crlnumber"), "01\n")?;
        let settings = "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ncrlnumber=crlnumber\n\
                        default_md=sha256\ndefault_crl_days=30\n";
        std::fs::write(folder.join("ca.cnf"), settings)?;
        Ok(Self {
            folder: folder.to_owned(),
            subject,
        })
    }

    /// The authority's own certificate, a PEM file.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Issues a certificate for `ORGANISATION/CN=NAME` that is valid for `days` days; a negative number
    /// makes one that has expired. A `/` in the name is written `\/`.
    pub fn issue(
        &self,
        file: &str,
        name: &str,
        extensions: &str,
        days: i32,
    ) -> Result<PeerCertificate> {
        let subject = format!("{ORGANISATION}/CN={name}");
        let request = PeerRequest {
            folder: &self.folder,
            file,
            subject: &subject,
            serial: None,
            extensions,
        };
        request.sign("ca.pem", "ca.key", days)
    }

    /// Revokes certificates, and writes the list of revoked certificates to `list`.
    pub fn revoke(&self, certificates: &[&PeerCertificate], list: &Path) -> Result<()> {
        let ca = "ca -config ca.cnf -cert ca.pem -keyfile ca.key";
        for issued in certificates {
            let certificate = issued.certificate.display().to_string();
            openssl(&self.folder, &format!("{ca} -revoke"), &[&certificate])?;
        }
        let list = list.display().to_string();
        openssl(&self.folder, &format!("{ca} -gencrl -out"), &[&list])
    }

    /// Adds the authority to a grid directory: its certificate and signing policy under its subject hash.
    /// Returns the hash.
    pub fn install(&self, directory: &Path) -> Result<String> {
        let mut command = Command::new(find_installed("openssl").map_err(anyhow::Error::msg)?);
        command
            .args(["x509", "-noout", "-hash", "-in"])
            .arg(self.certificate());
        let hash = run::run(&mut command)?.expect_success()?.stdout_text();
        let hash = hash.trim().to_owned();
        std::fs::create_dir_all(directory)?;
        std::fs::copy(self.certificate(), directory.join(format!("{hash}.0")))?;
        let policy = format!(
            "access_id_CA X509 '{}'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"{ORGANISATION}/*\"'\n",
            self.subject
        );
        std::fs::write(directory.join(format!("{hash}.signing_policy")), policy)?;
        Ok(hash)
    }
}

/// A certificate to be made.
pub(super) struct PeerRequest<'a> {
    /// Folder of all files.
    pub folder: &'a Path,
    /// Name of the files, without extension.
    pub file: &'a str,
    /// The subject in OpenSSL's one-line form.
    pub subject: &'a str,
    /// The serial number; a random one if none.
    pub serial: Option<u32>,
    /// Its extensions, in the form of openssl.cnf.
    pub extensions: &'a str,
}

impl PeerRequest<'_> {
    /// Makes a key and a certificate signed with another one.
    pub(super) fn sign(&self, issuer: &str, key: &str, days: i32) -> Result<PeerCertificate> {
        let (folder, file) = (self.folder, self.file);
        openssl(
            folder,
            &format!("req -newkey rsa:2048 -nodes -keyout {file}.key -out {file}.csr -batch -subj"),
            &[self.subject],
        )?;
        std::fs::write(folder.join(format!("{file}.ext")), self.extensions)?;
        let serial = match self.serial {
            Some(number) => format!("-set_serial {number}"),
            None => "-CAcreateserial".to_owned(),
        };
        let sign = format!(
            "x509 -req -in {file}.csr -CA {issuer} -CAkey {key} {serial} -sha256 -days {days} \
             -extfile {file}.ext -out {file}.pem"
        );
        openssl(folder, &sign, &[])?;
        Ok(PeerCertificate {
            certificate: folder.join(format!("{file}.pem")),
            key: folder.join(format!("{file}.key")),
        })
    }
}

/// Writes the contents of files into one that only its owner may read.
pub(super) fn write_private(to: &Path, parts: &[&Path]) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut content = Vec::new();
    for part in parts {
        content.extend(std::fs::read(part)?);
    }
    // An older file is removed, because only a new one gets the mode.
    let _ = std::fs::remove_file(to);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(to)?;
    file.write_all(&content)?;
    Ok(())
}

/// Runs openssl in a folder with the words of `line` and then `more`.
fn openssl(folder: &Path, line: &str, more: &[&str]) -> Result<()> {
    let mut command = Command::new(find_installed("openssl").map_err(anyhow::Error::msg)?);
    command
        .args(line.split_ascii_whitespace())
        .args(more)
        .current_dir(folder);
    let done = run::run(&mut command)?;
    ensure!(done.code == Some(0), "{done}");
    Ok(())
}
