//! Bodies of requests, within bounds of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use enable::xmlrpc::MAX_BODY;

use super::operations::CallRefused;

/// Reads a body, chunked or plain.
pub(super) async fn read(body: Body, time: Duration) -> Result<Bytes, CallRefused> {
    match tokio::time::timeout(time, to_bytes(body, MAX_BODY)).await {
        Err(_) => Err(CallRefused::TooSlow),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_long(&error) => Err(CallRefused::TooLong(MAX_BODY)),
        Ok(Err(error)) => Err(CallRefused::Malformed(error.to_string())),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        // The type is not reachable by name without a further crate.
        if error.to_string() == "length limit exceeded" {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_beyond_the_bound_is_told_from_others() {
        let time = Duration::from_secs(60);
        let fits = read(Body::from(vec![0; MAX_BODY]), time).await;
        assert_eq!(fits.map(|body| body.len()), Ok(MAX_BODY));
        let long = read(Body::from(vec![0; MAX_BODY + 1]), time).await;
        assert_eq!(long, Err(CallRefused::TooLong(MAX_BODY)));
    }
}
