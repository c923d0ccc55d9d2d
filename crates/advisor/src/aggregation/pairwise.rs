//! Each client is measured by itself: the most precise policy, and the default.

use super::{AggregationPolicy, ClientGroup, ClientPath};

/// No client shares with another one.
#[derive(Debug)]
pub struct Pairwise;

impl AggregationPolicy for Pairwise {
    fn group(&self, _: &ClientPath<'_>) -> Option<ClientGroup> {
        None
    }

    fn measures_each_once(&self) -> bool {
        true
    }
}
