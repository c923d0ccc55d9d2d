//! A copy with a power cut at a seeded moment, then the same copy with `--resume`. The file must be
//! identical at the end, and a file that was reported as done before the power cut must have survived.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::machine::{CrashableMachine, WriteOrdering};
use crate::longhaul::copy::{self, CpSummary};
use crate::longhaul::rows::path_argument;
use crate::longhaul::serve::{LonghaulServer, ServeCommand};
use crate::net;
use crate::process::ProcessGuard;
use crate::run;
use crate::seeded_random::SeededRandom;
use crate::test_files;

/// Size of the file, bytes.
const SIZE: u64 = 40 << 20;
/// 12 MB/s, in bits per second: a copy takes 3.5 s and makes several checkpoints.
const RATE: &str = "96M";
/// Approximate number of disk writes and flushes of an uninterrupted copy.
const REQUESTS: u64 = 110;
/// Time limit of a copy.
const LIMIT: Duration = Duration::from_secs(60);

/// The side that loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCutVictim {
    /// The client, which downloads a file.
    Client,
    /// The server, which stores an upload.
    Server,
}

/// A test with one power cut; its parameters follow from the seed.
#[derive(Debug)]
pub struct PowerCut {
    victim: PowerCutVictim,
    seed: u64,
    streams: &'static str,
    verify: &'static str,
    ordering: WriteOrdering,
    /// The power is cut after this many disk writes and flushes, or at the end of the copy if that comes
    /// first.
    after: u64,
    policy: &'static str,
}

/// Outcome of a power cut.
#[derive(Debug, Clone, Copy)]
pub struct PowerCutOutcome {
    /// Whether the copy had reported success before the power cut.
    pub reported: bool,
    /// Bytes that the second run transferred.
    pub moved: u64,
}

impl PowerCut {
    /// The test with this seed.
    #[must_use]
    pub fn new(victim: PowerCutVictim, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let streams = ["1", "4"][usize::from(random.below(2) == 1)];
        // Without the final checksum, only a correct journal prevents exit code 0 with lost bytes.
        let without = random.below(2) == 1;
        Self {
            victim,
            seed,
            streams,
            verify: if without { "none" } else { "auto" },
            ordering: match random.below(2) {
                0 => WriteOrdering::Default,
                _ => WriteOrdering::Loose,
            },
            after: random.below(REQUESTS),
            policy: "file",
        }
    }

    /// The same copy without fsync, with the power cut at its end.
    #[must_use]
    pub fn without_syncs(self) -> Self {
        Self {
            after: u64::MAX,
            policy: "none",
            ..self
        }
    }

    /// Runs the test in a thread of its own, whose mounts end with the thread.
    pub fn run(&self) -> Result<PowerCutOutcome> {
        std::thread::scope(|scope| scope.spawn(|| self.cut_and_resume()).join())
            .unwrap_or_else(|_| bail!("panic"))
    }

    fn cut_and_resume(&self) -> Result<PowerCutOutcome> {
        let mut machine = CrashableMachine::new(self.ordering)?;
        let source = machine.scratch().join("source");
        test_files::write(&source, SIZE, self.seed)?;
        let disk = machine.boot(SeededRandom::new(self.seed), self.after)?;
        let copied = match self.victim {
            PowerCutVictim::Client => self.get(&machine, &source, &disk),
            PowerCutVictim::Server => self.put(&machine, &source, &disk),
        };
        let first_copy = copied?;
        let disk = machine.reboot()?;
        let target = disk.join("copy");
        if first_copy.reported {
            test_files::ensure_same(&source, &target).context("reported as done, and lost")?;
        }
        let moved = match self.victim {
            PowerCutVictim::Client => first_copy.server.explain(self.resume(
                &machine,
                &first_copy.server.url("source"),
                &path_argument(&target),
            ))?,
            PowerCutVictim::Server => {
                let server = self.serve(&machine, &disk, &first_copy.address)?;
                server.explain(self.resume(
                    &machine,
                    &path_argument(&source),
                    &server.url("copy"),
                ))?
            }
        };
        test_files::ensure_same(&source, &target)?;
        Ok(PowerCutOutcome {
            reported: first_copy.reported,
            moved: moved.bytes,
        })
    }

