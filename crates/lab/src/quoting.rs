//! Text of CSV tables (RFC 4180).

use std::str::FromStr;

/// A CSV line with its CR LF (RFC 4180), from fields that are quoted already.
pub(crate) fn csv_line(fields: impl Iterator<Item = String>) -> String {
    fields.collect::<Vec<_>>().join(",") + "\r\n"
}

/// A line of a CSV table whose first line names the columns. Quoted fields are not supported.
#[derive(Debug)]
pub(crate) struct CsvRecord<'t> {
    names: Vec<&'t str>,
    /// The unparsed line.
    pub(crate) line: &'t str,
}

impl<'t> CsvRecord<'t> {
    /// All lines of a table except the header.
    pub(crate) fn all(text: &'t str) -> impl Iterator<Item = Self> {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        lines.map(move |line| Self {
            names: names.clone(),
            line,
        })
    }

    /// The names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'t str> {
        self.names.iter().copied()
    }

    /// The text in the column of this name.
    pub(crate) fn text(&self, name: &str) -> Option<&'t str> {
        let column = self.names.iter().position(|n| *n == name)?;
        self.line.split(',').nth(column)
    }

    /// The parsed value in the column of this name; `None` if there is none or it cannot be parsed.
    pub(crate) fn value<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }
}

/// A CSV field that holds text. Spreadsheets evaluate a field that begins like a formula, even in
/// quotes; an apostrophe before it prevents that. Numbers stay numbers.
pub(crate) fn csv_text(field: &str) -> String {
    let formula =
        field.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && field.parse::<f64>().is_err();
    let safe = if formula {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    // Some readers trim unquoted fields, so fields with outer spaces are quoted as well.
    if safe.contains([',', '"', '\r', '\n']) || safe.trim() != safe {
        format!("\"{}\"", safe.replace('"', "\"\""))
    } else {
        safe
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formulas_get_an_apostrophe_and_numbers_do_not() {
        assert_eq!(csv_text("=1+2"), "'=1+2");
        assert_eq!(csv_text("@SUM(A1)"), "'@SUM(A1)");
        assert_eq!(csv_text("-5"), "-5");
        assert_eq!(csv_text("-p 4"), "'-p 4");
        assert_eq!(csv_text("\t=1"), "'\t=1");
        assert_eq!(csv_text("a\nb"), "\"a\nb\"");
    }

    #[test]
    fn values_of_a_record_are_found_by_column_name() {
        let records: Vec<_> = CsvRecord::all("a,b\n1,x\n2\n").collect();
        assert_eq!(records[0].value("a"), Some(1));
        assert_eq!(records[0].text("b"), Some("x"));
        assert_eq!(records[0].value::<u32>("b"), None);
        assert_eq!(
            (records[1].value("a"), records[1].text("b")),
            (Some(2), None)
        );
        assert_eq!((records[1].text("c"), records[1].line), (None, "2"));
    }

    proptest! {
        #[test]
        fn no_field_begins_a_formula_or_ends_a_line(field in ".{0,12}") {
            let written = csv_text(&field);
            let inner = written.strip_prefix('"').map_or(written.clone(), |rest| {
                rest.strip_suffix('"').unwrap_or(rest).replace("\"\"", "\"")
            });
            let formula = inner.starts_with(['=', '@', '+', '-', '\t', '\r', '\n']);
            prop_assert!(!formula || field.parse::<f64>().is_ok());
            prop_assert!(written.starts_with('"') || !written.contains(['\n', '\r', ',']));
        }
    }
}
