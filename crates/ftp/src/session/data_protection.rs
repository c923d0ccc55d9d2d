//! Protection of a session's data connections: what the server is told, and this end of it. It is
//! agreed before the first transfer and before the first listing, and holds for all of the session.
//!
//! Files have a checksum, which is compared over the control connection; listings have none. What they say decides what is
//! deleted and where a copy goes, so they are private wherever there is a credential for data connections.

use std::sync::Arc;

use data::security::{DataSecurity, DataTlsRole, ProtectedEnd};
use proto::command::{Command, Secret};
use proto::reply::Reply;
use proto::security::{DataChannelAuth, DataChannelProtection, DataCredential, ProtectionLevel};
use proto::tunnel::TunnelProtocol;
use security::gsi::DataHandshakeMode;
use security::tls::{ExpectedPeer, TlsEngine, TlsOptions};
use security::x509::{CertifiedKey, TrustStore};

use super::ClientSession;
use super::replies::is_unsupported;
use super::secure::ClientSessionSecurity;
use crate::Failure;
use crate::failure::display_reply;
use crate::location::Scheme;
use crate::protection::{DataProtectionChoice, config_failure};

/// Protection of data connections that both ends have agreed on.
#[derive(Debug, Clone)]
pub(super) struct AgreedDataProtection {
    /// Settings that the server is told; `None`: it has no such settings.
    settings: Option<DataChannelProtection>,
    /// This end; `None`: clear.
    local_end: Option<DataSecurity>,
}

/// Content of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataPurpose {
    /// Bytes of files.
    #[default]
    Files,
    /// Names and facts.
    Listings,
}

impl DataPurpose {
    /// The purpose of the data connection of a transfer command.
    pub fn of(command: &Command) -> Self {
        match command {
            Command::Mlsd(_) | Command::Mlsr(_) | Command::List(_) | Command::Nlst(_) => {
                Self::Listings
            }
            _ => Self::Files,
        }
    }
}

/// Protocol by which two servers move files between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThirdPartyProtocol {
    /// FTP, GridFTP: PASV at one, PORT at the other (RFC 959 §5.2). The bytes are clear.
    Ftp,
    /// The same; the servers prove to each other that one user has delegated to both.
    GridDelegated(ProtectionLevel),
    /// The same; the servers prove to each other that one client has named the same credential to
    /// both (DCSC).
    GridShared(ProtectionLevel),
}

/// Use of listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListingUse {
    /// They are shown, or files are copied by them: a warning says if they are not protected.
    #[default]
    Reading,
    /// Files are deleted by them: they are protected, or the user has asked for clear data by name.
    Deleting,
}

/// The protections that a session has agreed on.
#[derive(Debug, Default)]
pub(super) struct AgreedProtections {
    files: Option<AgreedDataProtection>,
    listings: Option<AgreedDataProtection>,
    /// The purpose of the last transfer.
    purpose: DataPurpose,
    /// The server refuses private data connections, which only listings would need.
    refuses_privacy: bool,
    /// That was found out just now.
    is_new: bool,
}

impl AgreedProtections {
    fn of_purpose(&mut self, purpose: DataPurpose) -> &mut Option<AgreedDataProtection> {
        match purpose {
            DataPurpose::Files => &mut self.files,
            DataPurpose::Listings => &mut self.listings,
        }
    }

    fn last(&self) -> Option<&AgreedDataProtection> {
        match self.purpose {
            DataPurpose::Files => self.files.as_ref(),
            DataPurpose::Listings => self.listings.as_ref(),
        }
    }
}

/// How data connections of a session are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataProtectionPlan {
    /// Not at all, in a session without security.
    ClearSession,
    /// Not at all, in a session inside TLS.
    ClearInsideTls,
    /// TLS (RFC 4217).
    InsideTls,
    /// Not at all, in a session of GSI or ssh.
    ClearInsideGsi,
    /// Both ends hold the user's credential, which was delegated to the server.
    Delegated(ProtectionLevel),
    /// Both ends hold a throw-away credential of this run (DCSC).
    Shared(ProtectionLevel),
    /// The level that was asked for cannot be had.
    Impossible,
}

