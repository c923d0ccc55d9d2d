//! USER, PASS, REIN and what the driver says of a login.

use super::replies;
use super::session::Session;
use super::state::{LoggedIn, State};
use super::{Action, Grant};
use crate::command::Secret;
use crate::reply::Reply;

impl Session {
    /// USER is answered alike whether the account exists or not.
    pub(super) fn user(&mut self, name: String) -> Vec<Action> {
        match &mut self.state {
            State::Connected | State::UserGiven(_) => {
                let text = format!("Password required for {name}.");
                self.state = State::UserGiven(name);
                replies::reply(331, text)
            }
            _ => replies::reply(503, "You are already logged in."),
        }
    }

    /// PASS
    pub(super) fn pass(&mut self, password: Secret) -> Vec<Action> {
        match std::mem::replace(&mut self.state, State::Authenticating) {
            State::UserGiven(user) => vec![Action::Authenticate { user, password }],
            before => {
                let text = match before {
                    State::LoggedIn(_) => "You are already logged in.",
                    _ => "Login with USER first.",
                };
                self.state = before;
                replies::reply(503, text)
            }
        }
    }

    /// The driver has checked the password.
    pub(super) fn on_login(&mut self, result: Result<Grant, String>) -> Vec<Action> {
        match result {
            Ok(grant) => {
                self.login_failures = 0;
                let reply = welcome(&grant);
                self.state = State::LoggedIn(Box::new(LoggedIn::new(&self.config, grant)));
                vec![Action::Reply(reply)]
            }
            Err(reason) => {
                self.state = State::Connected;
                self.login_failures += 1;
                let limit = self.config.max_login_failures;
                if limit > 0 && self.login_failures >= limit {
                    let mut actions = replies::reply(
                        421,
                        format!("Login incorrect. : {reason} Too many failures; closing."),
                    );
                    actions.push(Action::Close);
                    return actions;
                }
                replies::reply(530, format!("Login incorrect. : {reason}"))
            }
        }
    }

    /// REIN: back to the state after the greeting; a login limit goes on counting.
    pub(super) fn rein(&mut self) -> Vec<Action> {
        let mut actions = vec![Action::DropChannel];
        if let State::LoggedIn(login) = &mut self.state {
            actions.extend(login.drop_drs());
        }
        self.state = State::Connected;
        actions.push(Action::Reply(self.greeting()));
        actions
    }
}

fn welcome(grant: &Grant) -> Reply {
    let first = format!("User {} logged in.", grant.user);
    if grant.message.is_empty() {
        return Reply::new(230, first);
    }
    let mut lines = vec![first.into_bytes()];
    lines.extend(grant.message.iter().map(|line| line.clone().into_bytes()));
    Reply::error_lines(230, lines)
}
