//! Rows of LIST as servers of many makes show them.

use super::*;

/// Rows, each with its name, kind, size and time: `=` exact, else as far as it is shown. `→` is a tab. The present is
/// 2026-11-20 08:21:03.
const ROWS: &str = r"
-rw-r--r-- 1 u g 6 Nov 20 08:21 x | x | file | 6 | 202611200821 min
-rw-r--r-- 1 u g 6 Nov 21 08:00 x | x | file | 6 | 202611210800 min
-rw-r--r-- 1 u g 6 Nov 22 08:00 x | x | file | 6 | 202511220800 min
-rw-r--r-- 1 u g 6 Feb 29 08:00 x | x | file | 6 | 202402290800 min
-rw-r--r-- 1 u g 6 Jan  1  2024 x | x | file | 6 | 20240101 day
-rw-r--r-- 1 u g 6 2024-11-20 08:21 x | x | file | 6 | 202411200821 min
-rw-r--r-- 1 u g 6 2024-11-20 08:21:03 x | x | file | 6 | 20241120082103 sec
-rw-r--r-- 1 u g 6 2024-11-20 08:21:03.000000000 +0130 x | x | file | 6 | =20241120065103
-rw-r--r-- 1 u g 6 2024-11-20 08:21 +0100 x | +0100 x | file | 6 | 202411200821 min
-rw-r--r-- 1 u g 6 2024-11-20  x | x | file | 6 | 20241120 day
-rw-r--r-- 1 u g 6 2024-11-20 x | x | file | 6 | 20241120 day
-rw-r--r-- 1 u g 6 11-20 08:21 x | x | file | 6 | 202611200821 min
-rw-r--r-- 1 u g 6 09-26 2000 x | x | file | 6 | 20000926 day
-rw-r--r-- 1 u g 6 28. Jan 19:50 x | x | file | 6 | 202601281950 min
-rw-r--r-- 1 u g 6 Jan 28. 19:50 x | x | file | 6 | 202601281950 min
-rw-r--r-- 1 u g 6 2.   Okt.  2003 x | x | file | 6 | 20031002 day
-rw-r--r-- 1 u g 6 26. Juli, 20:10 x | x | file | 6 | 202607262010 min
-rw-r--r-- 1 u g 6 12 févr. 2020 x | x | file | 6 | 20200212 day
-rw-r--r-- 1 u g 6 ago 3 2020 x | x | file | 6 | 20200803 day
-rw-r--r-- 1 u g 6 paź 3 2020 x | x | file | 6 | 20201003 day
-rw-r--r-- 1 u g 6  8月 17 08:52 x | x | file | 6 | 202608170852 min
-rw-r--r-- 1 u g 6 3 29 03:26 x | x | file | 6 | 202603290326 min
-rw-r--r-- 1 u g 6 29 3 03:26 x | x | file | 6 | 202603290326 min
-rw-r--r-- 1 u g 6 3 4 03:26 x | x | file | 6 | unknown
-rw-r--r-- 1 u g 6 1999/10/12 17:12 x | x | file | 6 | 199910121712 min
-rw-r--r-- 1 u g 6 24-04-2003 17:12 x | x | file | 6 | 200304241712 min
-rw-r--r-- 1 u g 6 03/04/2003 17:12 x | x | file | 6 | unknown
-rw-r--r-- 1 u g 6 2004.07.15   x | x | file | 6 | 20040715 day
-rw-r--r-- 1 u g 6 01-jun-99 x | x | file | 6 | 19990601 day
-rw------- 1 99 0 3 Apr   4 24:00 x | x | file | 3 | 202604050000 min
-rwxr-xr-x 1 u g 9 Oct 08, 2002 09:47 x | x | file | 9 | 200210080947 min
-rw-r--r-- 1 u g 6 Jan  1  1601 x | x | file | 6 | 16010101 day
-rw-r--r-- 1 u g 6 Nov 20 08:21 2014 Invoices | 2014 Invoices | file | 6 | 202611200821 min
-rw-r--r-- 1 u g 1,234,567 Nov 20 08:21 x | x | file | 1234567 | 202611200821 min
-rw-r--r-- 1 u g 1.234.567 Nov 20 08:21 x | x | file | 1234567 | 202611200821 min
-rw-r--r-- 1 u g 1'234 Nov 20 08:21 x | x | file | 1234 | 202611200821 min
-rw-r--r-- 1 u g 33.5k Nov 20 08:21 x | x | file | - | 202611200821 min
drwxr-xr-x 1 u g - Nov 20 08:21 x | x | dir | - | 202611200821 min
-rw-r--r--→1→u→g→6→Nov 20 08:21→x→y | x→y | file | 6 | 202611200821 min
-rw-r--r-- 1 group domain user 531 Jan 29 03:26 x | x | file | 531 | 202601290326 min
-------r--         326  1391972  1392298 Nov 22  1995 x | x | file | 1392298 | 19951122 day
drwxr-xr-x 2 u g 4096 Nov 20 08:21 x/ | x | dir | 4096 | 202611200821 min
lrwxrwxrwx 1 u g 1 Nov 20 08:21 a -> b -> c | a -> b | link | 1 | 202611200821 min
10-16-20  05:20PM       <DIR>          my dir | my dir | dir | - | 202010161720 min
10-16-20  17:20                  100 x | x | file | 100 | 202010161720 min
10-16-2020  12:05AM                9,730 a b | a b | file | 9730 | 202010160005 min
2002-09-02  19:06                9,730 x | x | file | 9730 | 200209021906 min
16/10/2020  05:20 PM    <DIR>          x | x | dir | - | 202010161720 min
10/11/2020  05:20 PM    <DIR>          x | x | dir | - | unknown
16.10.2020  17:20         1.234.567 x | x | file | 1234567 | 202010161720 min
10-16-20  12:00am   12 AM notes | AM notes | file | 12 | 202010160000 min
10-16-20  05:20PM    <SYMLINKD>     x [D:\d] | x | link | - | 202010161720 min
+i8388621.29609,m824255902,/,→dev | dev | dir | - | =19960213235822
+i8388621.44468,m839956783,r,s10376,up644,→a b | a b | file | 10376 | =19960813171943
+/,→.. | .. | parent | - | unknown
";

