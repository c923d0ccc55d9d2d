use proptest::prelude::*;

use super::*;
use crate::FailureKind;

fn anonymous(_: &str, user: Option<&str>) -> Result<Credential, Failure> {
    Ok(Credential::password(user.unwrap_or("anonymous"), "found"))
}

fn password(url: &str) -> Vec<u8> {
    remote(url).0.credential.user_and_password().1.0.clone()
}

fn parse(text: &str) -> Result<Location, Failure> {
    Location::parse_with(text, &anonymous, &Arc::default())
}

fn remote(text: &str) -> (Server, Vec<u8>) {
    match parse(text) {
        Ok(Location::Remote { server, path }) => (server, path),
        other => panic!("{text}: {other:?}"),
    }
}

fn usage_error_message(text: &str) -> String {
    let failure = parse(text).expect_err(text);
    assert_eq!(failure.kind(), FailureKind::Usage, "{text}");
    failure.to_string()
}

#[test]
fn paths_and_file_urls_are_local() {
    let local = |text: &str| match parse(text) {
        Ok(Location::Local(path)) => path,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(local("a b"), PathBuf::from("a b"));
    assert_eq!(local("host:path"), PathBuf::from("host:path"));
    assert_eq!(local("file:///p%20q"), PathBuf::from("/p q"));
    assert_eq!(local("file:/p"), PathBuf::from("/p"));
    assert_eq!(local("file://localhost/p"), PathBuf::from("/p"));
    assert_eq!(local("file:/a%FF").as_os_str().as_bytes(), b"/a\xff");
    assert_eq!(parse("-").unwrap(), Location::StandardStreams);
    usage_error_message("");
    usage_error_message("file://elsewhere/p");
    usage_error_message("file:relative");
    usage_error_message("file:/a%00b");
}

#[test]
fn server_urls_name_host_port_login_and_path() {
    let (server, path) = remote("ftp://h/a");
    assert_eq!((server.port, path.as_slice()), (21, &b"/a"[..]));
    assert_eq!(password("ftp://h/a"), b"found");
    assert_eq!(remote("ftp://h//a").1, b"/a");
    assert_eq!(remote("ftp://h/%2Fa").1, b"/a");
    assert_eq!(remote("ftp://h").1, b"/");
    assert_eq!(remote("ftp://h/dir/").1, b"/dir/");
    assert_eq!(remote("GSIFTP://h/x").0.port, 2811);
    let (server, path) = remote("ftp://us%40er:p%3Aw@[::1]:2121/a%FFb c");
    assert_eq!(server.credential, Credential::password("us@er", "p:w"));
    assert_eq!(server.host, "::1");
    assert_eq!(server.port, 2121);
    assert_eq!(path, b"/a\xffb c");
    assert_eq!(password("ftp://u@h/"), b"found");
    assert_eq!(password("ftp://u:@h/"), b"");
}

#[test]
fn home_directories_of_sshftp_begin_with_no_slash() {
    for (url, expected) in [
        ("sshftp://h/~/a", "~/a"),
        ("sshftp://h//~ann", "~ann"),
        ("sshftp://h/./~ann", "/./~ann"),
        ("ssh://h/~/a", "/~/a"),
    ] {
        assert_eq!(remote(url).1, expected.as_bytes(), "{url}");
    }
}

#[test]
fn unsupported_schemes_and_malformed_urls_are_refused() {
    for url in ["ftpes://h/a", "gopher://b/k"] {
        assert!(usage_error_message(url).contains("gsiftp:"), "{url}");
    }
    for url in [
        "ftp:h/a",
        "ftp:///a",
        "ftp://h:0/a",
        "ftp://h:70000/",
        "ftp://[::1/a",
        "ftp://[h]/a",
        "ftp://[::1]x/a",
        "ftp://h/a%00",
        "ftp://h/a%0Ab",
        "ftp://h/a%0d",
        "ftp://u%0a:p@h/",
        // Options of ssh, and words of the shells that its configuration may start.
        "ssh://-oProxyCommand=x/a",
        "ssh://h;x/a",
        "ssh://-l@h/a",
        "ssh://a%60b@h/a",
        "ssh://ann:secret@h/a",
        "sshftp://-oProxyCommand=x/a",
        "sshftp://a%60b@h/a",
    ] {
        usage_error_message(url);
    }
}

#[test]
fn error_messages_hide_passwords() {
    for url in [
        "ftpes://u:s3cret@h/a",
        "ftp://u:s3cret@h:0/",
        "ftp:u:s3cret@h/a",
        "ssh://u:s3cret@h/a",
    ] {
        let message = usage_error_message(url);
        assert!(!message.contains("s3cret"), "{message}");
    }
}

#[test]
fn displayed_urls_parse_to_the_same_location() {
    for url in [
        "ftp://h/a%20b",
        "gsiftp://u@h:2812/x/",
        "ftp://[::1]:2121/%FF%25",
        "ssh://ann@[::1]:2200/~/x",
        "ssh://h/a",
        "sshftp://ann@h:2200/~/x",
        "sshftp://h/~ann/x",
        "sshftp://h/a/~",
    ] {
        let location = parse(url).unwrap();
        assert_eq!(location.display(), url);
        assert_eq!(parse(&location.display()).unwrap(), location);
    }
}

proptest! {
    #[test]
    fn parsing_any_text_never_panics(text: String) {
        let _ = parse(&text);
    }

    #[test]
    fn parsing_any_ftp_url_never_panics(rest in "[a-z0-9:@/%\\[\\]. ~-]{0,40}") {
        let _ = parse(&format!("ftp://{rest}"));
    }

    #[test]
    fn display_and_errors_hide_the_password(password in "[A-Z]{6,12}", path in "[a-z/%0-9]{0,20}") {
        let url = format!("ftp://user:{password}@host/{path}");
        match parse(&url) {
            Ok(location) => {
                prop_assert!(!location.display().contains(&password));
                let debug = format!("{:?}", location);
                prop_assert!(!debug.contains(&password));
            }
            Err(failure) => prop_assert!(!failure.to_string().contains(&password)),
        }
    }

    #[test]
    fn identity_keys_differ_exactly_when_paths_differ(a: Vec<u8>, b: Vec<u8>) {
        let at = |p: &[u8]| {
            Location::Local(PathBuf::from(OsString::from_vec(p.to_vec()))).identity_key()
        };
        prop_assert_eq!(at(&a) == at(&b), a == b);
    }
}

#[test]
fn queries_are_kept_for_http_and_never_shown() {
    let find = |_: &str, _: Option<&str>| Ok(Credential::password("ann", "pw"));
    let read = |text: &str| match Location::parse_with(text, &find, &Arc::default()) {
        Ok(Location::Remote { server, path }) => (server, path),
        other => panic!("{other:?}"),
    };
    let (server, path) = read("https://h/a%20b?X-Sig=secret#part");
    assert_eq!((server.port, path), (443, b"/a b".to_vec()));
    assert_eq!(server.query.as_deref(), Some("X-Sig=secret"));
    let shown = Location::Remote {
        server: server.clone(),
        path: b"/a b".to_vec(),
    };
    assert_eq!(shown.display(), "https://ann@h/a%20b?...");
    assert!(!format!("{shown:?}").contains("secret"));
    // A password that is not in the URL is never sent over http:.
    assert_eq!(read("http://h/a").0.credential, Credential::Anonymous);
    assert_eq!(
        read("http://u:p@h/a").0.credential,
        Credential::password("u", "p")
    );
    let wrong = Location::parse_with("https://h:0/a?secret", &find, &Arc::default()).unwrap_err();
    assert!(!wrong.to_string().contains("secret"), "{wrong}");
}