impl ClientSession {
    fn data_protection_plan(&self, purpose: DataPurpose) -> DataProtectionPlan {
        let choice = self.server.security.options().data_protection;
        let features = self.planner.features();
        let level = match (choice, purpose) {
            (DataProtectionChoice::Safe, _) => ProtectionLevel::Safe,
            (DataProtectionChoice::Private, _) => ProtectionLevel::Private,
            (_, DataPurpose::Listings) if !self.data_protection.refuses_privacy => {
                ProtectionLevel::Private
            }
            _ => ProtectionLevel::Clear,
        };
        match (&self.security, choice) {
            // Neither end could prove itself to the other: clients of sshftp: name no credential.
            (ClientSessionSecurity::Carried, choice)
                if self.server.scheme == Scheme::Sshftp
                    && choice != DataProtectionChoice::Clear =>
            {
                DataProtectionPlan::Impossible
            }
            (ClientSessionSecurity::Clear, _) if choice.excludes_clear() => {
                DataProtectionPlan::Impossible
            }
            (ClientSessionSecurity::Clear, _) => DataProtectionPlan::ClearSession,
            (ClientSessionSecurity::Tls(_), DataProtectionChoice::Clear) => {
                DataProtectionPlan::ClearInsideTls
            }
            (ClientSessionSecurity::Tls(_), _) => DataProtectionPlan::InsideTls,
            (ClientSessionSecurity::Gsi(_), DataProtectionChoice::Clear) => {
                DataProtectionPlan::ClearInsideGsi
            }
            (ClientSessionSecurity::Gsi(gsi), _) if gsi.delegated && features.dcau => {
                DataProtectionPlan::Delegated(level)
            }
            (ClientSessionSecurity::Gsi(_), _) if features.dcsc && features.dcau => {
                DataProtectionPlan::Shared(level)
            }
            (ClientSessionSecurity::Gsi(_), DataProtectionChoice::Auto) => {
                DataProtectionPlan::ClearInsideGsi
            }
            // A port that only the far end itself can reach is open to all who are there.
            (ClientSessionSecurity::Carried, DataProtectionChoice::Clear)
                if self.control.route().is_none() =>
            {
                DataProtectionPlan::ClearInsideGsi
            }
            // Nobody who gives an ssh: URL expects anything of it in clear.
            (
                ClientSessionSecurity::Carried,
                DataProtectionChoice::Auto | DataProtectionChoice::Clear,
            ) => DataProtectionPlan::Shared(ProtectionLevel::Private),
            (ClientSessionSecurity::Carried, _) => DataProtectionPlan::Shared(level),
            (ClientSessionSecurity::Gsi(_), _) => DataProtectionPlan::Impossible,
        }
    }

    /// By which protocol the session's server transfers files to another server, if it can. Both
    /// must have the same one.
    pub fn third_party_protocol(&self) -> Option<ThirdPartyProtocol> {
        if self.is_carried() {
            // Nothing shows that the other server reaches ports that this machine cannot reach.
            return None;
        }
        // The other server needs the address of this one, and only the proxy may know it.
        let proxy = self.control.route().and_then(|route| route.proxy());
        if proxy.is_some_and(|proxy| proxy.protocol == TunnelProtocol::Socks5)
            && self.control.peer_addr().ip().is_unspecified()
        {
            return None;
        }
        match self.data_protection_plan(DataPurpose::Files) {
            DataProtectionPlan::ClearSession
            | DataProtectionPlan::ClearInsideTls
            | DataProtectionPlan::ClearInsideGsi => Some(ThirdPartyProtocol::Ftp),
            DataProtectionPlan::Delegated(level) => Some(ThirdPartyProtocol::GridDelegated(level)),
            DataProtectionPlan::Shared(level) => Some(ThirdPartyProtocol::GridShared(level)),
            // RFC 4217 §7: each server would be the TLS server of the connection between them.
            DataProtectionPlan::InsideTls | DataProtectionPlan::Impossible => None,
        }
    }