/// Likewise, in other character sets than UTF-8.
const ROWS_OF_OTHER_CHARACTER_SETS: [(&[u8], &str); 4] = [
    (
        b"-rw-r--r-- 1 u g 6 12 f\xe9vr. 2020 x",
        "x | file | 6 | 20200212 day",
    ),
    (
        b"-rw-r--r-- 1 u g 6  4\x8c\x8e 18\x93\xfa 2003\x94\x4e x",
        "x | file | 6 | 20030418 day",
    ),
    (
        b"-rw-r--r-- 1 u g 1\xc2\xa0234 Nov 20 08:21 x",
        "x | file | 1234 | 202611200821 min",
    ),
    (
        b"16.10.2020  17:20         1\xff234 x",
        "x | file | 1234 | 202010161720 min",
    ),
];

/// An entry in the form of the table.
fn shown(entry: &ListedEntry) -> String {
    let name = String::from_utf8_lossy(&entry.name).replace('\t', "→");
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Dir => "dir",
        EntryKind::SymLink => "link",
        EntryKind::ParentDir => "parent",
        other => panic!("{other:?}"),
    };
    let size = entry.size.map_or("-".to_owned(), |size| size.to_string());
    let time = match (entry.modified, entry.coarse_time) {
        (Some(exact), None) => format!("={}", exact.format()),
        (None, Some(coarse)) => {
            let (digits, unit) = match coarse.span {
                1 => (14, "sec"),
                60 => (12, "min"),
                86_400 => (8, "day"),
                other => panic!("{other}"),
            };
            format!("{} {unit}", &coarse.start.format()[..digits])
        }
        (None, None) => "unknown".to_owned(),
        both => panic!("{both:?}"),
    };
    format!("{name} | {kind} | {size} | {time}")
}

#[test]
fn rows_of_many_servers_are_read() {
    let lines = ROWS.trim().lines();
    let rows = lines.map(|line| line.split_once(" | ").unwrap());
    let rows = rows.map(|(row, expected)| (row.replace('→', "\t").into_bytes(), expected));
    let others = ROWS_OF_OTHER_CHARACTER_SETS.map(|(row, expected)| (row.to_vec(), expected));
    for (row, expected) in rows.chain(others) {
        let text = String::from_utf8_lossy(&row);
        let entry = parse_ls(&row, NOW).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(shown(&entry), expected, "{text}");
    }
}

