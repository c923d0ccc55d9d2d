//! Work and time of a copy that has not begun, for people.

use copy::{CopyForecast, ForecastSource, PathForecast};
use units::show;

use super::progress_text::time_range;

/// A line with the time, and one for each path.
pub(super) fn forecast_text(forecast: &CopyForecast) -> String {
    let time = forecast.time.and_then(time_range);
    let first = match time {
        _ if forecast.files == 0 => return "there is nothing to copy".to_owned(),
        Some(range) => format!("would take {range} (in 8 of 10 cases)"),
        None => "the time is unknown".to_owned(),
    };
    let is_one = forecast.paths.len() == 1;
    let paths = forecast.paths.iter().map(|path| path_line(path, is_one));
    [first]
        .into_iter()
        .chain(paths)
        .collect::<Vec<_>>()
        .join("; ")
}

/// `ftp://h to this machine: 94.2 Mbit/s ± 30 %: ...; begins with 4 streams, at most 64`
fn path_line(path: &PathForecast, is_one: bool) -> String {
    let (source, destination) = (&path.source, &path.destination);
    let mut text = format!("{source} to {destination}: ");
    if !is_one {
        let (files, bytes) = (show::count(path.files, "file"), show::bytes(path.bytes));
        text.push_str(&format!("{files}, {bytes}; "));
        if let Some(range) = path.time.and_then(time_range) {
            text.push_str(&format!("{range}; "));
        }
    }
    if let Some(rate) = path.rate {
        let shown = show::bits(rate.bytes_per_second.saturating_mul(8));
        text.push_str(&format!("{shown} \u{b1} {} %, ", rate.spread_percent));
    }
    text.push_str(&known_by(path));
    if path.unsized_files > 0 {
        let files = show::count(path.unsized_files, "file");
        text.push_str(&format!("; the size of {files} is unknown"));
    }
    if let Some(settings) = &path.settings {
        text.push_str(&format!("; {settings}"));
    }
    text
}

/// By what the rate is known; otherwise how it would become known.
pub(super) fn known_by(path: &PathForecast) -> String {
    match &path.known_by {
        ForecastSource::History => "as earlier transfers over this path went".to_owned(),
        ForecastSource::Advice(text) => text.clone(),
        ForecastSource::Nothing => {
            "nothing is known of this path: the first transfer over it of 4 MiB and 2 s will tell, or an advice server \
             (--advisor)"
                .to_owned()
        }
        ForecastSource::ThisMachine => {
            "nothing is kept of copies within this machine: the rate is known when the copy runs"
                .to_owned()
        }
        ForecastSource::BetweenServers => {
            "only the two servers know the path between them: the rate is known when the copy runs"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tune::forecast::{ExpectedRate, Forecast};

    use super::*;

    fn known() -> PathForecast {
        PathForecast {
            source: "ftp://h".to_owned(),
            destination: "this machine".to_owned(),
            files: 1,
            bytes: 5_000_000_000,
            unsized_files: 0,
            settings: Some("begins with 4 streams".to_owned()),
            rate: Some(ExpectedRate {
                bytes_per_second: 12_500_000,
                spread_percent: 30,
            }),
            known_by: ForecastSource::History,
            time: Some(Forecast {
                earliest: Duration::from_secs(300),
                expected: Duration::from_secs(400),
                latest: Duration::from_secs(598),
            }),
        }
    }

    fn of(paths: Vec<PathForecast>) -> String {
        forecast_text(&CopyForecast {
            files: paths.iter().map(|path| path.files).sum(),
            bytes: paths.iter().map(|path| path.bytes).sum(),
            time: paths[0].time,
            paths,
        })
    }

    #[test]
    fn a_known_path_has_a_time_its_reason_and_settings() {
        assert_eq!(
            of(vec![known()]),
            "would take 5:00-10:00 (in 8 of 10 cases); ftp://h to this machine: 100 Mbit/s \u{b1} 30 %, as earlier \
             transfers over this path went; begins with 4 streams"
        );
        assert!(
            of(vec![known(), known()])
                .contains("ftp://h to this machine: 1 file, 5.00 GB; 5:00-10:00; ")
        );
    }

    #[test]
    fn an_unknown_path_says_how_it_becomes_known() {
        let text = of(vec![PathForecast {
            rate: None,
            time: None,
            settings: None,
            known_by: ForecastSource::Nothing,
            ..known()
        }]);
        assert!(
            text.starts_with("the time is unknown; ftp://h to this machine: nothing is known"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
    }
}
