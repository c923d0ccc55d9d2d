//! Whether a certificate names a host (RFC 6125, RFC 2818, and the older form CN=host/NAME).
