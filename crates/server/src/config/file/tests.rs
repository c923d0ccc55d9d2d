use data::options::TransferOptions;
use proto::sizing::SocketBuffers;

use std::time::Duration;

use super::*;
use crate::config::{
    AccessLists, CreationConfig, DataNode, MessageConfig, PamConfig, QuotaBounds, SecurityConfig,
    ShareConfig,
};
use crate::service_manager::PassedListeners;
use crate::test_pipe::make_pipe;

fn load(text: &str) -> Result<ServerConfig, SettingsFileError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.toml");
    std::fs::write(&path, text).unwrap();
    let mut config = ServerConfig::default();
    FileConfig::load(&path)?.apply(&mut config);
    Ok(config)
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("longhaul.toml");
    make_pipe(&path);
    let error = FileConfig::load(&path).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    let comment = "#".repeat(1 << 20);
    assert!(load(&comment).is_ok());
    let error = load(&format!("{comment}\n")).unwrap_err().to_string();
    assert!(error.contains("longer than 1048576 bytes"), "{error}");
}

#[test]
fn an_empty_file_changes_nothing() {
    let (config, default) = (load("").unwrap(), ServerConfig::default());
    assert_eq!(format!("{config:?}"), format!("{default:?}"));
}

#[test]
fn every_setting_is_applied() {
    let config = load(concat!(
        "listen = \"[::]:3000\"\nroot = \"/srv\"\nanonymous = \"rw\"\nusers = \"/etc/u\"\n",
        "data-ports = \"50000-50010\"\npublic-address = \"192.0.2.1\"\n",
        "transfer-log = \"/t\"\nftp-info-log = \"/f\"\nhistory = \"/h\"\nthird-party = \"none\"\n",
        "foreign-data-addresses = true\nsandbox = \"required\"\n",
        "proxy-protocol-from = [\"192.0.2.0/24\"]\n",
        "max-sessions = 1\nmax-sessions-per-address = 2\nmax-sessions-per-user = 3\n",
        "max-streams = 4\nmax-streams-per-transfer = 5\nidle-timeout = 6\n",
        "login-timeout = 7\nstall-timeout = 8\ndrain = 9\nperf-marker-seconds = 10\nrange-marker-seconds = 11\n",
        "block = 65536\nio = \"copy\"\nsync-policy = \"none\"\nbuffer = \"kernel\"\n",
        "drs-interval = \"20ms\"\nrun-as = \"ftp\"\nmetrics = \"127.0.0.1:9464\"\n",
        "congestion = \"cubic\"\nclient-congestion = false\n",
        "max-transfers-per-address = 12\nmax-checksums = 13\nmax-listings = 14\n",
        "max-password-checks = 15\nmax-waiting-per-address = 16\nqueue-timeout = 17\n",
        "log = \"json\"\nallow-from = [\"192.0.2.0/24\"]\ndeny-from = [\"192.0.2.9\"]\n",
        "allow-users = [\"ann\"]\ndeny-users = [\"bob\"]\numask = \"027\"\nfile-mode = \"640\"\n",
        "directory-mode = \"2750\"\nupload-owner = \"ftp:lab\"\nlimit-rate = \"80M\"\n",
        "limit-rate-per-address = \"8M\"\nlimit-rate-per-user = \"16M\"\nquota = \"10M\"\n",
        "quota-files = 18\nbanner = \"hello\"\nbanner-file = \"/b\"\nwelcome-file = \"/w\"\n",
        "directory-message = \".message\"\npam = \"lab\"\npam-rights = \"ro\"\npam-min-uid = 500\n",
        "front-end = [\"/CN=f\"]\n[[data-node]]\naddress = \"n:1\"\ndirectories = [\"/d\"]\n",
        "[advisor]\nconfig = \"/etc/advisor.toml\"\n",
        "[user.ann]\nmax-sessions = 19\nlimit-rate = \"24M\"\nquota = \"20M\"\nquota-files = 21\n",
    ))
    .unwrap();
    let expected = ServerConfig {
        listen: "[::]:3000".parse().unwrap(),
        root: "/srv".into(),
        served_store: None,
        anonymous: Some(Anonymous::Rw),
        users: Some("/etc/u".into()),
        data_ports: Some((50_000, 50_010)),
        public_address: Some("192.0.2.1".parse().unwrap()),
        transfer_log: Some("/t".into()),
        ftp_info_log: Some("/f".into()),
        history: HistoryLocation::File("/h".into()),
        third_party: ThirdPartyPolicy::None,
        foreign_data_addresses: true,
        max_sessions: 1,
        max_sessions_per_address: 2,
        max_sessions_per_user: 3,
        max_streams: 4,
        max_streams_per_transfer: 5,
        max_transfers_per_address: Some(12),
        max_checksums: Some(13),
        max_listings: 14,
        max_password_checks: Some(15),
        max_waiting_per_address: 16,
        queue_timeout: Duration::from_secs(17),
        idle_timeout: Duration::from_secs(6),
        login_timeout: Duration::from_secs(7),
        drain: Duration::from_secs(9),
        perf_marker_seconds: 10,
        range_marker_seconds: 11,
        transfer: TransferOptions {
            buffers: SocketBuffers::sized_by(BufferSizing::Kernel),
            drs1_reads: tune::sizing::drs1::Drs1Reads::default(),
            drs_interval: DrsInterval::Fixed(Duration::from_millis(20)),
            congestion: CongestionChoice::Named("cubic".into()),
            io: IoMethod::Copy,
            block: 65_536,
            rate: None,
            stall: Duration::from_secs(8),
        },
        sync_policy: SyncPolicy::None,
        client_congestion: false,
        data_nodes: vec![DataNode {
            directories: vec!["/d".into()],
            ..DataNode::of_all("n:1")
        }],
        front_ends: vec!["/CN=f".into()],
        run_as: Some("ftp".into()),
        key_holder: None,
        pam: expected_pam(),
        pam_checker: None,
        advisor: Some("/etc/advisor.toml".into()),
        advisor_port: None,
        metrics: Some(([127, 0, 0, 1], 9464).into()),
        proxy_protocol_from: vec!["192.0.2.0/24".parse().unwrap()],
        passed: PassedListeners::default(),
        service_manager: None,
        sandbox: SandboxMode::Required,
        access: AccessLists {
            allow_from: vec!["192.0.2.0/24".parse().unwrap()],
            deny_from: vec!["192.0.2.9".parse().unwrap()],
            allow_users: vec!["ann".into()],
            deny_users: vec!["bob".into()],
        },
        creation: CreationConfig {
            umask: Some("27".parse().unwrap()),
            file_mode: Some("640".parse().unwrap()),
            directory_mode: Some("2750".parse().unwrap()),
            upload_owner: Some("ftp:lab".into()),
        },
        shares: expected_shares(),
        messages: expected_messages(),
        log: MessageFormat::Json,
        security: SecurityConfig::default(),
    };
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
}

