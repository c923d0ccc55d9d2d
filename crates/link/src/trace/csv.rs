//! Reading and writing traces as comma-separated values.

use std::fmt::Write as _;
use std::time::Duration;

use units::UnitError;

use super::{TraceError, TracePoint};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CsvColumn {
    Seconds,
    Rate,
    Rtt,
    Loss,
}

impl CsvColumn {
    const ALL: [Self; 4] = [Self::Seconds, Self::Rate, Self::Rtt, Self::Loss];

    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Rate => "rate",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
        }
    }
}

/// Reads the points of a table, and the line number of each, from 1.
pub(super) fn read(text: &str) -> Result<(Vec<TracePoint>, Vec<usize>), TraceError> {
    // Spreadsheet programs write a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let mut rows = (1..)
        .zip(text.lines())
        .map(|(line, row)| (line, row.trim()))
        .filter(|(_, row)| !row.is_empty() && !row.starts_with('#'));
    let Some((line, header)) = rows.next() else {
        return Err(TraceError::Header {
            line: 1,
            problem: "it is missing".into(),
        });
    };
    let columns = columns(header).map_err(|problem| TraceError::Header { line, problem })?;
    let mut points = Vec::new();
    let mut lines = Vec::new();
    for (line, row) in rows {
        points.push(point(line, row, &columns)?);
        lines.push(line);
    }
    Ok((points, lines))
}

/// Formats points as a table.
pub(super) fn write(points: &[TracePoint]) -> String {
    let has = |value: fn(&TracePoint) -> bool| points.iter().any(value);
    let (rate, rtt, loss) = (
        has(|p| p.rate.is_some()),
        has(|p| p.rtt.is_some()),
        has(|p| p.loss.is_some()),
    );
    // A column without any value is left out; `read` treats both alike.
    let mut text = String::from("seconds");
    for (name, _) in [(",rate", rate), (",rtt", rtt), (",loss", loss)]
        .iter()
        .filter(|(_, there)| *there)
    {
        text.push_str(name);
    }
    for point in points {
        text.push('\n');
        // Numbers without units are read as seconds, bit/s and milliseconds, whatever their size.
        text.push_str(&decimal(point.at, 9));
        if rate {
            let bits = point.rate.map(|rate| rate.as_bits_per_second().to_string());
            let _ = write!(text, ",{}", bits.unwrap_or_default());
        }
        if rtt {
            let milliseconds = point.rtt.map(|rtt| decimal(rtt, 6));
            let _ = write!(text, ",{}", milliseconds.unwrap_or_default());
        }
        if loss {
            let _ = write!(
                text,
                ",{}",
                point
                    .loss
                    .map(units::exact::probability)
                    .unwrap_or_default()
            );
        }
    }
    text.push('\n');
    text
}

fn columns(header: &str) -> Result<Vec<CsvColumn>, String> {
    let mut columns = Vec::new();
    for name in header.split(',').map(str::trim) {
        let column = CsvColumn::ALL
            .into_iter()
            .find(|column| name.eq_ignore_ascii_case(column.name()))
            .ok_or_else(|| format!("'{}' is not one of them", name.escape_debug()))?;
        // With a repeated column it would be unclear which value counts.
        if columns.contains(&column) {
            return Err(format!("{} appears twice", column.name()));
        }
        columns.push(column);
    }
    if !columns.contains(&CsvColumn::Seconds) {
        return Err("seconds is missing".into());
    }
    Ok(columns)
}

fn point(line: usize, row: &str, columns: &[CsvColumn]) -> Result<TracePoint, TraceError> {
    let cells: Vec<_> = row.split(',').map(str::trim).collect();
    if cells.len() != columns.len() {
        return Err(TraceError::Width {
            line,
            found: cells.len(),
            expected: columns.len(),
        });
    }
    let mut point = TracePoint {
        at: Duration::ZERO,
        rate: None,
        rtt: None,
        loss: None,
    };
    for (column, cell) in columns.iter().zip(cells) {
        // An empty cell means the path's own value; the time is always required.
        if cell.is_empty() && *column != CsvColumn::Seconds {
            continue;
        }
        fill(&mut point, *column, cell).map_err(|problem| TraceError::Cell {
            line,
            column: column.name(),
            problem,
        })?;
    }
    Ok(point)
}

fn fill(point: &mut TracePoint, column: CsvColumn, cell: &str) -> Result<(), UnitError> {
    match column {
        CsvColumn::Seconds => point.at = units::seconds(cell)?,
        CsvColumn::Rate => point.rate = Some(units::rate_in_table(cell)?),
        CsvColumn::Rtt => point.rtt = Some(units::milliseconds(cell)?),
        CsvColumn::Loss => point.loss = Some(units::probability(cell)?),
    }
    Ok(())
}

