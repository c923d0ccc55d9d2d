//! Reports of `longhaul cp` about its path to an advice service.

use crate::harness::{LabTestGuard, TestLab, is_installed};
use crate::server;

#[test]
fn a_copy_that_its_path_limits_reports_its_rate_to_the_service_that_its_user_names() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed("curl") {
        return;
    }
    let path = ["--rate", "10mbit", "--rtt", "20ms"];
    // Only a transfer of 5 s tells something of a path.
    let run = TestLab::new(&turn, &path)
        .file("longhaul.sh", server::SCRIPT)
        .file("token", "s3cret-of-16-letters\n")
        .run(
            r#". ./longhaul.sh
            chmod 600 token
            mkdir left
            head -c 8000000 /dev/urandom > left/f
            serve b left
            {
                echo "listen = \"$LAB_B:0\""
                echo "store = \"sqlite://$PWD/paths.sqlite\""
                echo 'token-file = "token"'
                echo '[tests.ping]'
                echo 'enabled = false'
                echo '[tests.route]'
                echo 'enabled = false'
                echo '[tests.bottleneck]'
                echo 'enabled = false'
            } > advisor.toml
            on b "$LONGHAUL" advisor serve --config advisor.toml > advisor.listening 2> advisor.log &
            tries=0
            until grep -q '^listening on ' advisor.listening; do
                tries=$((tries + 1))
                [ $tries -lt 500 ] || { cat advisor.log >&2; exit 1; }
                sleep 0.02
            done
            service=$(sed -n 's/^listening on //p' advisor.listening)
            export ENABLE_TOKEN_FILE=token
            on a "$LONGHAUL" cp -q --no-history --advisor "$service" --json "ftp://$USER@$B/f" copy |
                tail -n 1 > summary
            cmp left/f copy
            on a curl -sf "http://$service/api/v1/paths/$LAB_A" > facts"#,
        );
    let facts = run.json("facts");
    let goodput = &facts["quantities"]["goodput"]["latest"];
    let goodput = goodput.as_f64().unwrap_or_else(|| panic!("{facts:#}"));
    // The copy's own, whatever the machine lets it reach: the part without a summary's waits.
    let summary = run.json("summary");
    let own = summary["goodput_bps"].as_f64();
    let own = own.unwrap_or_else(|| panic!("{summary:#}"));
    assert!(
        (0.8 * own..10e6).contains(&goodput),
        "{goodput} bit/s are reported of {own}"
    );
    assert!(
        facts["quantities"]["streams"]["latest"].is_number(),
        "{facts:#}"
    );
}
