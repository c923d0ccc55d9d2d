//! FTPS clients against `longhaul serve`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{LonghaulServer, PASSWORD, ServeCommand, USER, add_user};
use interop::matrix::{self, TestStore};
use interop::net;
use interop::peer::curl::Curl;
use interop::peer::lftp::Lftp;
use interop::pki::PeerPki;
use interop::pki::authority::PeerCertificate;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;
use interop::tree::TestTree;

/// Exit codes of curl.
mod curl_code {
    /// The server refused the protection that was asked for.
    pub(super) const NO_PROTECTION: i32 = 64;
    /// The login was refused.
    pub(super) const LOGIN: i32 = 67;
}

/// An anonymous server with the certificate of `localhost`.
fn secured(store: &TestStore, pki: &PeerPki) -> ServeCommand {
    ServeCommand::anonymous(store.root()).certificate(&pki.host)
}

/// Gets and puts every size with these options of curl; `url` gives the URL of a served path.
fn curl_both_ways(
    cells: &mut MatrixRow,
    store: &TestStore,
    server: &LonghaulServer,
    url: &dyn Fn(&str) -> String,
    options: &[&str],
) {
    let curl = require!(Curl::find());
    let run = |arguments: &[&str]| {
        server.explain(
            curl.run(arguments)
                .and_then(FinishedProgram::expect_success),
        )
    };
    matrix::get(cells, store, &test_files::SIZES, |from, to| {
        let (url, to) = (url(from), path_argument(to));
        run(&[options, &[&url, "-o", &to]].concat()).map(drop)
    });
    matrix::put(cells, store, &test_files::SIZES, |from, to| {
        let (from, url) = (path_argument(from), url(to));
        run(&[options, &["-T", &from, &url]].concat()).map(drop)
    });
}

/// curl with AUTH TLS against a server with these settings, once per set of options.
fn curl_rows(name: &str, settings: impl Fn(ServeCommand) -> ServeCommand, rows: &[&[&str]]) {
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = settings(secured(&store, &pki)).start().unwrap();
    let authority = path_argument(&pki.ca_file());
    for row in rows {
        let mut cells = MatrixRow::new(format!("curl {} {name}", row.join(" ")));
        let options = [&["--cacert", &authority], *row].concat();
        curl_both_ways(
            &mut cells,
            &store,
            &server,
            &|path| server.url(path),
            &options,
        );
        cells.finish();
    }
}

#[test]
fn ftps_curl_protects_commands_and_data() {
    // Not -P: curl 7.88 fails to begin TLS on data connections that it accepts, with every server.
    let rows: [&[&str]; 3] = [
        &["--ssl-reqd"],
        &["--ssl-reqd", "--tls-max", "1.2"],
        &["--ssl-reqd", "--no-sessionid"],
    ];
    curl_rows("with TLS", |serve| serve, &rows);
}

#[test]
fn ftps_curl_protects_commands_only() {
    let rows: [&[&str]; 2] = [
        &["--ftp-ssl-control"],
        &["--ftp-ssl-control", "-P", "127.0.0.1"],
    ];
    curl_rows("with TLS", |serve| serve, &rows);
}

#[test]
fn ftps_curl_ends_the_protection_of_commands_where_the_server_allows_it() {
    let rows: [&[&str]; 2] = [
        &["--ssl-reqd", "--ftp-ssl-ccc"],
        &[
            "--ssl-reqd",
            "--ftp-ssl-ccc-mode",
            "active",
            "--tls-max",
            "1.2",
        ],
    ];
    curl_rows("--allow-ccc", |serve| serve.flag("--allow-ccc"), &rows);
}

#[test]
fn ftps_curl_resumes_sessions_where_the_server_requires_it() {
    let rows: [&[&str]; 2] = [&["--ssl-reqd"], &["--ssl-reqd", "--tls-max", "1.2"]];
    let required = |serve: ServeCommand| serve.option("--tls-session-reuse", "required");
    curl_rows("--tls-session-reuse required", required, &rows);
}