    fn serve(
        &self,
        machine: &CrashableMachine,
        root: &Path,
        listen: &str,
    ) -> Result<LonghaulServer> {
        let config = format!(
            // Frequent markers, because the copy takes only a few seconds.
            "range-marker-seconds = 1\nsync-policy = \"{}\"\n",
            self.policy
        );
        let config = machine.scratch().file("serve.toml", config.as_bytes())?;
        ServeCommand::anonymous(root)
            .listen(listen)
            .option("--config", &path_argument(&config))
            .start()
    }

    fn copy(&self, machine: &CrashableMachine, more: &[&str]) -> Result<Command> {
        let common = [
            "-p",
            self.streams,
            "--retries",
            "0",
            "--verify",
            self.verify,
        ];
        let policy = ["--sync-policy", self.policy];
        let mut command = copy::command(&[&common[..], &policy, more].concat())?;
        // The journal of the copy belongs to this test, not to the user who runs it.
        command.env("XDG_STATE_HOME", machine.scratch().join("state"));
        Ok(command)
    }

    /// A download to the disk, from a server that keeps its power.
    fn get(&self, machine: &CrashableMachine, _source: &Path, disk: &Path) -> Result<FirstCopy> {
        let server = self.serve(machine, machine.scratch().path(), "127.0.0.1:0")?;
        let (url, target) = (server.url("source"), path_argument(&disk.join("copy")));
        let reported = self.run_until_cut(machine, &["--limit-rate", RATE, &url, &target])?;
        Ok(FirstCopy {
            reported,
            address: server.address().to_string(),
            server,
        })
    }

    /// An upload to a server on the disk, from a client that keeps its power.
    fn put(&self, machine: &CrashableMachine, source: &Path, disk: &Path) -> Result<FirstCopy> {
        // A fixed port, so that the restarted server gets the same one.
        let listen = format!("{}:{}", net::HOST, net::free_port()?);
        let mut server = self.serve(machine, disk, &listen)?;
        let (from, url) = (path_argument(source), server.url("copy"));
        let reported = self.run_until_cut(machine, &["--limit-rate", RATE, &from, &url])?;
        // The server must not touch the disk after the power cut.
        server.guard().kill();
        Ok(FirstCopy {
            reported,
            address: server.address().to_string(),
            server,
        })
    }

    /// Runs a copy until it ends or the power is cut, and kills it. Returns whether it reported success.
    fn run_until_cut(&self, machine: &CrashableMachine, arguments: &[&str]) -> Result<bool> {
        let mut command = self.copy(machine, arguments)?;
        let (stdout, stderr) = (machine.scratch().join("out"), machine.scratch().join("err"));
        command
            .stdout(std::fs::File::create(stdout)?)
            .stderr(std::fs::File::create(&stderr)?);
        let mut copying = ProcessGuard::spawn(&mut command)?;
        let device = machine.device()?;
        let start = std::time::Instant::now();
        loop {
            if let Some(status) = copying.wait(Duration::ZERO)? {
                let done = status.success();
                // A copy may fail only because of the power cut.
                ensure!(
                    done || device.is_off(),
                    "{status} without a power cut: {}",
                    std::fs::read_to_string(&stderr)?
                );
                return Ok(done);
            }
            if device.wait_off(Duration::from_millis(10)) {
                copying.kill();
                return Ok(false);
            }
            ensure!(
                start.elapsed() < LIMIT,
                "the copy neither ended nor lost power"
            );
        }
    }

    fn resume(&self, machine: &CrashableMachine, from: &str, to: &str) -> Result<CpSummary> {
        let mut command = self.copy(machine, &["--resume", from, to])?;
        copy::summary(&run::run(&mut command)?.expect_success()?)
    }
}

struct FirstCopy {
    reported: bool,
    address: String,
    server: LonghaulServer,
}
