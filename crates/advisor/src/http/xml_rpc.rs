//! XML-RPC: the methods of [`enable::method`].

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use enable::advice::Question;
use enable::method::{self, Method};
use enable::xmlrpc::{self, Call};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answers::QosParameters;
use super::connections::read_body;
use super::operations::CallRefused;
use super::shared::{Caller, Shared};

/// Most clients in an answer. Clients of XML-RPC bound its size; the JSON interface lists all, in parts.
const MOST_HOSTS: usize = 500;

/// A call of XML-RPC. The content type is not looked at, as other servers do not.
#[utoipa::path(
    post, path = "/RPC2", tag = "XML-RPC",
    request_body(content = String, content_type = "text/xml", description = "A methodCall; see system.listMethods."),
    responses(
        (status = 200, content_type = "text/xml", body = String, description = "A methodResponse: a value or a fault."),
        (status = 408, description = "The body did not arrive in time."),
        (status = 413, description = "The body is too long."),
    ),
)]
pub(super) async fn rpc2(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    answer(&shared, caller, request).await
}

/// As /RPC2, for clients that are given no path.
#[utoipa::path(
    post, path = "/", tag = "XML-RPC",
    request_body(content = String, content_type = "text/xml", description = "A methodCall; see system.listMethods."),
    responses((status = 200, content_type = "text/xml", body = String, description = "As POST /RPC2.")),
)]
pub(super) async fn root(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    answer(&shared, caller, request).await
}

