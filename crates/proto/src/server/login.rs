//! USER, PASS, REIN and the result of a login.

use super::logged_in::{LoggedInSession, LoginState};
use super::session::ServerSession;
use super::{LoginFailure, LoginGrant, SessionAction, replies};
use crate::reply::Reply;
use crate::security::{BEARER_USER, Secret, SecurityState};

/// Names that need no password (RFC 1635). Globus clients send the last one when the user gives no name.
const ANONYMOUS_USERS: [&str; 3] = ["anonymous", "ftp", ":globus-mapping:"];

impl ServerSession {
    /// USER. The reply is the same whether the account exists or not, so that names cannot be probed.
    pub(super) fn user(&mut self, name: String) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_after_ccc() {
            return refusal;
        }
        if !matches!(self.state, LoginState::Connected | LoginState::UserGiven(_)) {
            return replies::reply(503, "You are already logged in.");
        }
        // A second USER replaces the first (RFC 959 §4.1.1).
        self.state = LoginState::Connected;
        if let Some(reason) = self.clear_login_refusal(&name) {
            return replies::reply(530, format!("{reason}; {}", self.security_advice()));
        }
        // In a GSSAPI session clients send PASS always, so only TLS lets USER suffice.
        if self.identified && !self.expects_protected_lines() && name != BEARER_USER {
            self.state = LoginState::Authenticating(Some(name.clone()));
            return vec![SessionAction::Authenticate {
                user: name,
                password: None,
            }];
        }
        self.ask_for_password(name)
    }

    /// Refusal of a new login after CCC: the certificate of the client has proved nothing about commands
    /// that anybody on the way may send now.
    fn refuse_after_ccc(&self) -> Option<Vec<SessionAction>> {
        let is_cleared = matches!(self.security, SecurityState::Cleared(_));
        is_cleared.then(|| replies::reply(503, "No login is possible after CCC; connect again."))
    }

    fn ask_for_password(&mut self, name: String) -> Vec<SessionAction> {
        let text = format!("Password required for {name}.");
        self.state = LoginState::UserGiven(name);
        replies::reply(331, text)
    }

    /// Reason why this user may not log in without security; `None` if the session is secured, or the user
    /// may. It is checked at USER, before the client sends its secret.
    fn clear_login_refusal(&self, name: &str) -> Option<&'static str> {
        match () {
            () if self.is_secured() => None,
            () if name == BEARER_USER => Some("Tokens are not accepted in the clear"),
            () if self.config.tls_required => Some("This server requires a secured connection"),
            () if self.config.clear_passwords || is_anonymous(name) => None,
            () => Some("Passwords are not accepted in the clear"),
        }
    }

    /// Advice to a client whose login in the clear is refused.
    fn security_advice(&self) -> String {
        let mut names = self.config.mechanisms.iter().map(|m| m.name.as_str());
        let named = |wanted: &str| names.clone().find(|name| *name == wanted);
        match named("TLS").or_else(|| names.next()) {
            Some(name) => format!("send AUTH {name} first."),
            None => "this server offers no TLS: ask its administrator.".to_owned(),
        }
    }

    /// PASS
    pub(super) fn pass(&mut self, password: Secret) -> Vec<SessionAction> {
        // The user name is moved out, so that one USER allows one PASS only.
        match std::mem::replace(&mut self.state, LoginState::Authenticating(None)) {
            LoginState::UserGiven(user) => vec![SessionAction::Authenticate {
                user,
                password: Some(password),
            }],
            previous => {
                let text = match &previous {
                    // Clients that send USER and PASS together must not take this for a failure.
                    LoginState::LoggedIn(login) if login.by_certificate => {
                        self.state = previous;
                        return replies::reply(202, "No password is needed.");
                    }
                    LoginState::LoggedIn(_) => "You are already logged in.",
                    _ => "Login with USER first.",
                };
                self.state = previous;
                replies::reply(503, text)
            }
        }
    }

    /// Handles the result of the check.
    pub(super) fn on_login(
        &mut self,
        result: Result<LoginGrant, LoginFailure>,
    ) -> Vec<SessionAction> {
        let checked = std::mem::replace(&mut self.state, LoginState::Connected);
        match (result, checked) {
            (Ok(grant), checked) => {
                self.login_failures = 0;
                // RFC 2228 §4: 232 means that no PASS is needed.
                let by_certificate = matches!(checked, LoginState::Authenticating(Some(_)));
                let reply = welcome(if by_certificate { 232 } else { 230 }, &grant);
                let mut login = LoggedInSession::new(&self.config, self.protection.clone(), grant);
                login.by_certificate = by_certificate;
                self.state = LoginState::LoggedIn(Box::new(login));
                vec![SessionAction::Reply(reply)]
            }
            (Err(LoginFailure::PasswordNeeded), LoginState::Authenticating(Some(name))) => {
                self.ask_for_password(name)
            }
            (Err(failure), _) => {
                let reason = match failure {
                    LoginFailure::Refused(reason) => reason,
                    LoginFailure::PasswordNeeded => "Another password is needed.".to_owned(),
                };
                self.login_failures += 1;
                let limit = self.config.max_login_failures;
                // The limit counts per connection; the driver limits attempts across connections.
                if limit > 0 && self.login_failures >= limit {
                    let mut actions = replies::reply(
                        421,
                        format!("Login incorrect: {reason} Too many failures; closing."),
                    );
                    actions.push(SessionAction::Close);
                    return actions;
                }
                replies::reply(530, format!("Login incorrect: {reason}"))
            }
        }
    }

    /// REIN: returns to the state after the greeting. The count of failed logins is kept.
    pub(super) fn rein(&mut self) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_after_ccc() {
            return refusal;
        }
        // RFC 959 §4.1.1: REIN resets everything but a running transfer. None can run here, since
        // the driver queues REIN behind it.
        let mut actions = vec![SessionAction::DropChannel];
        if let LoginState::LoggedIn(login) = &mut self.state {
            actions.extend(login.drop_drs());
        }
        self.state = LoginState::Connected;
        // RFC 4217 §13 ends TLS here. This session keeps its security, so that no later password can travel in
        // the clear; only the settings start again.
        self.protection.reset();
        actions.push(SessionAction::Reply(self.greeting()));
        actions
    }
}

fn welcome(code: u16, grant: &LoginGrant) -> Reply {
    let first = format!("User {} logged in.", grant.user);
    if grant.welcome_lines.is_empty() {
        return Reply::new(code, first);
    }
    let mut lines = vec![first.into_bytes()];
    lines.extend(
        grant
            .welcome_lines
            .iter()
            .map(|line| line.clone().into_bytes()),
    );
    Reply::multi_line(code, lines)
}

fn is_anonymous(name: &str) -> bool {
    ANONYMOUS_USERS
        .iter()
        .any(|user| name.eq_ignore_ascii_case(user))
}
