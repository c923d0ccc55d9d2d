//! Passwords, tokens and keys in memory.

/// Bytes that must not be logged. They are overwritten when dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(pub Vec<u8>);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without this the compiler may remove the overwriting, since nothing reads the bytes again.
        std::hint::black_box(&self.0);
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}
