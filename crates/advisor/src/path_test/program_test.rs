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
            result = self.run_once(&next).await?;
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
        self.program.read(&ran).map_err(unusable)
    }
}