/// The messages in the file of `every_setting_is_applied`.
fn expected_messages() -> MessageConfig {
    MessageConfig {
        banner: Some("hello".into()),
        banner_file: Some("/b".into()),
        welcome_file: Some("/w".into()),
        directory_message: Some(".message".into()),
    }
}

/// The settings of PAM in the file of `every_setting_is_applied`.
fn expected_pam() -> PamConfig {
    PamConfig {
        service: Some("lab".into()),
        rights: UnlistedRights::Ro,
        min_uid: 500,
    }
}

/// The shares of the file of `every_setting_is_applied`.
fn expected_shares() -> ShareConfig {
    ShareConfig {
        rate: Some(10_000_000),
        rate_per_address: Some(1_000_000),
        rate_per_user: Some(2_000_000),
        quota: QuotaBounds {
            bytes: Some(10_000_000),
            files: Some(18),
        },
        users: BTreeMap::from([(
            "ann".to_owned(),
            UserShares {
                max_sessions: Some(19),
                limit_rate: Some("24M".parse().unwrap()),
                quota: Some("20M".parse().unwrap()),
                quota_files: Some(21),
            },
        )]),
    }
}

#[test]
fn every_time_takes_units_and_a_number_is_seconds() {
    let time = |key: &str, value: &str| {
        let config = load(&format!("{key} = {value}\n")).unwrap();
        match key {
            "queue-timeout" => config.queue_timeout,
            "idle-timeout" => config.idle_timeout,
            "login-timeout" => config.login_timeout,
            "stall-timeout" => config.transfer.stall,
            "drain" => config.drain,
            "perf-marker-seconds" => Duration::from_secs(config.perf_marker_seconds.into()),
            _ => Duration::from_secs(config.range_marker_seconds.into()),
        }
    };
    for key in [
        "queue-timeout",
        "idle-timeout",
        "login-timeout",
        "stall-timeout",
        "drain",
        "perf-marker-seconds",
        "range-marker-seconds",
    ] {
        for (value, seconds) in [
            ("30", 30),
            ("\"30s\"", 30),
            ("\"5m\"", 300),
            ("\"2h\"", 7200),
        ] {
            assert_eq!(
                time(key, value),
                Duration::from_secs(seconds),
                "{key} {value}"
            );
        }
        for value in ["\"5\u{feff}\"", "\"x\"", "\"400d\"", "-1", "true"] {
            let text = format!("{key} = {value}\n");
            assert!(
                load(&text).unwrap_err().to_string().contains("line 1"),
                "{text}"
            );
        }
    }
    assert!(load("perf-marker-seconds = \"500ms\"\n").is_err());
}

#[test]
fn errors_name_the_line_and_the_value() {
    for (text, what) in [
        ("root = \"/\"\nrooot = \"/srv\"\n", "rooot"),
        ("\nidle-timeout = \"soon\"\n", "soon"),
        ("\ndata-ports = \"9-1\"\n", "9-1"),
        ("\nblock = 12\n", "12"),
        ("\nbuffer = \"drs\"\n", "drs"),
        ("\ndrs-interval = 20\n", "20"),
        ("\ndrs-interval = \"60s\"\n", "60s"),
        ("\nanonymous = \"yes\"\n", "yes"),
        ("\nclient-congestion = \"no\"\n", "no"),
        ("\ntls = \"on\"\n", "on"),
        ("\numask = \"9\"\n", "9"),
        ("\nallow-from = [\"example.org\"]\n", "example.org"),
        ("\nallow-from = []\n", "allow-from: the list is empty"),
        ("\nallow-users = []\n", "allow-users: the list is empty"),
        ("\nlimit-rate = \"100\"\n", "100"),
        ("\nquota = \"much\"\n", "much"),
        ("[user.ann]\nquotta = \"1G\"\n", "\"quota\" meant"),
        ("\nclient-certs = \"some\"\n", "some"),
        ("[[token-issuer]]\nurll = \"u\"\n", "urll"),
        ("[advisor]\nconfigg = \"f\"\n", "configg"),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains(what), "{error}");
    }
}
