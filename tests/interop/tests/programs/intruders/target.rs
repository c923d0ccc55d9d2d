//! The attacked server, with certificates for it, for well-behaved clients and for intruders.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, ServeCommand, USER};
use interop::matrix::{self, TestStore};
use interop::pki::environment::GridEnvironment;
use interop::scratch::ScratchFolder;
use interop::test_files;
use security::test_pki::{
    TestAuthority, TestCertificate, TestKey, TestUsage, write_authority, write_certificates,
    write_credential, write_key,
};
use security::tls::{TlsConfig, TlsOptions, TlsRole};
use security::x509::{CertifiedKey, TrustStore};

use super::session::IntruderSession;

/// An authority, a host, a user in the gridmap, and a user whose certificate is revoked.
pub(super) struct IntruderPki {
    folder: ScratchFolder,
    pub(super) authority: TestAuthority,
    pub(super) user: CertifiedKey,
    pub(super) revoked: CertifiedKey,
}

impl IntruderPki {
    pub(super) fn new() -> Result<Self> {
        let authority = TestAuthority::new("/O=Grid/CN=Intruders CA");
        let pki = Self {
            folder: ScratchFolder::new()?,
            user: authority.issue(&client("Ann")),
            revoked: authority.issue(&client("Carol")),
            authority,
        };
        let list = pki.authority.revocation_list(&[pki.revoked.leaf()]);
        let policy = pki.authority.signing_policy(&["*"]);
        write_authority(
            &pki.path("certificates"),
            &pki.authority,
            Some(&policy),
            Some(&list),
        );
        let host = pki.authority.issue(&host(&["localhost", "127.0.0.1"]));
        write_certificates(&pki.path("host.pem"), &host);
        write_key(&pki.path("host.key"), &host);
        write_credential(&pki.path("user.pem"), &pki.user);
        let subject = pki.user.subject();
        std::fs::write(pki.path("gridmap"), format!("\"{subject}\" {USER}\n"))?;
        Ok(pki)
    }

    /// A file of the infrastructure.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn text_path(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// A client of FTPS with this certificate.
    pub(super) fn web_client(&self, credential: Option<&CertifiedKey>) -> Result<TlsConfig> {
        self.client_config(TlsOptions {
            credential: credential.cloned(),
            ..TlsOptions::client()
        })
    }

    /// A client of GSI with this credential.
    pub(super) fn grid_client(&self, credential: &CertifiedKey) -> Result<TlsConfig> {
        self.client_config(TlsOptions::grid(TlsRole::Client).with_credential(credential.clone()))
    }

    fn client_config(&self, options: TlsOptions) -> Result<TlsConfig> {
        let trust = TrustStore::from_path(&self.path("certificates"))?;
        Ok(TlsConfig::new(options.with_trust(Arc::new(trust)))?)
    }
}

/// A user's certificate, to be changed and issued.
pub(super) fn client(name: &str) -> TestCertificate {
    TestCertificate {
        usages: vec![TestUsage::Client],
        key: TestKey::P256,
        ..TestCertificate::new(&format!("/O=Grid/CN={name}"))
    }
}

/// The certificate of a host with these names, to be changed and issued.
pub(super) fn host(names: &[&str]) -> TestCertificate {
    TestCertificate {
        alternative_names: names.iter().map(|&name| name.to_owned()).collect(),
        usages: vec![TestUsage::Server, TestUsage::Client],
        ..TestCertificate::new("/O=Grid/CN=host")
    }
}

/// A running server with TLS and GSI, and its files.
pub(super) struct AttackTarget {
    pub(super) pki: IntruderPki,
    pub(super) store: TestStore,
    pub(super) server: LonghaulServer,
}

impl AttackTarget {
    pub(super) fn start(options: &[&str]) -> Result<Self> {
        Self::start_with(|_, command| Ok(add_options(command, options)))
    }

    pub(super) fn start_with(
        change: impl FnOnce(&IntruderPki, ServeCommand) -> Result<ServeCommand>,
    ) -> Result<Self> {
        let pki = IntruderPki::new()?;
        let store = TestStore::new()?;
        let command = ServeCommand::anonymous(store.root())
            .option("--cert", &pki.text_path("host.pem"))
            .option("--key", &pki.text_path("host.key"))
            .option("--gridmap", &pki.text_path("gridmap"))
            .option("--gridmap-rights", "rw")
            .option("--ca-dir", &pki.text_path("certificates"));
        let server = change(&pki, command)?.start()?;
        Ok(Self { pki, store, server })
    }

    /// Length of the log, for [`LonghaulServer::wait_for_message`].
    pub(super) fn log_mark(&self) -> usize {
        self.server.messages().len()
    }

    /// Downloads with `longhaul cp` over FTPS and GSI.
    pub(super) fn serves_others(&self) -> Result<()> {
        self.serves_ftps()?;
        self.get(&[&self.server.gsi_url("src/f65536")])
    }

    /// Downloads with `longhaul cp` over FTPS, whose data is protected.
    pub(super) fn serves_ftps(&self) -> Result<()> {
        let ftps = format!(
            "ftps://localhost:{}/src/f65536",
            self.server.address().port()
        );
        let credential = self.pki.text_path("user.pem");
        let options = ["--cert", &credential, "--key", &credential];
        self.get(&[&options[..], &[&ftps]].concat())
    }

    fn get(&self, arguments: &[&str]) -> Result<()> {
        let local = self.store.local();
        let authorities = self.pki.text_path("certificates");
        let to = path_argument(&local);
        let environment = GridEnvironment::default()
            .with("X509_CERT_DIR", self.pki.path("certificates"))
            .with("X509_USER_PROXY", self.pki.path("user.pem"));
        let fixed = ["--retries", "0", "--ca", &authorities];
        let arguments = [&fixed[..], arguments, &[&to]].concat();
        self.server.explain(copy::cp_in(&environment, &arguments))?;
        matrix::check_and_remove(&test_files::shared(65_536)?, &local)
    }

    /// Waits until the server ends `session`, and for a message after `mark` with these words.
    pub(super) fn ends_with_message(
        &self,
        session: &mut IntruderSession,
        mark: usize,
        words: &[&str],
    ) -> Result<()> {
        session.expect_end()?;
        self.server.wait_for_message(mark, words).map(drop)
    }

    /// Fails if the process has ended.
    pub(super) fn ensure_running(&mut self) -> Result<()> {
        let ended = self.server.guard().wait(std::time::Duration::ZERO)?;
        ensure!(
            ended.is_none(),
            "the server ended: {ended:?}\n{}",
            self.server.log()
        );
        Ok(())
    }
}

/// Adds options with their values.
pub(super) fn add_options(command: ServeCommand, options: &[&str]) -> ServeCommand {
    options
        .chunks_exact(2)
        .fold(command, |command, pair| command.option(pair[0], pair[1]))
}
