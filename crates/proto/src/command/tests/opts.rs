//! OPTS.

use super::*;
use crate::streams::StreamRange;

#[test]
fn opts_retr() {
    use RetrOption as R;
    let range = |start, least, most| R::Parallelism(StreamRange { start, least, most });
    for (line, expected) in [
        ("OPTS RETR Parallelism=4,1,8;", vec![range(4, 1, 8)]),
        ("OPTS RETR Parallelism=4,6,2;", vec![range(4, 4, 4)]),
        ("opts retr parallelism=4", vec![range(4, 4, 4)]),
        ("OPTS RETR StripeLayout=Partitioned;", vec![R::Partitioned]),
        (
            "OPTS RETR StripeLayout=Blocked;BlockSize=1000;Markers=1;",
            vec![R::Blocked, R::BlockSize(1000), R::Markers(1)],
        ),
    ] {
        assert_eq!(opts(line), Opts::Retr(expected), "{line}");
    }
    all_syntax(&[
        "OPTS RETR Parallelism=0;",
        "OPTS RETR Parallelism=4097;",
        "OPTS RETR Parallelism=1,2,3,4;",
        "OPTS RETR Parallelism=1,x;",
        "OPTS RETR Parallelism=;",
        "OPTS RETR StripeLayout=Foo;",
        "OPTS RETR BlockSize=0;",
        "OPTS RETR Markers=4294967296;",
    ]);
    for line in [
        "RETR",
        "RETR PacketSize=10;",
        "RETR Foo",
        "FOO x",
        "STOR Parallelism=4;",
    ] {
        assert_eq!(
            opts(&format!("OPTS {line}")),
            Opts::Unknown(line.to_owned())
        );
    }
}

#[test]
fn opts_of_other_commands() {
    for (line, expected) in [
        (
            "OPTS STOR Checksum=sha256;",
            Opts::StorChecksum(Some(Algorithm::Sha256)),
        ),
        ("OPTS STOR Checksum=None", Opts::StorChecksum(None)),
        ("OPTS PASV AllowDelayed=1;", Opts::AllowDelayed(true)),
        ("OPTS EPSV allowdelayed=0", Opts::AllowDelayed(false)),
        (
            "OPTS MLST type;size;",
            Opts::Facts(Some("type;size;".to_owned())),
        ),
        ("OPTS MLST", Opts::Facts(None)),
        ("OPTS MLSR OnError=Continue;", Opts::Mlsr),
        (
            "OPTS MLSR OnError=Fail;TraverseSymbolicLinks=true;",
            Opts::Mlsr,
        ),
        ("OPTS MLSR type;", Opts::Facts(Some("type;".to_owned()))),
        ("OPTS CKSM Markers=5;", Opts::ChecksumMarkers(5)),
        ("OPTS UTF8 ON", Opts::Utf8(true)),
        ("OPTS UTF8", Opts::Utf8(true)),
        ("OPTS UTF-8 NLST", Opts::Utf8(true)),
        ("OPTS UTF8 off", Opts::Utf8(false)),
        ("OPTS PASV x", Opts::Unknown("PASV x".to_owned())),
        ("OPTS MLST a=b;", Opts::Unknown("MLST a=b;".to_owned())),
    ] {
        assert_eq!(opts(line), expected, "{line}");
    }
    all_syntax(&[
        "OPTS STOR Checksum=FOO;",
        "OPTS PASV AllowDelayed=2;",
        "OPTS CKSM Markers=x;",
        "OPTS MLSR OnError=x;",
    ]);
}
