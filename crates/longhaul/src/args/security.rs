//! Flags about connections and their protection, of `cp` and the remote file verbs.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use copy::{
    ConnectionSecurity, DataProtectionChoice, DelegationChoice, Failure, SecurityOptions, TlsUse,
};
use ftp::protection::WarningSink;
use ftp::{FarEndOptions, FarProgram, InstallChoice};
use history::PathHistory;

use super::known_ports::remember_ports;
use super::network_proxy::NetworkProxyArgs;
use super::settings::{LoadedSettings, SettingsArgs};
use super::values;

/// The flag about the authorities that servers are verified with; `doctor` has it, too.
#[derive(Debug, Args)]
pub(crate) struct AuthoritiesArgs {
    /// Certificate authorities to verify servers with, instead of the system's and the grid's: a PEM
    /// file, or a directory
    #[arg(long, value_name = "PATH")]
    pub(crate) ca: Option<PathBuf>,
}

/// The flag about the program for ssh:, sshftp: and sftp: URLs; `doctor` has it, too.
#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// Program for ssh:, sshftp: and sftp: URLs, with options, split at spaces (`ssh -F FILE`)
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,
}

/// The flag about the place of the program at the far end of ssh: URLs; `doctor` has it, too.
#[derive(Debug, Args)]
pub(crate) struct FarProgramArgs {
    /// longhaul at the far end of ssh: URLs: a path, or a name on the PATH there; `~/` is the home directory there
    /// [default: on the PATH, in ~/.local/bin, or where --ssh-install puts it]
    #[arg(long, value_name = "PATH", value_parser = FarProgram::parse)]
    pub(crate) ssh_program: Option<FarProgram>,
}

/// Flags about the program at the far end of ssh: URLs.
#[derive(Debug, Args)]
pub(crate) struct FarEndArgs {
    #[command(flatten)]
    place: FarProgramArgs,
    /// Put this version of longhaul into ~/.cache/longhaul at the far end of ssh: URLs if there is none. Without this
    /// flag you are asked at the terminal. `longhaul ssh clean HOST` removes it
    #[arg(long)]
    ssh_install: bool,
    /// The program that --ssh-install puts there, a static one for its system and processor [default: this one, or
    /// longhaul-MACHINE beside it or in ../lib/longhaul, as docs/ssh.md says]
    #[arg(long, value_name = "FILE")]
    ssh_helper: Option<PathBuf>,
}

impl FarEndArgs {
    fn options(&self) -> FarEndOptions {
        FarEndOptions {
            program: self.place.ssh_program.clone(),
            install: match self.ssh_install {
                true => InstallChoice::Always,
                false => InstallChoice::Ask,
            },
            helper: self.ssh_helper.clone(),
        }
    }
}

impl SshArgs {
    /// The program and its first arguments.
    pub(crate) fn command(&self) -> Vec<String> {
        self.ssh.split_whitespace().map(str::to_owned).collect()
    }
}

/// Flags about TLS, GSI and tokens.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct SecurityArgs {
    /// TLS for ftp: URLs: `off`; `try` (in clear, with a warning, if the server claims to have none, as
    /// somebody on the path may, too); `require`; `implicit` (TLS from the first byte, also for ftps: URLs,
    /// which have it on port 990 anyway).
    /// ftps: URLs always have TLS, gsiftp: URLs always GSI
    #[arg(long, value_name = "off|try|require|implicit", default_value = "off", value_parser = parse_tls)]
    tls: TlsUse,
    #[command(flatten)]
    authorities: AuthoritiesArgs,
    /// Do not verify ftps: servers (and those of ftp: with --tls). Anybody on the path can then read and
    /// change everything. https: and gsiftp: servers are always verified
    #[arg(long)]
    insecure: bool,
    /// Your certificate (PEM), for TLS and GSI. By default GSI takes X509_USER_PROXY, /tmp/x509up_uUID,
    /// X509_USER_CERT with X509_USER_KEY, or ~/.globus/usercert.pem, and TLS none
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Key of --cert [default: in the file of --cert]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Protection of data connections. `auto`: private (encrypted) with TLS; with GSI authenticated if the
    /// server has DCSC or a proxy (--delegate), else clear, which --why shows. A level by name is had, or
    /// the transfer fails; `authenticated` and `safe` are for gsiftp: only
    #[arg(long, value_name = "auto|clear|authenticated|safe|private", default_value = "auto", value_parser = parse_data_protection)]
    data_protection: DataProtectionChoice,
    /// Give gsiftp: servers a proxy of your credential, valid for 12 hours at most. In copies between two https:
    /// servers, `full` gives one of them your token for the other one, if that makes no token for a single file
    #[arg(long, value_name = "none|limited|full", default_value = "none", value_parser = parse_delegation)]
    delegate: DelegationChoice,
    /// Log in with the bearer token in FILE, to ftps: and https: URLs without a user. Without this flag,
    /// BEARER_TOKEN, BEARER_TOKEN_FILE, $XDG_RUNTIME_DIR/bt_uUID and /tmp/bt_uUID are tried for ftps:
    /// servers that announce tokens and that the audience of the token names
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Hosts that the token of the environment is for, too, whatever its audience is
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    token_host: Vec<String>,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    far_end: FarEndArgs,
    #[command(flatten)]
    proxy: NetworkProxyArgs,
    #[command(flatten)]
    settings: SettingsArgs,
}