#[test]
fn ftps_curl_uses_implicit_tls() {
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let implicit = format!("127.0.0.1:{}", net::free_port().unwrap());
    let server = secured(&store, &pki)
        .option("--implicit-tls", &implicit)
        .start()
        .unwrap();
    let authority = path_argument(&pki.ca_file());
    for row in [&[][..], &["--tls-max", "1.2"]] {
        let mut cells = MatrixRow::new(format!("curl ftps:// {}", row.join(" ")));
        let options = [&["--cacert", &authority], row].concat();
        let url = |path: &str| format!("ftps://{implicit}/{path}");
        curl_both_ways(&mut cells, &store, &server, &url, &options);
        cells.finish();
    }
}

#[test]
fn ftps_curl_logs_in_with_a_certificate() {
    let pki = require!(PeerPki::find());
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::new(store.root())
        .gsi(&pki)
        .unwrap()
        .option("--client-certs", "optional")
        .option("--client-ca", &path_argument(&pki.ca_directory()))
        .start()
        .unwrap();
    let authority = path_argument(&pki.ca_file());
    let get = |own: &PeerCertificate, user: &str| -> Result<FinishedProgram> {
        let (certificate, key) = (path_argument(&own.certificate), path_argument(&own.key));
        let url = server
            .url("src/f65536")
            .replace("//", &format!("//{user}@"));
        let trust = ["--ssl-reqd", "--cacert", &authority];
        let login = ["--cert", &certificate, "--key", &key, &url];
        server.explain(curl.run(&[&trust[..], &login].concat()))
    };
    let mut cells = MatrixRow::new("curl --cert");
    for user in [USER, "%3Aglobus-mapping%3A"] {
        cells.check(format!("USER {user}"), || {
            let got = get(&pki.user, user)?.expect_success()?;
            ensure!(got.stderr_text().contains("< 232"), "no 232 in {got}");
            ensure!(!got.stderr_text().contains("> PASS"), "a password in {got}");
            ensure!(got.stdout == std::fs::read(test_files::shared(65_536)?)?);
            Ok(())
        });
    }
    for (name, own, user) in [
        ("a stranger", &pki.stranger, USER),
        ("another account", &pki.user, "bob"),
    ] {
        cells.check(format!("{name} is refused"), || {
            get(own, user)?.expect_code(curl_code::LOGIN).map(drop)
        });
    }
    for (name, own) in [("revoked", &pki.revoked), ("impostor", &pki.impostor)] {
        cells.check(format!("{name} is refused"), || {
            get(own, USER)?.expect_failure().map(drop)
        });
    }
    cells.check("the server serves on", || {
        get(&pki.user, USER)?.expect_success().map(drop)
    });
    cells.finish();
}

#[test]
fn ftps_servers_may_require_certificates() {
    let pki = require!(PeerPki::find());
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = secured(&store, &pki)
        .option("--client-certs", "required")
        .option("--client-ca", &path_argument(&pki.ca_file()))
        .start()
        .unwrap();
    let authority = path_argument(&pki.ca_file());
    let url = server.url("src/f1");
    let trust = ["--ssl-reqd", "--cacert", &authority, &url];
    let own = |own: &PeerCertificate| [path_argument(&own.certificate), path_argument(&own.key)];
    let mut cells = MatrixRow::new("--client-certs required");
    for more in [&[][..], &["--tls-max", "1.2"]] {
        cells.check(format!("none {}", more.join(" ")), || {
            curl.run(&[&trust, more].concat())?.expect_failure()?;
            Ok(())
        });
        for (who, works) in [(&pki.user, true), (&pki.impostor, false)] {
            let [certificate, key] = own(who);
            let shown = ["--cert", &certificate, "--key", &key];
            cells.check(format!("{certificate} {}", more.join(" ")), || {
                let done = server.explain(curl.run(&[&trust, more, &shown].concat()))?;
                match works {
                    true => done.expect_success().map(drop),
                    false => done.expect_failure().map(drop),
                }
            });
        }
    }
    cells.finish();
}

