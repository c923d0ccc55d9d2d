//! XML-RPC bodies, for both ends. The crate `dxr` knows the types; the bounds are here.
//!
//! Rates exceed 32 bits, and the original specification has no larger integer: a number that does not
//! fit `int` goes as `double`, which every client reads.

use std::collections::BTreeMap;

use dxr::{Fault, FaultResponse, MethodCall, MethodResponse, Value};
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Map, Number};

/// Longest body that is read, bytes.
pub const MAX_BODY: usize = 256 * 1024;
/// Deepest nesting of elements. A struct in an array in a struct takes 14.
pub const MAX_DEPTH: usize = 32;
/// Most elements in a body.
pub const MAX_ELEMENTS: usize = 16_384;

/// A body that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum XmlRpcError {
    /// Longer than [`MAX_BODY`].
    #[error("the XML-RPC body is longer than {MAX_BODY} bytes")]
    TooLong,
    /// More than [`MAX_ELEMENTS`] elements, or nested deeper than [`MAX_DEPTH`].
    #[error("the XML-RPC body has too many or too deeply nested elements")]
    TooComplex,
    /// It has a document type, which could define entities.
    #[error("the XML-RPC body has a document type declaration, which is not allowed")]
    DocumentType,
    /// It is not UTF-8.
    #[error("the XML-RPC body is not UTF-8")]
    Encoding,
    /// It is not an XML-RPC body.
    #[error("not an XML-RPC body: {0}")]
    Malformed(String),
}

/// An answer of a server that is no value.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The server refused the call.
    #[error("{message} (fault {code})")]
    Fault {
        /// Its code ([`crate::method::fault`]).
        code: i32,
        /// Its explanation.
        message: String,
    },
    /// The answer cannot be read.
    #[error(transparent)]
    Body(#[from] XmlRpcError),
}

/// A call: the method's name and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Name of the method.
    pub method: String,
    /// Arguments.
    pub arguments: Vec<serde_json::Value>,
}

/// Reads the body of a request.
///
/// # Errors
/// The mistake in the body.
pub fn read_call(body: &[u8]) -> Result<Call, XmlRpcError> {
    let text = bounded(body)?;
    let call = MethodCall::from_xml(text).map_err(|error| malformed(text, &error))?;
    Ok(Call {
        arguments: call.params.iter().map(to_json).collect(),
        method: call.name.into_owned(),
    })
}

/// Writes the body of a request.
///
/// # Errors
/// [`XmlRpcError::Malformed`] if the arguments cannot be written as XML.
pub fn write_call(call: &Call) -> Result<String, XmlRpcError> {
    let call = MethodCall {
        name: call.method.as_str().into(),
        params: call.arguments.iter().map(from_json).collect(),
    };
    call.to_xml()
        .map(|xml| with_declaration(&xml))
        .map_err(|error| XmlRpcError::Malformed(error.to_string()))
}

/// Reads the body of a response.
///
/// # Errors
/// The server's fault, or what is wrong with the body.
pub fn read_answer(body: &[u8]) -> Result<serde_json::Value, AnswerError> {
    let text = bounded(body)?;
    if text.contains("<fault>") {
        let refusal = FaultResponse::from_xml(text).map_err(|error| malformed(text, &error))?;
        return Err(AnswerError::Fault {
            code: refusal.fault.code(),
            message: refusal.fault.string().to_owned(),
        });
    }
    let answer = MethodResponse::from_xml(text).map_err(|error| malformed(text, &error))?;
    Ok(to_json(&answer.value))
}

/// Writes the body of a response.
///
/// # Errors
/// [`XmlRpcError::Malformed`] if the value cannot be written as XML.
pub fn write_answer(value: &serde_json::Value) -> Result<String, XmlRpcError> {
    let answer = MethodResponse {
        value: from_json(value),
    };
    answer
        .to_xml()
        .map(|xml| with_declaration(&xml))
        .map_err(|error| XmlRpcError::Malformed(error.to_string()))
}

