//! Tests that are the work of a program on this machine: its arguments, and the meaning of its output, are a file each.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::{PathTest, Target, TestFailure, TestProfile, Unavailable};
use crate::measurement::{Measurement, Quantity};
use crate::program::{ProgramCall, ProgramError, ProgramOutput, find_program};

/// The measured numbers in the output of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramResult {
    /// The numbers.
    pub values: Vec<(Quantity, f64)>,
    /// Details that only people read.
    pub detail: Option<Value>,
    /// Bytes that the program put on the network, both directions together.
    pub cost_bytes: u64,
}

/// A program that tests paths.
pub trait MeasuringProgram: Send + Sync {
    /// The unchanging facts of the test.
    fn profile(&self) -> TestProfile<'_>;

    /// Bytes that one test puts on the network, at most, with all its runs.
    fn most_bytes(&self, target: &Target) -> u64;

    /// Its file, or a name that is looked for in the directories of `PATH`.
    fn program(&self) -> &str;

    /// The reason that people read if the program is missing.
    fn missing(&self) -> String;

    /// Its arguments for a test of `target`.
    fn arguments(&self, target: &Target) -> Vec<OsString>;

    /// The target to measure again in the same test, if a run found it other than assumed. `left`: bytes that the test may
    /// still send.
    fn again(&self, _target: &Target, _found: &ProgramResult, _left: u64) -> Option<Target> {
        None
    }

    /// Time after which it is killed.
    fn time_limit(&self) -> Duration;

    /// Longest output, bytes.
    fn most_output(&self) -> usize;

    /// Whether the output of a run without result shows that it put nothing on the network.
    fn sent_nothing(&self, _ran: &ProgramOutput) -> bool {
        false
    }

    /// The result in its output.
    ///
    /// # Errors
    /// Why there is none.
    fn read(&self, ran: &ProgramOutput) -> Result<ProgramResult, String>;
}

/// The test by a program.
#[derive(Debug)]
pub struct ProgramTest<P> {
    program: P,
    /// Its file, once it was found.
    file: Option<PathBuf>,
}

impl<P: MeasuringProgram> ProgramTest<P> {
    /// The test by this program, which is looked for when the test is initialised.
    pub fn new(program: P) -> Self {
        Self {
            program,
            file: None,
        }
    }
}

#[async_trait]
impl<P: MeasuringProgram> PathTest for ProgramTest<P> {
    fn profile(&self) -> TestProfile<'_> {
        self.program.profile()
    }

    fn most_bytes(&self, target: &Target) -> u64 {
        self.program.most_bytes(target)
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        self.file = find_program(self.program.program());
        match self.file {
            Some(_) => Ok(()),
            None => Err(Unavailable {
                test: self.name().to_owned(),
                reason: self.program.missing(),
            }),
        }
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        let most_bytes = self.most_bytes(target);
        let mut result = self.run_once(target).await?;
        let mut measured = target.clone();
        let left = |spent: u64| most_bytes.saturating_sub(spent);
        while let Some(next) = self
            .program
            .again(&measured, &result, left(result.cost_bytes))
        {
            let spent = result.cost_bytes;
            let Ok(later) = self.run_once(&next).await else {
                // The smaller run has a result. The other one may have sent all that it was granted.
                result.cost_bytes = most_bytes;
                break;
            };
            result = later;
            result.cost_bytes = result.cost_bytes.saturating_add(spent);
            measured = next;
        }
        Ok(Measurement {
            client: target.client,
            test: self.name().to_owned(),
            at: Timestamp::now(),
            values: result.values,
            detail: result.detail,
            cost_bytes: result.cost_bytes,
        })
    }
}

impl<P: MeasuringProgram> ProgramTest<P> {
    async fn run_once(&self, target: &Target) -> Result<ProgramResult, TestFailure> {
        let (test, client) = (self.program.profile().name, target.client);
        let unusable = |reason| TestFailure::unusable(test, client, reason);
        let file = self.file.as_ref();
        let file = file.ok_or_else(|| unusable(self.program.missing()))?;
        let call = ProgramCall {
            program: file,
            arguments: self.program.arguments(target),
            input: b"",
            time_limit: self.program.time_limit(),
            max_output: self.program.most_output(),
        };
        let ran = call.run().await.map_err(|error| match error {
            ProgramError::Start(source) => {
                TestFailure::system(test, client, "start its program", source)
            }
            ProgramError::Output(source) => {
                TestFailure::system(test, client, "read its program's output", source)
            }
            killed => unusable(format!("its program {killed}")),
        })?;
        self.program
            .read(&ran)
            .map_err(|reason| match self.program.sent_nothing(&ran) {
                true => TestFailure::not_begun(test, client, reason),
                false => unusable(reason),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_test::{HeldBackBy, Weight};

    /// Prints the last known bandwidth, doubles it for the next run, and fails from `fails_from` on.
    struct Doubling {
        fails_from: u64,
    }

    impl MeasuringProgram for Doubling {
        fn profile(&self) -> TestProfile<'_> {
            TestProfile {
                name: "doubling",
                weight: Weight::Light,
                concurrency: 1,
                fills_path: false,
                interval: Duration::from_secs(1),
                held_back_by: HeldBackBy::Nothing,
                measures: &[],
            }
        }

        fn most_bytes(&self, _target: &Target) -> u64 {
            1000
        }

        fn program(&self) -> &str {
            "/bin/sh"
        }

        fn missing(&self) -> String {
            "no shell".to_owned()
        }

        fn arguments(&self, target: &Target) -> Vec<OsString> {
            let rate = target.bandwidth_bps.unwrap_or(1);
            ["-c", &format!("echo {rate}")].map(OsString::from).to_vec()
        }

        fn again(&self, target: &Target, _found: &ProgramResult, left: u64) -> Option<Target> {
            let next = Target {
                bandwidth_bps: Some(target.bandwidth_bps.unwrap_or(1) * 2),
                ..target.clone()
            };
            (left >= 400).then_some(next)
        }

        fn time_limit(&self) -> Duration {
            Duration::from_secs(60)
        }

        fn most_output(&self) -> usize {
            100
        }

        fn read(&self, ran: &ProgramOutput) -> Result<ProgramResult, String> {
            let text = String::from_utf8_lossy(&ran.output);
            let rate: u64 = text.trim().parse().map_err(|_| "no number".to_owned())?;
            if rate >= self.fails_from {
                return Err("too fast".to_owned());
            }
            Ok(ProgramResult {
                values: vec![(Quantity::Goodput, rate as f64)],
                detail: None,
                cost_bytes: 300,
            })
        }
    }

    async fn measured(fails_from: u64) -> Result<(f64, u64), TestFailure> {
        let mut test = ProgramTest::new(Doubling { fails_from });
        test.init().await.unwrap();
        let found = test.run(&Target::new([192, 0, 2, 7].into())).await?;
        Ok((found.values[0].1, found.cost_bytes))
    }

    #[tokio::test]
    async fn runs_follow_until_the_bytes_are_spent_and_the_last_result_counts() {
        assert_eq!(measured(u64::MAX).await.unwrap(), (4.0, 900));
        // A later run without a result leaves that of an earlier one, at the cost of all bytes.
        assert_eq!(measured(4).await.unwrap(), (2.0, 1000));
        assert!(measured(1).await.is_err());
    }
}
