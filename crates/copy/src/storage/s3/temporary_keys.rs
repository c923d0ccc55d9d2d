//! Keys that expire, and who gives them: a program, a token of an identity provider, single sign-on, or the machine of Amazon's
//! that this is.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use data::checksum::ChecksumHasher;
use data::job::TransferSettings;
use ftp::failure::Operation;
use ftp::{ConnectionSecurity, Failure, FailureKind};
use jiff::Timestamp;
use proto::checksum::ChecksumAlgorithm;
use proto::http::url::HttpUrl;
use proto::s3::documents;
use proto::s3::keys;
use rusty_s3::Credentials;
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use super::form_signature::FormScope;
use super::settings::read_text;
use crate::storage::http::client::{HttpClient, HttpOrigin};
use crate::storage::http::request::{HttpRequest, HttpRequestBody};
use ftp::credentials::Credential;

/// Longest answer, bytes.
const MAX_ANSWER: usize = 256 << 10;
/// Longest wait for the service of this machine, which is near or not there.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for a service of Amazon's.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long before its end a key is given up.
const MARGIN: Duration = Duration::from_secs(300);

/// Who gives a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemporaryKeySource {
    /// A program, as a line for the shell (`credential_process`).
    Process(String),
    /// A role, for a token that an identity provider has put into a file.
    WebIdentity {
        /// The service STS.
        service: Url,
        token_file: PathBuf,
        role: String,
        session: String,
    },
    /// A role, for another key.
    AssumedRole(AssumedRoleSource),
    /// A role of single sign-on, for the token that `aws sso login` has left.
    SingleSignOn {
        /// The portal.
        portal: Url,
        /// The directory of tokens.
        cache: PathBuf,
        /// The name after which the token's file is named.
        login: String,
        account: String,
        role: String,
    },
    /// The service of a container.
    Container {
        address: Url,
        /// A value for the Authorization header, or the file with it.
        token: Option<String>,
        token_file: Option<PathBuf>,
    },
    /// The metadata service of a virtual machine (IMDSv2).
    Instance(Url),
}

/// A role that the holder of another key takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssumedRoleSource {
    /// The service STS.
    pub(super) service: Url,
    pub(super) region: String,
    pub(super) role: String,
    pub(super) session: String,
    /// Agreed with the role's owner, who asks for it.
    pub(super) external_id: Option<String>,
    /// How long the key lasts; `None`: as long as the service likes.
    pub(super) seconds: Option<u32>,
    /// The other key.
    pub(super) base: Box<KeyOrigin>,
}

/// A key, or who gives one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyOrigin {
    Fixed(Credentials),
    Source(TemporaryKeySource),
}

/// A key, and when it ends.
#[derive(Debug, Clone)]
pub(super) struct TemporaryKey {
    pub(super) credentials: Credentials,
    ends: Option<Timestamp>,
}

impl TemporaryKey {
    /// Whether it can still be used for a while.
    pub(super) fn is_fresh(&self) -> bool {
        let margin = Timestamp::now()
            .checked_add(MARGIN)
            .unwrap_or(Timestamp::MAX);
        self.ends.is_none_or(|end| end > margin)
    }
}

impl TemporaryKeySource {
    /// Whether it is a program, or needs the key that a program gives.
    pub(super) fn is_program(&self) -> bool {
        match self {
            Self::Process(_) => true,
            Self::AssumedRole(role) => match &*role.base {
                KeyOrigin::Source(source) => source.is_program(),
                KeyOrigin::Fixed(_) => false,
            },
            _ => false,
        }
    }

