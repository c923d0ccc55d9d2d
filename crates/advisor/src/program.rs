//! Runs a program of a test or of the mail: without a shell, with a time limit, and with bounded output. Its process
//! group ends with the call.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// Longest error output that is kept, bytes. More of it is discarded.
const MAX_ERRORS: usize = 4096;

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct ProgramCall<'a> {
    /// Its file.
    pub(crate) program: &'a Path,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Its standard input. It need not read it.
    pub(crate) input: &'a [u8],
    /// Time after which it is killed.
    pub(crate) time_limit: Duration,
    /// Standard output above which it is killed, bytes.
    pub(crate) max_output: usize,
}

/// The reason why a program did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The system does not start it.
    #[error("cannot be started: {0}")]
    Start(io::Error),
    /// Its pipes or its status cannot be read.
    #[error("cannot be read from: {0}")]
    Output(io::Error),
    /// It was killed because of its output.
    #[error("prints more than {0} bytes")]
    TooMuchOutput(usize),
    /// It was killed at its time limit.
    #[error("takes longer than {0:?}")]
    TimeLimit(Duration),
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
    pub(crate) fn complaint(&self) -> String {
        format!("{}: {}", self.status, self.errors)
    }
}

/// Time after a program's end in which its output is awaited.
const AFTER_EXIT: Duration = Duration::from_secs(1);

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
    pub(crate) async fn run(self) -> Result<ProgramOutput, ProgramError> {
        let mut command = Command::new(self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(ProgramError::Start)?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let leader = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let mut group = ProcessGroup { child, leader };
        let work = async {
            let write = async {
                if let Some(mut pipe) = input {
                    // A program that ends or closes it early needs no more, and its status tells the rest.
                    let _ = pipe.write_all(self.input).await;
                }
            };
            let pipes = async {
                tokio::join!(
                    write,
                    read_up_to(output, self.max_output),
                    read_beginning(errors)
                )
            };
            tokio::pin!(pipes);
            let (ended, printed) = tokio::select! {
                printed = &mut pipes => (None, Some(printed)),
                status = group.child.wait() => (Some(status?), None),
            };
            let printed = match printed {
                Some(printed) => Some(printed),
                // A process that the program leaves behind may keep its pipes open (sendmail(8)).
                None => tokio::time::timeout(AFTER_EXIT, pipes).await.ok(),
            };
            let (output, errors) = match printed {
                Some(((), output, errors)) => (output?, errors),
                None => (Vec::new(), Vec::new()),
            };
            if output.len() > self.max_output {
                return Ok(None);
            }
            let status = match ended {
                Some(status) => status,
                None => group.child.wait().await?,
            };
            Ok(Some((status, output, errors)))
        };
        match tokio::time::timeout(self.time_limit, work).await {
            Ok(Ok(Some((status, output, errors)))) => Ok(ProgramOutput {
                status,
                output,
                errors: String::from_utf8_lossy(&errors).trim().to_owned(),
            }),
            Ok(Ok(None)) => Err(ProgramError::TooMuchOutput(self.max_output)),
            Ok(Err(source)) => Err(ProgramError::Output(source)),
            Err(_) => Err(ProgramError::TimeLimit(self.time_limit)),
        }
    }
}

/// Reads to the end, or one byte more than `most`.
async fn read_up_to(pipe: Option<impl AsyncRead + Unpin>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let mut pipe = pipe.take(most.saturating_add(1));
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Reads to the end and keeps the beginning, so that a program that complains much is not blocked.
async fn read_beginning(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else {
        return kept;
    };
    let mut part = [0; 1024];
    while let Ok(length @ 1..) = pipe.read(&mut part).await {
        let room = MAX_ERRORS.saturating_sub(kept.len());
        kept.extend(part.iter().take(length.min(room)));
    }
    kept
}

/// The file of a program in the directories of `PATH`, and of `/usr/sbin`; an absolute path is itself.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // A relative one would be of whatever directory this process is in.
        .filter(|directory| directory.is_absolute())
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
            program: Path::new("/bin/sh"),
            arguments: vec!["-c".into(), script.into()],
            input: b"",
            time_limit,
            max_output: 1000,
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
    async fn a_program_that_leaves_its_input_unread_is_not_waited_for() {
        let input = vec![b'x'; 1 << 20];
        let mut call = shell("head -c 3", LONG);
        call.input = &input;
        assert_eq!(call.run().await.unwrap().output, b"xxx");
    }

    #[tokio::test]
    async fn a_process_that_a_program_leaves_behind_is_not_waited_for() {
        let ran = shell("sleep 100 & exit 0", LONG).run().await.unwrap();
        assert!(ran.status.success());
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
