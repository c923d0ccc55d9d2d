//! `longhaul doctor`: its flags.

use std::time::Duration;

use clap::Args;
use sim::rate::Rate;

/// Say what this machine's network settings allow, and which of them to change for what gain
///
/// Without --rate and --rtt it tells what one stream reaches over a range of paths of 1 Gbit/s. Nothing
/// is sent anywhere and nothing is changed.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Rate of the path that matters
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = rate)]
    pub(crate) rate: Rate,
    /// Its round trip, as ping shows it
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) rtt: Option<Duration>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

fn rate(text: &str) -> Result<Rate, String> {
    match sim::units::rate(text) {
        Ok(rate) if rate.as_bits_per_second() > 0 => Ok(rate),
        Ok(_) => Err("must be more than 0".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match sim::units::time(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("must be more than 0".into()),
        Err(error) => Err(error.to_string()),
    }
}
