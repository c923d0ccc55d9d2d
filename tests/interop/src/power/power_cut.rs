//! A copy, a power cut at a seeded moment, and the same copy with `--resume`: the file must be there,
//! identical, and what was reported as done before the cut must have survived it.

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

/// Bytes of the file.
const SIZE: u64 = 40 << 20;
/// 12 MB/s, in bits per second: the whole file takes three and a half seconds, and a copy has passed
/// several checkpoints.
const RATE: &str = "96M";
/// Writes and flushes of the disk in a copy that is not cut, about.
const REQUESTS: u64 = 110;
/// The longest that a copy is waited for.
const LIMIT: Duration = Duration::from_secs(60);

/// Whose power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCutVictim {
    /// The machine that gets a file.
    Client,
    /// The server that stores one.
    Server,
}

/// One cut, decided by its seed.
#[derive(Debug)]
pub struct PowerCut {
    victim: PowerCutVictim,
    seed: u64,
    streams: &'static str,
    verify: &'static str,
    ordering: WriteOrdering,
    /// The power goes after so many writes and flushes of the disk, if the copy has not ended by then;
    /// else right after its end.
    after: u64,
    policy: &'static str,
}

/// The outcome of a cut.
#[derive(Debug, Clone, Copy)]
pub struct PowerCutOutcome {
    /// The copy had reported success before the cut.
    pub reported: bool,
    /// Bytes that the second run moved.
    pub moved: u64,
}

impl PowerCut {
    /// The cut of this seed.
    #[must_use]
    pub fn new(victim: PowerCutVictim, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let streams = ["1", "4"][usize::from(random.below(2) == 1)];
        // Without checksums at the end, only the journal stands between a lost byte and exit code 0.
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

    /// The same copy with nothing forced to disk, cut right after its end.
    #[must_use]
    pub fn without_syncs(self) -> Self {
        Self {
            after: u64::MAX,
            policy: "none",
            ..self
        }
    }

    /// Carries it out, in a thread of its own: the mounts of its machine end with it.
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
        let first = copied?;
        let disk = machine.reboot()?;
        let target = disk.join("copy");
        if first.reported {
            test_files::ensure_same(&source, &target).context("reported as done, and lost")?;
        }
        let moved = match self.victim {
            PowerCutVictim::Client => first.server.explain(self.resume(
                &machine,
                &first.server.url("source"),
                &path_argument(&target),
            ))?,
            PowerCutVictim::Server => {
                let server = self.serve(&machine, &disk, &first.address)?;
                server.explain(self.resume(
                    &machine,
                    &path_argument(&source),
                    &server.url("copy"),
                ))?
            }
        };
        test_files::ensure_same(&source, &target)?;
        Ok(PowerCutOutcome {
            reported: first.reported,
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
        command.env("XDG_STATE_HOME", machine.scratch().join("state"));
        Ok(command)
    }

    /// A get to the disk from a server whose power stays.
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

    /// A put from a client whose power stays to a server on the disk.
    fn put(&self, machine: &CrashableMachine, source: &Path, disk: &Path) -> Result<FirstCopy> {
        // A port that nothing takes while the server is away.
        let listen = format!("{}:{}", net::HOST, net::free_port()?);
        let mut server = self.serve(machine, disk, &listen)?;
        let (from, url) = (path_argument(source), server.url("copy"));
        let reported = self.run_until_cut(machine, &["--limit-rate", RATE, &from, &url])?;
        server.guard().kill();
        Ok(FirstCopy {
            reported,
            address: server.address().to_string(),
            server,
        })
    }

    /// Runs a copy until the power goes or it ends, and kills it; whether it had reported success.
    fn run_until_cut(&self, machine: &CrashableMachine, arguments: &[&str]) -> Result<bool> {
        let mut command = self.copy(machine, arguments)?;
        let (stdout, stderr) = (machine.scratch().join("out"), machine.scratch().join("err"));
        command
            .stdout(std::fs::File::create(stdout)?)
            .stderr(std::fs::File::create(&stderr)?);
        let mut copying = ProcessGuard::spawn(&mut command)?;
        let device = machine.device()?;
        let begun = std::time::Instant::now();
        loop {
            if let Some(status) = copying.wait(Duration::ZERO)? {
                let done = status.success();
                // What ended by the cut is told by the disk.
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
            ensure!(begun.elapsed() < LIMIT, "neither an end nor a cut");
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
