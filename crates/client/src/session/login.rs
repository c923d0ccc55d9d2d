//! From the greeting to a session that is ready for transfers.

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
    if reply.is_success() {
        return Ok(reply);
    }
    let message = format!(
        "{} takes no session now: {}; try again later",
        control.name(),
        display_reply(&reply)
    );
    Err(CopyFailure {
        exit: Exit::Unreachable,
        message,
        transient: reply.is_transient_error(),
    })
}

/// Logs in, asks FEAT (after login: servers announce more then), tells who is calling where that is
/// customary, and sets TYPE I: one command after the other.
pub(super) async fn log_in(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<CommandPlanner, CopyFailure> {
    authenticate(control, server).await?;
    let features = ServerFeatures::from_reply(&control.call(&Command::Feat).await?);
    if features.parallel {
        // A courtesy that globus servers log; a refusal means nothing.
        control.call(&client_info(server.scheme)).await?;
    }
    let reply = control.call(&IMAGE).await?;
    finish_login(control, features, &reply)
}

/// The same in one flight, with `questions` asked ahead behind it, for a server that takes commands
/// ahead. The password goes out before it is asked for: a security exchange, once there is one, has
/// to be over by then.
pub(super) async fn log_in_pipelined(
    control: &mut ClientControlConnection,
    server: &Server,
    questions: &[Command],
) -> Result<CommandPlanner, CopyFailure> {
    let (name, password) = server.credential.user_and_password()?;
    let flight = [
        Command::User(name.to_owned()),
        Command::Pass(password),
        Command::Feat,
        client_info(server.scheme),
        IMAGE,
    ];
    control
        .send_pipelined_with_prefetch(&flight, questions)
        .await?;
    let user = control.final_reply().await?;
    if user.code != 331 && !user.is_success() {
        return Err(login_failure(control.name(), name, &user));
    }
    let pass = control.final_reply().await?;
    // Without 331 nobody asked for the password, and what is said to it means nothing.
    if user.code == 331 && !pass.is_success() {
        return Err(login_failure(control.name(), name, &pass));
    }
    let features = ServerFeatures::from_reply(&control.final_reply().await?);
    control.final_reply().await?;
    let reply = control.final_reply().await?;
    finish_login(control, features, &reply).map(CommandPlanner::with_pipelining)
}

const IMAGE: Command = Command::Type(DataType::Image);

/// The state after TYPE I, to which `reply` is the answer.
fn finish_login(
    control: &ClientControlConnection,
    features: ServerFeatures,
    reply: &Reply,
) -> Result<CommandPlanner, CopyFailure> {
    if !reply.is_success() {
        let doing = "transfer bytes unchanged (TYPE I)";
        return Err(super::replies::refusal_failure(
            control.name(),
            doing,
            reply,
        ));
    }
    let mut dialogue = CommandPlanner::new(features);
    dialogue.on_accepted(&IMAGE);
    Ok(dialogue)
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
        return refused(format!(
            "{name} asks user {user} for an account name (ACCT), which is not supported; \
             use another login"
        ));
    }
    let text = reply.summary().to_lowercase();
    if text.contains("gssapi") || text.contains("gsi ") {
        return refused(format!(
            "{name} needs GSI security (certificates), which this version does not speak yet: \
             {}; use a server or port with clear logins",
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
            "{name} needs TLS for logins, which this version does not speak yet: {}; \
             use a server or port with clear logins",
            display_reply(reply)
        ));
    }
    let mut failure = refused(format!(
        "login refused by {name} for user {user}: {}; check user name and password",
        display_reply(reply)
    ));
    if reply.is_transient_error() && reply.code != 430 {
        failure.exit = Exit::Unreachable;
        failure.transient = true;
    }
    failure
}

/// The form that globus servers expect: `scheme=ftp;appname="...";appver="...";`.
fn client_info(scheme: Scheme) -> Command {
    let scheme = scheme.name();
    Command::Site(SiteCommand::ClientInfo(format!(
        "scheme={scheme};appname=\"longhaul\";appver=\"{}\";",
        env!("CARGO_PKG_VERSION")
    )))
}
