//! Parsing of OPTS.

use super::*;
use crate::streams::ParallelismRange;

#[test]
fn opts_retr_is_parsed() {
    use RetrieveOption as R;
    let range = |start, least, most| {
        R::Parallelism(ParallelismRange {
            start,
            min: least,
            max: most,
        })
    };
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
        assert_eq!(opts(line), OptsCommand::Retr(expected), "{line}");
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
            OptsCommand::Unknown(line.to_owned())
        );
    }
}

#[test]
fn opts_of_other_commands_are_parsed() {
    for (line, expected) in [
        (
            "OPTS STOR Checksum=sha256;",
            OptsCommand::StoreChecksum(Some(ChecksumAlgorithm::Sha256)),
        ),
        ("OPTS STOR Checksum=None", OptsCommand::StoreChecksum(None)),
        (
            "OPTS PASV AllowDelayed=1;",
            OptsCommand::AllowDelayedPassive(true),
        ),
        (
            "OPTS EPSV allowdelayed=0",
            OptsCommand::AllowDelayedPassive(false),
        ),
        (
            "OPTS MLST type;size;",
            OptsCommand::Facts(Some("type;size;".to_owned())),
        ),
        ("OPTS MLST", OptsCommand::Facts(None)),
        (
            "OPTS MLSR OnError=Continue;",
            OptsCommand::MlsrOptions { deflate: None },
        ),
        (
            "OPTS MLSR OnError=Fail;TraverseSymbolicLinks=true;",
            OptsCommand::MlsrOptions { deflate: None },
        ),
        (
            "OPTS MLSR type;",
            OptsCommand::Facts(Some("type;".to_owned())),
        ),
        ("OPTS CKSM Markers=5;", OptsCommand::ChecksumMarkers(5)),
        ("OPTS UTF8 ON", OptsCommand::Utf8(true)),
        ("OPTS UTF8", OptsCommand::Utf8(true)),
        ("OPTS UTF-8 NLST", OptsCommand::Utf8(true)),
        ("OPTS UTF8 off", OptsCommand::Utf8(false)),
        ("OPTS PASV x", OptsCommand::Unknown("PASV x".to_owned())),
        (
            "OPTS MLST a=b;",
            OptsCommand::Unknown("MLST a=b;".to_owned()),
        ),
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
