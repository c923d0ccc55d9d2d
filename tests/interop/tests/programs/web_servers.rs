//! longhaul against nginx and Apache: ranges, sums, TLS with an authority of one's own, WebDAV.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use interop::cells::Cells;
use interop::longhaul::copy;
use interop::longhaul::rows::text;
use interop::matrix::{self, Store};
use interop::need;
use interop::peer::nginx::Identity;
use interop::peer::{apache, nginx};
use interop::run::Finished;
use interop::sample;

/// Copies with these options; how it was verified.
fn cp(options: &[&str], from: &str, to: &str) -> Result<String> {
    Ok(copy::cp(&[options, &[from, to]].concat())?.verified)
}

fn both_ways(name: &str, store: &Store, url: &dyn Fn(&str) -> String) {
    let mut cells = Cells::new(name);
    for options in [&[][..], &["-p", "4"]] {
        matrix::get(&mut cells, store, &sample::SIZES, |from, to| {
            cp(options, &url(from), &text(to)).map(drop)
        });
    }
    matrix::put(&mut cells, store, &sample::SIZES, |from, to| {
        cp(&[], &text(from), &url(to)).map(drop)
    });
    cells.finish();
}

#[test]
fn nginx_gives_and_takes() {
    need!(nginx::find());
    let store = Store::new().unwrap();
    let server = nginx::start(&store, None).unwrap();
    both_ways("nginx", &store, &|path| {
        format!("http://{}/{path}", server.address())
    });
}

#[test]
fn apache_gives_takes_and_tells_sums() {
    need!(apache::find());
    let store = Store::new().unwrap();
    let server = apache::start(&store).unwrap();
    let url = |path: &str| format!("http://{}/{path}", server.address());
    both_ways("apache", &store, &url);
    let from = url(&format!("src/{}", sample::name(sample::SIZES[1])));
    assert_eq!(cp(&[], &from, &text(&store.local())).unwrap(), "md5");
}

fn openssl(folder: &Path, arguments: &[&str]) -> Result<()> {
    let done = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "openssl {arguments:?}: {said}");
    Ok(())
}

/// An authority (`ca.pem`) and what a server of it shows.
fn identity(folder: &Path) -> Result<Identity> {
    let new = ["-newkey", "rsa:2048", "-nodes"];
    let authority = [
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=authority",
    ];
    openssl(folder, &[&["req", "-x509"][..], &new, &authority].concat())?;
    let request = [
        "-keyout",
        "own.key",
        "-out",
        "own.csr",
        "-subj",
        "/CN=server",
    ];
    openssl(folder, &[&["req"][..], &new, &request].concat())?;
    std::fs::write(
        folder.join("own.ext"),
        "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )?;
    let sign = "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile own.ext -out own.pem";
    openssl(folder, &sign.split(' ').collect::<Vec<_>>())?;
    Ok(Identity {
        certificate: folder.join("own.pem"),
        key: folder.join("own.key"),
    })
}

#[test]
fn an_authority_of_ones_own_is_named_in_the_environment() {
    need!(nginx::find());
    let store = Store::new().unwrap();
    let folder = store.local();
    std::fs::create_dir_all(&folder).unwrap();
    let identity = identity(&folder).unwrap();
    let server = nginx::start(&store, Some(&identity)).unwrap();
    let name = sample::name(sample::SIZES[1]);
    let url = format!("https://{}/src/{name}", server.address());
    let to = store.local();
    let get = |authority: &Path| -> Result<Finished> {
        let mut command = copy::command(&["-p", "4", &url, &text(&to)])?;
        command.env("SSL_CERT_FILE", authority);
        interop::run::run(&mut command)
    };
    get(&folder.join("ca.pem"))
        .and_then(Finished::success)
        .unwrap();
    matrix::arrived(&store.path(&format!("src/{name}")), &to).unwrap();
    // Another authority did not sign it.
    let other = store.local();
    std::fs::create_dir_all(&other).unwrap();
    self::identity(&other).unwrap();
    let refused = get(&other.join("ca.pem")).unwrap();
    assert!(
        copy::failure(&refused).is_some_and(|why| why.contains("certificate")),
        "{refused:?}"
    );
}
