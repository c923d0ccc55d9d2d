use super::*;

#[test]
fn replies_that_limit_a_listing_are_told_from_those_that_do_not() {
    let remark = |lines: &[&str], path: &str| {
        let lines = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
        let found = limit_remark(&Reply::multi_line(226, lines), path.as_bytes());
        found.map(|text| String::from_utf8(text).unwrap())
    };
    for (lines, shown) in [
        // Pure-FTPd with -L, vsftpd.
        (
            &["Options: -a -l ", "Output truncated to 50 matches"][..],
            "226 Output truncated to 50 matches",
        ),
        (
            &["Transfer done (but failed to open directory)."],
            "226 Transfer done (but failed to open directory).",
        ),
        (&["Listing limit reached"], "226 Listing limit reached"),
    ] {
        assert_eq!(remark(lines, "/d").as_deref(), Some(shown));
    }
    for lines in [
        &["Options: -a -l ", "2000 matches total"][..],
        &["Directory send OK."],
        &["Transfer complete. 1,234 bytes transferred. 5.31 KB/sec."],
        &[
            "Maximum disk quota limited to 1000 KBytes",
            "Transfer complete",
        ],
        &["Listing of /Partial/Truncated is complete: Truncated"],
    ] {
        assert_eq!(remark(lines, "/Partial/Truncated"), None, "{lines:?}");
    }
}
