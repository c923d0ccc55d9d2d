//! Signature Version 4 of a form that is posted to a service of Amazon's. (Requests to buckets are signed by rusty-s3, which
//! signs for no other service.)

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use rusty_s3::Credentials;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
pub(super) const CONTENT_TYPE: (&str, &str) = (
    "content-type",
    "application/x-www-form-urlencoded; charset=utf-8",
);

/// Whose form it is, and for which service.
pub(super) struct FormScope<'f> {
    pub(super) credentials: &'f Credentials,
    /// The host of the service, with its port if that is not the usual one.
    pub(super) host: &'f str,
    /// The path of its URL.
    pub(super) path: &'f str,
    pub(super) region: &'f str,
    /// The name of the service in signatures: `sts`.
    pub(super) service: &'f str,
}

impl FormScope<'_> {
    /// The headers of the request that posts `form` at a time; that of the host is not among them.
    pub(super) fn headers(&self, form: &str, now: Timestamp) -> Vec<(&'static str, String)> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = now.strftime("%Y%m%d").to_string();
        let mut headers = vec![
            (CONTENT_TYPE.0, CONTENT_TYPE.1.to_owned()),
            ("host", self.host.to_owned()),
            ("x-amz-date", time.clone()),
        ];
        let token = self.credentials.token();
        headers.extend(token.map(|token| ("x-amz-security-token", token.to_owned())));
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let request = Zeroizing::new(format!(
            "POST\n{}\n\n{lines}\n{names}\n{}",
            self.path,
            hex(&Sha256::digest(form))
        ));
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!(
            "{ALGORITHM}\n{time}\n{scope}\n{}",
            hex(&Sha256::digest(request.as_bytes()))
        );
        let mut key = Zeroizing::new(format!("AWS4{}", self.credentials.secret()).into_bytes());
        for part in [&day, self.region, self.service, "aws4_request"] {
            key = Zeroizing::new(keyed_hash(&key, part));
        }
        let signature = hex(&keyed_hash(&key, &text));
        let of = self.credentials.key();
        headers.retain(|(name, _)| *name != "host");
        headers.push((
            "authorization",
            format!(
                "{ALGORITHM} Credential={of}/{scope}, SignedHeaders={names}, Signature={signature}"
            ),
        ));
        headers
    }
}

/// HMAC-SHA256.
fn keyed_hash(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is taken.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signatures are those of botocore 1.44.8 for the same request.
    #[test]
    fn a_form_is_signed_as_by_amazons_own_library() {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        for (credentials, signature) in [
            (
                Credentials::new("AKIDEXAMPLE", secret),
                "a9d52868dda2fc22bf38a4e44940d6188ec55df1b0294d9c3a9f8e49e41d7fa4",
            ),
            (
                Credentials::new_with_token("AKIDEXAMPLE", secret, "tok/+="),
                "b94c4176505c1f80163fc320ed0ffcf8cfed6adc9166d851c401ea42b32c7fb4",
            ),
        ] {
            let scope = FormScope {
                credentials: &credentials,
                host: "sts.us-east-1.amazonaws.com",
                path: "/",
                region: "us-east-1",
                service: "sts",
            };
            let headers = scope.headers("Action=AssumeRole&Version=2011-06-15", now);
            let (name, value) = headers.last().unwrap();
            assert_eq!(*name, "authorization");
            assert!(
                value.ends_with(&format!("Signature={signature}")),
                "{value}"
            );
            assert!(
                headers
                    .iter()
                    .all(|(name, value)| *name != "host" && !value.contains(secret))
            );
        }
    }
}
