//! Certificate authorities and the certificates and revocation lists that they issue.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, CrlNumber, ExtendedKeyUsage, KeyUsage,
    SubjectAlternativeName, SubjectKeyIdentifier,
};
use openssl::x509::{
    X509, X509Builder, X509Crl, X509CrlBuilder, X509Extension, X509Name, X509RevokedBuilder,
};

use super::{TestKey, key};
use crate::x509::CertifiedKey;

/// One day, seconds.
pub(super) const DAY: i64 = 86_400;

/// A certificate authority.
#[derive(Clone)]
pub struct TestAuthority {
    certificate: X509,
    key: PKey<Private>,
    /// Authorities above, nearest first.
    above: Vec<X509>,
}

/// Extended key usages of a certificate (RFC 5280 §4.2.1.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestUsage {
    /// serverAuth
    Server,
    /// clientAuth
    Client,
    /// emailProtection
    Email,
}

/// A certificate to be issued: fields with usual values, each to be changed.
#[derive(Debug, Clone)]
pub struct TestCertificate {
    /// Subject, see [`name`].
    pub subject: String,
    /// Alternative names: DNS names and addresses.
    pub alternative_names: Vec<String>,
    /// Extended key usages; empty: the extension is absent.
    pub usages: Vec<TestUsage>,
    /// Key usage has digitalSignature; `None`: the extension is absent.
    pub digital_signature: Option<bool>,
    /// Start of validity, seconds from now.
    pub not_before: i64,
    /// End of validity, seconds from now.
    pub not_after: i64,
    /// It is an authority.
    pub authority: bool,
    /// An authority's key usage has cRLSign.
    pub may_revoke: bool,
    /// Path length of an authority.
    pub path_length: Option<u32>,
    /// Key; its name is the subject.
    pub key: TestKey,
    /// Critical extensions: object identifier and DER.
    pub critical: Vec<(String, Vec<u8>)>,
}

impl TestCertificate {
    /// Valid for ten days from yesterday on, key usage digitalSignature, RSA.
    pub fn new(subject: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            alternative_names: Vec::new(),
            usages: Vec::new(),
            digital_signature: Some(true),
            not_before: -DAY,
            not_after: 10 * DAY,
            authority: false,
            may_revoke: true,
            path_length: None,
            key: TestKey::default(),
            critical: Vec::new(),
        }
    }
}

impl TestAuthority {
    /// A self-signed authority.
    pub fn new(subject: &str) -> Self {
        let mut template = TestCertificate::new(subject);
        template.authority = true;
        Self::self_signed(&template)
    }

    /// A self-signed authority with these fields.
    pub fn self_signed(template: &TestCertificate) -> Self {
        let key = key(template.key, &template.subject);
        let certificate = build(template, &key, None);
        Self {
            certificate,
            key,
            above: Vec::new(),
        }
    }

    /// An authority below this one.
    pub fn subordinate(&self, subject: &str) -> Self {
        let mut template = TestCertificate::new(subject);
        template.authority = true;
        self.subordinate_with(&template)
    }

    /// An authority below this one, with these fields.
    pub fn subordinate_with(&self, template: &TestCertificate) -> Self {
        let issued = self.issue(template);
        let mut above = vec![self.certificate.clone()];
        above.extend_from_slice(&self.above);
        Self {
            certificate: issued.leaf().clone(),
            key: issued.key().clone(),
            above,
        }
    }

    /// Issues a certificate. Its chain has the subordinate authorities, not the root.
    pub fn issue(&self, template: &TestCertificate) -> CertifiedKey {
        let key = key(template.key, &template.subject);
        let leaf = build(template, &key, Some(self));
        let mut chain = Vec::new();
        if !self.above.is_empty() {
            chain.push(self.certificate.clone());
            chain.extend_from_slice(&self.above[..self.above.len() - 1]);
        }
        CertifiedKey::from_parts(leaf, key, chain).unwrap()
    }

