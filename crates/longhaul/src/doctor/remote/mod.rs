//! The offers of a server, examined over connections made for that. Nothing is changed there, and nobody logs
//! in unless the user asks for it.

mod bucket;
mod conversation;
mod offer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use copy::{ConnectionSecurity, Exit, Failure, FailureKind, SecurityOptions, sftp_extensions};
use ftp::FarEndOptions;
use ftp::location::{Location, Scheme, Server};
use ftp::session::ClientSession;
use proto::command::Command;
use proto::feature::ServerFeatures;

use super::report::Finding;
use crate::args::DoctorArgs;
use crate::output::print_to_stderr;
use crate::terminal::ask_before;
use conversation::Conversation;
use offer::{OfferTrust, SecurityOffer, ServerOffer};

/// Longest wait for a server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server of a URL, and how to examine it.
pub(super) struct RemoteTarget {
    server: Server,
    path: Vec<u8>,
    /// Log in, too.
    login: bool,
}

/// The findings about a server.
pub(super) struct ExaminedServer {
    pub(super) findings: Vec<Finding>,
    /// No connection could be made, or it was lost.
    pub(super) unreachable: bool,
}

impl RemoteTarget {
    /// Reads the URL.
    ///
    /// # Errors
    /// `Usage`: it is no URL of a server. `Refused`: the authorities cannot be read.
    pub(super) fn parse(url: &str, args: &DoctorArgs) -> Result<Self, Failure> {
        let options = SecurityOptions {
            ca: args.authorities.ca.clone(),
            ssh: args.ssh.command(),
            // Nothing is put there.
            far_end: FarEndOptions {
                program: args.far_end.ssh_program.clone(),
                ..FarEndOptions::default()
            },
            proxy: args.proxy.choice(),
            ..SecurityOptions::default()
        };
        let warn = |text: &str| print_to_stderr(&format!("longhaul: warning: {text}"));
        let security = ConnectionSecurity::with_remotes(options, args.remotes(), Arc::new(warn))?;
        let names_user = match security.remotes().name_in(url) {
            Some(_) => security.remotes().has_user(url),
            None => names_user(url),
        };
        let login = args.login || names_user;
        if login {
            let asked = ask_before([url], &security);
            let asked = asked.map_err(|error| Failure::local(error.to_string()))?;
            asked.ok_or_else(|| Failure::new(FailureKind::Interrupted, "interrupted"))?;
        }
        let Location::Remote { server, path } = Location::parse_secured(url, &security)? else {
            return Err(Failure::usage(
                "the argument is no server: give a URL such as ftps://host/",
            ));
        };
        Ok(Self {
            server,
            path,
            login,
        })
    }

    /// Connects and examines.
    pub(super) async fn examine(&self) -> ExaminedServer {
        let mut examined = match self.findings().await {
            Ok(findings) => ExaminedServer {
                findings,
                unreachable: false,
            },
            Err(failure) => ExaminedServer {
                unreachable: failure.exit() == Exit::Unreachable,
                findings: vec![Finding::failure("connection", failure.to_string())],
            },
        };
        let scheme = self.server.scheme;
        // By ssh somebody has logged in.
        let may_log_in =
            !matches!(scheme, Scheme::Http | Scheme::Https | Scheme::S3) && !scheme.is_ssh();
        if self.login && may_log_in && !examined.unreachable {
            examined.findings.push(self.log_in().await);
        }
        examined
    }

    async fn findings(&self) -> Result<Vec<Finding>, Failure> {
        let (trust, now) = (self.trust(), SystemTime::now());
        match self.server.scheme {
            Scheme::Http => {
                Conversation::open(&self.server).await?;
                Ok(vec![Finding::warning(
                    "TLS",
                    "http: sends everything in the clear",
                    "use https:",
                )])
            }
            Scheme::Https => {
                let mut offer = self.empty_offer();
                offer.tls = Conversation::open(&self.server).await?.start_tls().await;
                Ok(offer.of_tls(&trust.tls, now))
            }
            // ssh protects it, and has logged in.
            Scheme::Ssh | Scheme::Sshftp => match ClientSession::open(&self.server, PATIENCE).await
            {
                Ok(session) => {
                    let who = match self.server.scheme {
                        Scheme::Sshftp => "a GridFTP server",
                        _ => "longhaul",
                    };
                    let text = format!("{who} answers at {}", session.name());
                    let mut findings = vec![Finding::good("session", text)];
                    if self.server.scheme == Scheme::Ssh {
                        findings.push(way_of_data(&session));
                    }
                    session.close().await;
                    Ok(findings)
                }
                Err(failure)
                    if self.server.scheme == Scheme::Ssh && failure.kind().leaves_sftp() =>
                {
                    let Ok(mut findings) = self.sftp().await else {
                        return Err(failure);
                    };
                    let reason = failure.reason().to_string();
                    let advice = "install longhaul there, or copy with --ssh-install, for a login that may run it: SFTP is slower";
                    findings.insert(0, Finding::warning("session", reason, advice));
                    Ok(findings)
                }
                Err(failure) => Err(failure),
            },
            Scheme::Sftp => self.sftp().await,
            Scheme::S3 => bucket::examine(&self.server, &self.path, PATIENCE).await,
            _ => Ok(self.offer().await?.findings(&trust, now)),
        }
    }

