//! Signatures of requests (Signature Version 4, in the query), and the errors of servers.

use std::io::Read as _;

use ftp::failure::Operation;
use ftp::{Failure, FailureKind};
use jiff::Timestamp;
use proto::http::url::HttpUrl;
use proto::printable::printable;
use proto::s3::documents::S3ErrorDocument;
use proto::s3::keys;
use rusty_s3::signing::sign;
use rusty_s3::{Credentials, Method};
use url::Url;

use super::bucket::S3Bucket;
use super::customer_key::CustomerKey;
use super::settings::S3Settings;
use crate::storage::http::dialect::{DialectRequest, HttpDialect};
use crate::storage::http::errors;
use crate::storage::http::request::HttpRequest;
use crate::storage::http::response::HttpResponse;

/// How long a signature counts, seconds: it is checked when the request arrives.
const SIGNATURE_SECONDS: u64 = 3600;
/// Longest body of a refusal that is read, bytes.
const MAX_REFUSAL: u64 = 64 << 10;
/// Longest message of a server that is shown, characters.
const MAX_MESSAGE: usize = 200;

/// Requests to one server, signed for one region.
#[derive(Debug)]
pub(super) struct S3Dialect {
    bucket: S3Bucket,
    region: String,
    credentials: Option<Credentials>,
    requester_pays: bool,
    customer_key: Option<CustomerKey>,
}

impl S3Dialect {
    pub(super) fn new(bucket: &S3Bucket, settings: &S3Settings) -> Self {
        Self {
            bucket: bucket.clone(),
            customer_key: settings.customer_key.clone(),
            region: settings.region.clone(),
            credentials: settings.credentials.clone(),
            requester_pays: settings.requester_pays,
        }
    }

