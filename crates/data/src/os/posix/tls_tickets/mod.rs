//! Keys of session tickets that several servers share.

#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_long};

use openssl::error::ErrorStack;
use openssl_sys as ffi;

/// SSL_CTRL_SET_TLSEXT_TICKET_KEYS of OpenSSL's ssl.h.
const SET_TICKET_KEYS: c_int = 59;

/// Lets TLS servers of this process share the keys of tickets. May be called any number of times.
pub fn permit_sharing() {
    security::tls::install_ticket_key_setter(|builder, keys| {
        let length = c_long::try_from(keys.len()).unwrap_or(0);
        let mut keys = *keys;
        // SAFETY: the builder owns a valid SSL_CTX. The call reads `length` bytes at the pointer, which are those of `keys`, and keeps
        // no pointer.
        let set = unsafe {
            ffi::SSL_CTX_ctrl(
                builder.as_ptr(),
                SET_TICKET_KEYS,
                length,
                keys.as_mut_ptr().cast(),
            )
        };
        keys.fill(0);
        match set {
            1 => Ok(()),
            _ => Err(ErrorStack::get()),
        }
    });
}
