//! USER, PASS, REIN and what the driver says of a login.

use super::replies;
use super::session::ServerSession;
use super::session_state::{LoggedInSession, LoginState};
use super::{LoginGrant, SessionAction};
use crate::command::Secret;
use crate::reply::Reply;

impl ServerSession {
    /// USER is answered alike whether the account exists or not.
    pub(super) fn user(&mut self, name: String) -> Vec<SessionAction> {
        match &mut self.state {
            LoginState::Connected | LoginState::UserGiven(_) => {
                let text = format!("Password required for {name}.");
                self.state = LoginState::UserGiven(name);
                replies::reply(331, text)
            }
            _ => replies::reply(503, "You are already logged in."),
        }
    }

    /// PASS
    pub(super) fn pass(&mut self, password: Secret) -> Vec<SessionAction> {
        match std::mem::replace(&mut self.state, LoginState::Authenticating) {
            LoginState::UserGiven(user) => vec![SessionAction::Authenticate { user, password }],
            before => {
                let text = match before {
                    LoginState::LoggedIn(_) => "You are already logged in.",
                    _ => "Login with USER first.",
                };
                self.state = before;
                replies::reply(503, text)
            }
        }
    }

    /// The driver has checked the password.
    pub(super) fn on_login(&mut self, result: Result<LoginGrant, String>) -> Vec<SessionAction> {
        match result {
            Ok(grant) => {
                self.login_failures = 0;
                let reply = welcome(&grant);
                self.state =
                    LoginState::LoggedIn(Box::new(LoggedInSession::new(&self.config, grant)));
                vec![SessionAction::Reply(reply)]
            }
            Err(reason) => {
                self.state = LoginState::Connected;
                self.login_failures += 1;
                let limit = self.config.max_login_failures;
                if limit > 0 && self.login_failures >= limit {
                    let mut actions = replies::reply(
                        421,
                        format!("Login incorrect. : {reason} Too many failures; closing."),
                    );
                    actions.push(SessionAction::Close);
                    return actions;
                }
                replies::reply(530, format!("Login incorrect. : {reason}"))
            }
        }
    }

    /// REIN: back to the state after the greeting; a login limit goes on counting.
    pub(super) fn rein(&mut self) -> Vec<SessionAction> {
        let mut actions = vec![SessionAction::DropChannel];
        if let LoginState::LoggedIn(login) = &mut self.state {
            actions.extend(login.drop_drs());
        }
        self.state = LoginState::Connected;
        actions.push(SessionAction::Reply(self.greeting()));
        actions
    }
}

fn welcome(grant: &LoginGrant) -> Reply {
    let first = format!("User {} logged in.", grant.user);
    if grant.welcome_lines.is_empty() {
        return Reply::new(230, first);
    }
    let mut lines = vec![first.into_bytes()];
    lines.extend(
        grant
            .welcome_lines
            .iter()
            .map(|line| line.clone().into_bytes()),
    );
    Reply::multi_line(230, lines)
}