    /// The files and directories that are read for each key.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::WebIdentity { token_file, .. } => vec![token_file.clone()],
            Self::SingleSignOn { cache, .. } => vec![cache.clone()],
            Self::Container { token_file, .. } => token_file.iter().cloned().collect(),
            Self::AssumedRole(role) => match &*role.base {
                KeyOrigin::Source(source) => source.files(),
                KeyOrigin::Fixed(_) => Vec::new(),
            },
            Self::Process(_) | Self::Instance(_) => Vec::new(),
        }
    }

    /// Asks for a key.
    ///
    /// # Errors
    /// `Refused`: there is none. `Unreachable`: the service is not.
    pub(super) fn key(&self, security: &Arc<ConnectionSecurity>) -> Result<TemporaryKey, Failure> {
        match self {
            Self::Process(line) => key_of_process(line),
            Self::WebIdentity {
                service,
                token_file,
                role,
                session,
            } => {
                let action = Operation::from("get a key for the role of the web identity");
                let token = secret_of(token_file, &action)?;
                let fields = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("WebIdentityToken", token.trim()),
                ];
                let form = form_of(&fields);
                let headers = [(
                    "content-type",
                    "application/x-www-form-urlencoded".to_owned(),
                )];
                let question = KeyQuestion {
                    method: "POST",
                    headers: &headers,
                    form: Some(form.as_str()),
                };
                let answer = ask(service, &question, SERVICE_TIMEOUT, security, &action)?;
                role_of(&action, &answer, fields[0].1)
            }
            Self::AssumedRole(source) => source.key(security),
            Self::SingleSignOn { .. } => self.key_of_login(security),
            Self::Container {
                address,
                token,
                token_file,
            } => {
                let action = Operation::from("get the key of this container");
                let token = match token_file {
                    Some(file) => Some(secret_of(file, &action)?.trim().to_owned()),
                    None => token.clone(),
                };
                let headers: Vec<_> = token
                    .into_iter()
                    .map(|token| ("authorization", token))
                    .collect();
                let answer = ask(
                    address,
                    &KeyQuestion::get(&headers),
                    METADATA_TIMEOUT,
                    security,
                    &action,
                )?;
                key_of_json(&action, &answer)
            }
            Self::Instance(service) => key_of_instance(service, security),
        }
    }

    fn key_of_login(&self, security: &Arc<ConnectionSecurity>) -> Result<TemporaryKey, Failure> {
        let action = Operation::from("get a key by single sign-on");
        let Self::SingleSignOn {
            portal,
            cache,
            login,
            account,
            role,
        } = self
        else {
            return Err(action.failed(FailureKind::Local, "the profile has none"));
        };
        let log_in = || {
            action
                .failed(FailureKind::Refused, "there is no valid login")
                .advise("log in with `aws sso login`")
        };
        let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Sha1);
        hasher.update(login.as_bytes());
        let file = cache.join(format!("{}.json", hasher.finish()));
        let text = secret_of(&file, &action).map_err(|_| log_in())?;
        let kept: Value = serde_json::from_str(&text).map_err(|_| log_in())?;
        let ends = kept["expiresAt"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok());
        let token = kept["accessToken"].as_str();
        let Some(token) = token.filter(|_| ends.is_some_and(|end| end > Timestamp::now())) else {
            return Err(log_in());
        };
        let query = [("account_id", account), ("role_name", role)]
            .map(|(name, value)| format!("{name}={}", keys::encode(value.as_bytes(), false)));
        let mut url = portal.clone();
        url.set_path("/federation/credentials");
        url.set_query(Some(&query.join("&")));
        let headers = [("x-amz-sso_bearer_token", token.to_owned())];
        let answer = ask(
            &url,
            &KeyQuestion::get(&headers),
            SERVICE_TIMEOUT,
            security,
            &action,
        )?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let given = &answer["roleCredentials"];
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let ends = given["expiration"].as_i64();
        let ends = ends.and_then(|ends| Timestamp::from_millisecond(ends).ok());
        let ends = ends.map(|ends| ends.to_string()).unwrap_or_default();
        finish(
            &action,
            text("accessKeyId"),
            text("secretAccessKey"),
            text("sessionToken"),
            &ends,
        )
    }
}

impl AssumedRoleSource {
    fn key(&self, security: &Arc<ConnectionSecurity>) -> Result<TemporaryKey, Failure> {
        let action = Operation::on("get a key for the role", &self.role);
        let base = match &*self.base {
            KeyOrigin::Fixed(credentials) => credentials.clone(),
            KeyOrigin::Source(source) => source.key(security)?.credentials,
        };
        let seconds = self.seconds.map(|seconds| seconds.to_string());
        let mut fields = vec![
            ("Action", "AssumeRole"),
            ("Version", "2011-06-15"),
            ("RoleArn", &*self.role),
            ("RoleSessionName", &*self.session),
        ];
        fields.extend(self.external_id.as_deref().map(|id| ("ExternalId", id)));
        fields.extend(
            seconds
                .as_deref()
                .map(|seconds| ("DurationSeconds", seconds)),
        );
        let form = form_of(&fields);
        let scope = FormScope {
            credentials: &base,
            host: &http_url(&self.service).authority(),
            path: self.service.path(),
            region: &self.region,
            service: "sts",
        };
        let headers = scope.headers(&form, Timestamp::now());
        let question = KeyQuestion {
            method: "POST",
            headers: &headers,
            form: Some(form.as_str()),
        };
        let answer = ask(&self.service, &question, SERVICE_TIMEOUT, security, &action)?;
        role_of(&action, &answer, fields[0].1)
    }
}