async fn answer(shared: &Shared, caller: Caller, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let result = match read_call(shared, body).await {
        Ok(call) => execute(shared, caller, &head.headers, &call).await,
        Err(refused) => Err(refused),
    };
    let status = match &result {
        Err(refused @ (CallRefused::TooLong(_) | CallRefused::TooSlow)) => refused.status(),
        _ => StatusCode::OK,
    };
    let text = match &result {
        Ok(value) => xmlrpc::write_answer(value),
        Err(refused) => xmlrpc::write_fault(refused.fault(), &refused.to_string()),
    };
    match text {
        Ok(text) => (status, [(CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn read_call(shared: &Shared, body: Body) -> Result<Call, CallRefused> {
    let body = read_body(body, shared.limits.body_time).await?;
    xmlrpc::read_call(&body).map_err(|error| CallRefused::Malformed(error.to_string()))
}

async fn execute(
    shared: &Shared,
    caller: Caller,
    headers: &HeaderMap,
    call: &Call,
) -> Result<Value, CallRefused> {
    let found = method::ALL.iter().find(|known| known.name == call.method);
    let Some(method) = found else {
        shared.requests.call("unknown");
        return Err(CallRefused::NoMethod(
            call.method.chars().take(64).collect(),
        ));
    };
    shared.requests.call(method.name);
    if method.writes {
        shared.may_write(headers)?;
    }
    check_arguments(method, &call.arguments)?;
    let arguments = CheckedArguments(&call.arguments);
    if method.writes {
        write(shared, caller, method, &arguments).await
    } else {
        read(shared, caller, method, &arguments).await
    }
}

async fn read(
    shared: &Shared,
    caller: Caller,
    method: &Method,
    arguments: &CheckedArguments<'_>,
) -> Result<Value, CallRefused> {
    let client = async || shared.client(arguments.text(1), caller).await;
    match *method {
        method::GET_BUFFER_SIZE => Ok(shared.buffer_size(client().await?)?.into()),
        method::GET_STREAMS => Ok(shared.streams(client().await?)?.into()),
        method::GET_NET_INFO => Ok(shared.net_info(client().await?).await),
        method::GET_QOS => {
            let asked = match arguments.text(1) {
                Some(_) => QosParameters::default(),
                None => arguments.typed(1)?.unwrap_or_default(),
            };
            let client = arguments.text(1).or(asked.client.as_deref());
            let client = shared.client(client, caller).await?;
            Ok(json!(shared.qos(client, &asked.need()?)))
        }
        method::GET_ADVICE => {
            let question: Question = arguments.typed(1)?.unwrap_or_default();
            Ok(json!(shared.advice(&question, caller).await?))
        }
        method::LIST_HOSTS => Ok(hosts(shared)),
        method::LIST_METHODS => Ok(method::ALL.map(|known| known.name).to_vec().into()),
        method::METHOD_HELP => Ok(described(arguments)?.help.into()),
        method::METHOD_SIGNATURE => Ok(json!(described(arguments)?.signatures)),
        _ => Err(CallRefused::NoMethod(method.name.to_owned())),
    }
}

async fn write(
    shared: &Shared,
    caller: Caller,
    method: &Method,
    arguments: &CheckedArguments<'_>,
) -> Result<Value, CallRefused> {
    let first = arguments.text(0).unwrap_or_default();
    match *method {
        method::ADD_HOST => Ok(shared.add_host(first).await?.1.into()),
        method::REMOVE_HOST => Ok(shared.remove_host(first).await?.into()),
        method::SET_TESTS => {
            let chosen = arguments.typed(1)?.unwrap_or_default();
            shared.set_tests(first, &chosen).await?;
            Ok(true.into())
        }
        method::RUN_TEST => {
            let test = arguments.text(1).unwrap_or_default();
            shared.run_test(first, test).await?;
            Ok(true.into())
        }
        method::REPORT => {
            let reported = arguments.typed(0)?;
            let reported =
                reported.ok_or_else(|| CallRefused::Arguments("a struct is missing".to_owned()))?;
            shared.report(reported, caller).await?;
            Ok(true.into())
        }
        _ => Err(CallRefused::NoMethod(method.name.to_owned())),
    }
}

fn hosts(shared: &Shared) -> Value {
    let clients = shared.advisor.recently_seen(MOST_HOSTS);
    let shown = clients.into_iter().filter_map(|client| {
        let view = shared.advisor.view(client)?;
        let mut host = json!({
            "client": client.to_string(),
            "source": view.host.source.name(),
            "seen_seconds": view.seen_ago.as_secs_f64(),
        });
        if let Some(tests) = &view.host.tests {
            host["tests"] = tests.to_json().into();
        }
        Some(host)
    });
    shown.collect::<Vec<_>>().into()
}

/// The method that the first argument names.
fn described(arguments: &CheckedArguments<'_>) -> Result<&'static Method, CallRefused> {
    let name = arguments.text(0).unwrap_or_default();
    let found = method::ALL.iter().find(|known| known.name == name);
    found.ok_or_else(|| CallRefused::NoMethod(name.chars().take(64).collect()))
}

/// Arguments of the number and the types that one form of the method has.
struct CheckedArguments<'a>(&'a [Value]);

impl CheckedArguments<'_> {
    fn text(&self, place: usize) -> Option<&str> {
        self.0.get(place)?.as_str()
    }

    fn typed<T: DeserializeOwned>(&self, place: usize) -> Result<Option<T>, CallRefused> {
        let value = self.0.get(place).cloned();
        let typed = value.map(serde_json::from_value).transpose();
        typed.map_err(|error| CallRefused::Arguments(error.to_string()))
    }
}

fn check_arguments(method: &Method, arguments: &[Value]) -> Result<(), CallRefused> {
    let fits = |form: &&[&str]| {
        let expected = form.get(1..).unwrap_or_default();
        expected.len() == arguments.len()
            && expected
                .iter()
                .zip(arguments)
                .all(|(name, value)| match *name {
                    "string" => value.is_string(),
                    "struct" => value.is_object(),
                    _ => true,
                })
    };
    if method.signatures.iter().any(fits) {
        return Ok(());
    }
    let forms = method.signatures.iter().map(|form| {
        let arguments = form.get(1..).unwrap_or_default();
        format!("{}({})", method.name, arguments.join(", "))
    });
    let forms: Vec<_> = forms.collect();
    Err(CallRefused::Arguments(format!(
        "the arguments do not fit {}",
        forms.join(" or ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_a_form_of_the_method() {
        let fits =
            |method: &Method, arguments: &[Value]| check_arguments(method, arguments).is_ok();
        assert!(fits(&method::GET_BUFFER_SIZE, &[json!("data")]));
        assert!(fits(
            &method::GET_BUFFER_SIZE,
            &[json!("data"), json!("client")]
        ));
        assert!(fits(&method::GET_ADVICE, &[json!("data"), json!({})]));
        assert!(fits(&method::GET_QOS, &[json!("data"), json!({})]));
        assert!(fits(&method::LIST_HOSTS, &[]));
        assert!(!fits(&method::GET_BUFFER_SIZE, &[]));
        assert!(!fits(&method::GET_BUFFER_SIZE, &[json!(1)]));
        assert!(!fits(
            &method::GET_ADVICE,
            &[json!("data"), json!("client")]
        ));
        assert!(!fits(&method::LIST_METHODS, &[json!("data")]));
    }
}
