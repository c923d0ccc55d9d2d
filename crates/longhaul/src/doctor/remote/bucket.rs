//! A bucket as `doctor` finds it: whether it answers, and its unfinished uploads.

use std::ops::ControlFlow;
use std::time::Duration;

use copy::{Failure, RemoteOptions, UnfinishedUpload};
use ftp::location::{Location, Server};

use crate::doctor::report::Finding;

const UPLOADS: &str = "unfinished uploads";
/// Most uploads that are examined.
const MAX_UPLOADS: usize = 1000;
/// Most uploads that are named.
const MAX_NAMED: usize = 10;

/// Examines the bucket, and the uploads at and below a path of it.
///
/// # Errors
/// The bucket cannot be read.
pub(super) async fn examine(
    server: &Server,
    path: &[u8],
    timeout: Duration,
) -> Result<Vec<Finding>, Failure> {
    let at = |path: &[u8]| Location::Remote {
        server: server.clone(),
        path: path.to_vec(),
    };
    let options = RemoteOptions {
        timeout,
        security: std::sync::Arc::clone(&server.security),
    };
    let root = at(b"/").display();
    copy::stat(&root, &options).await?;
    let mut findings = vec![Finding::good("bucket", format!("answers at {root}"))];
    let mut uploads = Vec::new();
    let mut visit = |upload: UnfinishedUpload| {
        uploads.push(upload);
        match uploads.len() < MAX_UPLOADS {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    match copy::visit_unfinished(server, path, timeout, &mut visit).await {
        Ok(()) => findings.extend(findings_of(&uploads, &at(path).display(), |path| {
            at(path).display()
        })),
        Err(failure) => findings.push(Finding::hint(
            UPLOADS,
            failure.to_string(),
            "whether parts of uploads cost storage is unknown",
        )),
    }
    Ok(findings)
}

/// The findings about uploads below a URL: their sum, and some of them by name.
fn findings_of(
    uploads: &[UnfinishedUpload],
    url: &str,
    name: impl Fn(&[u8]) -> String,
) -> Vec<Finding> {
    if uploads.is_empty() {
        return vec![Finding::good(UPLOADS, "none")];
    }
    let bytes = uploads.iter().map(|upload| upload.bytes).sum();
    let least = if uploads.len() < MAX_UPLOADS {
        ""
    } else {
        "at least "
    };
    let value = format!(
        "{least}{}, with {} in parts, which cost storage",
        uploads.len(),
        units::show::bytes(bytes)
    );
    let advice = format!(
        "`longhaul rm --unfinished {url}` deletes those to which nothing was added for a day (-n shows them all)"
    );
    let mut findings = vec![Finding::warning(UPLOADS, value, advice)];
    for upload in uploads.iter().take(MAX_NAMED) {
        let idle = copy::idle_time(upload);
        let idle = idle.map_or("an unknown time".to_owned(), units::show::time);
        let bytes = units::show::bytes(upload.bytes);
        let value = format!("{}: {bytes}, idle for {idle}", name(&upload.path));
        findings.push(Finding::note("unfinished upload", value));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::FindingLevel;

    fn upload(bytes: u64) -> UnfinishedUpload {
        UnfinishedUpload {
            path: b"/a".to_vec(),
            id: "u".to_owned(),
            bytes,
            last_change: None,
        }
    }

    #[test]
    fn uploads_are_told_with_their_bytes_and_the_command_that_deletes_them() {
        let name = |path: &[u8]| format!("s3://b{}", String::from_utf8_lossy(path));
        let findings = findings_of(&[upload(5_000_000), upload(1_000_000)], "s3://b/", name);
        assert_eq!(findings.len(), 3);
        let line = findings[0].line();
        assert!(
            line.contains("2, with 6 MB") || line.contains("2, with 6.00 MB"),
            "{line}"
        );
        assert!(
            line.contains("`longhaul rm --unfinished s3://b/`"),
            "{line}"
        );
        assert!(findings[1].line().contains("s3://b/a: 5"), "{findings:?}");
        let none = findings_of(&[], "s3://b/", name);
        assert_eq!(none[0].level, FindingLevel::Good);
    }
}
