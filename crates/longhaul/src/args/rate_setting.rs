//! `--limit-rate`: a rate, a timetable of the day, or a file that holds one of them and may change while files are copied.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use copy::Failure;
use data::rate::RateLimit;
use ftp::protection::WarningSink;
use jiff::Zoned;
use smallfile::regular_file;

use super::values::parse_bytes_per_second;

/// How often the clock and the file are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest text of a file, bytes.
const MAX_TEXT: u64 = 4096;
/// Stands for no limit.
const OFF: &str = "off";

/// The value of `--limit-rate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RateSetting {
    Day(DayRates),
    /// A file with the text of the other kind.
    File(PathBuf),
}

/// Rates by the time of the day, in local time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DayRates {
    /// Minutes since midnight, ascending, and the rate from then on, bytes per second; `None`: no limit. Never empty.
    from: Vec<(u16, Option<u64>)>,
}

/// Parses the value of `--limit-rate`.
pub(crate) fn parse(text: &str) -> Result<RateSetting, String> {
    match text.strip_prefix('@') {
        Some("") => Err("@ needs the name of a file".to_owned()),
        Some(file) => Ok(RateSetting::File(PathBuf::from(file))),
        None => DayRates::parse(text).map(RateSetting::Day),
    }
}

impl DayRates {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !text.contains(',') {
            let from = vec![(0, parse_rate(text)?)];
            return Ok(Self { from });
        }
        let mut from = Vec::new();
        for item in text.split_whitespace() {
            let (time, rate) = item
                .split_once(',')
                .ok_or_else(|| format!("'{item}' is not HH:MM,RATE"))?;
            from.push((parse_time_of_day(time)?, parse_rate(rate)?));
        }
        from.sort_by_key(|(minute, _)| *minute);
        match from.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            true => Err("two rates begin at the same time".to_owned()),
            false => Ok(Self { from }),
        }
    }

    /// The rate at a minute of the day, bytes per second. Before the first time of a day, the last one counts.
    fn at(&self, minute: u16) -> Option<u64> {
        let begun = self.from.iter().rev().find(|(from, _)| *from <= minute);
        begun.or(self.from.last()).and_then(|(_, rate)| *rate)
    }

    /// The rates of each of some processes that share these.
    fn shared_by(&self, sharers: usize) -> Self {
        let share = |rate: u64| (rate / sharers.max(1) as u64).max(1);
        let from = self.from.iter();
        Self {
            from: from
                .map(|(minute, rate)| (*minute, rate.map(share)))
                .collect(),
        }
    }

    /// Whether the rate is the same all day.
    fn is_constant(&self) -> bool {
        self.from.len() == 1
    }
}

impl RateSetting {
    /// The limit of one of `sharers` processes whose copy begins now, which follows the clock and the file until the program ends. Later faults of the
    /// file are told to `warn`, once each; the last rate stays.
    ///
    /// # Errors
    /// `Usage`: the file cannot be read, or holds something else.
    pub(crate) fn begin(
        &self,
        sharers: usize,
        warn: WarningSink,
    ) -> Result<Option<RateLimit>, Failure> {
        let day = self
            .read(sharers)
            .map_err(|reason| Failure::usage(format!("--limit-rate: {reason}")))?;
        let rate = day.at(minute_of_day());
        if let Self::Day(day) = self
            && day.is_constant()
        {
            return Ok(rate.map(RateLimit::new));
        }
        let limit = RateLimit::new(rate.unwrap_or(u64::MAX));
        let (followed, setting) = (limit.clone(), self.clone());
        let follow = move || setting.follow(sharers, day, &followed, &warn);
        let started = thread::Builder::new().name("rate".to_owned()).spawn(follow);
        match started {
            Ok(_) => Ok(Some(limit)),
            Err(error) => Err(Failure::local(format!(
                "--limit-rate: no thread to follow it: {error}"
            ))),
        }
    }

    /// The share of each process.
    fn read(&self, sharers: usize) -> Result<DayRates, String> {
        let file = match self {
            Self::Day(day) => return Ok(day.shared_by(sharers)),
            Self::File(file) => file,
        };
        let shown = file.display();
        // A pipe would block, and a device may never end.
        let text = regular_file::read_to_string(file, MAX_TEXT)
            .map_err(|error| format!("{shown}: {error}"))?;
        let day = DayRates::parse(&text).map_err(|reason| format!("{shown}: {reason}"))?;
        Ok(day.shared_by(sharers))
    }

