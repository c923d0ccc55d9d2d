use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::FailureKind;
use crate::location::Location;

fn security(options: SecurityOptions) -> (Arc<ConnectionSecurity>, Arc<Mutex<Vec<String>>>) {
    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&warnings);
    let warn = move |text: &str| sink.lock().push(text.to_owned());
    let security = ConnectionSecurity::new(options, Arc::new(warn)).unwrap();
    (security, warnings)
}

fn parse(url: &str, security: &Arc<ConnectionSecurity>) -> Result<Server, Failure> {
    match Location::parse_secured(url, security)? {
        Location::Remote { server, .. } => Ok(server),
        other => panic!("{other:?}"),
    }
}

fn asking_for(data_protection: DataProtectionChoice) -> SecurityOptions {
    SecurityOptions {
        data_protection,
        ..SecurityOptions::default()
    }
}

#[test]
fn protection_that_a_scheme_cannot_have_is_a_usage_error() {
    use DataProtectionChoice::{Authenticated, Auto, Clear, Private, Safe};
    for (choice, refused, accepted) in [
        (
            Auto,
            &[][..],
            &["ftp", "ftps", "gsiftp", "http", "https"][..],
        ),
        (Clear, &[], &["ftp", "ftps", "gsiftp", "sshftp"]),
        (
            Private,
            &["ftp", "http", "sshftp"],
            &["ftps", "gsiftp", "https"],
        ),
        (Safe, &["ftp", "ftps", "http"], &["gsiftp"]),
        (Authenticated, &["ftp", "ftps", "http"], &["gsiftp"]),
    ] {
        let (security, _) = security(asking_for(choice));
        for scheme in refused {
            let failure = parse(&format!("{scheme}://h/f"), &security).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage, "{scheme} {choice:?}");
            assert!(failure.to_string().contains(choice.name()), "{failure}");
        }
        for scheme in accepted {
            assert!(
                parse(&format!("{scheme}://h/f"), &security).is_ok(),
                "{scheme} {choice:?}"
            );
        }
    }
    for (tls, is_accepted) in [(TlsUse::Try, false), (TlsUse::Require, true)] {
        let (security, _) = security(SecurityOptions {
            tls,
            ..asking_for(Private)
        });
        assert_eq!(
            parse("ftp://h/f", &security).is_ok(),
            is_accepted,
            "{tls:?}"
        );
    }
}

fn token_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "hush\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    (dir, path)
}

#[test]
fn a_token_goes_to_protected_urls_without_a_user() {
    let (_dir, path) = token_file();
    let with_tls = |tls| {
        let options = SecurityOptions {
            token: Some(path.clone()),
            tls,
            ..SecurityOptions::default()
        };
        security(options).0
    };
    let off = with_tls(TlsUse::Off);
    let token = Credential::Token("hush".into());
    for (url, gets_it) in [
        ("ftps://h/f", true),
        ("https://h/f", true),
        ("ftps://joe:pw@h/f", false),
        ("ftp://h/f", false),
        ("http://h/f", false),
        ("gsiftp://h/f", false),
    ] {
        let server = parse(url, &off).unwrap();
        assert_eq!(server.credential == token, gets_it, "{url}");
        let used = off.check_use(&[&server]);
        assert_eq!(used.is_ok(), gets_it, "{url}");
        assert!(!format!("{server:?} {off:?}").contains("hush"));
    }
    let try_tls = parse("ftp://h/f", &with_tls(TlsUse::Try)).unwrap();
    assert_ne!(try_tls.credential, token, "it may end up in clear");
    let require_tls = parse("ftp://h/f", &with_tls(TlsUse::Require)).unwrap();
    assert_eq!(require_tls.credential, token);
}

#[test]
fn delegation_without_a_gsi_server_is_a_usage_error() {
    let (security, _) = security(SecurityOptions {
        delegation: DelegationChoice::Limited,
        ..SecurityOptions::default()
    });
    let ftps = parse("ftps://h/f", &security).unwrap();
    let gsi = parse("gsiftp://h/f", &security).unwrap();
    let failure = security.check_use(&[&ftps]).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Usage);
    assert!(security.check_use(&[&ftps, &gsi]).is_ok());
}

#[test]
fn verification_options_without_a_protected_connection_are_usage_errors() {
    let insecure = SecurityOptions {
        insecure: true,
        ..SecurityOptions::default()
    };
    let with_ca = SecurityOptions {
        ca: Some("/ca".into()),
        ..SecurityOptions::default()
    };
    for (options, word) in [(insecure, "--insecure"), (with_ca, "--ca")] {
        let (off, _) = security(options.clone());
        let clear = ["ftp://h/f", "ftp://i/f"].map(|url| parse(url, &off).unwrap());
        for servers in [vec![], vec![&clear[0]], vec![&clear[0], &clear[1]]] {
            let failure = off.check_use(&servers).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage);
            assert!(failure.to_string().starts_with(word), "{failure}");
        }
        let server = parse("ftps://h/f", &off).unwrap();
        assert!(off.check_use(&[&clear[0], &server]).is_ok());
        let (try_tls, _) = security(SecurityOptions {
            tls: TlsUse::Try,
            ..options
        });
        let server = parse("ftp://h/f", &try_tls).unwrap();
        assert!(try_tls.check_use(&[&server]).is_ok());
    }
}

#[test]
fn servers_that_are_always_verified_refuse_insecure() {
    let (security, warnings) = security(SecurityOptions {
        insecure: true,
        ..SecurityOptions::default()
    });
    for scheme in ["https", "gsiftp"] {
        let failure = parse(&format!("{scheme}://h/f"), &security).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage);
        let begin = format!("{scheme}: servers are always verified");
        assert!(failure.to_string().starts_with(&begin), "{failure}");
    }
    assert!(warnings.lock().is_empty());
}

#[test]
fn gsi_urls_log_in_by_certificate_and_never_with_a_password() {
    let security = Arc::default();
    let mapped = parse("gsiftp://h/f", &security).unwrap();
    assert_eq!(mapped.credential, Credential::GridMapping);
    let named = parse("gsiftp://joe@h/f", &security).unwrap();
    assert_eq!(named.credential, Credential::password("joe", ""));
}

#[test]
fn insecure_is_warned_about_once_before_a_connection_is_secured() {
    let (security, warnings) = security(SecurityOptions {
        insecure: true,
        ..SecurityOptions::default()
    });
    let server = parse("ftps://h/f", &security).unwrap();
    assert!(warnings.lock().is_empty(), "nothing is unverified yet");
    for _ in 0..2 {
        security.tls_config(&server).unwrap();
    }
    assert_eq!(warnings.lock().len(), 1);
    assert!(warnings.lock()[0].contains("not verified"));
    security.warn_once("again");
    security.warn_once("again");
    assert_eq!(warnings.lock().len(), 2);
}

#[test]
fn the_protections_of_transfers_are_named_once_each() {
    let security = ConnectionSecurity::default();
    assert_eq!(security.in_force(), "none");
    for name in [
        "TLSv1.3, data private",
        "TLSv1.2, data private",
        "TLSv1.3, data private",
    ] {
        security.note_in_force(name.to_owned());
    }
    assert_eq!(
        security.in_force(),
        "TLSv1.2, data private; TLSv1.3, data private"
    );
}
