use super::*;

fn parsed(text: &str) -> NetworkProxy {
    NetworkProxy::parse(text, None).unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

fn variables(set: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
    move |name| {
        let found = set.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

/// The proxy for `ftp://host.example.org`.
fn chosen(choice: &ProxyChoice, set: &'static [(&'static str, &'static str)]) -> Option<String> {
    let found = choice.choose("ftp", "host.example.org", &variables(set));
    found.unwrap().map(|proxy| proxy.to_string())
}

#[test]
fn a_url_names_protocol_host_port_and_login() {
    for (text, shown) in [
        ("proxy", "http://proxy:80"),
        ("proxy:3128", "http://proxy:3128"),
        ("http://proxy:3128/", "http://proxy:3128"),
        ("HTTPS://proxy", "https://proxy:443"),
        ("socks5://192.0.2.1", "socks5://192.0.2.1:1080"),
        ("socks5h://[2001:db8::1]:1", "socks5h://[2001:db8::1]:1"),
        ("socks://h:9", "socks5h://h:9"),
        ("ann:hush@proxy:1", "http://ann@proxy:1"),
        ("socks5://ann:h%40sh@x@proxy", "socks5://ann@proxy:1080"),
    ] {
        assert_eq!(parsed(text).to_string(), shown);
    }
}

#[test]
fn a_mistake_is_named_without_the_text() {
    for text in [
        "",
        "http://",
        "http://ann:hush@",
        "socks4://ann:hush@h:1",
        "ftp://ann:hush@h",
        "ann:hush://x@h:1",
        "http://ann:hush@h:0",
        "http://ann:hush@h:70000",
        "http://ann:hush@h:1/path",
        "http://ann:hush@[::1",
        "http://ann:hush@a b",
        "http://:hush@h",
        "http://a%3Ab:hush@h",
    ] {
        let problem = NetworkProxy::parse(text, None).unwrap_err();
        assert!(!problem.contains("hush"), "{text}: {problem}");
        assert!(!mask_proxy(text).contains("hush"), "{text}");
    }
    assert_eq!(mask_proxy("ann:hush@h:1"), "***@h:1");
    assert_eq!(mask_proxy("none"), "none");
    assert!(!format!("{:?}", parsed("ann:hush@h")).contains("hush"));
}

#[test]
fn the_variable_of_the_scheme_comes_before_that_of_all() {
    let choice = ProxyChoice::Environment;
    assert_eq!(chosen(&choice, &[]), None);
    assert_eq!(
        chosen(
            &choice,
            &[("all_proxy", "socks5://a"), ("ftp_proxy", "b:1")]
        )
        .unwrap(),
        "http://b:1 (from ftp_proxy)"
    );
    assert_eq!(
        chosen(&choice, &[("ALL_PROXY", "socks5://a"), ("ftp_proxy", " ")]).unwrap(),
        "socks5://a:1080 (from ALL_PROXY)"
    );
    assert_eq!(
        chosen(&choice, &[("FTP_PROXY", "c:1")]).unwrap(),
        "http://c:1 (from FTP_PROXY)"
    );
    assert_eq!(
        chosen(&choice, &[("http_proxy", "c:1"), ("https_proxy", "d:1")]),
        None
    );
    let http = choice.choose("http", "h", &variables(&[("HTTP_PROXY", "c:1")]));
    assert_eq!(http, Ok(None), "a header of a CGI request");
    let wrong = choice.choose("gsiftp", "h", &variables(&[("all_proxy", "ann:hush@")]));
    let problem = wrong.unwrap_err();
    assert!(
        problem.starts_with("all_proxy: ") && !problem.contains("hush"),
        "{problem}"
    );
}

#[test]
fn the_flag_comes_before_variables_and_none_does_without() {
    let set = &[("ftp_proxy", "b:1"), ("LONGHAUL", "")];
    let named = ProxyChoice::parse("socks5://a:2").unwrap();
    assert_eq!(chosen(&named, set).unwrap(), "socks5://a:2");
    assert_eq!(chosen(&ProxyChoice::parse("none").unwrap(), set), None);
    let excluding = &[("no_proxy", "example.org")];
    assert_eq!(chosen(&named, excluding), None);
    assert!(ProxyChoice::parse("socks4://a").is_err());
}

#[test]
fn excluded_hosts_are_names_domains_addresses_and_networks() {
    let is_excluded = |host: &str, list: &'static str| {
        let choice = ProxyChoice::parse("p:1").unwrap();
        let set = move |name: &str| (name == "NO_PROXY").then(|| list.to_owned());
        choice.choose("ftp", host, &set).unwrap().is_none()
    };
    for (host, list) in [
        ("host", "*"),
        ("host.example.org", "other, host.example.org"),
        ("host.example.org", "EXAMPLE.org"),
        ("host.example.org", ".example.org"),
        ("host.example.org.", "*.example.org."),
        ("example.org", ".example.org"),
        ("10.1.2.3", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3"),
        ("10.1.2.3", "0.0.0.0/0"),
        ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ("2001:db8::5", "[2001:db8::5]"),
        ("2001:db8::5", "a 2001:db8::/32"),
        ("2001:db8::5", "::/0"),
    ] {
        assert!(is_excluded(host, list), "{host} in {list}");
    }
    for (host, list) in [
        ("host", ""),
        ("host", " , ."),
        ("myexample.org", "example.org"),
        ("org", "example.org"),
        ("h\u{e4}example.org", "\u{a4}example.org"),
        ("11.1.2.3", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3/33"),
        ("10.1.2.3", "10.1.2.3/x"),
        ("10.1.2.3", "::/0"),
        ("10.1.2.3", "2.3"),
        ("2001:db9::5", "2001:db8::/32"),
    ] {
        assert!(!is_excluded(host, list), "{host} in {list}");
    }
}