/// Fields of a form.
fn form_of(fields: &[(&str, &str)]) -> Zeroizing<String> {
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", keys::encode(value.as_bytes(), false)));
    Zeroizing::new(fields.collect::<Vec<_>>().join("&"))
}

/// The key in an answer of STS.
fn role_of(action: &Operation, answer: &[u8], name: &str) -> Result<TemporaryKey, Failure> {
    let given = documents::assumed_role(answer, name);
    let given = given.map_err(|error| not_understood(action, error))?;
    finish(action, given.key, given.secret, given.token, &given.ends)
}

fn key_of_process(line: &str) -> Result<TemporaryKey, Failure> {
    let action = Operation::from("get a key from credential_process");
    let run = Command::new("/bin/sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let run = run.map_err(|error| action.failed(FailureKind::Local, error))?;
    let told = Zeroizing::new(run.stdout);
    match run.status.success() {
        true => key_of_json(&action, &told),
        false => Err(action.failed(
            FailureKind::Refused,
            format_args!("the program ended with {}", run.status),
        )),
    }
}

fn key_of_instance(
    service: &Url,
    security: &Arc<ConnectionSecurity>,
) -> Result<TemporaryKey, Failure> {
    let action = Operation::from("get the key of this machine");
    let at = |path: &str| {
        let mut url = service.clone();
        url.set_path(path);
        url
    };
    let seconds = [("x-aws-ec2-metadata-token-ttl-seconds", "300".to_owned())];
    let question = KeyQuestion {
        method: "PUT",
        headers: &seconds,
        form: Some(""),
    };
    let token = ask(
        &at("/latest/api/token"),
        &question,
        METADATA_TIMEOUT,
        security,
        &action,
    )?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    let headers = [("x-aws-ec2-metadata-token", text(token))];
    let roles = "/latest/meta-data/iam/security-credentials/";
    let question = KeyQuestion::get(&headers);
    let role = text(ask(
        &at(roles),
        &question,
        METADATA_TIMEOUT,
        security,
        &action,
    )?);
    let role = role.lines().next().unwrap_or_default();
    let answer = ask(
        &at(&format!("{roles}{role}")),
        &question,
        METADATA_TIMEOUT,
        security,
        &action,
    )?;
    key_of_json(&action, &answer)
}

/// A file that a token is in, which others may renew at any time.
fn secret_of(file: &std::path::Path, action: &Operation) -> Result<Zeroizing<String>, Failure> {
    let text = read_text(file)?;
    text.ok_or_else(|| {
        action.failed(
            FailureKind::Refused,
            format_args!("there is no file {}", file.display()),
        )
    })
}

/// A question to a service.
struct KeyQuestion<'q> {
    method: &'q str,
    headers: &'q [(&'q str, String)],
    form: Option<&'q str>,
}

impl<'q> KeyQuestion<'q> {
    fn get(headers: &'q [(&'q str, String)]) -> Self {
        Self {
            method: "GET",
            headers,
            form: None,
        }
    }
}

fn http_url(url: &Url) -> HttpUrl {
    let secure = url.scheme() == "https";
    let port = url
        .port_or_known_default()
        .unwrap_or(if secure { 443 } else { 80 });
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    HttpUrl::new(secure, host, port, url.path().as_bytes(), url.query())
}

