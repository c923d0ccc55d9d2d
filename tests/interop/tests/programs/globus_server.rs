//! `longhaul cp` against globus-gridftp-server.

use anyhow::Result;
use interop::cells::Cells;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, Target};
use interop::matrix::Store;
use interop::need;
use interop::peer::{Running, globus_gridftp_server as globus};
use interop::sample;
use interop::tree::Tree;

fn with_server(
    name: &str,
    start: impl FnOnce(&Store) -> Result<Running>,
    fill: impl FnOnce(&mut Cells, &Target<'_>),
) {
    need!(globus::find());
    let store = Store::new().unwrap();
    let server = start(&store).unwrap();
    let target = Target::new(&store, &server);
    let mut cells = Cells::new(format!("longhaul cp, globus-gridftp-server: {name}"));
    fill(&mut cells, &target);
    cells.finish();
}

#[test]
fn files() {
    with_server("files", globus::start, |cells, target| {
        let rows: [&[&str]; 6] = [
            &[],
            &["-p", "4"],
            &["--mode", "e", "-p", "1"],
            &["--verify", "sha256"],
            &["-p", "4", "--buffer", "1Mi"],
            &["-p", "4", "--buffer", "drs"],
        ];
        for options in rows {
            rows::get_and_put(cells, target, options, &sample::SIZES);
        }
        rows::right_sizing_is_declined(cells, target);
    });
}

#[test]
fn files_with_a_login() {
    with_server("login", globus::start_with_password, |cells, target| {
        for options in [&[][..], &["-p", "4"]] {
            rows::get_and_put(cells, target, options, &sample::SIZES);
        }
    });
}

#[test]
fn parts_and_resume() {
    with_server("parts and resume", globus::start, |cells, target| {
        for options in [&["-p", "1"][..], &["-p", "4"]] {
            rows::parts(cells, target, options);
            rows::resume(cells, target, options);
        }
    });
}

#[test]
fn trees() {
    with_server("trees", globus::start, |cells, target| {
        for options in [&[][..], &["-p", "2"]] {
            rows::trees(cells, target, &Tree::thousand_ascii(), options);
        }
    });
}

#[test]
fn a_wrong_password_is_refused_with_3() {
    need!(globus::find());
    let store = Store::new().unwrap();
    let server = globus::start_with_password(&store).unwrap();
    let url = server.url("src/f1").replace("secret", "wrong");
    let to = rows::text(&store.local());
    copy::run(&["--retries", "0", &url, &to])
        .unwrap()
        .code(3)
        .unwrap();
}
