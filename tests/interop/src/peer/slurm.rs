//! Slurm: a controller and several nodes on this machine (multiple slurmd).

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{find_installed, is_root};
use crate::matrix::TestStore;
use crate::net;
use crate::process::ServerProcess;
use crate::run;

const START_LIMIT: Duration = Duration::from_secs(60);

/// Whether it can be run.
pub fn find() -> Result<PathBuf, String> {
    if !is_root() {
        return Err("slurmd can only be started by root".to_owned());
    }
    for program in ["munged", "slurmctld", "slurmd", "sinfo"] {
        find_installed(program)?;
    }
    find_installed("srun")
}

/// A running cluster.
#[derive(Debug)]
pub struct Slurm {
    settings: PathBuf,
    /// All of its servers.
    _servers: Vec<ServerProcess>,
}

impl Slurm {
    /// Starts a cluster of nodes with one processor each.
    pub fn start(store: &TestStore, nodes: usize) -> Result<Self> {
        let own = store.path("slurm.d");
        std::fs::create_dir_all(own.join("state"))?;
        // munged demands that nobody else may write above its socket.
        let shown = own.display();
        let key: Vec<u8> = (0..1024_u32).map(|n| (n * 7 % 251) as u8).collect();
        std::fs::write(own.join("munge.key"), key)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o400);
        std::fs::set_permissions(own.join("munge.key"), private)?;
        let mut lines = format!(
            "ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={port}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={shown}/munge.socket\nCryptoType=crypto/munge\n\
             StateSaveLocation={shown}/state\nSlurmdSpoolDir={shown}/spool.%n\nSlurmctldPidFile={shown}/slurmctld.pid\n\
             SlurmdPidFile={shown}/slurmd.%n.pid\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nReturnToService=2\nMpiDefault=none\nSwitchType=switch/none\nKillWait=2\n\
             AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n",
            port = net::free_port()?,
        );
        for node in 1..=nodes {
            let port = net::free_port()?;
            lines.push_str(&format!(
                "NodeName=n{node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1\n"
            ));
        }
        lines.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
        let settings = own.join("slurm.conf");
        std::fs::write(&settings, lines)?;
        let start = |program: &str, name: &str, words: &[String]| {
            let mut command = Command::new(find_installed(program).map_err(anyhow::Error::msg)?);
            command.args(words).env("SLURM_CONF", &settings);
            ServerProcess::spawn(&mut command, &own, name)
        };
        let at = |name: &str| format!("{shown}/{name}");
        let munge = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("munge.key")),
            format!("--socket={}", at("munge.socket")),
            format!("--pid-file={}", at("munged.pid")),
            format!("--log-file={}", at("munged.log")),
            format!("--seed-file={}", at("munged.seed")),
        ];
        let mut servers = vec![start("munged", "munged", &munge)?];
        servers[0].wait_until("a socket of munged", START_LIMIT, |_| {
            own.join("munge.socket").exists().then_some(())
        })?;
        servers.push(start("slurmctld", "slurmctld", &["-D".to_owned()])?);
        for node in 1..=nodes {
            let words = ["-D".to_owned(), "-N".to_owned(), format!("n{node}")];
            servers.push(start("slurmd", &format!("slurmd{node}"), &words)?);
        }
        let mut slurm = Self {
            settings,
            _servers: servers,
        };
        slurm.wait_for_nodes(nodes)?;
        Ok(slurm)
    }

    fn wait_for_nodes(&mut self, nodes: usize) -> Result<()> {
        let settings = self.settings.clone();
        let controller = self._servers.get_mut(1).context("no controller")?;
        controller.wait_until("idle nodes", START_LIMIT, |_| {
            let mut question = Command::new("sinfo");
            question
                .args(["-h", "-N", "-o", "%T"])
                .env("SLURM_CONF", &settings);
            let answer = question.output().ok()?;
            let idle = String::from_utf8_lossy(&answer.stdout)
                .lines()
                .filter(|line| *line == "idle")
                .count();
            (idle == nodes).then_some(())
        })
    }

    /// srun with so many tasks, each on a node of its own, of a program with its arguments.
    pub fn srun(&self, tasks: usize, program: &Command) -> Result<Command> {
        ensure!(tasks > 0, "no tasks");
        let mut command = Command::new(find().map_err(anyhow::Error::msg)?);
        command.env("SLURM_CONF", &self.settings);
        for (name, value) in program.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let tasks = tasks.to_string();
        command.args(["-N", &tasks, "-n", &tasks, "--no-kill"]);
        command.arg(program.get_program()).args(program.get_args());
        tracing_line(&command);
        Ok(command)
    }
}

fn tracing_line(command: &Command) {
    println!("{}", run::command_line(command));
}
