//! Runs a program of a test: without a shell, with a time limit, and with bounded output. Its process group ends with
//! the test.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::TestFailure;

/// Longest error output that is kept, bytes. More of it is discarded.
const MOST_ERRORS: usize = 4096;

/// A program to run.
#[derive(Debug, Clone)]
pub(super) struct ProgramCall<'a> {
    /// Name of the test.
    pub(super) test: &'a str,
    /// The client under test.
    pub(super) client: IpAddr,
    /// Its file.
    pub(super) program: &'a Path,
    /// Its arguments.
    pub(super) arguments: Vec<OsString>,
    /// Time after which it is killed.
    pub(super) time_limit: Duration,
    /// Standard output above which it is killed, bytes.
    pub(super) most_output: usize,
}

/// The output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub output: Vec<u8>,
    /// The beginning of standard error.
    pub errors: String,
}

impl ProgramOutput {
    /// How the program ended, and its messages.
    pub(super) fn complaint(&self) -> String {
        format!("{}: {}", self.status, self.errors)
    }
}

/// A running program. Dropping it kills the process group.
struct ProcessGroup {
    child: Child,
    leader: Option<Pid>,
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // A leader that was waited for has no number any more, which may belong to another group by now.
        if self.child.id().is_some()
            && let Some(leader) = self.leader
        {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl ProgramCall<'_> {
    /// Runs the program to its end.
    ///
    /// # Errors
    /// It cannot be started, takes too long, or prints too much.
    pub(super) async fn run(self) -> Result<ProgramOutput, TestFailure> {
        let failed =
            |action| move |source| TestFailure::system(self.test, self.client, action, source);
        let mut command = Command::new(self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed("start its program"))?;
        let pipes = child.stdout.take().zip(child.stderr.take());
        let leader = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let mut group = ProcessGroup { child, leader };
        let Some((output, errors)) = pipes else {
            let reason = "its program has no output";
            return Err(TestFailure::unusable(self.test, self.client, reason));
        };
        let work = async {
            let output = read_up_to(output, self.most_output);
            let errors = read_beginning(errors);
            let (output, errors) = tokio::join!(output, errors);
            let output = output?;
            if output.len() > self.most_output {
                return Ok(None);
            }
            let status = group.child.wait().await?;
            Ok(Some((status, output, errors)))
        };
        match tokio::time::timeout(self.time_limit, work).await {
            Ok(Ok(Some((status, output, errors)))) => Ok(ProgramOutput {
                status,
                output,
                errors: String::from_utf8_lossy(&errors).trim().to_owned(),
            }),
            Ok(Ok(None)) => {
                let reason = format!("its program prints more than {} bytes", self.most_output);
                Err(TestFailure::unusable(self.test, self.client, reason))
            }
            Ok(Err(source)) => Err(failed("read its program's output")(source)),
            Err(_) => {
                let reason = format!("its program takes longer than {:?}", self.time_limit);
                Err(TestFailure::unusable(self.test, self.client, reason))
            }
        }
    }
}

/// Reads to the end, or one byte more than `most`.
async fn read_up_to(pipe: impl AsyncRead + Unpin, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let mut pipe = pipe.take(most.saturating_add(1));
    pipe.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Reads to the end and keeps the beginning, so that a program that complains much is not blocked.
async fn read_beginning(mut pipe: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut part = [0; 1024];
    while let Ok(length @ 1..) = pipe.read(&mut part).await {
        let room = MOST_ERRORS.saturating_sub(kept.len());
        kept.extend(part.iter().take(length.min(room)));
    }
    kept
}

/// The file of a program in the directories of `PATH`, and of `/usr/sbin`; an absolute path is itself.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|file| {
            let facts = std::fs::metadata(file);
            facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell<'a>(script: &str, time_limit: Duration) -> ProgramCall<'a> {
        ProgramCall {
            test: "script",
            client: IpAddr::from([192, 0, 2, 1]),
            program: Path::new("/bin/sh"),
            arguments: vec!["-c".into(), script.into()],
            time_limit,
            most_output: 1000,
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn output_errors_and_status_are_returned() {
        let ran = shell("echo one; echo two >&2; exit 3", LONG)
            .run()
            .await
            .unwrap();
        assert_eq!((&ran.output[..], &*ran.errors), (&b"one\n"[..], "two"));
        assert_eq!(ran.status.code(), Some(3));
    }

    #[tokio::test]
    async fn endless_output_is_refused() {
        let failure = shell("exec yes", LONG).run().await.unwrap_err();
        assert!(
            failure.to_string().contains("more than 1000 bytes"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn at_the_time_limit_the_whole_process_group_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        // A grandchild holds the FIFO open; its end is the end of the FIFO.
        let script = format!("(exec 3>'{}'; sleep 1000) & sleep 1000", fifo.display());
        let reader = tokio::task::spawn_blocking(move || std::fs::read(fifo));
        let failure = shell(&script, Duration::from_millis(500))
            .run()
            .await
            .unwrap_err();
        assert!(failure.to_string().contains("takes longer"), "{failure}");
        assert_eq!(reader.await.unwrap().unwrap(), b"");
    }
}
