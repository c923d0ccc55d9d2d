//! Findings about the offers of a server, without a connection.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::SystemTime;

use proto::feature::ServerFeatures;
use security::x509::{CertificateUsage, ShownChain, TrustStore};

use crate::doctor::report::{Finding, FindingLevel, SERVER_RENEWAL, show_time};

/// Answer of a server to one kind of security.
#[derive(Debug)]
pub(super) enum SecurityOffer {
    /// It was not asked for it.
    NotAsked,
    /// It has none; its answer.
    Refused(String),
    /// It offers it, but the attempt failed; the reason.
    Failed(String),
    /// It has it.
    Offered(OfferedSecurity),
}

/// Security that a server has.
#[derive(Debug)]
pub(super) struct OfferedSecurity {
    /// Version and cipher suite; empty if the handshake did not go as far.
    pub(super) description: String,
    /// The server's certificates.
    pub(super) chain: ShownChain,
    /// The features that the server announces under protection.
    pub(super) features: Option<ServerFeatures>,
}

/// Everything that a server has shown.
#[derive(Debug)]
pub(super) struct ServerOffer {
    /// Host of the URL.
    pub(super) host: String,
    /// First line of the greeting.
    pub(super) greeting: Option<String>,
    /// The features that the server announces in the clear.
    pub(super) clear_features: Option<ServerFeatures>,
    /// The URL demands TLS.
    pub(super) needs_tls: bool,
    /// The URL demands GSI.
    pub(super) needs_gsi: bool,
    /// A login would send a password.
    pub(super) has_password: bool,
    /// TLS.
    pub(super) tls: SecurityOffer,
    /// GSI.
    pub(super) gsi: SecurityOffer,
}

/// The authorities that the user's connections would be verified with, or why there are none.
pub(super) struct OfferTrust {
    pub(super) tls: Result<Arc<TrustStore>, String>,
    pub(super) gsi: Result<Arc<TrustStore>, String>,
}

impl ServerOffer {
    /// The findings about an FTP server.
    pub(super) fn findings(&self, trust: &OfferTrust, now: SystemTime) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .greeting
            .iter()
            .map(|greeting| Finding::note("greeting", greeting))
            .collect();
        findings.extend(self.of_tls(&trust.tls, now));
        findings.extend(self.of_gsi(&trust.gsi, now));
        findings.push(self.of_passwords());
        findings.extend(self.features().map(of_data_protection));
        findings.extend(self.features().map(of_bearer));
        findings.extend(self.features().map(of_speed));
        findings
    }

    /// The findings about TLS; all that there are about an HTTPS server.
    pub(super) fn of_tls(
        &self,
        trust: &Result<Arc<TrustStore>, String>,
        now: SystemTime,
    ) -> Vec<Finding> {
        let level = level_if(self.needs_tls);
        let offered = match &self.tls {
            SecurityOffer::NotAsked => return Vec::new(),
            SecurityOffer::Refused(reply) => {
                return vec![
                    Finding::warning(
                        "TLS",
                        format!("not offered ({reply})"),
                        "use gsiftp:, or ask for TLS",
                    )
                    .at(level),
                ];
            }
            SecurityOffer::Failed(reason) => {
                return vec![Finding::problem(
                    "TLS",
                    format!("the handshake fails: {reason}"),
                    "ask its administrator for TLS 1.2 or newer",
                )];
            }
            SecurityOffer::Offered(offered) => offered,
        };
        let mut findings = vec![Finding::good("TLS", &offered.description)];
        let subject = Subject {
            name: "TLS certificate",
            host: &self.host,
            usage: CertificateUsage::TlsServer,
            advice: "if you trust its authority, name its certificate with --ca",
        };
        // A grid's host needs no certificate of the web's authorities.
        let refused = match self.needs_gsi {
            true => FindingLevel::Note,
            false => FindingLevel::Problem,
        };
        findings.extend(subject.of_chain(&offered.chain, trust, now, refused));
        findings
    }

    fn of_gsi(&self, trust: &Result<Arc<TrustStore>, String>, now: SystemTime) -> Vec<Finding> {
        let level = level_if(self.needs_gsi);
        let name = "GSI (AUTH GSSAPI)";
        let offered = match &self.gsi {
            SecurityOffer::NotAsked => return Vec::new(),
            SecurityOffer::Refused(_) if !self.needs_gsi => {
                return vec![Finding::note(name, "not offered")];
            }
            SecurityOffer::Refused(reply) => {
                return vec![Finding::problem(
                    name,
                    format!("not offered ({reply})"),
                    "use ftps: or ftp:",
                )];
            }
            SecurityOffer::Failed(reason) => {
                return vec![
                    Finding::problem(
                        name,
                        format!("the exchange fails: {reason}"),
                        "report this to its administrator",
                    )
                    .at(level),
                ];
            }
            SecurityOffer::Offered(offered) => offered,
        };
        let mut findings = vec![Finding::good(name, "offered")];
        let subject = Subject {
            name: "GSI certificate",
            host: &self.host,
            usage: CertificateUsage::Grid,
            advice: "put its authority into ~/.globus/certificates, or name its directory with --ca",
        };
        findings.extend(subject.of_chain(&offered.chain, trust, now, level));
        findings
    }

    fn of_passwords(&self) -> Finding {
        let protected = |offer: &SecurityOffer| matches!(offer, SecurityOffer::Offered(_));
        let name = "passwords";
        if self.needs_tls || self.needs_gsi {
            return Finding::good(name, "never sent in the clear with this URL");
        }
        let advice = match (protected(&self.tls), protected(&self.gsi)) {
            (true, _) => "use ftps:, or --tls require",
            (false, true) => "use gsiftp:",
            (false, false) => "log in as anonymous only, or ask its administrator for TLS",
        };
        let value = "travel in the clear with this URL";
        match self.has_password {
            true => Finding::problem(name, value, advice),
            false => Finding::warning(name, value, advice),
        }
    }

    /// The features under protection, else in the clear.
    fn features(&self) -> Option<&ServerFeatures> {
        let protected = match &self.tls {
            SecurityOffer::Offered(offered) => offered.features.as_ref(),
            _ => None,
        };
        protected.or(self.clear_features.as_ref())
    }
}

