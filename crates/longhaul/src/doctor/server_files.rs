//! Findings about the files that `longhaul serve` would use. Nothing is changed, and no key is shown.

use std::collections::{BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use data::os::privilege;
use security::gridmap::Gridmap;
use security::x509::{
    CertificateFacts, CertificateUsage, CertifiedKey, ShownChain, TrustStore, grid_directory,
};
use server::CheckedIssuer;
use server::config::{SecurityConfig, ServerConfig, TlsPolicy};
use server::pam::check_pam;

use super::authorities;
use super::report::{Finding, SERVER_RENEWAL};
use units::show;

const CERTIFICATE: &str = "server certificate";
const CHAIN: &str = "server certificate chain";
const NAMES: &str = "server certificate names";
const GRIDMAP: &str = "gridmap";
const TOKENS: &str = "token issuers";
const PAM: &str = "PAM";
const USERS: &str = "password file";
/// Most names of a list in one line.
const MAX_SHOWN: usize = 10;

/// Examines the files of a configuration.
pub(super) fn examine(config: &ServerConfig) -> Vec<Finding> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    examine_at(config, host.trim(), SystemTime::now())
}

/// As [`examine`], on the host of this name.
fn examine_at(config: &ServerConfig, host: &str, now: SystemTime) -> Vec<Finding> {
    let security = &config.security;
    let mut findings = Vec::new();
    if let Err(error) = security.check() {
        findings.push(Finding::failure("security settings", error.to_string()));
    }
    let grid = grid_trust(security);
    if let (Some(certificate), Some(key)) = (&security.certificate, &security.key) {
        match CertifiedKey::from_files(certificate, key, None) {
            Ok(credential) => {
                let grid = security.gridmap.is_some().then_some(&grid);
                findings.extend(of_certificate(&credential, grid, now));
                findings.extend(of_names(&credential, config, host));
            }
            Err(error) => findings.push(Finding::failure(CERTIFICATE, error.to_string())),
        }
    }
    let accounts = config.users.as_deref().map(read_accounts);
    if let Some(read) = &accounts {
        findings.push(of_users(read));
        findings.extend(of_users_owner(config));
    }
    if let Some(path) = &security.gridmap {
        let accounts = accounts.and_then(Result::ok);
        findings.extend(of_gridmap(path, accounts.as_ref()));
        findings.extend(of_grid_directory(security));
    }
    let authorities = [
        ("authorities of clients", &security.client_authorities),
        ("authorities of data nodes", &security.node_authorities),
    ];
    for (name, path) in authorities {
        let Some(path) = path else { continue };
        findings.push(match TrustStore::from_path(path) {
            Ok(_) => Finding::good(name, path.display().to_string()),
            Err(error) => Finding::failure(name, error.to_string()),
        });
    }
    findings.extend(of_pam(config));
    findings.extend(of_tokens(security));
    findings.extend(of_passwords(config));
    findings
}

/// The finding about logins that PAM checks.
fn of_pam(config: &ServerConfig) -> Option<Finding> {
    let service = config.pam.service.as_deref()?;
    Some(match check_pam(service, config.run_as.as_deref()) {
        Ok(()) => Finding::good(PAM, format!("the service {service} can be asked")),
        Err(error) => Finding::failure(PAM, error.to_string()),
    })
}

/// The findings about the keys of token issuers, which are read from their files or fetched.
fn of_tokens(security: &SecurityConfig) -> Vec<Finding> {
    let checked = match server::check_token_issuers(&security.token_issuers) {
        Ok(checked) => checked,
        Err(error) => return vec![Finding::failure(TOKENS, error.to_string())],
    };
    let of_one = |issuer: CheckedIssuer| match issuer.keys {
        Ok(()) => Finding::good(TOKENS, format!("the keys of {} can be used", issuer.url)),
        Err(problem) => Finding::problem(
            TOKENS,
            format!(
                "the keys of {} cannot be used, so its tokens are refused: {problem}",
                issuer.url
            ),
            "correct keys = of its [[token-issuer]] table, or the file or server that it names",
        ),
    };
    checked.into_iter().map(of_one).collect()
}

fn grid_trust(security: &SecurityConfig) -> Result<TrustStore, String> {
    let trust = match &security.grid_authorities {
        Some(folder) => TrustStore::from_path(folder),
        None => TrustStore::grid(),
    };
    trust.map_err(|error| error.to_string())
}

