//! `|1|host|port|nonce|`: the argument of DPRT, and the address in the 229 reply to DPSV.

use std::net::SocketAddr;

use super::nonce::Nonce;
use crate::address::{AddressError, format_eprt, parse_eprt};

/// Address and nonce of a DRS channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrsAddress {
    /// Host and port. The host must be that of the data channel, and the port is never 0. IPv4-mapped
    /// addresses are converted to IPv4.
    pub socket: SocketAddr,
    /// Secret that the connecting end sends first.
    pub nonce: Nonce,
}

impl DrsAddress {
    /// Parses `|1|host|port|nonce|`: EPRT's argument (RFC 2428 §2, any delimiter) with the nonce as
    /// a fourth field.
    ///
    /// # Errors
    /// [`AddressError::UnsupportedProtocol`] for a family other than 1 and 2, [`AddressError::Malformed`]
    /// for anything else that is not of this form.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim_matches(' ');
        let delimiter = text.chars().next().ok_or(AddressError::Malformed)?;
        // The nonce is the last field, so the rest is a complete EPRT argument.
        let (host_port, nonce) = text
            .strip_suffix(delimiter)
            .and_then(|text| text.rsplit_once(delimiter))
            .ok_or(AddressError::Malformed)?;
        let at = parse_eprt(&format!("{host_port}{delimiter}"))?;
        let nonce = Nonce::parse(nonce).ok_or(AddressError::Malformed)?;
        Ok(Self { socket: at, nonce })
    }

    /// Writes `|1|192.0.2.7|41000|5e0c...|`. The result holds the secret nonce, so it must not be logged.
    pub fn format(&self) -> String {
        format!("{}{}|", format_eprt(self.socket), self.nonce.to_hex())
    }

    /// Finds the address in the text of a 229 reply to DPSV, between parentheses.
    ///
    /// # Errors
    /// As [`DrsAddress::parse`].
    pub fn find_in_229(text: &str) -> Result<Self, AddressError> {
        let (_, after) = text.split_once('(').ok_or(AddressError::Malformed)?;
        let (inside, _) = after.split_once(')').ok_or(AddressError::Malformed)?;
        Self::parse(inside)
    }
}

#[cfg(test)]
mod tests;