    /// Agrees on the protection of data connections for `purpose`, unless that is done; returns the settings that
    /// transfers must require.
    ///
    /// # Errors
    /// `Refused`: the protection that the user asked for, or a removal needs, cannot be had.
    pub async fn agree_data_protection(
        &mut self,
        purpose: DataPurpose,
    ) -> Result<Option<DataChannelProtection>, Failure> {
        if purpose == DataPurpose::Listings {
            self.check_listings()?;
        }
        if self.data_protection.of_purpose(purpose).is_none() {
            let agreed = self.plan_data_protection(purpose).await?;
            *self.data_protection.of_purpose(purpose) = Some(agreed);
            self.note_protection();
        }
        self.data_protection.purpose = purpose;
        Ok(self.agreed_protection())
    }

    /// Sets what listings are used for.
    pub fn set_listing_use(&mut self, listing_use: ListingUse) {
        self.listing_use = listing_use;
    }

    /// Refuses a removal by listings that somebody on the path could have changed, and says so of other uses. In a session
    /// that is clear altogether, the user knows that.
    fn check_listings(&self) -> Result<(), Failure> {
        let asked = self.server.security.options().data_protection;
        let plan = self.data_protection_plan(DataPurpose::Listings);
        if asked == DataProtectionChoice::Clear || !plan.is_open_to_changes() {
            return Ok(());
        }
        let name = self.name();
        let (reason, advice) = if self.data_protection.refuses_privacy {
            ("it refuses encrypted data connections, PROT P", "")
        } else if self.features().dcau {
            ("it announces no DCSC", "add --delegate limited, or ")
        } else {
            ("it announces no DCAU", "")
        };
        if self.listing_use == ListingUse::Deleting {
            return Err(Failure::refused(format!(
                "{name} cannot protect its listings ({reason}), and somebody on the path could have changed what they say, so \
                     nothing is deleted by them: {advice}use --data-protection clear to trust them"
            )));
        }
        self.server.security.warn_once(&format!(
            "{name} cannot protect its listings ({reason}): somebody on the path could hide files, or show others; {advice}use \
             --data-protection clear if you know that"
        ));
        Ok(())
    }

    /// Whether somebody on the path could end a listing early, though nobody can change it: the servers end data
    /// connections of GSI by FIN alone.
    pub(super) fn listings_end_unproved(&self) -> bool {
        let plan = self.data_protection_plan(DataPurpose::Listings);
        let ends_by_fin = matches!(
            self.security,
            ClientSessionSecurity::Gsi(_) | ClientSessionSecurity::Carried
        );
        ends_by_fin && !plan.is_open_to_changes()
    }

    /// Whether listings do without privacy from now on, as the server has refused this command, which only they need.
    pub fn goes_without_privacy(&mut self, refused: &Command) -> bool {
        let asked = self.server.security.options().data_protection;
        let is_ours = *refused == Command::Prot(ProtectionLevel::Private)
            && self.data_protection.purpose == DataPurpose::Listings
            && matches!(self.security, ClientSessionSecurity::Gsi(_))
            && asked != DataProtectionChoice::Private;
        if is_ours {
            self.data_protection.refuses_privacy = true;
            self.data_protection.is_new = true;
            self.data_protection.listings = None;
        }
        is_ours
    }

    /// Whether the transfer that is being prepared must be planned again, without the privacy that was refused.
    pub fn take_refused_privacy(&mut self) -> bool {
        std::mem::take(&mut self.data_protection.is_new)
    }

    /// The protection that the last transfer had.
    pub fn agreed_protection(&self) -> Option<DataChannelProtection> {
        let agreed = self.data_protection.last();
        agreed.and_then(|agreed| agreed.settings.clone())
    }

    async fn plan_data_protection(
        &mut self,
        purpose: DataPurpose,
    ) -> Result<AgreedDataProtection, Failure> {
        let plan = self.data_protection_plan(purpose);
        let clear = |settings| AgreedDataProtection {
            settings,
            local_end: None,
        };
        match plan {
            DataProtectionPlan::ClearSession => Ok(clear(None)),
            DataProtectionPlan::ClearInsideTls => Ok(clear(Some(DataChannelProtection::default()))),
            // DCAU A is the default of GSI, unless the server has no DCAU at all.
            DataProtectionPlan::ClearInsideGsi => Ok(clear(
                self.features().dcau.then(DataChannelProtection::default),
            )),
            DataProtectionPlan::InsideTls => self.plan_tls(),
            DataProtectionPlan::Delegated(level) => self.plan_delegated(level),
            DataProtectionPlan::Shared(level) => {
                let credential = self.server.security.data_credential().await?;
                let mut agreed = self.plan_shared(level, &credential)?;
                if matches!(self.security, ClientSessionSecurity::Carried) {
                    // The far end is longhaul, which sends close_notify there.
                    let end = agreed.local_end.take();
                    agreed.local_end = end.map(|end| end.ending(ProtectedEnd::Proved));
                }
                Ok(agreed)
            }
            DataProtectionPlan::Impossible => Err(self.no_protection_failure()),
        }
    }