/// Asks a service.
fn ask(
    url: &Url,
    question: &KeyQuestion<'_>,
    timeout: Duration,
    security: &Arc<ConnectionSecurity>,
    action: &Operation,
) -> Result<Vec<u8>, Failure> {
    let to = http_url(url);
    let origin = HttpOrigin::new(to.with_path(b"/"), &Credential::Anonymous, security)?;
    let mut settings = TransferSettings {
        connect_timeout: timeout,
        ..TransferSettings::default()
    };
    settings.options.stall = timeout;
    let mut client = HttpClient::new(&origin, &settings)?;
    let request = HttpRequest {
        method: question.method,
        url: &to,
        headers: question.headers,
        action,
    };
    let body = question
        .form
        .map_or(HttpRequestBody::Empty, HttpRequestBody::Text);
    let response = client.send(&request, body)?;
    match response.status() {
        200 => client.read_body(response, action, MAX_ANSWER),
        status => Err(action.failed(
            FailureKind::Refused,
            format_args!("{} refuses it (HTTP {status})", to.authority()),
        )),
    }
}

fn not_understood(action: &Operation, error: impl std::fmt::Display) -> Failure {
    let reason = format_args!("in the answer, {error}");
    action.failed(FailureKind::Protocol, reason)
}

/// The key in an answer of the form that programs and the services of machines use.
fn key_of_json(action: &Operation, answer: &[u8]) -> Result<TemporaryKey, Failure> {
    let given: Value = serde_json::from_slice(answer).unwrap_or_default();
    let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
    let token = match text("Token") {
        token if token.is_empty() => text("SessionToken"),
        token => token,
    };
    finish(
        action,
        text("AccessKeyId"),
        text("SecretAccessKey"),
        token,
        &text("Expiration"),
    )
}

