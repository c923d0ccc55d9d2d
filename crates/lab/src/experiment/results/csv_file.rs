//! CSV files (RFC 4180) for spreadsheets.

use csv::{Terminator, WriterBuilder};

use crate::LabError;

/// The text of a CSV file with these lines of fields. Text that a spreadsheet would evaluate is made harmless.
///
/// # Errors
/// [`LabError::System`]: lines have different numbers of fields.
pub(crate) fn csv_text(lines: impl Iterator<Item = Vec<String>>) -> Result<String, LabError> {
    let cannot = |error: csv::Error| LabError::system("cannot write CSV", error);
    let mut writer = WriterBuilder::new()
        .terminator(Terminator::CRLF)
        .from_writer(Vec::new());
    for line in lines {
        writer
            .write_record(line.iter().map(|field| harmless(field)))
            .map_err(cannot)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| LabError::system("cannot write CSV", error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Spreadsheets evaluate a field that begins like a formula, even in quotes; an apostrophe before it prevents that.
/// Numbers stay numbers.
fn harmless(field: &str) -> String {
    let formula =
        field.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && field.parse::<f64>().is_err();
    let apostrophe = if formula { "'" } else { "" };
    format!("{apostrophe}{field}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formulas_get_an_apostrophe_and_numbers_do_not() {
        let fields = [
            "=1+2", "@SUM(A1)", "-5", "-p 4", "\t=1", "a\nb", "\"", "+1e3",
        ]
        .map(str::to_owned);
        let text = csv_text(std::iter::once(fields.to_vec())).unwrap();
        assert_eq!(
            text,
            "'=1+2,'@SUM(A1),-5,'-p 4,'\t=1,\"a\nb\",\"\"\"\",+1e3\r\n"
        );
    }

    proptest! {
        #[test]
        fn no_field_begins_a_formula_or_ends_a_line(field in ".{0,12}") {
            let text = csv_text(std::iter::once(vec!["a".to_owned(), field.clone()])).unwrap();
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
            let lines: Vec<_> = reader.records().map(Result::unwrap).collect();
            prop_assert_eq!(lines.len(), 1);
            let read = lines[0].get(1).unwrap();
            prop_assert_eq!(read.trim_start_matches('\''), field.trim_start_matches('\''));
            let formula = read.starts_with(['=', '@', '+', '-', '\t', '\r', '\n']);
            prop_assert!(!formula || field.parse::<f64>().is_ok());
        }
    }
}
