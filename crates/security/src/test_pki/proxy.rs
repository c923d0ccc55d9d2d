//! Proxy certificates of every form, right and wrong.

use openssl::asn1::Asn1Object;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::x509::X509Name;
use openssl::x509::extension::{BasicConstraints, KeyUsage};

use super::authority::{DAY, extension, name, serial, start};
use super::{TestKey, key};
use crate::x509::CertifiedKey;
use crate::x509::der::{OBJECT_IDENTIFIER, SEQUENCE, element, integer};

/// Form of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyForm {
    /// RFC 3820.
    Rfc,
    /// The draft before RFC 3820, extension 1.3.6.1.4.1.3536.1.222.
    Draft,
    /// `CN=proxy` or `CN=limited proxy`, without extension.
    Legacy,
}

/// Policy of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyPolicy {
    /// All rights of the issuer.
    InheritAll,
    /// Limited proxy of the Globus toolkit.
    Limited,
    /// No rights of the issuer.
    Independent,
    /// A policy of this language (object identifier) and text.
    Restricted(String, Vec<u8>),
}

/// A proxy to be made: fields with usual values, each to be changed.
#[derive(Clone)]
pub struct TestProxy {
    /// Form.
    pub form: ProxyForm,
    /// Policy.
    pub policy: ProxyPolicy,
    /// Number of proxies that may follow.
    pub path_length: Option<u32>,
    /// Start of validity, seconds from now.
    pub not_before: i64,
    /// End of validity, seconds from now.
    pub not_after: i64,
    /// The last CN; `None`: as the form demands, or the serial number.
    pub common_name: Option<String>,
    /// Another subject than issuer + CN.
    pub subject: Option<String>,
    /// Key usage has digitalSignature; `None`: the extension is absent.
    pub digital_signature: Option<bool>,
    /// basicConstraints with CA true.
    pub authority: bool,
    /// Another credential whose key signs, in the issuer's name.
    pub signer: Option<CertifiedKey>,
    /// Critical extensions: object identifier and DER.
    pub critical: Vec<(String, Vec<u8>)>,
    /// The signature uses SHA-1.
    pub weak_hash: bool,
    /// Key.
    pub key: TestKey,
}

impl Default for TestProxy {
    fn default() -> Self {
        Self {
            form: ProxyForm::Rfc,
            policy: ProxyPolicy::InheritAll,
            path_length: None,
            not_before: -300,
            not_after: DAY / 2,
            common_name: None,
            subject: None,
            digital_signature: Some(true),
            authority: false,
            signer: None,
            critical: Vec::new(),
            weak_hash: false,
            key: TestKey::default(),
        }
    }
}

impl TestProxy {
    /// A proxy of this form and policy.
    pub fn new(form: ProxyForm, policy: ProxyPolicy) -> Self {
        Self {
            form,
            policy,
            ..Self::default()
        }
    }

    /// Makes the proxy of an issuer. Its chain is the issuer's leaf and chain.
    pub fn of(&self, issuer: &CertifiedKey) -> CertifiedKey {
        let key = key(self.key, &format!("proxy {}", issuer.chain().len()));
        let serial = serial();
        let subject = self.subject(issuer, serial);
        let validity = (self.not_before, self.not_after);
        let mut builder = start(&subject, serial, validity, &key);
        builder
            .set_issuer_name(issuer.leaf().subject_name())
            .unwrap();
        if let Some(signature) = self.digital_signature {
            let mut usage = KeyUsage::new();
            usage.critical();
            if signature {
                usage.digital_signature();
            }
            let usage = usage.key_encipherment().build().unwrap();
            builder.append_extension(usage).unwrap();
        }
        if self.authority {
            let basic = BasicConstraints::new().critical().ca().build().unwrap();
            builder.append_extension(basic).unwrap();
        }
        if let Some((identifier, der)) = self.information() {
            builder
                .append_extension(extension(identifier, true, &der))
                .unwrap();
        }
        for (identifier, der) in &self.critical {
            builder
                .append_extension(extension(identifier, true, der))
                .unwrap();
        }
        let signer = self.signer.as_ref().unwrap_or(issuer);
        let digest = match self.weak_hash {
            true => MessageDigest::sha1(),
            false => MessageDigest::sha256(),
        };
        builder.sign(signer.key(), digest).unwrap();
        let mut chain = vec![issuer.leaf().clone()];
        chain.extend_from_slice(issuer.chain());
        CertifiedKey::from_parts(builder.build(), key, chain).unwrap()
    }

    fn subject(&self, issuer: &CertifiedKey, serial: u32) -> X509Name {
        if let Some(subject) = &self.subject {
            return name(subject);
        }
        let last = match (&self.common_name, self.form, &self.policy) {
            (Some(name), ..) => name.clone(),
            (None, ProxyForm::Legacy, ProxyPolicy::Limited) => "limited proxy".to_owned(),
            (None, ProxyForm::Legacy, _) => "proxy".to_owned(),
            (None, ..) => serial.to_string(),
        };
        let mut subject = X509Name::builder().unwrap();
        for entry in issuer.leaf().subject_name().entries() {
            subject.append_entry(entry).unwrap();
        }
        subject.append_entry_by_nid(Nid::COMMONNAME, &last).unwrap();
        subject.build()
    }

    /// Object identifier and DER of the proxyCertInfo extension.
    fn information(&self) -> Option<(&'static str, Vec<u8>)> {
        let (language, text) = match &self.policy {
            ProxyPolicy::InheritAll => ("1.3.6.1.5.5.7.21.1", None),
            ProxyPolicy::Limited => ("1.3.6.1.4.1.3536.1.1.1.9", None),
            ProxyPolicy::Independent => ("1.3.6.1.5.5.7.21.2", None),
            ProxyPolicy::Restricted(language, text) => (language.as_str(), Some(text)),
        };
        let language = Asn1Object::from_str(language).unwrap();
        let mut policy = element(OBJECT_IDENTIFIER, language.as_slice());
        if let Some(text) = text {
            policy.extend(element(0x04, text));
        }
        let policy = element(SEQUENCE, &policy);
        let length = self.path_length.map(integer).unwrap_or_default();
        match self.form {
            ProxyForm::Rfc => Some((
                "1.3.6.1.5.5.7.1.14",
                element(SEQUENCE, &[length, policy].concat()),
            )),
            // The draft has the path length behind the policy, with the tag [1].
            ProxyForm::Draft => {
                let length = match length.is_empty() {
                    true => length,
                    false => element(0xa1, &length),
                };
                let der = element(SEQUENCE, &[policy, length].concat());
                Some(("1.3.6.1.4.1.3536.1.222", der))
            }
            ProxyForm::Legacy => None,
        }
    }
}