/// Writes the body of a response that refuses a call.
///
/// # Errors
/// [`XmlRpcError::Malformed`] if the message cannot be written as XML.
pub fn write_fault(code: i32, message: &str) -> Result<String, XmlRpcError> {
    let refusal = FaultResponse {
        fault: Fault::new(code, printable(message)),
    };
    refusal
        .to_xml()
        .map(|xml| with_declaration(&xml))
        .map_err(|error| XmlRpcError::Malformed(error.to_string()))
}

fn with_declaration(xml: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{xml}\n")
}

/// The parser behind `dxr` recurses with each element, and its error holds the whole body.
fn malformed(text: &str, error: &dxr::Error) -> XmlRpcError {
    let reason = match error {
        dxr::Error::InvalidData { error } if error == text => {
            "a required element is missing or of another type".to_owned()
        }
        other => other.to_string(),
    };
    XmlRpcError::Malformed(reason)
}

/// The text of a body within the bounds, which are checked before anything is built from it.
fn bounded(body: &[u8]) -> Result<&str, XmlRpcError> {
    if body.len() > MAX_BODY {
        return Err(XmlRpcError::TooLong);
    }
    let text = std::str::from_utf8(body).map_err(|_| XmlRpcError::Encoding)?;
    let mut reader = Reader::from_str(text);
    let (mut depth, mut elements) = (0_usize, 0_usize);
    loop {
        match reader.read_event() {
            Ok(Event::Start(_)) => {
                depth += 1;
                elements += 1;
            }
            Ok(Event::End(_)) => depth = depth.saturating_sub(1),
            Ok(Event::Empty(_)) => elements += 1,
            Ok(Event::DocType(_)) => return Err(XmlRpcError::DocumentType),
            Ok(Event::Eof) => return Ok(text),
            Ok(_) => {}
            Err(error) => return Err(XmlRpcError::Malformed(error.to_string())),
        }
        if depth > MAX_DEPTH || elements > MAX_ELEMENTS {
            return Err(XmlRpcError::TooComplex);
        }
    }
}

fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Integer(number) => (*number).into(),
        Value::Boolean(flag) => (*flag).into(),
        Value::String(text) => text.as_str().into(),
        // Not finite: XML-RPC has no word for it, and neither has JSON.
        Value::Double(number) => double_to_json(*number),
        Value::Struct(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), to_json(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(values) => values.iter().map(to_json).collect::<Vec<_>>().into(),
        // Times and bytes mean nothing to any method of the service.
        _ => serde_json::Value::Null,
    }
}

/// The largest number below which every whole number has a double of its own, 2^53.
const EXACT_DOUBLE: f64 = 9_007_199_254_740_992.0;

/// A whole double becomes an integer, as [`from_json`] made it.
fn double_to_json(number: f64) -> serde_json::Value {
    if number.fract() == 0.0 && (0.0..EXACT_DOUBLE).contains(&number) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, not negative, and below 2^53"
        )]
        let whole = number as u64;
        return whole.into();
    }
    Number::from_f64(number).map_or(serde_json::Value::Null, serde_json::Value::Number)
}

fn from_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::String(String::new()),
        serde_json::Value::Bool(flag) => Value::Boolean(*flag),
        serde_json::Value::Number(number) => number_value(number),
        serde_json::Value::String(text) => Value::String(printable(text)),
        serde_json::Value::Array(values) => Value::Array(values.iter().map(from_json).collect()),
        serde_json::Value::Object(members) => {
            let known = members.iter().filter(|(_, value)| !value.is_null());
            let members: BTreeMap<_, _> = known
                .map(|(name, value)| (printable(name), from_json(value)))
                .collect();
            Value::Struct(members)
        }
    }
}

fn number_value(number: &Number) -> Value {
    // A float stays a float, so that a member's type does not change with its value.
    match number.as_i64().map(i32::try_from) {
        Some(Ok(small)) => Value::Integer(small),
        _ => Value::Double(number.as_f64().unwrap_or(0.0)),
    }
}

/// XML 1.0 cannot hold most control characters, not even escaped.
fn printable(text: &str) -> String {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    text.chars()
        .map(|c| if allowed(c) { c } else { '\u{fffd}' })
        .collect()
}

#[cfg(test)]
mod tests;