#[test]
fn what_is_no_row_is_not_read() {
    for row in [
        "-rw-r--r-- 1 u g 1,23,456 Nov 20 08:21 x",
        "-rw-r--r-- 1 u g 6 Nov 20 25:00 x",
        "-rw-r--r-- 1 u g 6 Nov 20 24:01 x",
        "-rw-r--r-- 1 u g 6 2026-13-20 08:21 x",
        "-rw-r--r-- 1 u longgroup123456 Feb 12 17:20 x",
        "-rw-r--r-- 1 u g 6 x",
        "10-16-20  17:20                  <FILE> x",
        "10-16-20  17:20 PM                 6",
        "+i1,r,s5 no tab",
        "+r,\t",
        "FILE123.DAT;1   64   4-MAR-2019 00:04 [USR,USRGROUP] (RWED,RWED,RWED,R)",
        "WYOSPT 3420   2003/05/21  1  200  FB      80  8053  PS  FILE123.DAT",
    ] {
        assert_eq!(parse_ls(row.as_bytes(), NOW), None, "{row}");
    }
}

/// The names in a listing, and how many of its lines are not understood.
fn read(format: ListingFormat, lines: &[&str]) -> (Vec<String>, u64, ListingReader) {
    let mut reader = ListingReader::new(format, NOW);
    let mut found = Vec::new();
    for line in lines {
        reader.read(format!("{line}\r\n").as_bytes(), &mut found);
    }
    reader.finish();
    let names = found
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap());
    (names.collect(), reader.not_understood().0, reader)
}

#[test]
fn lines_that_are_known_to_be_no_entries_are_told_from_those_that_are_not_understood() {
    let row = "-rw-r--r-- 1 u g 6 Nov 20 08:21 x";
    let (names, missed, reader) = read(
        ListingFormat::Rows,
        &[
            "total 12",
            "",
            row,
            "-rw-r--r-- 1 u g what Nov 20 08:21 y",
            "total 12",
        ],
    );
    assert_eq!((names, missed), (vec!["x".to_owned()], 2));
    let first = reader.not_understood().1;
    assert_eq!(first, b"-rw-r--r-- 1 u g what Nov 20 08:21 y");
    let dir = [
        " Volume in drive C is DATA",
        " Volume Serial Number is 1234-5678",
        " Directory of C:\\",
        "10-16-20  05:20PM       <DIR>          .",
        "10-16-20  17:20                  100 x",
        "               1 File(s)            100 bytes",
        "               1 Dir(s)   1,234,567 bytes free",
    ];
    let (names, missed, reader) = read(ListingFormat::Rows, &dir);
    assert_eq!((names, missed), (vec!["x".to_owned()], 0));
    assert!(reader.shows_itself() && reader.shows_hidden());
    let (_, missed, _) = read(ListingFormat::Rows, &["insgesamt 0"]);
    assert_eq!(missed, 0);
    let (names, missed, reader) = read(ListingFormat::Facts, &["type=file; a", "total 3"]);
    assert_eq!((names, missed), (vec!["a".to_owned()], 1));
    assert!(!reader.shows_itself());
}

#[test]
fn the_directory_itself_shows_whether_a_year_behind_a_time_belongs_to_the_name() {
    let row = |name: &str| format!("-rw-r--r-- 1 u g 6 May 28 19:50 {name}");
    let names = |rows: &[&str]| {
        let rows: Vec<String> = rows.iter().map(|name| row(name)).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let (names, missed, _) = read(ListingFormat::Rows, &rows);
        (names.join("|"), missed)
    };
    assert_eq!(
        names(&["2023 a", "2024 b", "2023 ..", "2025 c"]),
        ("a|b|c".to_owned(), 0)
    );
    assert_eq!(
        names(&["2023 a", ".", "2024 b"]),
        ("2023 a|2024 b".to_owned(), 0)
    );
    assert_eq!(
        names(&["2023 a", "b", "2024 c"]),
        ("2023 a|b|2024 c".to_owned(), 0)
    );
    assert_eq!(names(&["2023", "2024 b"]), ("2023|2024 b".to_owned(), 0));
    // Nothing shows it.
    assert_eq!(names(&["2023 a", "2024 b"]), (String::new(), 2));
}

#[test]
fn rows_that_can_be_read_in_two_ways_are_bounded() {
    let mut reader = ListingReader::new(ListingFormat::Rows, NOW);
    let mut found = Vec::new();
    let row = b"-rw-r--r-- 1 u g 6 May 28 19:50 2023 a";
    for _ in 0..10_000 {
        reader.read(row, &mut found);
    }
    assert!(reader.not_understood().0 > 5000);
    reader.finish();
    assert_eq!((reader.not_understood().0, found.len()), (10_000, 0));
}

#[test]
fn names_are_read_with_and_without_their_directory() {
    let (names, missed, _) = read(ListingFormat::Names, &["a b", "/d/c", "./e/", "/"]);
    assert_eq!((names.join("|"), missed), ("a b|c|e".to_owned(), 1));
}
