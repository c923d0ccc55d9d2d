//! The claims of a token, and what they must say.

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::error::{BearerTokenError, refused, shown};
use super::{PathScopes, TokenProfile};

/// Difference of clocks that is tolerated for times in the future. An end of validity has no leeway:
/// the session would outlive the token.
const LEEWAY: Duration = Duration::from_secs(60);

/// Longest validity of a token. The WLCG profile recommends hours; a stolen token must not be good for
/// long.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Longest subject, bytes (OpenID Connect Core 1.0 §2).
const MAX_SUBJECT: usize = 255;

/// The audience of a WLCG token that is meant for every server.
const WLCG_ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";

/// The audience of a SciToken that is meant for every server.
const SCITOKENS_ANY: &str = "ANY";

/// A trusted issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// The `iss` claim, exactly: an https URL.
    pub url: String,
    /// Accepted values of the `aud` claim; a token must have one of them (or WLCG's "any").
    pub audiences: Vec<String>,
    /// Path below which the token's scopes apply.
    pub base_path: Vec<u8>,
    /// Account whose root and rights bound the session.
    pub account: String,
}

/// A token that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The issuer's URL.
    pub issuer: String,
    /// The `sub` claim.
    pub subject: String,
    /// The `jti` claim.
    pub id: Option<String>,
    /// Rights.
    pub scopes: PathScopes,
    /// End of validity.
    pub expires: SystemTime,
    /// The issuer's account.
    pub account: String,
}

/// Claims of a token for its owner. Nothing of it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFacts {
    /// The `iss` claim.
    pub issuer: String,
    /// The `aud` claim; empty without one.
    pub audiences: Vec<String>,
    /// The `exp` claim.
    pub expires: Option<SystemTime>,
}

impl TokenFacts {
    /// Whether an audience is this host: by its name, or by a URL with it. An audience that means every server names none.
    pub fn names_host(&self, host: &str) -> bool {
        let mut audiences = self.audiences.iter();
        audiences.any(|audience| {
            let named = audience
                .split_once("://")
                .map_or(&**audience, |(_, rest)| rest);
            let named = named.split('/').next().unwrap_or_default();
            // An IPv6 address is in brackets (RFC 3986 section 3.2.2).
            let named = match named.strip_prefix('[') {
                Some(rest) => rest.split(']').next().unwrap_or_default(),
                None => named.split(':').next().unwrap_or_default(),
            };
            ![WLCG_ANY, SCITOKENS_ANY].contains(&&**audience) && named.eq_ignore_ascii_case(host)
        })
    }
}

/// The claims as they are in the token.
#[derive(Deserialize)]
pub(super) struct Claims {
    iss: String,
    sub: Option<String>,
    aud: Option<AudienceClaim>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iat: Option<NumericDate>,
    jti: Option<String>,
    scope: Option<String>,
    ver: Option<String>,
    #[serde(rename = "wlcg.ver")]
    wlcg_ver: Option<String>,
    #[serde(rename = "wlcg.groups")]
    groups: Option<serde_json::Value>,
}

/// One audience or several (RFC 7519 §4.1.3).
#[derive(Deserialize)]
#[serde(untagged)]
enum AudienceClaim {
    One(String),
    Several(Vec<String>),
}

/// A time in seconds since 1970 (RFC 7519 §2), possibly with a fraction.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct NumericDate(SystemTime);

impl TryFrom<f64> for NumericDate {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, &'static str> {
        Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since))
            .map(Self)
            .ok_or("a time out of range")
    }
}

impl NumericDate {
    fn is_after(self, time: SystemTime, leeway: Duration) -> bool {
        time.checked_add(leeway).is_some_and(|time| self.0 > time)
    }

    /// For messages: seconds since 1970, and the distance from `now`.
    fn shown(self, now: SystemTime) -> String {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        match self.0.duration_since(now) {
            Ok(ahead) => format!("{seconds}, in {} s", ahead.as_secs()),
            Err(error) => format!("{seconds}, {} s ago", error.duration().as_secs()),
        }
    }
}

impl Claims {
    /// The `iss` claim.
    pub(super) fn issuer(&self) -> &str {
        &self.iss
    }

    /// The claims that its owner wants to know.
    pub(super) fn facts(self) -> TokenFacts {
        TokenFacts {
            issuer: self.iss,
            audiences: match self.aud {
                Some(AudienceClaim::One(audience)) => vec![audience],
                Some(AudienceClaim::Several(audiences)) => audiences,
                None => Vec::new(),
            },
            expires: self.exp.map(|time| time.0),
        }
    }

    /// Checks the claims of a token whose signature is valid.
    pub(super) fn check(
        self,
        issuer: &Issuer,
        now: SystemTime,
    ) -> Result<VerifiedToken, BearerTokenError> {
        let profile = self.profile()?;
        self.check_audience(profile, issuer)?;
        let expires = self.check_times(now)?;
        let subject = self.checked_subject()?.to_owned();
        let scopes = self.path_scopes(profile, issuer)?;
        Ok(VerifiedToken {
            issuer: issuer.url.clone(),
            subject,
            id: self.jti.as_deref().map(shown),
            scopes,
            expires,
            account: issuer.account.clone(),
        })
    }

