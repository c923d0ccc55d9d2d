//! USER, PASS, REIN and the result of a login.

use super::replies;
use super::session::ServerSession;
use super::session_state::{LoggedInSession, LoginState};
use super::{LoginGrant, SessionAction};
use crate::command::Secret;
use crate::reply::Reply;

impl ServerSession {
    /// USER. The reply is the same whether the account exists or not, so that names cannot be probed.
    pub(super) fn user(&mut self, name: String) -> Vec<SessionAction> {
        match &mut self.state {
            LoginState::Connected | LoginState::UserGiven(_) => {
                // A second USER replaces the first (RFC 959 §4.1.1).
                let text = format!("Password required for {name}.");
                self.state = LoginState::UserGiven(name);
                replies::reply(331, text)
            }
            _ => replies::reply(503, "You are already logged in."),
        }
    }

    /// PASS
    pub(super) fn pass(&mut self, password: Secret) -> Vec<SessionAction> {
        // The user name is moved out, so that one USER allows one PASS only.
        match std::mem::replace(&mut self.state, LoginState::Authenticating) {
            LoginState::UserGiven(user) => vec![SessionAction::Authenticate { user, password }],
            previous => {
                let text = match previous {
                    LoginState::LoggedIn(_) => "You are already logged in.",
                    _ => "Login with USER first.",
                };
                self.state = previous;
                replies::reply(503, text)
            }
        }
    }

    /// Handles the result of the password check.
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
                // The limit counts per connection; the driver limits attempts across connections.
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

    /// REIN: returns to the state after the greeting. The count of failed logins is kept.
    pub(super) fn rein(&mut self) -> Vec<SessionAction> {
        // RFC 959 §4.1.1: REIN resets everything but a running transfer. None can run here, since
        // the driver queues REIN behind it.
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
