//! Flags of `longhaul proxy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make, show and destroy your proxy certificate for gsiftp: servers
///
/// A proxy (RFC 3820) is a short-lived certificate with a key of its own, signed by your certificate. It
/// is used without your passphrase. MyProxy servers are out of scope: nothing is fetched from them or
/// stored there. myproxy-logon(1) does that, and longhaul uses the proxy that it makes.
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: ProxyVerb,
}

/// The verbs of `longhaul proxy`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProxyVerb {
    /// Make a proxy; asks for the passphrase of an encrypted key
    Init {
        /// Time until it expires, up to a year: `90m`, `7d`; a number is hours. Not after your certificate does
        #[arg(long, value_name = "TIME", default_value = "12h", value_parser = super::values::parse_validity)]
        valid: std::time::Duration,
        /// Make a limited proxy: file transfers accept it, services that start programs do not
        #[arg(long)]
        limited: bool,
        /// Number of further proxies that may be made from it [default: any]
        #[arg(long, value_name = "N")]
        path_length: Option<u32>,
        /// Size of its RSA key, bits
        #[arg(long, value_name = "BITS", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(2048..=8192))]
        bits: u32,
        /// Your certificate (PEM) [default: X509_USER_CERT, or ~/.globus/usercert.pem]
        #[arg(long, value_name = "FILE")]
        cert: Option<PathBuf>,
        /// Its key [default: in the file of --cert; else X509_USER_KEY, or ~/.globus/userkey.pem]
        #[arg(long, value_name = "FILE", requires = "cert")]
        key: Option<PathBuf>,
        /// File of the proxy [default: X509_USER_PROXY, or /tmp/x509up_uUID]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show the proxy; exit code 3 if there is none or it has expired
    Info {
        /// File of the proxy [default: X509_USER_PROXY, or /tmp/x509up_uUID]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Overwrite and remove the proxy
    Destroy {
        /// File of the proxy [default: X509_USER_PROXY, or /tmp/x509up_uUID]
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}