    /// The URL of a request with a signature of it. Headers of S3 (`x-amz-`) must be signed, others need not.
    fn signed(
        &self,
        request: &HttpRequest<'_>,
        to: &HttpUrl,
        more: &[(&'static str, String)],
        credentials: &Credentials,
    ) -> Option<String> {
        let method = match request.method {
            "HEAD" => Method::Head,
            "GET" => Method::Get,
            "PUT" => Method::Put,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            _ => return None,
        };
        // The path is signed as it is sent.
        let path: Vec<_> = to
            .segments()
            .iter()
            .map(|part| keys::encode(part, false))
            .collect();
        let url = Url::parse(&format!("{}/{}", to.origin(), path.join("/"))).ok()?;
        let text = |bytes| String::from_utf8(bytes).ok();
        let mut query = Vec::new();
        for (name, value) in to.query_pairs() {
            query.push((text(name)?, text(value)?));
        }
        query.sort_unstable();
        let mut headers: Vec<_> = request
            .headers
            .iter()
            .chain(more)
            .filter(|(name, _)| name.starts_with("x-amz-"))
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        headers.sort_unstable();
        let signed = sign(
            &Timestamp::now(),
            method,
            url,
            credentials.key(),
            credentials.secret(),
            credentials.token(),
            &self.region,
            SIGNATURE_SECONDS,
            query
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
            headers.into_iter(),
        );
        Some(signed.into())
    }
}

impl HttpDialect for S3Dialect {
    fn prepare(&self, request: &HttpRequest<'_>, to: &HttpUrl) -> Result<DialectRequest, Failure> {
        let mut headers = Vec::new();
        if self.requester_pays {
            headers.push(("x-amz-request-payer", "requester".to_owned()));
        }
        // A server to which another one redirects gets no signature, and no key.
        let is_own = to.is_same_origin(&self.bucket.server);
        if is_own && let Some(key) = &self.customer_key {
            headers.extend(self.key_headers(key, request, to));
        }
        let credentials = self.credentials.as_ref();
        let uri = match credentials.filter(|_| is_own) {
            None => to.uri(),
            Some(credentials) => {
                self.signed(request, to, &headers, credentials)
                    .ok_or_else(|| {
                        let reason = "this request cannot be signed";
                        request.action.failed(FailureKind::Usage, reason)
                    })?
            }
        };
        Ok(DialectRequest { uri, headers })
    }

    fn failure(&self, action: &Operation, response: HttpResponse) -> Failure {
        let status = response.status();
        let by_status = errors::status_failure(action, &response);
        let region = response.header("x-amz-bucket-region").map(str::to_owned);
        let mut body = Vec::new();
        let read = response
            .into_body()
            .take(MAX_REFUSAL)
            .read_to_end(&mut body);
        let error = match read {
            Ok(_) => S3ErrorDocument::parse(&body).unwrap_or_default(),
            Err(_) => S3ErrorDocument::default(),
        };
        if !error.code.is_empty() {
            return error_failure(action, &error, status);
        }
        match status {
            301 => redirected(action, region.as_deref()),
            // The answers to HEAD have no body.
            400 if self.credentials.is_some() => action.failed(
                FailureKind::Refused,
                "the server does not accept the request, perhaps because the credentials have expired, or the object is \
                 encrypted with another key than LONGHAUL_S3_SSE_C_KEY (HTTP 400)",
            ),
            401 | 403 => action.failed(FailureKind::Refused, self.denied(status)),
            _ => by_status,
        }
    }
}

impl S3Dialect {
    /// The headers with the user's key, if the request reads or writes an object.
    fn key_headers(
        &self,
        key: &CustomerKey,
        request: &HttpRequest<'_>,
        to: &HttpUrl,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let has_key = request.method != "DELETE" && self.bucket.has_object_at(to);
        let mut names = request.headers.iter().map(|(name, _)| *name);
        let is_copy = names.any(|name| name == "x-amz-copy-source");
        key.headers(is_copy).filter(move |_| has_key)
    }

    fn denied(&self, status: u16) -> String {
        match self.credentials {
            Some(_) => format!("these credentials may not do that (HTTP {status})"),
            None => format!(
                "nobody may do that without credentials, and none were found: set AWS_PROFILE or AWS_ACCESS_KEY_ID \
                 (HTTP {status})"
            ),
        }
    }
}

/// The failure of a request about a bucket of another region.
fn redirected(action: &Operation, region: Option<&str>) -> Failure {
    let region = region
        .filter(|region| region.len() < 64)
        .map(|region| printable(region.as_bytes()).to_string());
    match region {
        Some(region) => action
            .failed(FailureKind::Protocol, format_args!("the bucket is in the region {region}"))
            .advise(format!("set AWS_REGION={region}")),
        None => action.failed(
            FailureKind::Protocol,
            "the bucket is in another region, or at another endpoint; set AWS_REGION or AWS_ENDPOINT_URL",
        ),
    }
}

/// The failure for an error of a server.
pub(super) fn error_failure(action: &Operation, error: &S3ErrorDocument, status: u16) -> Failure {
    let code = error.code.as_str();
    let told: String = error.message.chars().take(MAX_MESSAGE).collect();
    let shown = printable(code.as_bytes());
    let told = match told.trim_end_matches('.') {
        "" => format!("the server says {shown}"),
        told => format!("{} ({shown})", printable(told.as_bytes())),
    };
    let (kind, may_retry, advice) = match code {
        "NoSuchKey" | "NoSuchVersion" | "NotFound" => {
            (FailureKind::NotFound, false, "check the path")
        }
        "NoSuchBucket" => (
            FailureKind::NotFound,
            false,
            "check the name of the bucket, and the endpoint (AWS_ENDPOINT_URL)",
        ),
        "NoSuchUpload" => (FailureKind::NotFound, false, "start over"),
        "ExpiredToken" | "TokenRefreshRequired" => (
            FailureKind::Refused,
            false,
            "get new credentials (aws sso login)",
        ),
        "SignatureDoesNotMatch" => (
            FailureKind::Refused,
            false,
            "check the secret key (AWS_SECRET_ACCESS_KEY, or that of the profile)",
        ),
        "RequestTimeTooSkewed" => (FailureKind::Refused, false, "set the clock of this machine"),
        "InvalidObjectState" => (
            FailureKind::Refused,
            false,
            "the object is archived: restore it first (aws s3api restore-object)",
        ),
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "InvalidAccessKeyId"
        | "InvalidToken" | "InvalidSecurity" | "NotSignedUp" | "InvalidPayer"
        | "UnauthorizedAccess" => (
            FailureKind::Refused,
            false,
            "check the credentials, and what they may do",
        ),
        "SlowDown"
        | "ServiceUnavailable"
        | "Busy"
        | "TooManyRequests"
        | "InternalError"
        | "RequestTimeout"
        | "OperationAborted"
        | "ThrottlingException"
        | "RequestLimitExceeded" => (FailureKind::Unreachable, true, ""),
        "BadDigest"
        | "InvalidDigest"
        | "XAmzContentChecksumMismatch"
        | "XAmzContentSHA256Mismatch" => (FailureKind::Integrity, true, ""),
        "PreconditionFailed" | "ConditionalRequestConflict" => {
            (FailureKind::Integrity, false, "it has changed: start over")
        }
        "InvalidRange" => (
            FailureKind::Integrity,
            false,
            "the object became shorter: start over",
        ),
        "QuotaExceeded"
        | "StorageFull"
        | "XMinioStorageFull"
        | "XMinioAdminBucketQuotaExceeded" => {
            (FailureKind::ServerDiskFull, false, "make room there")
        }
        "KeyTooLongError" | "XMinioInvalidObjectName" => {
            (FailureKind::NameTooLong, false, "use a shorter name")
        }
        "EntityTooLarge" => (
            FailureKind::Local,
            false,
            "the server takes no objects of this size",
        ),
        "NotImplemented" | "MethodNotAllowed" => (FailureKind::Protocol, false, ""),
        "InvalidBucketName" => (FailureKind::Usage, false, "check the name of the bucket"),
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "AuthorizationQueryParametersError"
        | "IllegalLocationConstraintException"
            if error.region.is_some() || status == 301 =>
        {
            return redirected(action, error.region.as_deref());
        }
        _ if status >= 500 || status == 429 => (FailureKind::Unreachable, true, ""),
        _ => (FailureKind::Protocol, false, ""),
    };
    let failure = action.failed(kind, told).retried(may_retry);
    match advice {
        "" => failure,
        advice => failure.advise(advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> S3Settings {
        S3Settings {
            endpoint: None,
            region: "us-east-1".to_owned(),
            credentials: Some(Credentials::new_with_token("AKIA", "hush", "token+/=")),
            key_source: None,
            path_style: None,
            requester_pays: true,
            sends_checksums: true,
            encryption: None,
            customer_key: None,
        }
    }

    fn prepared(to: &HttpUrl) -> DialectRequest {
        let settings = settings();
        let bucket = S3Bucket::new("bucket", &settings);
        let action = Operation::from("read");
        let request = HttpRequest {
            method: "GET",
            url: to,
            headers: &[
                ("range", "bytes=0-1".to_owned()),
                ("x-amz-z", "1".to_owned()),
            ],
            action: &action,
        };
        S3Dialect::new(&bucket, &settings)
            .prepare(&request, to)
            .unwrap()
    }

    #[test]
    fn the_path_the_query_and_the_headers_of_s3_are_signed() {
        let bucket = S3Bucket::new("bucket", &settings());
        let request =
            prepared(&bucket.object_url("a b/ü'(", &[("uploadId", "x+/="), ("partNumber", "1")]));
        let uri = request.uri;
        assert!(
            uri.starts_with(
                "https://bucket.s3.us-east-1.amazonaws.com/a%20b/%C3%BC%27%28?X-Amz-Algorithm="
            ),
            "{uri}"
        );
        for part in [
            "X-Amz-SignedHeaders=host%3Bx-amz-request-payer%3Bx-amz-z&",
            "&partNumber=1&uploadId=x%2B%2F%3D&",
            "&X-Amz-Security-Token=token%2B%2F%3D&",
            "&X-Amz-Signature=",
        ] {
            assert!(uri.contains(part), "{uri} {part}");
        }
        assert!(!uri.contains("hush"));
    }

    #[test]
    fn another_server_gets_no_signature() {
        let elsewhere = HttpUrl::new(true, "elsewhere.example", 443, b"/x", None);
        assert_eq!(prepared(&elsewhere).uri, "https://elsewhere.example/x");
    }

    #[test]
    fn an_error_without_words_is_told_by_its_code() {
        let error = S3ErrorDocument {
            code: "SignatureDoesNotMatch".to_owned(),
            ..S3ErrorDocument::default()
        };
        let told = error_failure(&Operation::on("read", "s3://b/k"), &error, 403).to_string();
        assert_eq!(
            told,
            "cannot read s3://b/k: the server says SignatureDoesNotMatch; \
             check the secret key (AWS_SECRET_ACCESS_KEY, or that of the profile)"
        );
    }

    #[test]
    fn error_codes_have_kinds() {
        let action = Operation::on("read", "s3://b/k");
        let failure = |code: &str, status| {
            let error = S3ErrorDocument {
                code: code.to_owned(),
                message: "The message.".to_owned(),
                region: None,
            };
            error_failure(&action, &error, status)
        };
        for (code, status, kind, may_retry) in [
            ("NoSuchKey", 404, FailureKind::NotFound, false),
            ("AccessDenied", 403, FailureKind::Refused, false),
            ("ExpiredToken", 400, FailureKind::Refused, false),
            ("SlowDown", 503, FailureKind::Unreachable, true),
            ("BadDigest", 400, FailureKind::Integrity, true),
            ("NotImplemented", 501, FailureKind::Protocol, false),
            ("Unheard", 500, FailureKind::Unreachable, true),
            ("Unheard", 400, FailureKind::Protocol, false),
        ] {
            let failure = failure(code, status);
            assert_eq!(
                (failure.kind(), failure.may_retry()),
                (kind, may_retry),
                "{code}"
            );
        }
        let text = failure("NoSuchKey", 404).to_string();
        assert_eq!(
            text,
            "cannot read s3://b/k: The message (NoSuchKey); check the path"
        );
    }
}