/// The findings about a certificate that fits its key. `grid`: GSI clients will verify it.
fn of_certificate(
    credential: &CertifiedKey,
    grid: Option<&Result<TrustStore, String>>,
    now: SystemTime,
) -> Vec<Finding> {
    let facts = CertificateFacts::of(credential.leaf());
    let described = format!(
        "{}, issued by {}, {}, fits its key",
        facts.subject,
        facts.issuer,
        credential.describe_key()
    );
    let renew = "renew it, then send SIGHUP to the server";
    let mut findings = vec![
        Finding::good(CERTIFICATE, described),
        Finding::validity(
            CERTIFICATE,
            credential.expires(),
            now,
            SERVER_RENEWAL,
            renew,
        ),
    ];
    let chain = ShownChain::of(credential);
    findings.push(of_chain(&chain, now));
    match grid {
        None => {}
        Some(Err(problem)) => findings.push(Finding::failure("grid authorities", problem)),
        Some(Ok(trust)) => {
            findings.push(
                match chain.check(trust, CertificateUsage::Grid, None, now) {
                    Ok(_) => {
                        Finding::good(CHAIN, "GSI clients with the same authorities accept it")
                    }
                    Err(error) => Finding::problem(
                        CHAIN,
                        format!("GSI clients refuse it: {error}"),
                        "add the missing certificates to --cert, or the authority to --ca-dir",
                    ),
                },
            );
        }
    }
    findings
}

/// The finding about the links of a chain, and whether the system's authorities trust it.
fn of_chain(chain: &ShownChain, now: SystemTime) -> Finding {
    let facts = chain.facts();
    if facts.first().is_some_and(CertificateFacts::is_self_signed) {
        return Finding::warning(
            CHAIN,
            "the certificate is self-signed, so no client can verify it",
            "get one from an authority, or give the file to clients for --ca",
        );
    }
    let broken = facts
        .windows(2)
        .find(|pair| pair[0].issuer != pair[1].subject);
    if let Some(pair) = broken {
        return Finding::problem(
            CHAIN,
            format!(
                "{} is not followed by its issuer {}",
                pair[0].subject, pair[0].issuer
            ),
            "put the issuers behind the certificate, each behind the one that it signed",
        );
    }
    let accepted = TrustStore::system()
        .and_then(|trust| chain.check(&trust, CertificateUsage::TlsServer, None, now));
    match accepted {
        Ok(_) => Finding::good(CHAIN, "clients with this system's authorities accept it"),
        Err(error) => Finding::hint(
            CHAIN,
            format!("this system's authorities do not accept it: {error}"),
            "if its authority is your own, clients need its certificate for --ca",
        ),
    }
}

/// The findings about the names of the certificate.
fn of_names(credential: &CertifiedKey, config: &ServerConfig, host: &str) -> Vec<Finding> {
    let facts = CertificateFacts::of(credential.leaf());
    let usage = match config.security.gridmap {
        Some(_) => CertificateUsage::Grid,
        None => CertificateUsage::TlsServer,
    };
    let address = config.public_address.map(|address| address.to_string());
    let is_named = |name: &String| facts.is_for(name, usage);
    let host = Some(host.to_owned()).filter(|host| !host.is_empty());
    let mut findings = Vec::new();
    match host.filter(|name| !is_named(name)) {
        Some(missing) => findings.push(Finding::warning(
            NAMES,
            format!("{}; not this host's name {missing}", facts.host_names()),
            "clients refuse other names than those: use one of them in URLs, or get another certificate",
        )),
        None => findings.push(Finding::good(NAMES, facts.host_names())),
    }
    if let Some(missing) = address.filter(|name| !is_named(name)) {
        findings.push(Finding::hint(
            NAMES,
            format!("not the address of --public-address, {missing}"),
            "clients must use a name in URLs, not the address",
        ));
    }
    findings
}

/// Names of the accounts of a password file.
fn read_accounts(path: &Path) -> Result<HashSet<String>, String> {
    let accounts = server::users::list(path).map_err(|error| error.to_string())?;
    Ok(accounts.into_iter().map(|account| account.name).collect())
}

fn of_users(accounts: &Result<HashSet<String>, String>) -> Finding {
    match accounts {
        Ok(accounts) => Finding::good(USERS, show::count(accounts.len(), "account")),
        Err(problem) => Finding::failure(USERS, problem),
    }
}