/// Formats `time` exactly, in a unit of 10^`digits` nanoseconds.
fn decimal(time: Duration, digits: u32) -> String {
    let unit = 10_u128.pow(digits);
    let (whole, rest) = (time.as_nanos() / unit, time.as_nanos() % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let fraction = format!("{rest:0width$}", width = digits as usize);
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::super::PathTrace;
    use super::*;
    use proptest::prelude::*;
    use units::Rate;

    fn problem(text: &str) -> String {
        PathTrace::from_csv(text).unwrap_err().to_string()
    }

    #[test]
    fn reads_units_and_plain_numbers() {
        let text =
            "# a comment\n\nseconds, rate, rtt, loss\r\n0,10mbit,157ms,0.5%\n20,26000,119,\n";
        let trace = PathTrace::from_csv(text).unwrap();
        let [first, second] = trace.points() else {
            panic!("{trace:?}");
        };
        assert_eq!(first.rate, Some(Rate::bits_per_second(10_000_000)));
        assert_eq!(first.rtt, Some(Duration::from_millis(157)));
        assert_eq!(first.loss, Some(0.005));
        assert_eq!(second.at, Duration::from_secs(20));
        assert_eq!(second.rate, Some(Rate::bits_per_second(26_000)));
        assert_eq!(second.rtt, Some(Duration::from_millis(119)));
        assert_eq!(second.loss, None);
    }

    #[test]
    fn columns_may_come_in_any_order_and_number() {
        let trace = PathTrace::from_csv("LOSS,seconds\n1%,0\n100%,0.5").unwrap();
        assert_eq!(trace.points()[1].at, Duration::from_millis(500));
        assert_eq!(trace.points()[1].loss, Some(1.0));
        assert_eq!(trace.points()[1].rate, None);
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let starts = |text: &str, expected: &str| {
            let problem = problem(text);
            assert!(problem.contains(expected), "{problem}");
        };
        starts("", "line 1: the header must name the columns");
        starts("0,10mbit\n", "line 1: the header must name");
        starts("rate\n1\n", "seconds is missing");
        starts("seconds,rate,rate\n", "rate appears twice");
        starts("seconds,rate\n", "no values; add at least one line");
        starts(
            "seconds,rate\n0,1\n5,2\n4,3\n",
            "line 4: times must increase; sort",
        );
        starts(
            "seconds,rate\n#\n0,1\n\n0,2\n",
            "line 5: times must increase",
        );
        starts("seconds,rate\n3,1\n", "line 2: the first time must be 0");
        starts("seconds,rate\n0,-1\n", "line 2: rate: '-1' is negative");
        starts("seconds,rate\n-1,1\n", "line 2: seconds: '-1' is negative");
        starts(
            "seconds,rtt\n0,NaN\n",
            "line 2: rtt: 'NaN' is not a time; write it like 100ms",
        );
        starts(
            "seconds,loss\n0,1.5\n",
            "line 2: loss: '1.5' is too large; the maximum is 100%",
        );
        starts("seconds,loss\n0\n", "line 2: 1 of the 2 values");
        starts("seconds,rate\n,1\n", "line 2: seconds: '' is not a");
        starts("seconds,rate\n0,0\n", "the rate is 0 on every line");
        starts("seconds,rate\n0,1\n1e300,1\n", "line 3: seconds");
    }

    prop_compose! {
        fn any_point()(
            gap in 1..10_000_000_000_u64,
            rate in prop::option::of(1..1_000_000_000_000_u64),
            rtt in prop::option::of(0..60_000_000_000_u64),
            loss in prop::option::of(0.0..=1.0_f64),
        ) -> TracePoint {
            TracePoint {
                at: Duration::from_nanos(gap),
                rate: rate.map(Rate::bits_per_second),
                rtt: rtt.map(Duration::from_nanos),
                loss,
            }
        }
    }

    proptest! {
        #[test]
        fn a_written_trace_reads_back_unchanged(mut points in prop::collection::vec(any_point(), 1..50)) {
            let mut at = Duration::ZERO;
            for point in &mut points {
                let gap = point.at;
                point.at = at;
                at += gap;
            }
            let trace = PathTrace::new(points).unwrap();
            prop_assert_eq!(PathTrace::from_csv(&trace.to_csv()).unwrap(), trace);
        }

        #[test]
        fn any_text_is_read_or_refused_in_one_line(
            text in "(seconds,rate,rtt,loss\n)?[0-9a-z,.%\n+-]{0,80}|\\PC*"
        ) {
            if let Err(error) = PathTrace::from_csv(&text) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