    fn plan_tls(&self) -> Result<AgreedDataProtection, Failure> {
        let ClientSessionSecurity::Tls(config) = &self.security else {
            return Err(self.no_protection_failure());
        };
        Ok(AgreedDataProtection {
            settings: Some(DataChannelProtection {
                authentication: DataChannelAuth::None,
                level: ProtectionLevel::Private,
            }),
            local_end: Some(DataSecurity::ftps_client(config.clone())),
        })
    }

    fn plan_delegated(&self, level: ProtectionLevel) -> Result<AgreedDataProtection, Failure> {
        let ClientSessionSecurity::Gsi(gsi) = &self.security else {
            return Err(self.no_protection_failure());
        };
        let trust = self.server.security.grid_trust()?;
        let expected = ExpectedPeer::Identity(gsi.own.identity());
        grid_protection(level, &gsi.own, &trust, &expected)
    }

    fn plan_shared(
        &mut self,
        level: ProtectionLevel,
        credential: &CertifiedKey,
    ) -> Result<AgreedDataProtection, Failure> {
        let invalid = |error: &dyn std::fmt::Display| {
            let message = format!("cannot encode the credential for data connections: {error}");
            Failure::local(message)
        };
        let pem = credential.to_pem().map_err(|error| invalid(&error))?;
        self.planner
            .use_data_credential(DataCredential::Pem(Secret(pem.to_vec())));
        let leaf = credential.leaf();
        let expected = ExpectedPeer::Certificate(leaf.to_der().map_err(|error| invalid(&error))?);
        let trust = Arc::new(TrustStore::exactly(vec![leaf.clone()]));
        grid_protection(level, credential, &trust, &expected)
    }

    /// This end of the data connections of a transfer; `None`: clear.
    ///
    /// # Errors
    /// `Protocol`: nothing is agreed, so no transfer may begin.
    pub fn local_data_security(&self) -> Result<Option<Arc<DataSecurity>>, Failure> {
        let Some(agreed) = self.data_protection.last() else {
            return Err(Failure::protocol(format!(
                "no protection of data connections is agreed with {}; report this",
                self.name()
            )));
        };
        let end = agreed.local_end.as_ref();
        Ok(end.map(|end| {
            // The newest session: TLS 1.3 servers send tickets for one use each.
            let resume = match end.role {
                DataTlsRole::Client => self.control.tls().and_then(TlsEngine::session),
                DataTlsRole::Opener | DataTlsRole::Server => None,
            };
            Arc::new(end.clone().resuming(resume))
        }))
    }

    fn note_protection(&self) {
        let plan = self.data_protection_plan(DataPurpose::Files);
        let listings = self.data_protection_plan(DataPurpose::Listings);
        let level = |level| match level {
            ProtectionLevel::Clear => "authenticated",
            ProtectionLevel::Safe => "safe",
            ProtectionLevel::Confidential | ProtectionLevel::Private => "private",
        };
        let data = match plan {
            DataProtectionPlan::ClearSession | DataProtectionPlan::Impossible => return,
            DataProtectionPlan::ClearInsideTls => "data clear".to_owned(),
            DataProtectionPlan::InsideTls => "data private".to_owned(),
            DataProtectionPlan::ClearInsideGsi => match self.server.security.options() {
                options if options.data_protection == DataProtectionChoice::Clear => {
                    "data clear".to_owned()
                }
                _ => "data clear (the server has no DCSC; --delegate limited authenticates it)"
                    .to_owned(),
            },
            DataProtectionPlan::Delegated(asked) => {
                format!("data {} by the delegated credential", level(asked))
            }
            DataProtectionPlan::Shared(asked) => {
                format!("data {} by a credential of this run", level(asked))
            }
        };
        let control = match &self.security {
            ClientSessionSecurity::Clear => return,
            ClientSessionSecurity::Tls(_) => self
                .control
                .tls()
                .map_or_else(String::new, TlsEngine::description),
            ClientSessionSecurity::Gsi(gsi) => format!("GSI {}", gsi.description),
            ClientSessionSecurity::Carried => match self.control.route() {
                Some(_) => "ssh, all through it".to_owned(),
                None => "ssh".to_owned(),
            },
        };
        let unverified = match self.server.security.options().insecure {
            true => ", server not verified",
            false => "",
        };
        let listings = match listings == plan {
            true => "",
            false => ", listings private",
        };
        let description = format!("{control}{unverified}, {data}{listings}");
        self.server.security.note_in_force(description);
    }

