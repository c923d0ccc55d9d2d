//! Numbers of the scheduler, for people and metrics.

use super::TestOutcome;

/// Numbers since the start, and of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleCounters {
    /// Tests started.
    pub started: u64,
    /// Tests with a result.
    pub succeeded: u64,
    /// Tests without a result.
    pub failed: u64,
    /// Tests put off because another server tests behind the same bottleneck.
    pub put_off: u64,
    /// Tests on demand refused because too many wait.
    pub on_demand_refused: u64,
    /// Tests that need more bytes than the budget ever has.
    pub too_large: u64,
    /// Bytes sent beyond what tests had announced.
    pub excess_bytes: u64,
    /// Tests that run now.
    pub running: usize,
    /// Tests on demand that wait now.
    pub waiting_on_demand: usize,
    /// Bytes of tests since the start.
    pub budget_spent: u64,
    /// Bytes that may be spent now.
    pub budget_left: u64,
    /// Times that a test had to wait for the budget.
    pub budget_refusals: u64,
}

impl ScheduleCounters {
    pub(super) fn count(&mut self, outcome: TestOutcome) {
        let counter = match outcome {
            TestOutcome::Steady | TestOutcome::Outlier | TestOutcome::Shift => &mut self.succeeded,
            TestOutcome::Failed => &mut self.failed,
            TestOutcome::PutOff(_) => &mut self.put_off,
        };
        *counter += 1;
    }
}