    fn follow(&self, sharers: usize, mut day: DayRates, limit: &RateLimit, warn: &WarningSink) {
        let mut fault = None;
        let mut told = None;
        let mut present = day.at(minute_of_day());
        loop {
            thread::sleep(LOOK_EVERY);
            match self.read(sharers) {
                Ok(read) => {
                    day = read;
                    (fault, told) = (None, None);
                }
                // `echo 50M > FILE` leaves FILE empty for a moment: a fault counts when it is seen again.
                Err(reason) if fault.as_ref() == Some(&reason) && told != fault => {
                    warn(&format!("--limit-rate: {reason} (the last rate stays)"));
                    told = fault.clone();
                }
                Err(reason) => fault = Some(reason),
            }
            let rate = day.at(minute_of_day());
            if rate != present {
                limit.set_rate(rate.unwrap_or(u64::MAX));
                present = rate;
            }
        }
    }
}

/// A rate in bytes per second; `None` for `off`.
fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    match text.eq_ignore_ascii_case(OFF) {
        true => Ok(None),
        false => parse_bytes_per_second(text).map(Some),
    }
}

/// Minutes since midnight of `HH:MM`.
fn parse_time_of_day(text: &str) -> Result<u16, String> {
    let number = |digits: &str, below: u16| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number);
        number.filter(|number: &u16| *number < below)
    };
    let parts = text.split_once(':');
    let parts = parts.and_then(|(hour, minute)| Some((number(hour, 24)?, number(minute, 60)?)));
    match parts {
        Some((hour, minute)) => Ok(hour * 60 + minute),
        None => Err(format!("'{text}' is not a time of the day (HH:MM)")),
    }
}

fn minute_of_day() -> u16 {
    let time = Zoned::now().time();
    let minute = i32::from(time.hour()) * 60 + i32::from(time.minute());
    u16::try_from(minute).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;
    use copy::FailureKind;

    #[test]
    fn a_timetable_counts_around_midnight() {
        let day = DayRates::parse("18:00,off 08:30,80M").unwrap();
        let at = |hour: u16, minute: u16| day.at(hour * 60 + minute);
        assert_eq!((at(8, 29), at(8, 30)), (None, Some(10_000_000)));
        assert_eq!((at(17, 59), at(18, 0)), (Some(10_000_000), None));
        assert_eq!(at(0, 0), None, "as from 18:00 on");
        assert!(DayRates::parse("80M").unwrap().is_constant());
        assert_eq!(day.shared_by(4).at(9 * 60), Some(2_500_000));
    }

    #[test]
    fn faults_are_named() {
        for (text, reason) in [
            ("08:00,1M 9:00,2M", "'9:00' is not a time of the day"),
            ("08:00,1M 24:00,2M", "'24:00' is not a time"),
            ("08:00,1M 12:60,2M", "'12:60' is not a time"),
            ("08:00,1M 08:00,2M", "same time"),
            ("08:00,1M 2M", "'2M' is not HH:MM,RATE"),
            ("@", "name of a file"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(parse("fast").is_err());
    }

    #[test]
    fn a_file_is_followed_and_a_faulty_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rate");
        let setting = RateSetting::File(file.clone());
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warnings);
        let warn: WarningSink = Arc::new(move |text: &str| {
            sink.lock().unwrap().push(text.to_owned());
        });
        for unusable in [setting.clone(), RateSetting::File("/dev/zero".into())] {
            let failure = unusable.begin(1, Arc::clone(&warn)).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
        }
        fs::write(&file, "8M\n").unwrap();
        let limit = setting.begin(1, warn).unwrap().unwrap();
        assert_eq!(limit.rate(), 1_000_000);
        let wait_until = |what: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !what() {
                assert!(begun.elapsed() < Duration::from_secs(120));
                thread::sleep(Duration::from_millis(20));
            }
        };
        fs::write(&file, "16M").unwrap();
        wait_until(&|| limit.rate() == 2_000_000);
        fs::write(&file, "quick").unwrap();
        wait_until(&|| !warnings.lock().unwrap().is_empty());
        assert_eq!(limit.rate(), 2_000_000);
        fs::write(&file, "off").unwrap();
        wait_until(&|| limit.rate() == u64::MAX);
    }
}
