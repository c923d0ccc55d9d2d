//! Fields of JSON documents that others wrote.

use serde_json::Value;

/// The number at this pointer (RFC 6901), if it is finite and not negative.
pub(super) fn number(value: &Value, pointer: &str) -> Option<f64> {
    let number = value.pointer(pointer)?.as_f64()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// The count at this pointer; some programs write counts as floating-point numbers.
pub(super) fn count(value: &Value, pointer: &str) -> Option<u64> {
    let field = value.pointer(pointer)?;
    field.as_u64().or_else(|| number(value, pointer).map(whole))
}

/// The text at this pointer.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

/// The items of the list at this pointer; none if there is no list.
pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// The seconds of an ISO 8601 duration (`PT0.0012S`) at this pointer.
pub(super) fn duration(value: &Value, pointer: &str) -> Option<f64> {
    let duration: jiff::SignedDuration = text(value, pointer)?.parse().ok()?;
    let seconds = duration.as_secs_f64();
    (seconds > 0.0).then_some(seconds)
}

/// The nearest count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and the number is not negative"
)]
pub(super) fn whole(number: f64) -> u64 {
    number.round() as u64
}
