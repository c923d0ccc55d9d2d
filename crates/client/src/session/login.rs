//! From the greeting to a session that is ready for transfers.

use proto::client::Dialogue;
use proto::command::{Command, Secret, Site, Type};
use proto::feature::Features;
use proto::reply::Reply;

use super::control::{ControlChannel, unreachable};
use super::replies::shown;
use crate::location::{Scheme, Server};
use crate::{Exit, Failure};

/// Reads the greeting, logs in, asks FEAT (after login: servers announce more then), tells who is
/// calling where that is customary, and sets TYPE I.
pub(super) async fn log_in(
    control: &mut ControlChannel,
    server: &Server,
) -> Result<Dialogue, Failure> {
    greeting(control).await?;
    authenticate(control, server).await?;
    let features = features(control).await?;
    if features.parallel {
        let info = client_info(server.scheme);
        // A courtesy that globus servers log; a refusal means nothing.
        control.call(&Command::Site(Site::ClientInfo(info))).await?;
    }
    let mut dialogue = Dialogue::new(features);
    let image = Command::Type(Type::Image);
    let reply = control.call(&image).await?;
    if !reply.is_success() {
        return Err(super::replies::refusal(
            control.name(),
            "transfer bytes unchanged (TYPE I)",
            &reply,
        ));
    }
    dialogue.accepted(&image);
    Ok(dialogue)
}

async fn greeting(control: &mut ControlChannel) -> Result<(), Failure> {
    let reply = control.final_reply().await?;
    if reply.is_success() {
        return Ok(());
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

async fn authenticate(control: &mut ControlChannel, server: &Server) -> Result<(), Failure> {
    let user = &server.user;
    let mut reply = control.call(&Command::User(user.clone())).await?;
    if reply.code == 331 {
        let secret = Secret(server.password.clone().into_bytes());
        reply = control.call(&Command::Pass(secret)).await?;
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

async fn features(control: &mut ControlChannel) -> Result<Features, Failure> {
    let reply = control.call(&Command::Feat).await?;
    Ok(Features::from_reply(&reply))
}

/// The form that globus servers expect: `scheme=ftp;appname="...";appver="...";`.
fn client_info(scheme: Scheme) -> String {
    let scheme = match scheme {
        Scheme::Ftp => "ftp",
        Scheme::Gsiftp => "gsiftp",
    };
    format!(
        "scheme={scheme};appname=\"longhaul\";appver=\"{}\";",
        env!("CARGO_PKG_VERSION")
    )
}