#[test]
fn ftps_protection_may_be_required() {
    let pki = require!(PeerPki::find());
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = secured(&store, &pki)
        .option("--tls", "required")
        .option("--require-protection", "data")
        .start()
        .unwrap();
    let authority = path_argument(&pki.ca_file());
    let url = server.url("src/f65536");
    let get = |options: &[&str]| server.explain(curl.run(&[options, &[&url]].concat()));
    let tls = ["--ssl-reqd", "--cacert", &authority];
    let mut cells = MatrixRow::new("required protection");
    cells.check("no TLS is refused", || {
        get(&[])?.expect_code(curl_code::LOGIN).map(drop)
    });
    cells.check("clear data is refused", || {
        let control = ["--ftp-ssl-control", "--cacert", &authority];
        let tried = get(&control)?.expect_failure()?;
        ensure!(tried.stdout.is_empty(), "{tried}");
        let refused = tried.stderr_text().contains("< 52");
        ensure!(refused, "no 521 or 522 in {tried}");
        Ok(())
    });
    cells.check("protected data is sent", || {
        get(&tls)?.expect_success().map(drop)
    });
    cells.check("CCC is refused", || {
        let done = get(&[&tls[..], &["--ftp-ssl-ccc"]].concat())?;
        let refused = done.stderr_text().contains("< 53");
        ensure!(refused, "CCC was not refused: {done}");
        Ok(())
    });
    cells.finish();
}

#[test]
fn ftps_without_a_certificate_there_is_no_tls() {
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let tried = curl.run(&["--ssl-reqd", &server.url("src/f1")]).unwrap();
    tried.expect_code(curl_code::NO_PROTECTION).unwrap();
}

#[test]
fn ftps_clear_passwords_need_a_setting() {
    let curl = require!(Curl::find());
    let pki = require!(PeerPki::find());
    let outside = require!(net::outside_address());
    let store = TestStore::new().unwrap();
    let users = store.path("users");
    add_user(&users, store.root()).unwrap();
    let serve = || {
        ServeCommand::new(store.root())
            .listen(&SocketAddr::new(outside, 0).to_string())
            .option("--users", &path_argument(&users))
            .certificate(&pki.host)
    };
    let mut cells = MatrixRow::new("passwords");
    let strict = serve().start().unwrap();
    let url = strict.user_url("src/f1");
    cells.check("in the clear are refused", || {
        let tried = curl.run(&[&url])?.expect_code(curl_code::LOGIN)?;
        let advice = tried
            .stderr_text()
            .lines()
            .find(|line| line.starts_with("< 530"))
            .map(str::to_owned);
        ensure!(
            advice
                .as_deref()
                .is_some_and(|advice| advice.contains("TLS")),
            "no advice in {tried}"
        );
        ensure!(
            !strict.log().contains(PASSWORD),
            "the log has the password: {}",
            strict.log()
        );
        Ok(())
    });
    cells.check("over TLS are accepted", || {
        // The certificate does not have this address.
        let done = strict.explain(curl.run(&["--ssl-reqd", "-k", &url]))?;
        done.expect_success().map(drop)
    });
    let lax = serve().flag("--clear-passwords").start().unwrap();
    cells.check("in the clear are accepted by name", || {
        let done = lax.explain(curl.run(&[&lax.user_url("src/f1")]))?;
        done.expect_success().map(drop)
    });
    cells.finish();
}