    /// A host's certificate `/O=Grid/CN=NAME` for these DNS names and addresses, for servers and
    /// clients.
    pub fn host(&self, names: &[&str]) -> CertifiedKey {
        let mut template = TestCertificate::new(&format!("/O=Grid/CN={}", names[0]));
        template.alternative_names = names.iter().map(|&name| name.to_owned()).collect();
        template.usages = vec![TestUsage::Server, TestUsage::Client];
        self.issue(&template)
    }

    /// A user's certificate `/O=Grid/CN=NAME` for clients.
    pub fn user(&self, common_name: &str) -> CertifiedKey {
        let mut template = TestCertificate::new(&format!("/O=Grid/CN={common_name}"));
        template.usages = vec![TestUsage::Client];
        self.issue(&template)
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> &X509 {
        &self.certificate
    }

    /// The authority's private key.
    pub fn key(&self) -> &PKey<Private> {
        &self.key
    }

    /// Name of the authority's files in a grid directory, without ending.
    pub fn hash(&self) -> String {
        format!("{:08x}", self.certificate.subject_name_hash())
    }

    /// Text of a signing policy that allows subjects of these patterns.
    pub fn signing_policy(&self, patterns: &[&str]) -> String {
        let subject = crate::x509::DistinguishedName::of_subject(&self.certificate);
        let patterns: Vec<String> = patterns.iter().map(|text| format!("\"{text}\"")).collect();
        format!(
            "# Test\naccess_id_CA  X509  '{subject}'\npos_rights  globus  CA:sign\ncond_subjects  globus  '{}'\n",
            patterns.join(" ")
        )
    }

    /// A revocation list from yesterday, valid for ten days.
    pub fn revocation_list(&self, revoked: &[&X509]) -> X509Crl {
        self.revocation_list_of(revoked, -DAY, 10 * DAY)
    }

    /// A revocation list with its thisUpdate and nextUpdate, seconds from now.
    pub fn revocation_list_of(
        &self,
        revoked: &[&X509],
        this_update: i64,
        next_update: i64,
    ) -> X509Crl {
        self.revocation_list_with(revoked, this_update, next_update, &[])
    }

    /// A revocation list with critical extensions too: object identifier and DER each.
    pub fn revocation_list_with(
        &self,
        revoked: &[&X509],
        this_update: i64,
        next_update: i64,
        critical: &[(&str, &[u8])],
    ) -> X509Crl {
        let mut list = X509CrlBuilder::new().unwrap();
        list.set_issuer_name(self.certificate.subject_name())
            .unwrap();
        list.set_last_update(&time(this_update)).unwrap();
        list.set_next_update(&time(next_update)).unwrap();
        for certificate in revoked {
            let mut entry = X509RevokedBuilder::new().unwrap();
            entry.set_revocation_date(&time(this_update)).unwrap();
            entry
                .set_serial_number(certificate.serial_number())
                .unwrap();
            list.add_revoked(entry.build()).unwrap();
        }
        let number = CrlNumber::new(BigNum::from_u32(1).unwrap()).unwrap();
        list.append_extension(number.build().unwrap()).unwrap();
        let builder = X509Builder::new().unwrap();
        let context = builder.x509v3_context(Some(&self.certificate), None);
        let identifier = AuthorityKeyIdentifier::new().keyid(true).build(&context);
        list.append_extension(identifier.unwrap()).unwrap();
        for (identifier, der) in critical {
            list.append_extension(extension(identifier, true, der))
                .unwrap();
        }
        list.sign(&self.key, MessageDigest::sha256()).unwrap();
        list.build().unwrap()
    }
}

/// A name from its text `/TYPE=value/TYPE=value`; a backslash takes the character after it into the
/// value.
pub fn name(text: &str) -> X509Name {
    let mut parts = vec![String::new()];
    let mut characters = text.strip_prefix('/').unwrap_or(text).chars();
    while let Some(character) = characters.next() {
        match character {
            '/' => parts.push(String::new()),
            '\\' => parts.last_mut().unwrap().extend(characters.next()),
            other => parts.last_mut().unwrap().push(other),
        }
    }
    let mut builder = X509Name::builder().unwrap();
    for part in parts {
        let (kind, value) = part.split_once('=').expect("TYPE=value");
        builder.append_entry_by_text(kind, value).unwrap();
    }
    builder.build()
}

/// A serial number that no other certificate of the process has.
pub(super) fn serial() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(1000);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// The time so many seconds from now.
pub(super) fn time(seconds: i64) -> Asn1Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Asn1Time::from_unix(i64::try_from(now.as_secs()).unwrap() + seconds).unwrap()
}