impl SecurityArgs {
    /// The program for ssh, and that of longhaul at the far end if it is named.
    pub(crate) fn ssh_programs(&self) -> (Vec<String>, Option<&FarProgram>) {
        let far = self.far_end.place.ssh_program.as_ref();
        (self.ssh.command(), far)
    }

    /// The place for the part of the configuration that no flag has.
    pub(super) fn loaded_mut(&mut self) -> &mut LoadedSettings {
        &mut self.settings.loaded
    }

    /// The flags, checked, with the files that they name. `data_ports`: the flag of that name. `history`: the memory of paths.
    ///
    /// # Errors
    /// See [`ConnectionSecurity::new`].
    pub(crate) fn connection_security(
        &self,
        data_ports: Option<(u16, u16)>,
        history: Option<&PathHistory>,
        warn: WarningSink,
    ) -> Result<Arc<ConnectionSecurity>, Failure> {
        let options = SecurityOptions {
            tls: self.tls,
            ca: self.authorities.ca.clone(),
            insecure: self.insecure,
            certificate: self.cert.clone(),
            key: self.key.clone(),
            data_protection: self.data_protection,
            delegation: self.delegate,
            token: self.token.clone(),
            token_hosts: self.token_host.clone(),
            proxy: self.proxy.choice(),
            ssh: self.ssh.command(),
            data_ports,
            far_end: self.far_end.options(),
            defaults: self.settings.loaded.defaults.clone(),
        };
        let remotes = Arc::clone(&self.settings.loaded.remotes);
        let security = ConnectionSecurity::with_remotes(options, remotes, warn)?;
        remember_ports(&security, history);
        Ok(security)
    }
}

fn parse_tls(text: &str) -> Result<TlsUse, String> {
    let names = [
        ("off", TlsUse::Off),
        ("try", TlsUse::Try),
        ("require", TlsUse::Require),
        ("implicit", TlsUse::Implicit),
    ];
    values::parse_name(text, &names)
}

fn parse_data_protection(text: &str) -> Result<DataProtectionChoice, String> {
    use DataProtectionChoice::{Authenticated, Auto, Clear, Private, Safe};
    let names = [Auto, Clear, Authenticated, Safe, Private].map(|choice| (choice.name(), choice));
    values::parse_name(text, &names)
}

fn parse_delegation(text: &str) -> Result<DelegationChoice, String> {
    let names = [
        ("none", DelegationChoice::None),
        ("limited", DelegationChoice::Limited),
        ("full", DelegationChoice::Full),
    ];
    values::parse_name(text, &names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_flags;
    use copy::Exit;

    fn parsed(flags: &[&str]) -> Result<SecurityArgs, String> {
        parse_flags(flags)
    }

    #[test]
    fn the_default_protects_nothing_that_the_url_does_not_ask_for() {
        let args = parsed(&[]).unwrap();
        assert_eq!(args.tls, TlsUse::Off);
        assert_eq!(args.data_protection, DataProtectionChoice::Auto);
        assert_eq!(args.delegate, DelegationChoice::None);
        assert!(!args.insecure);
    }

    #[test]
    fn an_invalid_value_names_the_valid_ones() {
        for (flag, word) in [
            ("--tls=on", "require"),
            ("--data-protection=P", "private"),
            ("--delegate=yes", "limited"),
        ] {
            let error = parsed(&[flag]).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn contradicting_flags_are_usage_errors_before_any_connection() {
        for flags in [
            &["--insecure", "--ca", "/ca"][..],
            &["--insecure", "--token", "/token"],
            &["--key", "/key"],
        ] {
            let args = parsed(flags).unwrap();
            let failure = args
                .connection_security(None, None, Arc::new(|_: &str| ()))
                .unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage, "{flags:?}");
        }
    }
}
