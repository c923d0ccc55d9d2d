//! The congestion controls that this server sends with: the configured one and those that clients may
//! ask for.

use std::sync::Arc;

use data::options::CongestionChoice;

use crate::config::ServerConfig;

/// The system does not permit this process the configured congestion control.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot send with the congestion control {name}: this system permits {}; load its module, add \
     it to net.ipv4.tcp_allowed_congestion_control, or choose another (--cc, or congestion in the settings)", .permitted.join(", ")
)]
pub struct CongestionError {
    /// The configured congestion control.
    pub name: String,
    /// The congestion controls that the system permits.
    pub permitted: Vec<String>,
}

/// The congestion controls that OPTS TUNE offers, out of those that the system permits.
///
/// # Errors
/// The system does not permit the configured congestion control.
pub(crate) fn offered_controls(
    config: &ServerConfig,
    permitted: Vec<String>,
) -> Result<Arc<[String]>, CongestionError> {
    if let CongestionChoice::Named(name) = &config.transfer.congestion
        && !permitted.contains(name)
    {
        return Err(CongestionError {
            name: name.clone(),
            permitted,
        });
    }
    if !config.client_congestion {
        return Ok(Arc::default());
    }
    let always = [CongestionChoice::Auto, CongestionChoice::System];
    let always = always.iter().map(|c| c.name().to_owned());
    Ok(always.chain(permitted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(congestion: CongestionChoice, client_congestion: bool) -> Result<Vec<String>, String> {
        let mut config = ServerConfig {
            client_congestion,
            ..ServerConfig::default()
        };
        config.transfer.congestion = congestion;
        let permitted = vec!["cubic".to_owned(), "bbr".to_owned()];
        offered_controls(&config, permitted)
            .map(|names| names.to_vec())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn opts_tune_offers_what_the_system_permits_unless_it_is_switched_off() {
        let all = ["auto", "system", "cubic", "bbr"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(of(CongestionChoice::Auto, true), Ok(all.clone()));
        let named = CongestionChoice::Named("bbr".to_owned());
        assert_eq!(of(named.clone(), true), Ok(all));
        assert_eq!(of(named, false), Ok(Vec::new()));
    }

    #[test]
    fn an_unavailable_congestion_control_is_an_error_that_lists_the_available_ones() {
        let error = of(CongestionChoice::Named("warp".to_owned()), true).unwrap_err();
        assert!(
            error.contains("warp: this system permits cubic, bbr;"),
            "{error}"
        );
    }
}