    async fn sftp(&self) -> Result<Vec<Finding>, Failure> {
        let extensions = sftp_extensions(&self.server, PATIENCE).await?;
        let name = self.server.host_and_port();
        let answers = Finding::good("SFTP", format!("answers at {name}"));
        let lacking = [
            (
                extensions.check_file,
                "checksums",
                "the server computes none (check-file): copies are compared by size",
                "with longhaul there, ssh: URLs have checksums",
            ),
            (
                extensions.posix_rename,
                "rename",
                "the server replaces no files (posix-rename): for a moment an old file is moved aside",
                "a server with OpenSSH's extensions replaces them at once",
            ),
            (
                extensions.fsync,
                "disk",
                "the server cannot be asked to force files to disk (fsync)",
                "a server with OpenSSH's extensions can",
            ),
        ];
        let lacking = lacking.into_iter().filter(|(has, ..)| !has);
        let hints = lacking.map(|(_, about, text, advice)| Finding::hint(about, text, advice));
        Ok(std::iter::once(answers).chain(hints).collect())
    }

    fn trust(&self) -> OfferTrust {
        let security = &self.server.security;
        OfferTrust {
            tls: security.tls_trust().map_err(|failure| failure.to_string()),
            gsi: security.grid_trust().map_err(|failure| failure.to_string()),
        }
    }

    fn empty_offer(&self) -> ServerOffer {
        let scheme = self.server.scheme;
        ServerOffer {
            host: self.server.host.clone(),
            greeting: None,
            clear_features: None,
            needs_tls: matches!(scheme, Scheme::Ftps | Scheme::Https),
            needs_gsi: scheme == Scheme::Gsiftp,
            has_password: self.login && self.server.credential.user().is_some(),
            tls: SecurityOffer::NotAsked,
            gsi: SecurityOffer::NotAsked,
        }
    }

    /// Asks an FTP server for its security and its features.
    async fn offer(&self) -> Result<ServerOffer, Failure> {
        let mut offer = self.empty_offer();
        let mut control = Conversation::open(&self.server).await?;
        if self.server.begins_with_tls() {
            offer.tls = control.start_tls().await;
            if let SecurityOffer::Offered(offered) = &mut offer.tls {
                offer.greeting = Some(control.greeting().await?);
                offered.features = features(&mut control).await?;
                control.quit().await;
            }
            return Ok(offer);
        }
        offer.greeting = Some(control.greeting().await?);
        offer.clear_features = features(&mut control).await?;
        offer.tls = control.offer_of_tls().await?;
        if let SecurityOffer::Offered(offered) = &mut offer.tls {
            offered.features = features(&mut control).await?;
        }
        control.quit().await;
        if !offer.needs_tls {
            // A connection takes one exchange only.
            let mut control = Conversation::open(&self.server).await?;
            control.greeting().await?;
            offer.gsi = control.offer_of_gsi().await?;
        }
        Ok(offer)
    }

    async fn log_in(&self) -> Finding {
        let user = self.server.credential.user().unwrap_or("anonymous");
        if self.exposes_password() {
            return Finding::hint(
                "login",
                "not tried, because the password would travel in the clear",
                "use ftps:",
            );
        }
        match ClientSession::open(&self.server, PATIENCE).await {
            Ok(session) => {
                session.close().await;
                Finding::good("login", format!("accepted ({user})"))
            }
            Err(failure) => Finding::failure("login", failure.to_string()),
        }
    }

    /// Whether a login would show a password to the network.
    fn exposes_password(&self) -> bool {
        self.server.scheme == Scheme::Ftp
            && self.server.credential.user().is_some()
            && !self.server.is_loopback()
    }
}

/// How data would go between this machine and a far end of ssh.
fn way_of_data(session: &ClientSession) -> Finding {
    let there = match session.is_carried() {
        true => "no port there can be reached",
        false => "its ports can be reached, and data goes beside ssh",
    };
    let here = match session.server_can_connect() {
        true => "it reaches ports of this machine",
        false => "it reaches no port of this machine",
    };
    match (session.is_carried(), session.server_can_connect()) {
        (true, false) => Finding::hint(
            "data ports",
            format!("{there}, {here}: all data goes through ssh"),
            "data beside ssh is faster on long paths: open some ports there, and name them in its `longhaul` (docs/ssh.md)",
        ),
        _ => Finding::good("data ports", format!("{there}; {here}")),
    }
}

/// The features that the server announces now; `None`: it does not say.
async fn features(control: &mut Conversation) -> Result<Option<ServerFeatures>, Failure> {
    let features = ServerFeatures::from_reply(&control.call(&Command::Feat).await?);
    Ok(Some(features).filter(|features| features.feat_answered))
}

/// Whether a URL has a user before its host. A name in ~/.netrc does not count: the user has not asked
/// for a login.
fn names_user(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@')
}
