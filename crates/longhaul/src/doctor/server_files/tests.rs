use std::fs;
use std::os::unix::fs::PermissionsExt;

use security::test_pki::{
    TestAuthority, TestCertificate, write_certificates, write_grid_directory, write_key,
};

use server::config::TokenIssuerConfig;

use super::*;
use crate::doctor::finding::{FindingLevel, worst};

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
        "1 subjects",
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
    let own = CertifiedKey::self_signed(&["data.example".to_owned()], SERVER_RENEWAL * 4).unwrap();
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
