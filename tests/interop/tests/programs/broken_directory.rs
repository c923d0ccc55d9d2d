//! A directory of which only a part can be read: nobody takes the part for the whole.

use interop::failing_directory::FailingDirectory;
use interop::longhaul::binary::longhaul;
use interop::longhaul::serve::ServeCommand;
use interop::peer::curl::Curl;
use interop::peer::is_root;
use interop::require;
use interop::run;
use interop::scratch::ScratchFolder;

/// Names before the error: none; fewer than the server sends at once; more than it reads at once.
const READABLE: [u64; 3] = [0, 100, 25_000];

fn prerequisite() -> Result<(), String> {
    match is_root() && std::path::Path::new("/dev/fuse").exists() {
        true => Ok(()),
        false => Err("a FUSE file system needs root and /dev/fuse".to_owned()),
    }
}

#[test]
fn a_directory_that_fails_in_the_middle_has_no_listing_that_succeeds() {
    require!(prerequisite());
    let curl = require!(Curl::find());
    let scratch = ScratchFolder::new().unwrap();
    let directory = scratch.folder("root/d").unwrap();
    let server = ServeCommand::anonymous(&scratch.join("root"))
        .start()
        .unwrap();
    for readable in READABLE {
        let mounted = FailingDirectory::mount(&directory, readable).unwrap();
        for command in ["LIST", "NLST", "MLSD", "MLSR"] {
            let url = server.url("d/");
            let listed = curl.run(&["-X", command, &url]).unwrap();
            let replies = listed.stderr_text();
            assert!(!replies.contains("< 226"), "{readable} {command}: {listed}");
            assert_ne!(listed.code, Some(0), "{readable} {command}: {listed}");
        }
        drop(mounted);
    }
}

#[test]
fn a_sync_deletes_nothing_by_a_part_of_a_listing() {
    require!(prerequisite());
    let scratch = ScratchFolder::new().unwrap();
    let directory = scratch.folder("root/d").unwrap();
    let local = scratch.folder("local/d").unwrap();
    std::fs::write(local.join("only here"), "content").unwrap();
    let server = ServeCommand::anonymous(&scratch.join("root"))
        .start()
        .unwrap();
    let _mounted = FailingDirectory::mount(&directory, 100).unwrap();
    let mut command = longhaul().unwrap();
    command.args(["sync", "-q", "--delete", &server.url("")]);
    let synced = run::run(command.arg(scratch.join("local"))).unwrap();
    assert_ne!(synced.code, Some(0), "{synced}");
    assert!(local.join("only here").exists(), "{synced}");
}
