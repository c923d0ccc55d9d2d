//! The keys that a settings type has.

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The keys of a struct that is read from a settings file; empty for other types.
pub fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // It fails in any case: there is nothing to read.
    let _ = T::deserialize(KeyReader(&mut keys));
    keys
}

/// Notes the fields that a type asks for.
struct KeyReader<'k>(&'k mut &'static [&'static str]);

impl<'de> Deserializer<'de> for KeyReader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("not a table"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct SampleSettings {
        _first_key: Option<u16>,
        _second: Option<String>,
    }

    #[test]
    fn the_keys_are_those_of_the_file() {
        assert_eq!(keys_of::<SampleSettings>(), ["-first-key", "-second"]);
        assert_eq!(keys_of::<u16>(), [""; 0]);
    }
}
