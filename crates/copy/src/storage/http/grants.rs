//! The right to one file that another server gets for a copy.
//!
//! A login is for its server alone. So the other server gets, in this order: nothing, if the file is open to all or its URL has a
//! signature, or it is that server's own; the token that the user gives to both servers anyway; a macaroon, which the server of the file makes for this file
//! and this use; the user's token, if `--delegate full` says so. A password it never gets.

use std::io::Read as _;

use ftp::{DelegationChoice, FailureKind};
use proto::security::Secret;

use super::client::{HttpClient, HttpOrigin};
use super::request::{HttpRequest, HttpRequestBody};
use super::*;

/// Longest response with a macaroon, bytes.
const MAX_RESPONSE: u64 = 64 << 10;

/// Use of a file by another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRight {
    /// GET
    Read,
    /// PUT
    Write,
}

impl FileRight {
    /// The request for a macaroon (that of dCache and XRootD): valid for the path of its URL, long enough for a transfer to begin.
    fn macaroon_request(self) -> &'static str {
        match self {
            Self::Read => r#"{"caveats":["activity:DOWNLOAD,LIST"],"validity":"PT2H"}"#,
            Self::Write => r#"{"caveats":["activity:UPLOAD,DELETE,LIST"],"validity":"PT2H"}"#,
        }
    }
}

/// With what another server reaches a file.
#[derive(Debug)]
pub(super) enum FileGrant {
    /// Nothing is needed.
    Open,
    /// This bearer token.
    Bearer(Secret),
}

impl FileGrant {
    /// The value of the Authorization header that the other server sends.
    pub(super) fn authorization(&self) -> Option<String> {
        match self {
            Self::Open => None,
            Self::Bearer(token) => Some(format!("Bearer {}", String::from_utf8_lossy(&token.0))),
        }
    }
}

impl HttpStorage {
    /// The right that `asked`, the other server, may use for a file of this one, or why it gets nothing.
    ///
    /// # Errors
    /// This server was lost.
    pub(super) async fn grant(
        &mut self,
        path: &[u8],
        right: FileRight,
        asked: &HttpOrigin,
    ) -> Result<Result<FileGrant, String>, Failure> {
        if !self.connections.origin.has_login() {
            return Ok(Ok(FileGrant::Open));
        }
        let own = self.connections.origin.bearer();
        if own.is_none()
            && asked
                .root_url
                .is_same_origin(&self.connections.origin.root_url)
        {
            return Ok(Ok(FileGrant::Open));
        }
        if !(self.connections.origin.root_url.secure && asked.root_url.secure) {
            let reason = format!(
                "{} wants a login, and rights are given to other servers over https: only",
                self.name
            );
            return Ok(Err(reason));
        }
        if own.is_some() && own == asked.bearer() {
            return Ok(Ok(bearer(own)));
        }
        if let Some(macaroon) = self.macaroon(path, right).await? {
            return Ok(Ok(FileGrant::Bearer(macaroon)));
        }
        let own = self.connections.origin.bearer();
        if own.is_some() && self.connections.origin.delegation() == DelegationChoice::Full {
            return Ok(Ok(bearer(own)));
        }
        let remedy = match own {
            Some(_) => "your token is for it alone (--delegate full gives it to the other server)",
            None => "your password is for it alone",
        };
        Ok(Err(format!(
            "{} makes no token for a single file, and {remedy}",
            self.name
        )))
    }

    /// A macaroon for one file; `None`: the server makes none.
    async fn macaroon(&mut self, path: &[u8], right: FileRight) -> Result<Option<Secret>, Failure> {
        if self.lacks_macaroons {
            return Ok(None);
        }
        let url = self.url_for(path);
        let requested = self
            .blocking(move |client| request_macaroon(client, &url, right))
            .await;
        match requested {
            Err(lost) if lost.may_retry() => Err(lost),
            Ok(Some(macaroon)) => Ok(Some(macaroon)),
            _ => {
                self.lacks_macaroons = true;
                Ok(None)
            }
        }
    }
}

fn bearer(token: Option<&str>) -> FileGrant {
    FileGrant::Bearer(token.unwrap_or_default().into())
}

fn request_macaroon(
    client: &mut HttpClient,
    url: &proto::http::url::HttpUrl,
    right: FileRight,
) -> Result<Option<Secret>, Failure> {
    let action = Operation::on("get a token for", url);
    let request = HttpRequest {
        method: "POST",
        url,
        headers: &[("Content-Type", "application/macaroon-request".to_owned())],
        action: &action,
    };
    let response = client.send(&request, HttpRequestBody::Text(right.macaroon_request()))?;
    if response.status() != 200 {
        let busy = matches!(response.status(), 408 | 425 | 429 | 503 | 504);
        let failure = errors::status_failure(&action, &response);
        response.discard_body();
        return match busy {
            true => Err(failure),
            false => Ok(None),
        };
    }
    let mut body = Vec::new();
    let read = response
        .into_body()
        .take(MAX_RESPONSE)
        .read_to_end(&mut body);
    read.map_err(|error| {
        action
            .failed(
                FailureKind::Unreachable,
                format_args!("the connection was lost: {error}"),
            )
            .retried(true)
    })?;
    Ok(parse_macaroon(&body))
}

/// The macaroon in a response.
fn parse_macaroon(body: &[u8]) -> Option<Secret> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let token = value.get("macaroon")?.as_str()?;
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then(|| token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_a_header_can_carry_is_a_macaroon() {
        let parsed = |body: &str| parse_macaroon(body.as_bytes()).map(|found| found.0.clone());
        assert_eq!(
            parsed(r#"{"macaroon":"MDAx_-="}"#).as_deref(),
            Some(&b"MDAx_-="[..])
        );
        for body in [
            "",
            "MDAx",
            "{}",
            r#"{"macaroon":""}"#,
            r#"{"macaroon":"a\r\nb"}"#,
            r#"{"macaroon":7}"#,
        ] {
            assert_eq!(parsed(body), None, "{body}");
        }
    }

    #[test]
    fn a_macaroon_is_asked_for_one_use() {
        for (right, activity) in [(FileRight::Read, "DOWNLOAD"), (FileRight::Write, "UPLOAD")] {
            let request: serde_json::Value =
                serde_json::from_str(right.macaroon_request()).unwrap();
            assert!(request["caveats"][0].as_str().unwrap().contains(activity));
        }
    }
}
