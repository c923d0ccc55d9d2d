//! Names of months, as LIST shows them in the languages of servers.

/// Full names by month; a row shows them whole, or their beginnings. In each month English comes first, then German,
/// French, Spanish, Italian, Portuguese, Dutch, Swedish, Danish and Norwegian, Finnish, Polish, Czech, Hungarian, Romanian,
/// Turkish and Russian, as far as they differ. Abbreviations that are no beginning stand beside.
const MONTHS: [&str; 12] = [
    "january januar janvier enero gennaio janeiro tammikuuta stycznia ledna ianuarie ocak января jänner \
     jän",
    "february februar février febrero febbraio fevereiro helmikuuta lutego února şubat февраля fév",
    "march märz mrz mars marzo março maart mrt maaliskuuta marca března március martie марта",
    "april avril abril aprile huhtikuuta kwietnia dubna április nisan апреля",
    "may mai mayo maggio maio mei maj toukokuuta maja května május mayıs мая май",
    "june juni juin junio giugno junho kesäkuuta czerwca června čen június iunie haziran июня июнь",
    "july juli juillet julio luglio julho heinäkuuta lipca července čec július iulie temmuz июля июль",
    "august août agosto augustus elokuuta sierpnia srpna augusztus ağustos августа aout",
    "september septembre septiembre setiembre settembre setembro syyskuuta września září szeptember eylül \
     сентября",
    "october oktober octobre octubre ottobre outubro lokakuuta października října október octombrie ekim \
     октября",
    "november novembre noviembre novembro marraskuuta listopada noiembrie kasım ноября",
    "december dezember décembre diciembre dicembre dezembro desember joulukuuta grudnia prosince \
     decembrie aralık декабря dec",
];

/// Fewest letters of a beginning.
const MIN_LETTERS: usize = 3;

/// The number of a month by its name or the beginning of it, 1 to 12, without regard to case. A name that is not UTF-8 is
/// one of a character set with one byte for each letter: letters outside of ASCII are not compared then.
pub(crate) fn month_of_name(word: &[u8]) -> Option<i8> {
    let word = word
        .strip_suffix(b".")
        .or_else(|| word.strip_suffix(b","))
        .unwrap_or(word);
    let letters: Vec<Option<char>> = match str::from_utf8(word) {
        Ok(text) => text.to_lowercase().chars().map(Some).collect(),
        Err(_) => word
            .iter()
            .map(|byte| {
                byte.is_ascii()
                    .then(|| char::from(byte.to_ascii_lowercase()))
            })
            .collect(),
    };
    let is_like = |name: &str| {
        let mut name = name.chars();
        letters.iter().all(|letter| match (letter, name.next()) {
            (Some(letter), Some(expected)) => *letter == expected,
            (None, Some(expected)) => !expected.is_ascii(),
            (_, None) => false,
        })
    };
    // Without one that is compared, every name would do.
    let is_name = letters.len() >= MIN_LETTERS && letters.iter().any(Option::is_some);
    let month = is_name
        .then(|| {
            MONTHS
                .iter()
                .position(|names| names.split(' ').any(is_like))
        })
        .flatten()?;
    i8::try_from(month + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_read_in_many_languages_and_character_sets() {
        for (month, names) in [
            (1, &["Jan", "JANV.", "ene", "gen", "sty", "led", "янв"][..]),
            (2, &["feb.", "févr.", "fev", "lut", "úno", "февр"]),
            (3, &["Mär", "März", "Mrz", "mars", "mrt", "bře", "Mar"]),
            (4, &["avr.", "abr", "kwi", "апр"]),
            (5, &["Mai", "mag", "mei", "maj", "мая"]),
            (6, &["Juni", "juin", "giu", "cze"]),
            (7, &["Juli,", "juil.", "lug", "lip"]),
            (8, &["août", "ago", "sie", "Aug."]),
            (9, &["Sept", "set", "wrz", "szept"]),
            (10, &["Okt.", "ott", "out", "paź"]),
            (11, &["nov.", "lis", "kas"]),
            (12, &["Dez", "déc.", "dic", "des", "gru"]),
        ] {
            for name in names {
                assert_eq!(month_of_name(name.as_bytes()), Some(month), "{name}");
            }
        }
        // Latin-1, code page 437 and Latin-2.
        for (name, month) in [
            (&b"M\xe4rz"[..], 3),
            (b"f\xe9vr.", 2),
            (b"d\x82c", 12),
            (b"ao\xfbt", 8),
            (b"pa\xbc", 10),
        ] {
            assert_eq!(month_of_name(name), Some(month), "{name:?}");
        }
        for name in [
            "",
            "ja",
            "januarx",
            "x",
            "Mon",
            "\u{444}\u{444}\u{444}",
            "12",
        ] {
            assert_eq!(month_of_name(name.as_bytes()), None, "{name}");
        }
        assert_eq!(month_of_name(b"\xff\xff\xff"), None);
    }
}
