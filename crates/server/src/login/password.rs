//! Logins with a password: of the users file, or of an account of the system, which PAM checks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::command::Secret;
use tokio::time::Instant;

use super::{Authenticator, LoginFault, LoginPolicy, LoginRefusal};
use crate::config::UnlistedRights;
use crate::limits::FairQueue;
use crate::pam::{PamAnswer, PamChecker, PamQuestion};
use crate::users::{UserAccount, Users};

/// With PAM, a refusal is not sent earlier than this after the check began: how long modules think must not tell which
/// names exist. It is about the delay of pam_unix(8), which is not made here.
const PAM_REFUSAL_TIME: Duration = Duration::from_secs(2);

/// By whom a password is checked.
#[derive(Clone)]
enum PasswordCheck {
    UsersFile(Arc<Users>),
    Pam(Arc<PamChecker>, UnlistedRights),
}

impl Authenticator {
    /// The account of a name and its password. A name of the users file is checked there alone; PAM is asked about others.
    pub(super) async fn password_account(
        &self,
        policy: &LoginPolicy,
        user: String,
        password: Secret,
        peer: IpAddr,
    ) -> Result<UserAccount, LoginRefusal> {
        let users = policy.users.clone();
        let source = match (users, policy.pam.clone()) {
            (Some(users), Some(pam)) => match users.has_user(&user) {
                true => PasswordCheck::UsersFile(users),
                false => PasswordCheck::Pam(pam, policy.pam_rights),
            },
            (Some(users), None) => PasswordCheck::UsersFile(users),
            (None, Some(pam)) => PasswordCheck::Pam(pam, policy.pam_rights),
            (None, None) => {
                return Err(LoginRefusal::WrongCredentials(LoginFault::NoUsersFile));
            }
        };
        let (account, begun) = self.verify_password(source, user, password, peer).await?;
        let account = account.and_then(|account| match policy.access.permits_user(&account.name) {
            true => Ok(account),
            false => Err(LoginRefusal::NotPermitted),
        });
        if account.is_err() && policy.pam.is_some() {
            tokio::time::sleep_until(begun + PAM_REFUSAL_TIME).await;
        }
        account
    }

    /// Checks a password after the delay that earlier failures demand. The delay holds no permit. Returns when the check
    /// began, too.
    async fn verify_password(
        &self,
        source: PasswordCheck,
        user: String,
        password: Secret,
        peer: IpAddr,
    ) -> Result<(Result<UserAccount, LoginRefusal>, Instant), LoginRefusal> {
        let queue = self.queue_of(&source);
        let queue_full = |_| LoginRefusal::Throttled;
        let mut permit = queue.acquire(peer).await.map_err(queue_full)?;
        let mut attempt = self
            .throttle
            .begin(peer, &user)
            .map_err(|_| LoginRefusal::Throttled)?;
        if !attempt.wait().is_zero() {
            // Waiting with the permit would let one attacker block the password checks of everybody.
            drop(permit);
            tokio::time::sleep(attempt.wait()).await;
            permit = queue.acquire(peer).await.map_err(queue_full)?;
        }
        // From here on the password is checked even if the client leaves: leaving early must not hide a
        // wrong guess.
        attempt.mark_checked();
        let begun = Instant::now();
        let checked = tokio::spawn(async move {
            let account = source.check(user, password, peer).await;
            (account, permit)
        });
        let (account, permit) = checked.await.map_err(|_| LoginRefusal::Internal)?;
        match account {
            Ok(_) => attempt.mark_granted(),
            // Nobody has learnt anything about the password.
            Err(LoginRefusal::PamBroken(_)) => attempt.mark_unanswered(),
            Err(_) => drop(attempt),
        }
        // The permit is returned after the attempt has ended, so that the next attempt does not count
        // this one as in progress.
        drop(permit);
        Ok((account, begun))
    }

    fn queue_of(&self, source: &PasswordCheck) -> &Arc<FairQueue> {
        match source {
            PasswordCheck::UsersFile(_) => &self.password_checks,
            PasswordCheck::Pam(..) => &self.pam_questions,
        }
    }
}

impl PasswordCheck {
    async fn check(
        self,
        user: String,
        password: Secret,
        peer: IpAddr,
    ) -> Result<UserAccount, LoginRefusal> {
        match self {
            Self::UsersFile(users) => {
                let checked = tokio::task::spawn_blocking(move || {
                    users.verify(&user, &password.0).ok_or_else(|| {
                        LoginRefusal::WrongCredentials(match users.has_user(&user) {
                            true => LoginFault::WrongPassword,
                            false => LoginFault::UnknownUser,
                        })
                    })
                });
                checked.await.map_err(|_| LoginRefusal::Internal)?
            }
            Self::Pam(pam, rights) => {
                let name = user.clone();
                let question = PamQuestion {
                    user,
                    password,
                    peer,
                };
                match pam.ask(question).await {
                    // Not from the users file, whatever it has by now: this is the password of the system's account.
                    PamAnswer::Granted => Ok(LoginPolicy::unlisted_account(
                        &name,
                        rights == UnlistedRights::Rw,
                    )),
                    PamAnswer::Refused(reason) => Err(LoginRefusal::Pam(reason)),
                    PamAnswer::Broken(reason) => Err(LoginRefusal::PamBroken(reason)),
                }
            }
        }
    }
}
