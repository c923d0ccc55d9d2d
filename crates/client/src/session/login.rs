//! Login: from the greeting to a session that is ready for transfers.

use proto::client::CommandPlanner;
use proto::command::{Command, DataType, SiteCommand};
use proto::feature::ServerFeatures;
use proto::reply::Reply;

use super::control::{ClientControlConnection, unreachable_failure};
use super::replies::display_reply;
use crate::location::{Scheme, Server};
use crate::{CopyFailure, Exit};

/// Reads the greeting.
pub(super) async fn read_greeting(
    control: &mut ClientControlConnection,
) -> Result<Reply, CopyFailure> {
    let reply = control.final_reply().await?;
    // 421 (service not available) and 530 come instead of 220.
    if reply.is_success() {
        return Ok(reply);
    }
    let message = format!(
        "{} accepts no session now: {}; try again later",
        control.name(),
        display_reply(&reply)
    );
    Err(CopyFailure {
        exit: Exit::Unreachable,
        message,
        transient: reply.is_transient_error(),
    })
}

/// Logs in, sends FEAT (after the login, since servers announce more then) and SITE CLIENTINFO
/// where it is customary, and sets TYPE I. Each command waits for the reply to the last.
pub(super) async fn log_in(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<CommandPlanner, CopyFailure> {
    authenticate(control, server).await?;
    let features = ServerFeatures::from_reply(&control.call(&Command::Feat).await?);
    if features.parallel {
        // globus servers log it. A refusal has no consequences.
        control.call(&client_info(server.scheme)).await?;
    }
    let reply = control.call(&IMAGE).await?;
    finish_login(control, features, &reply)
}

/// The same commands in one pipeline, followed by `prefetch`, for a server that supports
/// pipelining. The password is sent before the server asks for it; a future security exchange has
/// to be complete by then.
pub(super) async fn log_in_pipelined(
    control: &mut ClientControlConnection,
    server: &Server,
    prefetch: &[Command],
) -> Result<CommandPlanner, CopyFailure> {
    let (name, password) = server.credential.user_and_password()?;
    let pipeline = [
        Command::User(name.to_owned()),
        Command::Pass(password),
        Command::Feat,
        client_info(server.scheme),
        IMAGE,
    ];
    control
        .send_pipelined_with_prefetch(&pipeline, prefetch)
        .await?;
    let user = control.final_reply().await?;
    if user.code != 331 && !user.is_success() {
        return Err(login_failure(control.name(), name, &user));
    }
    let pass = control.final_reply().await?;
    // Without a 331 the server did not ask for the password, so its reply to PASS means nothing.
    if user.code == 331 && !pass.is_success() {
        return Err(login_failure(control.name(), name, &pass));
    }
    let features = ServerFeatures::from_reply(&control.final_reply().await?);
    control.final_reply().await?;
    let reply = control.final_reply().await?;
    finish_login(control, features, &reply).map(CommandPlanner::with_pipelining)
}

const IMAGE: Command = Command::Type(DataType::Image);

/// The session's state after TYPE I; `reply` answers TYPE I.
fn finish_login(
    control: &ClientControlConnection,
    features: ServerFeatures,
    reply: &Reply,
) -> Result<CommandPlanner, CopyFailure> {
    if !reply.is_success() {
        let operation = "transfer bytes unchanged (TYPE I)";
        return Err(super::replies::refusal_failure(
            control.name(),
            operation,
            reply,
        ));
    }
    let mut planner = CommandPlanner::new(features);
    planner.on_accepted(&IMAGE);
    Ok(planner)
}

async fn authenticate(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<(), CopyFailure> {
    let (user, password) = server.credential.user_and_password()?;
    let mut reply = control.call(&Command::User(user.to_owned())).await?;
    if reply.code == 331 {
        reply = control.call(&Command::Pass(password)).await?;
    }
    if reply.is_success() {
        return Ok(());
    }
    Err(login_failure(control.name(), user, &reply))
}

fn login_failure(name: &str, user: &str, reply: &Reply) -> CopyFailure {
    let refused = |message: String| CopyFailure {
        exit: Exit::Refused,
        message,
        transient: false,
    };
    if reply.code == 421 {
        return unreachable_failure(format!(
            "{name} ended the login of user {user}: {}; try again later",
            display_reply(reply)
        ));
    }
    if reply.code == 332 {
        // The account of ACCT (RFC 959 §4.1.1) is rare and has no place in a URL.
        return refused(format!(
            "{name} asks user {user} for an account name (ACCT), which is not supported; \
             use another login"
        ));
    }
    let text = reply.summary().to_lowercase();
    // globus-gridftp-server refuses USER with this text when it wants AUTH GSSAPI.
    if text.contains("gssapi") || text.contains("gsi ") {
        return refused(format!(
            "{name} needs GSI security (certificates), which this version does not support yet: \
             {}; use a server or port that accepts passwords in clear",
            display_reply(reply)
        ));
    }
    if [
        "tls",
        "ssl",
        "encryption",
        "secure connection",
        "cleartext sessions",
    ]
    .iter()
    .any(|word| text.contains(word))
    {
        return refused(format!(
            "{name} needs TLS for logins, which this version does not support yet: {}; \
             use a server or port that accepts passwords in clear",
            display_reply(reply)
        ));
    }
    let mut failure = refused(format!(
        "login refused by {name} for user {user}: {}; check user name and password",
        display_reply(reply)
    ));
    // Some servers use 430 for a wrong user name or password, which a retry does not cure.
    if reply.is_transient_error() && reply.code != 430 {
        failure.exit = Exit::Unreachable;
        failure.transient = true;
    }
    failure
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
