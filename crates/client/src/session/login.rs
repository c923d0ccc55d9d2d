//! From the greeting to a session that is ready for transfers.

use proto::client::Dialogue;
use proto::command::{Command, Site, Type};
use proto::feature::Features;
use proto::reply::Reply;

use super::control::{ControlChannel, unreachable};
use super::replies::shown;
use crate::location::{Scheme, Server};
use crate::{Exit, Failure};

/// Reads the greeting.
pub(super) async fn greeting(control: &mut ControlChannel) -> Result<Reply, Failure> {
    let reply = control.final_reply().await?;
    if reply.is_success() {
        return Ok(reply);
    }
    let message = format!(
        "{} takes no session now: {}; try again later",
        control.name(),
        shown(&reply)
    );
    Err(Failure {
        exit: Exit::Unreachable,
        message,
        transient: reply.is_transient_error(),
    })
}

/// Logs in, asks FEAT (after login: servers announce more then), tells who is calling where that is
/// customary, and sets TYPE I: one command after the other.
pub(super) async fn in_turn(
    control: &mut ControlChannel,
    server: &Server,
) -> Result<Dialogue, Failure> {
    authenticate(control, server).await?;
    let features = Features::from_reply(&control.call(&Command::Feat).await?);
    if features.parallel {
        // A courtesy that globus servers log; a refusal means nothing.
        control.call(&client_info(server.scheme)).await?;
    }
    let reply = control.call(&IMAGE).await?;
    ready(control, features, &reply)
}

/// The same in one flight, with `questions` asked ahead behind it, for a server that takes commands
/// ahead. The password goes out before it is asked for: a security exchange, once there is one, has
/// to be over by then.
pub(super) async fn at_once(
    control: &mut ControlChannel,
    server: &Server,
    questions: &[Command],
) -> Result<Dialogue, Failure> {
    let (name, password) = server.credential.words()?;
    let flight = [
        Command::User(name.to_owned()),
        Command::Pass(password),
        Command::Feat,
        client_info(server.scheme),
        IMAGE,
    ];
    control.send_with(&flight, questions).await?;
    let user = control.final_reply().await?;
    if user.code != 331 && !user.is_success() {
        return Err(login_failure(control.name(), name, &user));
    }
    let pass = control.final_reply().await?;
    // Without 331 nobody asked for the password, and what is said to it means nothing.
    if user.code == 331 && !pass.is_success() {
        return Err(login_failure(control.name(), name, &pass));
    }
    let features = Features::from_reply(&control.final_reply().await?);
    control.final_reply().await?;
    let reply = control.final_reply().await?;
    ready(control, features, &reply).map(Dialogue::ahead)
}

const IMAGE: Command = Command::Type(Type::Image);

/// The state after TYPE I, to which `reply` is the answer.
fn ready(control: &ControlChannel, features: Features, reply: &Reply) -> Result<Dialogue, Failure> {
    if !reply.is_success() {
        let doing = "transfer bytes unchanged (TYPE I)";
        return Err(super::replies::refusal(control.name(), doing, reply));
    }
    let mut dialogue = Dialogue::new(features);
    dialogue.accepted(&IMAGE);
    Ok(dialogue)
}

async fn authenticate(control: &mut ControlChannel, server: &Server) -> Result<(), Failure> {
    let (user, password) = server.credential.words()?;
    let mut reply = control.call(&Command::User(user.to_owned())).await?;
    if reply.code == 331 {
        reply = control.call(&Command::Pass(password)).await?;
    }
    if reply.is_success() {
        return Ok(());
    }
    Err(login_failure(control.name(), user, &reply))
}

fn login_failure(name: &str, user: &str, reply: &Reply) -> Failure {
    let refused = |message: String| Failure {
        exit: Exit::Refused,
        message,
        transient: false,
    };
    if reply.code == 421 {
        return unreachable(format!(
            "{name} ended the login of user {user}: {}; try again later",
            shown(reply)
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
            shown(reply)
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
            shown(reply)
        ));
    }
    let mut failure = refused(format!(
        "login refused by {name} for user {user}: {}; check user name and password",
        shown(reply)
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
    Command::Site(Site::ClientInfo(format!(
        "scheme={scheme};appname=\"longhaul\";appver=\"{}\";",
        env!("CARGO_PKG_VERSION")
    )))
}