fn finish(
    action: &Operation,
    key: String,
    secret: String,
    token: String,
    ends: &str,
) -> Result<TemporaryKey, Failure> {
    if key.is_empty() || secret.is_empty() {
        return Err(action.failed(FailureKind::Protocol, "the answer has no key"));
    }
    Ok(TemporaryKey {
        credentials: match token.is_empty() {
            true => Credentials::new(key, secret),
            false => Credentials::new_with_token(key, secret, token),
        },
        ends: ends.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::http::scripted::{ReceivedRequest, ScriptedHttpServer, response};

    const KEY: &str = r#"{"Code":"Success","AccessKeyId":"A","SecretAccessKey":"s","Token":"t","Expiration":"2999-01-01T00:00:00Z"}"#;

    fn ok(text: &str) -> Vec<u8> {
        response("200 OK", &[], text.as_bytes())
    }

    fn serve(
        script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    ) -> (ScriptedHttpServer, Url) {
        let server = ScriptedHttpServer::start(script);
        let url = server.url("/").parse().unwrap();
        (server, url)
    }

    fn key(source: &TemporaryKeySource) -> Result<(String, Option<String>), Failure> {
        let key = source.key(&Arc::default())?;
        assert!(key.is_fresh() && !format!("{key:?}").contains("\"s\""));
        let credentials = key.credentials;
        Ok((
            credentials.key().to_owned(),
            credentials.token().map(str::to_owned),
        ))
    }

    fn expected() -> (String, Option<String>) {
        ("A".to_owned(), Some("t".to_owned()))
    }

    #[test]
    fn a_virtual_machine_has_a_key_by_its_second_protocol() {
        let (_server, url) = serve(|request| match request.path.as_str() {
            "/latest/api/token" if request.method == "PUT" => ok("session"),
            _ if request.header("x-aws-ec2-metadata-token") != Some("session") => {
                response("401 Unauthorized", &[], b"")
            }
            "/latest/meta-data/iam/security-credentials/" => ok("role\n"),
            "/latest/meta-data/iam/security-credentials/role" => ok(KEY),
            _ => response("404 Not Found", &[], b""),
        });
        assert_eq!(key(&TemporaryKeySource::Instance(url)), Ok(expected()));
        let (_server, url) = serve(|_| response("404 Not Found", &[], b""));
        let failure = key(&TemporaryKeySource::Instance(url)).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
    }

    #[test]
    fn a_container_has_a_key_for_its_token() {
        let (_server, url) = serve(|request| match request.header("authorization") {
            Some("hush") => ok(KEY),
            _ => response("403 Forbidden", &[], b""),
        });
        let source = |token: Option<&str>| TemporaryKeySource::Container {
            address: url.clone(),
            token: token.map(str::to_owned),
            token_file: None,
        };
        assert_eq!(key(&source(Some("hush"))), Ok(expected()));
        assert!(key(&source(None)).is_err());
    }

    #[test]
    fn a_web_identity_is_a_role_for_its_token() {
        let (_server, url) = serve(|request| {
            let form = String::from_utf8_lossy(&request.body);
            assert!(
                form.contains("&RoleArn=arn%3Ar&") && form.ends_with("WebIdentityToken=a.b%2B"),
                "{form}"
            );
            ok(
                "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                <AccessKeyId>A</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>\
                </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
            )
        });
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join("token");
        let source = TemporaryKeySource::WebIdentity {
            service: url,
            token_file: token_file.clone(),
            role: "arn:r".to_owned(),
            session: "x".to_owned(),
        };
        assert_eq!(key(&source).unwrap_err().kind(), FailureKind::Refused);
        std::fs::write(token_file, "a.b+\n").unwrap();
        assert_eq!(key(&source), Ok(expected()));
    }

    #[test]
    fn a_role_is_taken_with_the_key_of_another_profile() {
        let (_server, service) = serve(|request| {
            let form = String::from_utf8_lossy(&request.body);
            let expected = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Ar&RoleSessionName=x&ExternalId=e%2F1\
                &DurationSeconds=900";
            assert_eq!(form, expected);
            let signed = request.header("authorization").unwrap();
            assert!(
                signed.contains("Credential=BASE/")
                    && signed.contains("/eu-west-1/sts/aws4_request"),
                "{signed}"
            );
            assert_eq!(request.header("x-amz-security-token"), Some("t0"));
            ok(
                "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>A</AccessKeyId>\
                <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
            )
        });
        // The other key may be one that expires, too.
        let base = r#"echo '{"Version":1,"AccessKeyId":"BASE","SecretAccessKey":"s0","SessionToken":"t0"}'"#;
        let source = TemporaryKeySource::AssumedRole(AssumedRoleSource {
            service,
            region: "eu-west-1".to_owned(),
            role: "arn:r".to_owned(),
            session: "x".to_owned(),
            external_id: Some("e/1".to_owned()),
            seconds: Some(900),
            base: Box::new(KeyOrigin::Source(TemporaryKeySource::Process(
                base.to_owned(),
            ))),
        });
        assert_eq!(key(&source), Ok(expected()));
    }

    #[test]
    fn single_sign_on_uses_the_login_that_was_left() {
        let (_server, portal) = serve(|request| {
            assert_eq!(
                request.path,
                "/federation/credentials?account_id=1&role_name=reader"
            );
            assert_eq!(request.header("x-amz-sso_bearer_token"), Some("hush"));
            ok(
                r#"{"roleCredentials":{"accessKeyId":"A","secretAccessKey":"s","sessionToken":"t","expiration":32472144000000}}"#,
            )
        });
        let directory = tempfile::tempdir().unwrap();
        let source = TemporaryKeySource::SingleSignOn {
            portal,
            cache: directory.path().to_owned(),
            login: "work".to_owned(),
            account: "1".to_owned(),
            role: "reader".to_owned(),
        };
        let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Sha1);
        hasher.update(b"work");
        let file = directory.path().join(format!("{}.json", hasher.finish()));
        for (ends, is_valid) in [
            ("2001-01-01T00:00:00Z", false),
            ("2999-01-01T00:00:00Z", true),
        ] {
            let text = format!(r#"{{"accessToken":"hush","expiresAt":"{ends}"}}"#);
            std::fs::write(&file, text).unwrap();
            let found = key(&source);
            match is_valid {
                true => assert_eq!(found, Ok(expected())),
                false => assert!(found.unwrap_err().to_string().contains("aws sso login")),
            }
        }
    }

    #[test]
    fn a_program_gives_a_key() {
        let give = |text: &str| key(&TemporaryKeySource::Process(format!("echo '{text}'")));
        let given = r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s","SessionToken":"t"}"#;
        assert_eq!(give(given), Ok(expected()));
        assert_eq!(give("{}").unwrap_err().kind(), FailureKind::Protocol);
        let failed = key(&TemporaryKeySource::Process("exit 3".to_owned())).unwrap_err();
        assert_eq!(failed.kind(), FailureKind::Refused);
    }

    #[test]
    fn a_key_is_given_up_before_it_ends() {
        let key = |seconds| TemporaryKey {
            credentials: Credentials::new("A", "s"),
            ends: Timestamp::now()
                .checked_add(Duration::from_secs(seconds))
                .ok(),
        };
        assert!(!key(10).is_fresh() && key(4000).is_fresh());
    }
}