/// The finding about a password file that the account of run-as may not read: its mode lets nobody but its owner.
fn of_users_owner(config: &ServerConfig) -> Option<Finding> {
    let (path, name) = (config.users.as_deref()?, config.run_as.as_deref()?);
    let account = match privilege::account(name) {
        Ok(account) => account,
        Err(error) => return Some(Finding::failure("run-as", error.to_string())),
    };
    let owner = path.metadata().ok()?.uid();
    (owner != account.uid.as_raw()).then(|| {
        Finding::warning(
            USERS,
            format!("the account {name} may not read it, so the server reads it at its start only"),
            format!("chown {name} {}", path.display()),
        )
    })
}

/// The findings about a gridmap. `accounts`: those of the password file.
fn of_gridmap(path: &Path, accounts: Option<&HashSet<String>>) -> Vec<Finding> {
    let map = match Gridmap::load(path) {
        Ok(map) => map,
        Err(error) => return vec![Finding::failure(GRIDMAP, error.to_string())],
    };
    let subjects = map.entries().count();
    let mut findings = vec![match subjects {
        0 => Finding::warning(
            GRIDMAP,
            format!("{} has no entry, so nobody can use GSI", path.display()),
            "add a line \"SUBJECT\" ACCOUNT for each user (`longhaul proxy info` shows the subject)",
        ),
        _ => Finding::good(
            GRIDMAP,
            format!("{} in {}", show::count(subjects, "subject"), path.display()),
        ),
    }];
    let Some(accounts) = accounts else {
        return findings;
    };
    let missing: BTreeSet<&str> = map
        .entries()
        .flat_map(|(_, names)| names)
        .filter(|name| !accounts.contains(*name))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        findings.push(Finding::warning(
            GRIDMAP,
            format!(
                "accounts that are not in the password file: {}",
                shown_list(&missing)
            ),
            "they have the root of the server and the rights of --gridmap-rights; to bound them, \
             `longhaul user add`",
        ));
    }
    findings
}

fn shown_list(names: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> = names.iter().copied().take(MAX_SHOWN).collect();
    let mut text = shown.join(", ");
    if names.len() > MAX_SHOWN {
        text.push_str(&format!(" and {} more", names.len() - MAX_SHOWN));
    }
    text
}

fn of_grid_directory(security: &SecurityConfig) -> Vec<Finding> {
    let folder = match &security.grid_authorities {
        Some(folder) => Ok(folder.clone()),
        None => grid_directory(),
    };
    match folder {
        Ok(folder) => authorities::examine(&folder, true),
        // The certificate's findings have the reason.
        Err(_) => Vec::new(),
    }
}