    fn no_protection_failure(&self) -> Failure {
        if self.server.scheme == Scheme::Sshftp {
            return Failure::refused(format!(
                "the data of sshftp: is not protected, and whoever reaches a data port of {} first could read or forge it",
                self.name()
            ))
            .advise(
                "add --data-protection clear if you trust the network, or use ssh:// where longhaul is installed",
            );
        }
        let asked = self.server.security.options().data_protection.name();
        Failure::refused(format!(
            "{} cannot have --data-protection {asked}: it announces no DCSC; add --delegate limited, \
                 or leave --data-protection out",
            self.name()
        ))
    }

    /// The failure when the server refuses a setting of the protection; `None` for other settings.
    pub fn protection_refused_failure(&self, command: &Command, reply: &Reply) -> Option<Failure> {
        let (what, advice) = match command {
            Command::Prot(ProtectionLevel::Clear) => (
                "clear data connections (PROT C)",
                "leave out --data-protection",
            ),
            Command::Prot(_) => (
                "protected data connections (PROT)",
                "with --data-protection clear the bytes of files travel unprotected",
            ),
            Command::Dcau(DataChannelAuth::None) => (
                "data connections without authentication (DCAU N)",
                "add --delegate limited",
            ),
            Command::Dcau(_) => (
                "authenticated data connections (DCAU)",
                "with --data-protection clear the bytes of files travel unprotected",
            ),
            Command::Dcsc(_) => (
                "a credential for data connections (DCSC)",
                "use --delegate limited, or --data-protection clear",
            ),
            _ => return None,
        };
        Some(Failure::refused(format!(
            "{} refuses {what}: {}; {advice}",
            self.name(),
            display_reply(reply)
        )))
    }
}

/// Whether a setting is in force after this reply. A server without PROT has clear data connections, which is the default
/// (RFC 4217 §9), so that nothing is missing for a user who asks for them.
pub(crate) fn is_in_force(command: &Command, reply: &Reply) -> bool {
    let is_default = *command == Command::Prot(ProtectionLevel::Clear);
    reply.is_success() || reply.is_intermediate() || is_default && is_unsupported(reply)
}

impl DataProtectionPlan {
    /// Whether somebody on the path could change what a data connection carries, though nobody can the commands.
    fn is_open_to_changes(self) -> bool {
        matches!(
            self,
            Self::ClearInsideTls
                | Self::ClearInsideGsi
                | Self::Delegated(ProtectionLevel::Clear)
                | Self::Shared(ProtectionLevel::Clear)
        )
    }
}

/// Data connections of GSI: the end that opens one is the TLS client, and both ends show
/// `credential`.
fn grid_protection(
    level: ProtectionLevel,
    credential: &CertifiedKey,
    trust: &Arc<TrustStore>,
    expected: &ExpectedPeer,
) -> Result<AgreedDataProtection, Failure> {
    let mode = match level {
        ProtectionLevel::Clear => DataHandshakeMode::AuthenticateOnly,
        _ => DataHandshakeMode::Protected,
    };
    let options = |role| {
        TlsOptions::grid(role)
            .with_credential(credential.clone())
            .with_trust(Arc::clone(trust))
            .expecting(expected.clone())
    };
    let local_end = DataSecurity::grid(mode, options).map_err(|error| config_failure(&error))?;
    Ok(AgreedDataProtection {
        settings: Some(DataChannelProtection {
            authentication: DataChannelAuth::SelfAuth,
            level,
        }),
        local_end: Some(local_end),
    })
}
