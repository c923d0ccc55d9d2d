//! One attempt: a guard as a child, which runs the program; its lines come here, and orders go there.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;

use crate::decisions::lease::LeaseDeadlines;

use super::credentials::{self, Credentials};
use super::events::ChildReport;

/// Longest line of the program that is read, bytes.
const LONGEST_LINE: usize = 64 * 1024;
/// Bytes of its messages that are kept: the last ones.
const LAST_MESSAGES: usize = 2000;
/// Longest wait for lines after the guard has ended.
const LAST_LINES: Duration = Duration::from_secs(2);

/// All that starts an attempt.
#[derive(Debug, Clone)]
pub(super) struct AttemptOrder {
    /// The job.
    pub(super) id: i64,
    /// `longhaul`.
    pub(super) program: PathBuf,
    /// The words behind it.
    pub(super) words: Vec<String>,
    /// Name of the credential.
    pub(super) credential: Option<String>,
    /// The file that is locked while a process of the attempt lives.
    pub(super) lock: PathBuf,
    /// Deadlines of the lease that it begins with.
    pub(super) deadlines: LeaseDeadlines,
}

/// An attempt that runs. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct RunningAttempt {
    orders: mpsc::UnboundedSender<String>,
    report: Arc<Mutex<ChildReport>>,
}

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct EndedAttempt {
    /// The job.
    pub(super) id: i64,
    /// How the guard ended; the error: it was not started.
    pub(super) status: Result<ExitStatus, String>,
    /// The lines of the program and of the guard.
    pub(super) report: ChildReport,
    /// The last messages.
    pub(super) messages: String,
}

impl RunningAttempt {
    /// Starts an attempt; its end is sent to `ended`.
    pub(super) fn start(
        order: AttemptOrder,
        credentials: Arc<Credentials>,
        ended: mpsc::UnboundedSender<EndedAttempt>,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let report = Arc::<Mutex<ChildReport>>::default();
        let shared = Arc::clone(&report);
        tokio::spawn(async move {
            let mut messages = String::new();
            let run = run(&order, &credentials, received, &shared, &mut messages);
            let status = run.await;
            let report = locked(&shared).clone();
            // Nobody receives it when the worker has ended.
            let _ = ended.send(EndedAttempt {
                id: order.id,
                status,
                report,
                messages,
            });
        });
        Self { orders, report }
    }

    /// Sends an order to the guard.
    pub(super) fn order(&self, order: String) {
        // A guard that has ended needs none.
        let _ = self.orders.send(order);
    }

    /// The lines so far.
    pub(super) fn report(&self) -> ChildReport {
        locked(&self.report).clone()
    }
}

fn locked(report: &Mutex<ChildReport>) -> std::sync::MutexGuard<'_, ChildReport> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(
    order: &AttemptOrder,
    credentials: &Credentials,
    orders: mpsc::UnboundedReceiver<String>,
    report: &Mutex<ChildReport>,
    messages: &mut String,
) -> Result<ExitStatus, String> {
    let environment = match &order.credential {
        Some(name) => credentials::environment(credentials, name)
            .await
            .map_err(|error| error.to_string())?,
        None => Vec::new(),
    };
    let deadlines = order.deadlines;
    let mut child = Command::new("/proc/self/exe")
        .args(["guard", "--lock"])
        .arg(&order.lock)
        .arg("--stop-at")
        .arg(deadlines.stop.as_millis().to_string())
        .arg("--kill-at")
        .arg(deadlines.kill.as_millis().to_string())
        .arg("--")
        .arg(&order.program)
        .args(&order.words)
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the guard: {error}"))?;
    if let Some(input) = child.stdin.take() {
        // It ends when there are no more orders: then the guard ends the program, as when this process dies.
        tokio::spawn(write_orders(input, orders));
    }
    let output = child.stdout.take();
    let errors = child.stderr.take();
    let lines = async {
        if let Some(output) = output {
            read_lines(output, |line| locked(report).read(line)).await;
        }
    };
    let last = async {
        if let Some(errors) = errors {
            last_bytes(errors, messages).await;
        }
    };
    let reading = async { tokio::join!(lines, last) };
    let mut reading = std::pin::pin!(reading);
    let mut is_read = false;
    let status = tokio::select! {
        _ = reading.as_mut() => {
            is_read = true;
            child.wait().await
        }
        status = child.wait() => status,
    };
    if !is_read {
        // A process that the program started may hold the pipe open.
        let _ = tokio::time::timeout(LAST_LINES, reading).await;
    }
    status.map_err(|error| format!("cannot wait for the guard: {error}"))
}

async fn write_orders(mut input: ChildStdin, mut orders: mpsc::UnboundedReceiver<String>) {
    while let Some(order) = orders.recv().await {
        if input.write_all(order.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Calls `take` with each line, without those that are too long.
async fn read_lines(output: impl AsyncRead + Unpin, mut take: impl FnMut(&[u8])) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        let Ok(found) = output.fill_buf().await else {
            return;
        };
        if found.is_empty() {
            return;
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let part = &found[..end.unwrap_or(found.len())];
        if line.len() + part.len() <= LONGEST_LINE {
            line.extend_from_slice(part);
        } else {
            // Not JSON any more, so that its rest is not taken for a line.
            line.clear();
            line.push(b'x');
        }
        let used = part.len() + usize::from(end.is_some());
        output.consume(used);
        if end.is_some() {
            take(&line);
            line.clear();
        }
    }
}

async fn last_bytes(mut errors: impl AsyncRead + Unpin, messages: &mut String) {
    let mut kept: Vec<u8> = Vec::new();
    let mut part = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut part).await {
        kept.extend_from_slice(&part[..read]);
        let excess = kept.len().saturating_sub(LAST_MESSAGES);
        kept.drain(..excess);
        messages.clear();
        messages.push_str(&String::from_utf8_lossy(&kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let long = "y".repeat(LONGEST_LINE + 5);
        let text = format!("one\n{long}\nthree\nno end");
        let mut lines = Vec::new();
        read_lines(text.as_bytes(), |line| lines.push(line.len())).await;
        assert_eq!((lines[0], lines[2], lines.len()), (3, 5, 3));
        assert!(lines[1] <= LONGEST_LINE);
    }

    #[tokio::test]
    async fn of_messages_the_last_are_kept() {
        let mut messages = String::new();
        let text = format!("{}the end", "x".repeat(5000));
        last_bytes(text.as_bytes(), &mut messages).await;
        assert_eq!(messages.len(), LAST_MESSAGES);
        assert!(messages.ends_with("the end"));
    }
}
