use super::*;

fn load(text: &str) -> Result<AdvisorConfig, AdvisorConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("advisor.toml");
    std::fs::write(&path, text).unwrap();
    AdvisorConfig::load(&path)
}

#[test]
fn an_empty_file_gives_the_defaults_of_the_paper() {
    let config = load("").unwrap();
    assert_eq!(config, AdvisorConfig::default());
    assert_eq!(config.listen.to_string(), "127.0.0.1:2812");
    assert_eq!((config.workers, config.values), (8, 10));
    assert_eq!(config.aggregation.policy, AggregationName::Pairwise);
    assert!(config.token_file.is_none() && config.metrics);
}

#[test]
fn every_setting_is_read() {
    let config = load(
        r#"
        listen = "[::1]:0"
        server-name = "data1"
        store = "postgres://enable:secret@db.example/paths"
        clients = ["192.0.2.7", "2001:db8::1", "client.example"]
        max-clients = 500
        purge-after = "48h"
        workers = 4
        bytes-per-hour = "10MB"
        values = 20
        token-file = "/etc/longhaul/token"
        metrics = false
        [[log]]
        path = "/var/log/xferlog"
        format = "xferlog"
        [[log]]
        path = "/var/log/nginx/access.log"
        format = "combined"
        [[log]]
        path = "/var/log/vsftpd.log"
        format = "vsftpd"
        [[log]]
        path = "/var/log/pure-ftpd.stats"
        format = "pure-ftpd"
        [tests.ping]
        interval = "10min"
        concurrency = 5
        [tests.iperf3]
        enabled = true
        [tests.disk]
        command = ["/bin/check", "{client}"]
        weight = "heavy"
        most-bytes = "1MB"
        timeout = 30
        [aggregation]
        policy = "slow-bottleneck"
        slow-below = "2Mbit"
        prefix-table = "/etc/longhaul/prefixes"
        prefix-v4 = 16
        prefix-v6 = 48
        [history]
        single = "24h"
        hours = "48h"
        days = "96h"
        [notify]
        webhook = "https://hooks.example/enable"
        [notify.mail]
        to = ["ops@example"]
        from = "enable@data1.example"
        program = "/usr/bin/msmtp"
        "#,
    )
    .unwrap();
    assert_eq!(
        (config.server_name.as_str(), config.clients.len()),
        ("data1", 3)
    );
    assert_eq!(config.purge_after, 48 * HOUR);
    assert_eq!(config.bytes_per_hour, 10_000_000);
    assert_eq!(config.log[1].format, TransferLogFormat::Web);
    assert_eq!(config.log[2].format, TransferLogFormat::Vsftpd);
    assert_eq!(config.log[3].format, TransferLogFormat::PureFtpd);
    let ping = &config.tests["ping"];
    assert_eq!((ping.interval, ping.concurrency), (Some(HOUR / 6), Some(5)));
    let disk = &config.tests["disk"];
    assert_eq!(disk.most_bytes, Some(1_000_000));
    assert_eq!(disk.timeout, Some(Duration::from_secs(30)));
    assert_eq!(disk.weight.map(Weight::from), Some(Weight::Heavy));
    assert_eq!(config.aggregation.slow_below, 2_000_000);
    assert_eq!(config.history.days, 4 * DAY);
    let mail = config.notify.mail.as_ref().unwrap();
    assert_eq!(mail.to[0].to_string(), "ops@example");
    assert_eq!(mail.program, "/usr/bin/msmtp");
    assert!(
        !format!("{config:?}").contains("secret"),
        "no password in a log"
    );
}

#[test]
fn errors_name_the_line_and_the_nearest_key() {
    for (text, what) in [
        ("\nworkres = 3\n", "is \"workers\" meant?"),
        (
            "[aggregation]\npolcy = \"prefix\"\n",
            "is \"policy\" meant?",
        ),
        (
            "[aggregation]\npolicy = \"prefx\"\n",
            "policy: \"prefx\" is not a value; use",
        ),
        ("[tests.ping]\nintervall = 3\n", "is \"interval\" meant?"),
        ("\nbytes-per-hour = \"lots\"\n", "lots"),
        ("\npurge-after = \"soon\"\n", "soon"),
        ("\nstore = \"mysql://h/d\"\n", "sqlite:///PATH"),
        ("[aggregation]\nslow-below = 2\n", "add a unit"),
        (
            "[notify]\nsmtp = { server = \"mail.example:25\" }\n",
            "write [notify.mail] with `to`",
        ),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains(what), "{error}");
    }
}

#[test]
fn values_out_of_range_are_refused_with_their_key() {
    for (text, what) in [
        ("workers = 0", "workers: 0"),
        ("values = 3", "values: 3"),
        ("purge-after = 5", "purge-after"),
        ("bytes-per-hour = 0", "bytes-per-hour"),
        ("server-name = \"a b\"", "server-name"),
        ("clients = [\"a b\"]", "clients"),
        ("max-clients = 1\nclients = [\"a\", \"b\"]", "clients"),
        ("[tests.pingg]", "is \"ping\" meant?"),
        (
            "[tests.ping]\ncommand = [\"/bin/true\"]",
            "tests.ping.command",
        ),
        ("[tests.own]\ncommand = [\"true\"]", "tests.own.command"),
        ("[tests.own]\ncommand = []", "tests.own.command"),
        (
            "[tests.transfer]\nenabled = false",
            "tests.transfer: transfers",
        ),
        ("[tests.ping]\ntimeout = 5", "tests.ping.timeout"),
        ("[tests.ping]\ninterval = \"1ms\"", "tests.ping.interval"),
        ("[tests.ping]\nconcurrency = 0", "tests.ping.concurrency"),
        ("[aggregation]\nprefix-v4 = 33", "aggregation.prefix-v4"),
        ("[history]\nhours = \"2h\"", "history"),
        ("[notify]\nwebhook = \"ftp://x\"", "notify.webhook"),
        ("[notify.mail]\nto = []", "notify.mail.to"),
        (
            "[notify.mail]\nto = [\"a b\"]",
            "\"a b\" is no mail address",
        ),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
}

#[test]
fn a_device_in_place_of_the_file_is_refused() {
    let error = AdvisorConfig::load(Path::new("/dev/zero")).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