impl Finding {
    /// The same finding with another level.
    fn at(mut self, level: FindingLevel) -> Self {
        self.level = level;
        self
    }
}

/// The level of a lack: a problem where the URL demands what is lacking.
fn level_if(needed: bool) -> FindingLevel {
    match needed {
        true => FindingLevel::Problem,
        false => FindingLevel::Warning,
    }
}

/// A certificate that is reported on.
struct Subject<'a> {
    name: &'a str,
    host: &'a str,
    usage: CertificateUsage,
    /// The remedy of a chain that is not accepted.
    advice: &'a str,
}

impl Subject<'_> {
    /// The findings about a chain; `refused` is the level of one that is not accepted.
    fn of_chain(
        &self,
        chain: &ShownChain,
        trust: &Result<Arc<TrustStore>, String>,
        now: SystemTime,
        refused: FindingLevel,
    ) -> Vec<Finding> {
        let facts = chain.facts();
        let Some(leaf) = facts.first() else {
            let text = "none was shown";
            return vec![Finding::problem(self.name, text, self.advice).at(refused)];
        };
        let described = format!(
            "{}, for {}, issued by {}",
            leaf.subject,
            leaf.host_names(),
            leaf.issuer
        );
        let renew = "ask its administrator to renew it";
        let mut findings = vec![
            Finding::note(self.name, described),
            Finding::validity(self.name, leaf.expires, now, SERVER_RENEWAL, renew),
        ];
        findings.extend(facts.iter().skip(1).map(|above| {
            let until = show_time(above.expires);
            let text = format!(
                "{}, issued by {}, valid until {until}",
                above.subject, above.issuer
            );
            Finding::note(&format!("{} chain", self.name), text)
        }));
        let accepted = match trust {
            Ok(trust) => chain
                .check(trust, self.usage, Some(self.host), now)
                .map_err(|error| error.to_string()),
            Err(problem) => Err(problem.clone()),
        };
        findings.push(match accepted {
            Ok(_) => Finding::good(self.name, format!("accepted for {}", self.host)),
            Err(problem) => Finding::problem(
                self.name,
                format!("not accepted for {}: {problem}", self.host),
                self.advice,
            )
            .at(refused),
        });
        findings
    }
}

fn of_data_protection(features: &ServerFeatures) -> Finding {
    let name = "protection of data";
    let encrypts = features.pbsz && features.prot;
    let offered = [
        (encrypts, "encryption"),
        (features.dcau, "authentication of both ends"),
        (features.dcsc, "certificates for one copy"),
    ];
    let names = names_of(&offered);
    match encrypts {
        true => Finding::good(name, names),
        false => Finding::warning(
            name,
            format!("encryption is not announced; others: {names}"),
            "data may travel in the clear: --data-protection private refuses that",
        ),
    }
}

fn of_bearer(features: &ServerFeatures) -> Finding {
    match features.bearer {
        true => Finding::good("bearer tokens", "accepted"),
        false => Finding::note("bearer tokens", "not announced"),
    }
}

/// The finding about the features that decide the rate.
fn of_speed(features: &ServerFeatures) -> Finding {
    let offered = [
        (features.parallel, "parallel streams"),
        (features.spas, "stripes"),
        (
            features.sbuf || !features.buffer_sizings.is_empty(),
            "buffer sizes",
        ),
        (features.mlst, "exact listings"),
        (features.rest_stream, "restart of one stream"),
        (!features.checksum_algorithms.is_empty(), "checksums"),
    ];
    let names = names_of(&offered);
    match features.parallel {
        true => Finding::good("features for the rate", names),
        false => Finding::hint(
            "features for the rate",
            format!("no parallel streams; {names}"),
            "one stream carries each file: on long paths its rate depends on the buffers of both ends",
        ),
    }
}

fn names_of(offered: &[(bool, &str)]) -> String {
    let names = offered
        .iter()
        .filter(|(has, _)| *has)
        .map(|(_, name)| *name);
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}
