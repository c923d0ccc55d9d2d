//! JSON: how the interface under /api/v1 reads requests and writes answers.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::HeaderValue;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::answers::ErrorAnswer;
use super::operations::CallRefused;
use super::token::TokenRefused;

/// Answer of a request: JSON either way.
pub(super) type Answer<T> = Result<Json<T>, CallRefused>;

impl IntoResponse for CallRefused {
    fn into_response(self) -> Response {
        let body = Json(ErrorAnswer {
            error: self.to_string(),
        });
        let mut response = (self.status(), body).into_response();
        match self {
            // `Basic` would make browsers keep the token and send it along later.
            Self::Forbidden(TokenRefused::Missing | TokenRefused::Wrong) => {
                let bearer = HeaderValue::from_static("Bearer realm=\"longhaul advisor\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
            }
            Self::Busy(_) | Self::History => {
                let seconds = HeaderValue::from_static("5");
                response.headers_mut().insert(RETRY_AFTER, seconds);
            }
            _ => {}
        }
        response
    }
}

/// The parameters of a query.
pub(super) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, CallRefused> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(rejection) => Err(CallRefused::Arguments(rejection.body_text())),
    }
}

/// The object in a body.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallRefused> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            CallRefused::Arguments(error.to_string())
        } else {
            CallRefused::Malformed(error.to_string())
        }
    })
}
