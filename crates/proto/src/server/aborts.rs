//! ABORs that wait for the end of what they stop: each is answered with 226 after the reply of the
//! command that was stopped (RFC 959 §4.1.3).

use super::Action;
use super::replies;

/// Most ABORs that wait for one end; a client that sends more is flooding.
const MAX_ABORTS: u32 = 16;

/// How many wait.
#[derive(Debug, Default)]
pub(super) struct Aborts(u32);

impl Aborts {
    /// Takes one; the first stops the work.
    pub(super) fn take(&mut self) -> Vec<Action> {
        self.0 += 1;
        match self.0 {
            1 => vec![Action::Abort],
            2..=MAX_ABORTS => Vec::new(),
            _ => {
                let mut actions = replies::reply(421, "Too many ABORs; closing.");
                actions.push(Action::Close);
                actions
            }
        }
    }

    /// Their replies, once the work has ended.
    pub(super) fn replies(&self) -> Vec<Action> {
        (0..self.0)
            .flat_map(|_| replies::reply(226, "Abort successful"))
            .collect()
    }
}