/// The findings about passwords in the clear.
fn of_passwords(config: &ServerConfig) -> Vec<Finding> {
    let security = &config.security;
    let mut findings = Vec::new();
    if security.clear_passwords && security.tls_policy() != TlsPolicy::Required {
        findings.push(Finding::warning(
            "passwords",
            "accepted in the clear from everywhere (--clear-passwords)",
            "leave that out, and use --cert, --key and --tls required",
        ));
    }
    if config.has_passwords()
        && security.tls_policy() == TlsPolicy::Off
        && !security.clear_passwords
    {
        findings.push(Finding::warning(
            "passwords",
            "accepted from this host only, because there is no TLS",
            "give --cert FILE and --key FILE",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use security::test_pki::{
        TestAuthority, TestCertificate, write_certificates, write_grid_directory, write_key,
    };

    use server::config::TokenIssuerConfig;

    use super::*;
    use crate::doctor::report::{FindingLevel, worst};

    /// A directory with the files of a server.
    struct ServerFolder {
        folder: tempfile::TempDir,
        authority: TestAuthority,
        config: ServerConfig,
    }

    impl ServerFolder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let authority = TestAuthority::new("/O=Grid/CN=Test root");
            let mut template = TestCertificate::new("/O=Grid/CN=data.example");
            template.alternative_names = vec!["data.example".to_owned()];
            template.not_after = 100 * 24 * 3600;
            let host = authority.issue(&template);
            let path = |name: &str| folder.path().join(name);
            write_certificates(&path("cert"), &host);
            write_key(&path("key"), &host);
            let mut config = ServerConfig::default();
            config.security.certificate = Some(path("cert"));
            config.security.key = Some(path("key"));
            Self {
                folder,
                authority,
                config,
            }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.folder.path().join(name)
        }

        fn with_gridmap(mut self, text: &str) -> Self {
            fs::write(self.path("gridmap"), text).unwrap();
            fs::set_permissions(self.path("gridmap"), PermissionsExt::from_mode(0o644)).unwrap();
            write_grid_directory(&self.path("ca"), &[&self.authority]);
            self.config.security.gridmap = Some(self.path("gridmap"));
            self.config.security.grid_authorities = Some(self.path("ca"));
            self
        }

        fn examine(&self) -> Vec<Finding> {
            examine_at(&self.config, "data.example", SystemTime::now())
        }
    }

    fn has(findings: &[Finding], level: FindingLevel, text: &str) -> bool {
        let is_it = |finding: &Finding| finding.level == level && finding.line().contains(text);
        findings.iter().any(is_it)
    }

    #[test]
    fn a_server_whose_files_fit_has_no_problem() {
        let findings = ServerFolder::new()
            .with_gridmap("\"/O=Grid/CN=Ada\" ada\n")
            .examine();
        assert!(worst(&findings) < FindingLevel::Warning, "{findings:?}");
        for text in [
            "fits its key",
            "data.example",
            "1 subject in",
            "GSI clients with the same",
        ] {
            assert!(
                has(&findings, FindingLevel::Good, text),
                "{text}: {findings:?}"
            );
        }
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_another_one_is_a_problem() {
        let server = ServerFolder::new();
        fs::set_permissions(server.path("key"), PermissionsExt::from_mode(0o644)).unwrap();
        assert!(has(&server.examine(), FindingLevel::Problem, "chmod 600"));
        write_key(&server.path("key"), &server.authority.user("Ada"));
        let findings = server.examine();
        assert!(
            has(&findings, FindingLevel::Problem, "does not belong"),
            "{findings:?}"
        );
    }

    #[test]
    fn the_end_of_the_certificate_is_a_warning_before_and_a_problem_after() {
        let server = ServerFolder::new();
        let day = std::time::Duration::from_secs(24 * 3600);
        let after = |days: u32| {
            examine_at(
                &server.config,
                "data.example",
                SystemTime::now() + day * days,
            )
        };
        assert!(has(&after(80), FindingLevel::Warning, "SIGHUP"));
        assert!(has(&after(101), FindingLevel::Problem, "expired at"));
    }

    #[test]
    fn names_that_clients_may_use_must_be_in_the_certificate() {
        let mut server = ServerFolder::new();
        let other = examine_at(&server.config, "other.example", SystemTime::now());
        assert!(
            has(
                &other,
                FindingLevel::Warning,
                "not this host's name other.example"
            ),
            "{other:?}"
        );
        server.config.public_address = Some("192.0.2.7".parse().unwrap());
        assert!(has(&server.examine(), FindingLevel::Note, "192.0.2.7"));
    }

    #[test]
    fn chains_are_checked() {
        let mut server = ServerFolder::new();
        let own =
            CertifiedKey::self_signed(&["data.example".to_owned()], SERVER_RENEWAL * 4).unwrap();
        assert_eq!(
            of_chain(&ShownChain::of(&own), SystemTime::now()).level,
            FindingLevel::Warning
        );
        let stranger = TestAuthority::new("/CN=Stranger");
        let mut certificates = fs::read(server.path("cert")).unwrap();
        certificates.extend(stranger.certificate().to_pem().unwrap());
        fs::write(server.path("cert"), certificates).unwrap();
        let findings = server.examine();
        assert!(
            has(
                &findings,
                FindingLevel::Problem,
                "not followed by its issuer"
            ),
            "{findings:?}"
        );
        // GSI clients know another authority.
        server = ServerFolder::new().with_gridmap("\"/O=Grid/CN=Ada\" ada\n");
        fs::remove_dir_all(server.path("ca")).unwrap();
        write_grid_directory(&server.path("ca"), &[&stranger]);
        assert!(has(
            &server.examine(),
            FindingLevel::Problem,
            "GSI clients refuse it"
        ));
    }

    #[test]
    fn errors_of_the_gridmap_have_the_line_and_the_remedy() {
        let server = ServerFolder::new().with_gridmap("# map\n/O=Grid/CN=Ada Lovelace ada\n");
        let findings = server.examine();
        assert!(
            has(&findings, FindingLevel::Problem, "gridmap:2"),
            "{findings:?}"
        );
        fs::write(server.path("gridmap"), "/O=Grid/CN=Ada ada\n").unwrap();
        fs::set_permissions(server.path("gridmap"), PermissionsExt::from_mode(0o666)).unwrap();
        assert!(has(&server.examine(), FindingLevel::Problem, "chmod go-w"));
        let empty = ServerFolder::new().with_gridmap("# nobody\n");
        assert!(has(&empty.examine(), FindingLevel::Warning, "no entry"));
    }

    #[test]
    fn accounts_of_the_gridmap_are_looked_for_in_the_password_file() {
        let server = ServerFolder::new().with_gridmap("/O=Grid/CN=Ada ada,guest\n");
        let path = server.path("gridmap");
        let accounts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let known = of_gridmap(&path, Some(&accounts(&["ada", "guest"])));
        assert_eq!(worst(&known), FindingLevel::Good);
        let missing = of_gridmap(&path, Some(&accounts(&["ada"])));
        assert!(
            has(&missing, FindingLevel::Warning, "password file: guest;"),
            "{missing:?}"
        );
    }

    #[test]
    fn an_unusable_password_file_and_unusable_authorities_are_problems() {
        let mut server = ServerFolder::new();
        server.config.users = Some("/nowhere/users".into());
        server.config.security.client_authorities = Some("/nowhere/ca".into());
        let findings = server.examine();
        assert!(
            has(&findings, FindingLevel::Problem, "/nowhere/users"),
            "{findings:?}"
        );
        assert!(has(&findings, FindingLevel::Problem, "/nowhere/ca"));
    }

    #[test]
    fn a_password_file_of_another_account_than_the_servers_is_a_warning() {
        let mut server = ServerFolder::new();
        fs::write(server.path("users"), "").unwrap();
        fs::set_permissions(server.path("users"), PermissionsExt::from_mode(0o600)).unwrap();
        server.config.users = Some(server.path("users"));
        // An account of every system, which owns nothing.
        server.config.run_as = Some("nobody".to_owned());
        let findings = server.examine();
        assert!(
            has(&findings, FindingLevel::Warning, "chown nobody"),
            "{findings:?}"
        );
        server.config.run_as = Some("no-such-account".to_owned());
        assert!(has(
            &server.examine(),
            FindingLevel::Problem,
            "no-such-account"
        ));
    }

    #[test]
    fn passwords_without_tls_are_warnings_and_half_a_credential_is_a_problem() {
        let mut config = ServerConfig {
            users: Some("/nowhere/users".into()),
            ..ServerConfig::default()
        };
        assert!(has(
            &of_passwords(&config),
            FindingLevel::Warning,
            "this host only"
        ));
        config.security.clear_passwords = true;
        assert!(has(
            &of_passwords(&config),
            FindingLevel::Warning,
            "in the clear"
        ));
        config.security.certificate = Some("/c".into());
        let findings = examine_at(&config, "h", SystemTime::now());
        assert!(
            has(&findings, FindingLevel::Problem, "--key FILE"),
            "{findings:?}"
        );
    }

    #[test]
    fn keys_of_token_issuers_that_cannot_be_read_are_a_problem() {
        let mut folder = ServerFolder::new();
        let issuer = |keys: &Path| TokenIssuerConfig {
            url: "https://issuer.example".to_owned(),
            audience: vec!["us".to_owned()],
            base_path: "/".to_owned(),
            account: "vo".to_owned(),
            keys: Some(keys.to_str().unwrap().to_owned()),
        };
        let (keys, broken) = (folder.path("keys.json"), folder.path("broken.json"));
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{x}"}}]}}"#);
        fs::write(&keys, set).unwrap();
        fs::write(&broken, "no keys").unwrap();
        for (file, level, text) in [
            (&keys, FindingLevel::Good, "can be used"),
            (&broken, FindingLevel::Problem, "broken.json"),
            (&folder.path("none"), FindingLevel::Problem, "none"),
        ] {
            folder.config.security.token_issuers = vec![issuer(file)];
            let findings = folder.examine();
            assert!(has(&findings, level, text), "{findings:?}");
        }
    }
}