/// An extension of any kind.
pub(super) fn extension(identifier: &str, critical: bool, der: &[u8]) -> X509Extension {
    let object = Asn1Object::from_str(identifier).unwrap();
    let value = Asn1OctetString::new_from_bytes(der).unwrap();
    X509Extension::new_from_der(&object, critical, &value).unwrap()
}

pub(super) fn start(
    subject: &X509Name,
    serial: u32,
    validity: (i64, i64),
    key: &PKey<Private>,
) -> X509Builder {
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let serial = BigNum::from_u32(serial).unwrap();
    builder
        .set_serial_number(&Asn1Integer::from_bn(&serial).unwrap())
        .unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_not_before(&time(validity.0)).unwrap();
    builder.set_not_after(&time(validity.1)).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
}

fn build(template: &TestCertificate, key: &PKey<Private>, issuer: Option<&TestAuthority>) -> X509 {
    let subject = name(&template.subject);
    let validity = (template.not_before, template.not_after);
    let mut builder = start(&subject, serial(), validity, key);
    let (issuer_name, issuer_key) = match issuer {
        Some(issuer) => (issuer.certificate.subject_name(), &issuer.key),
        None => (&*subject, key),
    };
    builder.set_issuer_name(issuer_name).unwrap();
    for extension in extensions(&builder, template, issuer) {
        builder.append_extension(extension).unwrap();
    }
    builder.sign(issuer_key, MessageDigest::sha256()).unwrap();
    builder.build()
}

fn extensions(
    builder: &X509Builder,
    template: &TestCertificate,
    issuer: Option<&TestAuthority>,
) -> Vec<X509Extension> {
    let context = builder.x509v3_context(issuer.map(|issuer| &*issuer.certificate), None);
    let mut extensions = Vec::new();
    let mut basic = BasicConstraints::new();
    basic.critical();
    if template.authority {
        basic.ca();
        if let Some(length) = template.path_length {
            basic.pathlen(length);
        }
    }
    extensions.push(basic.build().unwrap());
    let mut usage = KeyUsage::new();
    usage.critical();
    if template.authority {
        if template.may_revoke {
            usage.crl_sign();
        }
        extensions.push(usage.key_cert_sign().build().unwrap());
    } else if let Some(signature) = template.digital_signature {
        if signature {
            usage.digital_signature();
        }
        extensions.push(usage.key_encipherment().build().unwrap());
    }
    if !template.usages.is_empty() {
        let mut usage = ExtendedKeyUsage::new();
        for kind in &template.usages {
            match kind {
                TestUsage::Server => usage.server_auth(),
                TestUsage::Client => usage.client_auth(),
                TestUsage::Email => usage.email_protection(),
            };
        }
        extensions.push(usage.build().unwrap());
    }
    if !template.alternative_names.is_empty() {
        let mut names = SubjectAlternativeName::new();
        for name in &template.alternative_names {
            if name.parse::<IpAddr>().is_ok() {
                names.ip(name);
            } else {
                names.dns(name);
            }
        }
        extensions.push(names.build(&context).unwrap());
    }
    extensions.push(SubjectKeyIdentifier::new().build(&context).unwrap());
    if issuer.is_some() {
        let identifier = AuthorityKeyIdentifier::new().keyid(true).build(&context);
        extensions.push(identifier.unwrap());
    }
    for (identifier, der) in &template.critical {
        extensions.push(extension(identifier, true, der));
    }
    extensions
}
