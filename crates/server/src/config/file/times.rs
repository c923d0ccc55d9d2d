//! Times in the settings file: a number of seconds, or a text with a unit.

use std::time::Duration;

use serde::Deserialize;
use smallfile::settings::SettingText;

/// The bound keeps deadlines computed as now + timeout within the range of `Instant`.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A time of at most a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SettingText")]
pub struct SettingTime(pub(super) Duration);

impl TryFrom<SettingText> for SettingTime {
    type Error = String;

    fn try_from(written: SettingText) -> Result<Self, String> {
        let time = units::seconds(&written.0).map_err(|error| error.to_string())?;
        if time > LONGEST {
            return Err(format!("'{}' is more than a year", written.0));
        }
        Ok(Self(time))
    }
}

/// A time of whole seconds, at most a year: the unit of the intervals in replies (GFD.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SettingText")]
pub struct WholeSeconds(pub(super) u32);

impl TryFrom<SettingText> for WholeSeconds {
    type Error = String;

    fn try_from(written: SettingText) -> Result<Self, String> {
        let text = written.0.clone();
        let SettingTime(time) = SettingTime::try_from(written)?;
        let whole = u32::try_from(time.as_secs()).ok();
        let whole = whole.filter(|_| time.subsec_nanos() == 0);
        whole
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not a number of whole seconds"))
    }
}
