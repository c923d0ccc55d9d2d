//! Login: from the greeting to a session that is ready for transfers.

use std::net::{IpAddr, Ipv6Addr};

use proto::client::{CommandPlanner, early_protection_commands};
use proto::command::{Command, DataType, Secret, SiteCommand};
use proto::feature::ServerFeatures;
use proto::printable::printable;
use proto::reply::Reply;
use proto::security::{ExchangeKind, ProtectionLevel};

use super::control::ClientControlConnection;
use super::data_protection::is_in_force;
use super::replies::{Meaning, names_session_limit, says};
use super::secure::ClientSessionSecurity;
use crate::credentials::GRID_MAPPING;
use crate::failure::{Operation, Sentence};
use crate::location::{Scheme, Server};
use crate::protection::DataProtectionChoice;
use crate::{Credential, Failure, FailureKind};

/// Who logs in at which server.
pub(super) struct ClientLogin<'a> {
    server: &'a Server,
    user: &'a str,
    password: Secret,
    /// The exchange that secured the connection.
    exchange: Option<ExchangeKind>,
    /// Protection of data connections that the server is told directly after the login.
    data_level: Option<ProtectionLevel>,
}

impl<'a> ClientLogin<'a> {
    /// The login with `credential`. Warns once if a secret is about to travel in clear over a
    /// network.
    pub(super) fn new(
        server: &'a Server,
        credential: &'a Credential,
        control: &ClientControlConnection,
        security: &ClientSessionSecurity,
    ) -> Self {
        let (user, password) = credential.user_and_password();
        // Behind a proxy even a loopback address is that of another machine.
        let server_ip = match control.route() {
            Some(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            None => control.peer_addr().ip(),
        };
        if is_exposed(credential, security, server_ip) {
            server
                .security
                .warn_once(&clear_password_warning(user, control.name()));
        }
        Self {
            server,
            user,
            password,
            exchange: match security {
                ClientSessionSecurity::Clear => None,
                ClientSessionSecurity::Tls(_) => Some(ExchangeKind::Handshake),
                ClientSessionSecurity::Gsi(_) => Some(ExchangeKind::Tokens),
                ClientSessionSecurity::Carried => Some(ExchangeKind::Carried),
            },
            data_level: match (security, server.security.options().data_protection) {
                (ClientSessionSecurity::Tls(_), DataProtectionChoice::Clear) => {
                    Some(ProtectionLevel::Clear)
                }
                (ClientSessionSecurity::Tls(_), _) => Some(ProtectionLevel::Private),
                // Servers with GSI ask for nothing before a transfer, and a credential for data
                // connections takes time to make.
                _ => None,
            },
        }
    }

    /// The failure for a refused login.
    fn refusal(&self, control: &ClientControlConnection, reply: &Reply) -> Failure {
        let is_empty = self.password.0.is_empty();
        let failure = login_failure(control.name(), self.user, is_empty, reply);
        let host = &self.server.host;
        let is_anonymous = self.server.credential == Credential::Anonymous;
        if is_anonymous && self.exchange.is_some() && self.server.security.withholds_token(host) {
            return failure.aside(format!(
                "the token of the environment was not sent: its audience is not {host}; --token-host {host} sends it"
            ));
        }
        failure
    }

    /// PBSZ and PROT, where they come directly after the login.
    fn protection_commands(&self) -> Vec<Command> {
        let commands = self.data_level.map(early_protection_commands);
        commands.into_iter().flatten().collect()
    }
}

/// Whether the login would show a secret to the network.
fn is_exposed(credential: &Credential, security: &ClientSessionSecurity, server: IpAddr) -> bool {
    matches!(security, ClientSessionSecurity::Clear)
        && credential.has_secret()
        && !server.to_canonical().is_loopback()
}

fn clear_password_warning(user: &str, server: &str) -> String {
    format!(
        "the password of {} travels to {server} in clear: use ftps:, or --tls require, if the server \
         has TLS",
        printable(user)
    )
}

/// The credential for the login. A token goes only to a server that announces tokens (BEARER) and is
/// verified by TLS; one that was found in the environment only takes the place of an anonymous
/// login, at a server that it is for.
///
/// # Errors
/// `Refused`: the server takes no tokens.
pub(super) async fn choose_credential(
    control: &mut ClientControlConnection,
    server: &Server,
    security: &ClientSessionSecurity,
) -> Result<Credential, Failure> {
    if server.scheme == Scheme::Sshftp {
        // The user of the URL is ssh's. globus-gridftp-server serves its own account under this name.
        return Ok(Credential::Anonymous);
    }
    let is_verified =
        matches!(security, ClientSessionSecurity::Tls(_)) && !server.security.options().insecure;
    let token = match &server.credential {
        Credential::Token(token) => Some(token.clone()),
        Credential::Anonymous if is_verified => server.security.discovered_token_for(&server.host),
        _ => None,
    };
    let Some(token) = token else {
        return Ok(server.credential.clone());
    };
    let takes_tokens =
        is_verified && ServerFeatures::from_reply(&control.call(&Command::Feat).await?).bearer;
    match (takes_tokens, &server.credential) {
        (true, _) => Ok(Credential::Token(token)),
        (false, Credential::Token(_)) => Err(Failure::refused(format!(
            "{} takes no tokens (FEAT announces no BEARER): leave out --token, or use another server",
            control.name()
        ))),
        (false, _) => Ok(server.credential.clone()),
    }
}

/// Logs in, sends FEAT (after the login, since servers announce more then) and SITE CLIENTINFO
/// where it is customary, sets TYPE I and, inside TLS, the protection of data connections. Each
/// command waits for the reply to the last.
pub(super) async fn log_in(
    control: &mut ClientControlConnection,
    login: &ClientLogin<'_>,
) -> Result<CommandPlanner, Failure> {
    authenticate(control, login).await?;
    let features = ServerFeatures::from_reply(&control.call(&Command::Feat).await?);
    if features.parallel {
        // globus servers log it. A refusal has no consequences.
        control.call(&client_info(login.server.scheme)).await?;
    }
    let reply = control.call(&IMAGE).await?;
    let mut planner = finish_login(control, login, features, &reply)?;
    for command in login.protection_commands() {
        let reply = control.call(&command).await?;
        note_setting(&mut planner, &command, &reply);
    }
    Ok(planner)
}

/// The settings after the login in one pipeline, followed by `prefetch`, for a server that reads what is sent ahead once
/// somebody is logged in ([`proto::client::is_toolkit_server`]).
pub(super) async fn agree_on_settings_ahead(
    control: &mut ClientControlConnection,
    login: &ClientLogin<'_>,
    prefetch: &[Command],
) -> Result<CommandPlanner, Failure> {
    let protection = login.protection_commands();
    let mut pipeline = vec![Command::Feat, client_info(login.server.scheme), IMAGE];
    pipeline.extend_from_slice(&protection);
    control
        .send_pipelined_with_prefetch(&pipeline, prefetch)
        .await?;
    read_settings(control, login, &protection).await
}

/// Takes the replies to FEAT, SITE CLIENTINFO, TYPE I and the protection.
async fn read_settings(
    control: &mut ClientControlConnection,
    login: &ClientLogin<'_>,
    protection: &[Command],
) -> Result<CommandPlanner, Failure> {
    let features = ServerFeatures::from_reply(&control.final_reply().await?);
    control.final_reply().await?;
    let reply = control.final_reply().await?;
    let mut planner = finish_login(control, login, features, &reply)?;
    for command in protection {
        note_setting(&mut planner, command, &control.final_reply().await?);
    }
    Ok(planner)
}

/// Notes the reply to a setting, which need not be accepted.
fn note_setting(planner: &mut CommandPlanner, command: &Command, reply: &Reply) {
    match is_in_force(command, reply) {
        true => planner.on_accepted(command),
        false => planner.on_refused(command),
    }
}

/// The same commands in one pipeline, followed by `prefetch`, for a server that supports
/// pipelining. The password is sent before the server asks for it; a security exchange is complete
/// by then.
pub(super) async fn log_in_pipelined(
    control: &mut ClientControlConnection,
    login: &ClientLogin<'_>,
    prefetch: &[Command],
) -> Result<CommandPlanner, Failure> {
    let name = login.user;
    let protection = login.protection_commands();
    let mut pipeline = vec![
        Command::User(name.to_owned()),
        Command::Pass(login.password.clone()),
        Command::Feat,
        client_info(login.server.scheme),
        IMAGE,
    ];
    pipeline.extend_from_slice(&protection);
    control
        .send_pipelined_with_prefetch(&pipeline, prefetch)
        .await?;
    let user = control.final_reply().await?;
    if user.code != 331 && !user.is_success() {
        return Err(login.refusal(control, &user));
    }
    let pass = control.final_reply().await?;
    // Without a 331 the server did not ask for the password, so its reply to PASS means nothing.
    if user.code == 331 && !pass.is_success() {
        return Err(login.refusal(control, &pass));
    }
    let planner = read_settings(control, login, &protection).await?;
    Ok(planner.with_pipelining())
}

const IMAGE: Command = Command::Type(DataType::Image);

/// The session's state after TYPE I; `reply` answers TYPE I.
fn finish_login(
    control: &ClientControlConnection,
    login: &ClientLogin<'_>,
    features: ServerFeatures,
    reply: &Reply,
) -> Result<CommandPlanner, Failure> {
    if !reply.is_success() {
        let operation = &Operation::from("transfer bytes unchanged (TYPE I)");
        return Err(super::replies::refusal_failure(
            control.name(),
            operation,
            reply,
        ));
    }
    let mut planner = CommandPlanner::new(features);
    if let Some(exchange) = login.exchange {
        planner = planner.with_security(exchange);
    }
    planner.on_accepted(&IMAGE);
    Ok(planner)
}

/// USER, and PASS if the server asks for it.
pub(super) async fn authenticate(
    control: &mut ClientControlConnection,
    login: &ClientLogin<'_>,
) -> Result<(), Failure> {
    let user = Command::User(login.user.to_owned());
    let mut reply = control.call(&user).await?;
    if reply.code == 331 {
        let password = Command::Pass(login.password.clone());
        reply = control.call(&password).await?;
    }
    if reply.is_success() {
        return Ok(());
    }
    Err(login.refusal(control, &reply))
}

fn login_failure(name: &str, user: &str, is_without_password: bool, reply: &Reply) -> Failure {
    let refused = |sentence: String, advice: &'static str| {
        let reason = Sentence::from(sentence).words(": ").reply(reply);
        Failure::refused(reason).advise(advice)
    };
    if reply.code == 421 {
        return refused(
            format!("{name} ended the login of user {user}"),
            "try again later",
        )
        .of_kind(FailureKind::SessionLimit)
        .retried(true);
    }
    if reply.code == 332 {
        // The account of ACCT (RFC 959 §4.1.1) is rare and has no place in a URL.
        let reason =
            format!("{name} asks user {user} for an account name (ACCT), which is not supported");
        return Failure::refused(reason).advise("use another login");
    }
    if says(reply, Meaning::NeedsGsi) {
        return refused(
            format!("{name} needs GSI security (certificates)"),
            "use gsiftp:",
        );
    }
    if says(reply, Meaning::NeedsTls) {
        let advice = "use ftps:, or --tls require";
        return refused(format!("{name} needs TLS for this login"), advice);
    }
    if user == GRID_MAPPING {
        let advice = "ask its administrator to map its name (`longhaul proxy info`)";
        return refused(
            format!("{name} has no account for your certificate"),
            advice,
        );
    }
    let advice = match is_without_password {
        true => {
            "no password was found in the URL, LONGHAUL_PASSWORD, ~/.netrc and the configuration \
             (`longhaul config`), and none was typed"
        }
        false => "check user name and password",
    };
    let failure = refused(format!("login refused by {name} for user {user}"), advice);
    // Some servers use 430 for a wrong user name or password, which a retry does not cure.
    let may_retry = reply.is_transient_error() && reply.code != 430;
    let kind = match (names_session_limit(reply), may_retry) {
        (true, true) => FailureKind::SessionLimit,
        (true, false) => FailureKind::LoginLimit,
        (false, true) => FailureKind::Unreachable,
        (false, false) => FailureKind::Refused,
    };
    failure.of_kind(kind).retried(may_retry)
}

