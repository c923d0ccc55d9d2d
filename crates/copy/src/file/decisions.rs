//! Decisions of the tuning: as events for people, and as lines of a trace.

use super::stream_plan::StreamPlan;
use crate::batch::BatchContext;
use crate::batch::meter::{FileDecision, TuningDecision};
use crate::batch::trace::{describe_buffer_setting, describe_transfer_setting};
use crate::events::CopyEvent;
use units::show;

/// Reports the decisions about files since the last call. They are taken even if nobody reads them, because those of
/// finished files accumulate until then.
pub(crate) fn report(ctx: &BatchContext) {
    for decided in ctx.meter.take_decisions() {
        if let Some(trace) = &ctx.trace {
            let time = decided.at.saturating_duration_since(ctx.started);
            match &decided.decision {
                TuningDecision::Buffers(decision) => {
                    trace.write_buffer_decision(time, &decided.file, decision);
                }
                TuningDecision::Streams(decision) => {
                    trace.write_transfer_decision(time, &decided.file, decision);
                }
            }
        }
        if let Some(text) = text_of(&decided) {
            tell(ctx, Some(decided.file), text);
        }
    }
}

/// Reports what a file begins with.
pub(crate) fn report_stream_plan(ctx: &BatchContext, source: String, plan: StreamPlan) {
    tell(ctx, Some(source), plan.with_mode());
}

/// Reports how many sessions move files at a time.
pub(crate) fn report_sessions(ctx: &BatchContext, sessions: usize) {
    let sessions = show::count(sessions, "session");
    tell(ctx, None, format!("{sessions} at a time"));
}

/// Reports a decision that the tuning has put into words itself.
pub(crate) fn tell(ctx: &BatchContext, source: Option<String>, text: String) {
    let event = CopyEvent::Decision { source, text };
    ctx.observer.on_event(event);
}

/// The decision in words; `None` if it changes nothing.
fn text_of(decided: &FileDecision) -> Option<String> {
    let (change, limiter, reason) = match &decided.decision {
        TuningDecision::Buffers(decision) => (
            format!(
                "{}, stream {}",
                describe_buffer_setting(decision.setting?),
                decision.stream
            ),
            decision.limiter,
            &decision.reason,
        ),
        TuningDecision::Streams(decision) => (
            describe_transfer_setting(decision.setting.as_ref()?),
            decision.limiter,
            &decision.reason,
        ),
    };
    Some(format!("{change}: {reason} (limiter: {})", limiter.name()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tune::limiter::Limiter;
    use tune::streams::auto::{TransferDecision, TransferSetting};

    use super::*;

    #[test]
    fn a_decision_has_its_change_its_reason_and_the_limiter() {
        let decided = |setting| FileDecision {
            file: "f".to_owned(),
            at: Instant::now(),
            decision: TuningDecision::Streams(TransferDecision {
                at: Duration::ZERO,
                setting,
                limiter: Limiter::Loss,
                reason: "losses without a queue".to_owned(),
            }),
        };
        assert_eq!(
            text_of(&decided(Some(TransferSetting::Streams(4)))).unwrap(),
            "streams 4: losses without a queue (limiter: congestion window (loss))"
        );
        assert_eq!(text_of(&decided(None)), None);
    }
}
