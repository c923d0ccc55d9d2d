//! Distinguished names in OpenSSL's one-line form.

/// A distinguished name as one line: `/TYPE=value` in the order of the certificate (gridmaps, DCAU
/// S, signing policies, logs). Values have `/` and `+` as `\/` and `\+`, and bytes that are not
/// printable ASCII as `\xHH`, as OpenSSL 3 writes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DistinguishedName(String);

impl DistinguishedName {
    /// From the one-line form.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Of an OpenSSL name.
    pub fn of(name: &openssl::x509::X509NameRef) -> Self {
        let _ = name;
        todo!()
    }

    /// The one-line form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
