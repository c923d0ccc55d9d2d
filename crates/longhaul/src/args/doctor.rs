//! `longhaul doctor`: its flags.

use std::time::Duration;

use clap::Args;
use units::Rate;

use super::values;

/// Say what this machine's network settings allow, and which of them to change for what gain
///
/// Without --rate and --rtt it tells what one stream reaches over a range of paths of 1 Gbit/s. Nothing
/// is sent anywhere and nothing is changed.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Rate of the path that matters
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = values::positive_rate)]
    pub(crate) rate: Rate,
    /// Its round trip, as ping shows it
    #[arg(long, value_name = "TIME", value_parser = values::round_trip)]
    pub(crate) rtt: Option<Duration>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