#[test]
fn ftps_a_self_signed_certificate_is_made_and_its_fingerprint_printed() {
    let curl = require!(Curl::find());
    require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root())
        .option("--tls", "self-signed")
        .start()
        .unwrap();
    let url = server.url("src/f65536");
    let got = server
        .explain(curl.run(&["--ssl-reqd", "-k", &url]))
        .and_then(FinishedProgram::expect_success)
        .unwrap();
    assert_eq!(got.stdout.len(), 65_536);
    curl.run(&["--ssl-reqd", &url])
        .and_then(|done| done.expect_code(60))
        .unwrap();
    let fetch = format!(
        "openssl s_client -connect {} -starttls ftp </dev/null 2>/dev/null | \
         openssl x509 -noout -fingerprint -sha256",
        server.address()
    );
    let mut shell = std::process::Command::new("sh");
    let printed = interop::run::run(shell.args(["-c", &fetch])).unwrap();
    let printed = printed.stdout_text();
    let digits = |text: &str| -> String {
        let digits = text.chars().filter(char::is_ascii_hexdigit);
        digits.collect::<String>().to_ascii_lowercase()
    };
    let fingerprint = digits(printed.rsplit('=').next().unwrap_or_default());
    assert_eq!(fingerprint.len(), 64, "{printed}");
    assert!(
        server
            .log()
            .lines()
            .any(|line| digits(line).contains(&fingerprint)),
        "{fingerprint} is not in {}",
        server.log()
    );
}

#[test]
fn ftps_a_new_certificate_is_read_at_sighup() {
    let curl = require!(Curl::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let own = PeerCertificate {
        certificate: store.path("own.pem"),
        key: store.path("own.key"),
    };
    let install = |from: &PeerCertificate| {
        std::fs::copy(&from.key, &own.key).unwrap();
        std::fs::copy(&from.certificate, &own.certificate).unwrap();
    };
    install(&pki.elsewhere);
    let mut server = ServeCommand::anonymous(store.root())
        .certificate(&own)
        .start()
        .unwrap();
    let authority = path_argument(&pki.ca_file());
    let url = server.url("src/f1");
    let get = || curl.run(&["--ssl-reqd", "--cacert", &authority, &url]);
    get().and_then(|done| done.expect_code(60)).unwrap();
    install(&pki.host);
    server.guard().signal(rustix::process::Signal::HUP).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    while get().unwrap().code != Some(0) {
        let waited = std::time::Instant::now() < deadline;
        assert!(waited, "the old certificate stays: {}", server.log());
    }
}

fn lftp_script(
    lftp: &Lftp,
    server: &LonghaulServer,
    pki: &PeerPki,
    settings: &str,
    commands: &str,
) -> Result<()> {
    let script = format!(
        "set ssl:ca-file {}; set ftp:ssl-force yes; set ftp:ssl-allow-anonymous yes; {settings}; {commands}",
        pki.ca_file().display()
    );
    server
        .explain(lftp.script(server.address(), &script))
        .map(drop)
}

#[test]
fn ftps_lftp_transfers_files_and_trees() {
    let lftp = require!(Lftp::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let tree = TestTree::generate(
        200,
        &[interop::tree::ASCII, interop::tree::UNICODE].concat(),
    );
    store.add_tree("tree", &tree).unwrap();
    let server = secured(&store, &pki).start().unwrap();
    for settings in [
        "set ftp:ssl-protect-data yes",
        "set ftp:ssl-protect-data no",
        "set ftp:ssl-protect-data yes; set ftp:passive-mode no",
        "set ftp:ssl-protect-data yes; set ssl:priority NORMAL:-VERS-TLS1.3",
    ] {
        let run = |commands: &str| lftp_script(&lftp, &server, &pki, settings, commands);
        let mut cells = MatrixRow::new(format!("lftp {settings}"));
        matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
            run(&format!("get /{from} -o {}", to.display()))
        });
        matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
            run(&format!("put {} -o /{to}", from.display()))
        });
        matrix::get(&mut cells, &store, &[20_000_000], |from, to| {
            run(&format!("pget -n 4 /{from} -o {}", to.display()))
        });
        cells.check("mirror", || {
            let (local, served) = (store.local(), store.upload());
            run(&format!(
                "mirror --parallel=2 /src/tree {}",
                local.display()
            ))?;
            tree.ensure_same_as(&local)?;
            run(&format!("mirror -R {} /{served}", local.display()))?;
            tree.ensure_same_as(&store.path(&served))
        });
        cells.finish();
    }
}