/// SITE CLIENTINFO in the form that globus servers expect:
/// `scheme=ftp;appname="...";appver="...";`.
fn client_info(scheme: Scheme) -> Command {
    let scheme = scheme.name();
    Command::Site(SiteCommand::ClientInfo(format!(
        "scheme={scheme};appname=\"longhaul\";appver=\"{}\";",
        env!("CARGO_PKG_VERSION")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_exposed_in_clear_over_a_network_only() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let joe = Credential::password("joe", "secret");
        let clear = ClientSessionSecurity::Clear;
        assert!(is_exposed(&joe, &clear, ip("192.0.2.1")));
        assert!(is_exposed(&joe, &clear, ip("2001:db8::1")));
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!is_exposed(&joe, &clear, ip(loopback)), "{loopback}");
        }
        assert!(!is_exposed(&Credential::Anonymous, &clear, ip("192.0.2.1")));
        let warning = clear_password_warning("joe", "h:21");
        assert!(warning.contains("in clear") && !warning.contains("secret"));
    }

    #[test]
    fn a_refused_login_names_the_url_that_the_server_wants() {
        for (user, text, word) in [
            ("joe", "Must perform GSSAPI authentication.", "gsiftp:"),
            ("joe", "Anonymous sessions must use encryption.", "ftps:"),
            (
                ":globus-mapping:",
                "Login incorrect.",
                "longhaul proxy info",
            ),
            ("joe", "Login incorrect.", "password"),
        ] {
            let failure = login_failure("h:21", user, false, &Reply::new(530, text));
            assert_eq!(failure.kind(), FailureKind::Refused);
            assert!(failure.to_string().contains(word), "{failure}");
        }
    }

    #[test]
    fn only_the_reply_of_a_server_tells_of_a_limit() {
        for (name, code, text, at_limit) in [
            ("h:21", 530, "Maximum number of clients", true),
            ("h:21", 421, "Too many users", true),
            ("limit:4210", 530, "Login incorrect", false),
        ] {
            let failure = login_failure(name, "too-many", false, &Reply::new(code, text));
            assert_eq!(failure.kind().is_session_limit(), at_limit, "{failure}");
        }
    }

    #[test]
    fn a_refused_login_without_a_password_names_the_places_that_were_searched() {
        let failure = login_failure("h:21", "joe", true, &Reply::new(530, "Login incorrect."));
        for place in ["LONGHAUL_PASSWORD", "~/.netrc", "longhaul config"] {
            assert!(failure.to_string().contains(place), "{failure}");
        }
    }
}