    fn profile(&self) -> Result<TokenProfile, BearerTokenError> {
        let unknown = |version: &str| {
            let problem = format!(
                "{} is not a version of the WLCG profile (1.x) or SciTokens (scitoken:2.0)",
                shown(version)
            );
            refused("ver", problem)
        };
        match (self.wlcg_ver.as_deref(), self.ver.as_deref()) {
            (Some(version), _) => match version.strip_prefix("1.") {
                Some(minor) if !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()) => {
                    Ok(TokenProfile::Wlcg)
                }
                _ => Err(unknown(version)),
            },
            // The specification has the first form; the second is in use.
            (None, Some("scitoken:2.0" | "scitokens:2.0")) => Ok(TokenProfile::SciTokens),
            (None, Some(version)) => Err(unknown(version)),
            (None, None) => Err(refused(
                "ver",
                "the token has neither wlcg.ver nor ver".to_owned(),
            )),
        }
    }

    fn check_audience(
        &self,
        profile: TokenProfile,
        issuer: &Issuer,
    ) -> Result<(), BearerTokenError> {
        let audiences: &[String] = match &self.aud {
            None => &[],
            Some(AudienceClaim::One(one)) => std::slice::from_ref(one),
            Some(AudienceClaim::Several(several)) => several,
        };
        let any = match profile {
            TokenProfile::Wlcg => WLCG_ANY,
            TokenProfile::SciTokens => SCITOKENS_ANY,
        };
        let is_for_us = |audience: &String| audience == any || issuer.audiences.contains(audience);
        if audiences.iter().any(is_for_us) {
            return Ok(());
        }
        let named = match audiences {
            [] => "the token names none".to_owned(),
            [one] => format!("the token is for {}", shown(one)),
            [first, others @ ..] => {
                format!(
                    "the token is for {} and {} more",
                    shown(first),
                    others.len()
                )
            }
        };
        Err(refused(
            "aud",
            format!("{named}; this server is {}", issuer.audiences.join(", ")),
        ))
    }

    /// Checks the times; returns the end of validity.
    fn check_times(&self, now: SystemTime) -> Result<SystemTime, BearerTokenError> {
        let Some(exp) = self.exp else {
            return Err(refused("exp", "the token has none".to_owned()));
        };
        if !exp.is_after(now, Duration::ZERO) {
            let problem = format!("the token has expired ({})", exp.shown(now));
            return Err(refused("exp", problem));
        }
        for (claim, time) in [("nbf", self.nbf), ("iat", self.iat)] {
            if let Some(time) = time.filter(|time| time.is_after(now, LEEWAY)) {
                let problem = format!("the token is not yet valid ({})", time.shown(now));
                return Err(refused(claim, problem));
            }
        }
        // Without a beginning the token counts from now: it may be older.
        let begin = self.iat.or(self.nbf).map_or(now, |begin| begin.0);
        if exp.is_after(begin, MAX_LIFETIME + LEEWAY) {
            let problem = format!(
                "the token is valid for longer than {} h ({})",
                MAX_LIFETIME.as_secs() / 3600,
                exp.shown(now)
            );
            return Err(refused("exp", problem));
        }
        Ok(exp.0)
    }

    fn checked_subject(&self) -> Result<&str, BearerTokenError> {
        match self.sub.as_deref() {
            None | Some("") => Err(refused("sub", "the token has none".to_owned())),
            Some(subject) if subject.len() > MAX_SUBJECT => {
                Err(refused("sub", format!("{} is too long", shown(subject))))
            }
            Some(subject) if subject.chars().any(char::is_control) => Err(refused(
                "sub",
                format!("{} has control characters", shown(subject)),
            )),
            Some(subject) => Ok(subject),
        }
    }

    fn path_scopes(
        &self,
        profile: TokenProfile,
        issuer: &Issuer,
    ) -> Result<PathScopes, BearerTokenError> {
        let claim = self.scope.as_deref().unwrap_or_default();
        let scopes = PathScopes::parse(profile, claim, &issuer.base_path)?;
        if !scopes.is_empty() {
            return Ok(scopes);
        }
        let problem = match (profile, &self.groups) {
            (TokenProfile::Wlcg, Some(_)) => {
                "the token has groups but no storage scopes; this server takes rights from scopes \
                 such as storage.read:/"
                    .to_owned()
            }
            (TokenProfile::Wlcg, None) => {
                format!("{} names no storage.* right", shown(claim))
            }
            (TokenProfile::SciTokens, _) => {
                format!("{} names neither read nor write", shown(claim))
            }
        };
        Err(refused("scope", problem))
    }
}
