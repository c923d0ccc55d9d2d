//! longhaul with object stores: files, trees, interrupted uploads, checksums, and refusals.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy::{self, CpSummary};
use interop::longhaul::rows::{self, ServerUnderTest, TestServer, path_argument};
use interop::longhaul::running_copy;
use interop::matrix::{self, TestStore};
use interop::peer::{PeerServer, minio, moto, s3s_fs};
use interop::pki::environment::GridEnvironment;
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;
use interop::tree::{ASCII, TestTree, UNICODE};

/// A server, and its bucket.
struct BucketPeer {
    server: PeerServer,
    bucket: &'static str,
}

impl TestServer for BucketPeer {
    fn url(&self, served: &str) -> String {
        format!("s3://{}/{served}", self.bucket)
    }

    fn log(&self) -> String {
        self.server.log()
    }
}

impl BucketPeer {
    /// The variables of a client with this key.
    fn environment(&self, key: (&str, &str)) -> GridEnvironment {
        GridEnvironment::default()
            .with(
                "AWS_ENDPOINT_URL",
                format!("http://{}", self.server.address()),
            )
            .with("AWS_ACCESS_KEY_ID", key.0)
            .with("AWS_SECRET_ACCESS_KEY", key.1)
            .with("AWS_REGION", "us-east-1")
    }
}

fn verb(environment: &GridEnvironment, arguments: &[&str]) -> Result<FinishedProgram> {
    let mut command = longhaul()?;
    environment.apply(&mut command);
    run::run(command.args(arguments))
}

/// A tree whose names a bucket can hold.
fn tree() -> TestTree {
    TestTree::generate(60, &[ASCII, UNICODE].concat())
}

#[test]
fn s3s_fs_has_what_longhaul_stores_in_it() {
    require!(s3s_fs::find());
    let store = TestStore::new().unwrap();
    let peer = BucketPeer {
        server: s3s_fs::start(&store).unwrap(),
        bucket: s3s_fs::BUCKET,
    };
    let environment = peer.environment(s3s_fs::KEY);
    let target = ServerUnderTest::new(&store, &peer).with(&environment);
    let mut cells = MatrixRow::new("s3s-fs");
    for options in [&[][..], &["-p", "4"]] {
        rows::get_and_put(&mut cells, &target, options, &test_files::SIZES);
    }
    rows::parts(&mut cells, &target, &["-p", "4"]);
    cells.check("names that signatures escape", || {
        // It has no directories without objects, and fails for one of the name of an object: trees are moto's part.
        let file = test_files::shared(65_536)?;
        for name in ["up/a b/%25+&=?;'(~", "up/\u{fc}/#x", "up/-/a@b:c"] {
            let (url, local) = (target.url(name), store.local());
            copy::cp_in(&environment, &[&path_argument(&file), &url])?;
            copy::cp_in(&environment, &[&url, &path_argument(&local)])?;
            matrix::check_and_remove(&file, &local)?;
        }
        Ok(())
    });
    cells.check("a wrong key is refused", || {
        let wrong = peer.environment((s3s_fs::KEY.0, "another secret"));
        let from = target.url(&format!("src/{}", test_files::name(1)));
        let to = path_argument(&store.local());
        copy::run_in(&wrong, &[&from, &to])?
            .expect_code(3)
            .map(drop)
    });
    cells.finish();
}

/// Processes of this program that move parts for others, and ask this server.
fn nodes_of(peer: &BucketPeer) -> Vec<i32> {
    let program = path_argument(&interop::longhaul::binary::path().unwrap());
    let mut found = super::ssh::processes_named(&program);
    let address = format!("AWS_ENDPOINT_URL=http://{}", peer.server.address());
    found.retain(|(line, pid)| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        line.contains("\0node\0") && String::from_utf8_lossy(&environment).contains(&address)
    });
    found.into_iter().map(|(_, pid)| pid).collect()
}

#[test]
fn nodes_store_the_parts_of_one_object() {
    require!(moto::find());
    let store = TestStore::new().unwrap();
    let peer = BucketPeer {
        server: moto::start(&store, &["bucket"]).unwrap(),
        bucket: "bucket",
    };
    let environment = peer.environment(s3s_fs::KEY);
    let (file, back) = (store.path("local/large"), store.path("local/back"));
    test_files::write(&file, 140_000_123, 5).unwrap();
    let put = |flags: &[&str], name: &str| {
        let ends = [path_argument(&file), peer.url(name)];
        let nodes = ["--nodes", "localhost,localhost", &ends[0], &ends[1]];
        copy::run_in(&environment, &[flags, &nodes].concat())
    };
    let check = |name: &str| {
        copy::cp_in(&environment, &[&peer.url(name), &path_argument(&back)]).unwrap();
        test_files::ensure_same(&file, &back).unwrap();
        std::fs::remove_file(&back).unwrap();
    };
    // One node alone would need ten seconds, so that the other one has begun by then.
    let finished = put(&["-v", "--limit-rate", "200M"], "shared").unwrap();
    let finished = finished.expect_success().unwrap();
    check("shared");
    let words = finished.stderr_text() + &finished.stdout_text();
    // Each node has a line, and a place in the summary.
    assert_eq!(words.matches("node localhost: ").count(), 4, "{words}");

    // The parts that a killed node has not stored are stored by the other one, or by itself when it has begun again.
    let finished = std::thread::scope(|scope| {
        let copying = scope.spawn(|| put(&["--limit-rate", "300M"], "killed"));
        super::ssh::wait_until("two nodes", || nodes_of(&peer).len() == 2);
        std::thread::sleep(Duration::from_millis(700));
        for pid in nodes_of(&peer).into_iter().take(1) {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        copying.join().unwrap().unwrap()
    });
    let lost = |warning: &String| warning.contains("is lost");
    assert!(copy::warnings(&finished).iter().any(lost), "{finished}");
    finished.expect_success().unwrap();
    check("killed");
}

/// Syncs a file twice.
fn sync_twice(store: &TestStore, environment: &GridEnvironment) -> Result<()> {
    let local = store.local();
    std::fs::create_dir_all(&local)?;
    std::fs::write(local.join("a"), "text")?;
    // An object of the same second may be older or newer.
    let file = std::fs::File::options()
        .append(true)
        .open(local.join("a"))?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))?;
    let from = path_argument(&local);
    verb(environment, &["sync", &from, "s3://bucket/synced"])?.expect_success()?;
    let again = verb(
        environment,
        &["sync", "--json", &from, "s3://bucket/synced"],
    )?;
    let summary = copy::summary(&again.expect_success()?)?;
    ensure!(summary.bytes == 0, "{summary:?}");
    Ok(())
}

/// Small objects of a tree are asked for once each, and those that are in place not for their bytes.
fn ask_once(store: &TestStore, environment: &GridEnvironment) -> Result<()> {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let local = store.local();
    std::fs::create_dir_all(&local)?;
    for name in NAMES {
        std::fs::write(local.join(name), name)?;
    }
    let (from, url) = (path_argument(&local), "s3://bucket/asked");
    copy::cp_in(environment, &["-r", &from, url])?;
    // Both copies are made in this directory, since it is there.
    let to = store.local();
    std::fs::create_dir(&to)?;
    let to = path_argument(&to);
    for (options, expected) in [
        (&["-r"][..], ["GET"; 3]),
        (&["-r", "--resume"], ["HEAD"; 3]),
    ] {
        let done = copy::run_in(environment, &[options, &["-vv", url, &to]].concat())?;
        let said = done.expect_success()?.stderr;
        let said = String::from_utf8_lossy(&said);
        let about_objects = said.lines().filter_map(|line| {
            let (_, request) = line.split_once(" > ")?;
            let (method, target) = request.split_once(' ')?;
            let is_object = NAMES
                .iter()
                .any(|n| target.ends_with(&format!("/asked/{n}")));
            is_object.then_some(method)
        });
        let about_objects: Vec<_> = about_objects.collect();
        ensure!(about_objects == expected, "{options:?}: {about_objects:?}");
    }
    Ok(())
}

/// Puts and gets a file with a role of a profile.
fn take_a_role(store: &TestStore, peer: &BucketPeer) -> Result<()> {
    let folder = store.local();
    std::fs::create_dir_all(&folder)?;
    let (config, keys) = (folder.join("config"), folder.join("keys"));
    let text = "[profile reader]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = base\n";
    std::fs::write(&config, text)?;
    std::fs::write(
        &keys,
        "[base]\naws_access_key_id = k\naws_secret_access_key = s\n",
    )?;
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600))?;
    let endpoint = format!("http://{}", peer.server.address());
    let environment = GridEnvironment::default()
        .with("AWS_ENDPOINT_URL", endpoint.clone())
        .with("AWS_ENDPOINT_URL_STS", endpoint)
        .with("AWS_CONFIG_FILE", path_argument(&config))
        .with("AWS_SHARED_CREDENTIALS_FILE", path_argument(&keys));
    let (source, local) = (test_files::shared(65_536)?, store.local());
    let served = format!("s3://reader@{}/with-role", peer.bucket);
    copy::cp_in(&environment, &[&path_argument(&source), &served])?;
    copy::cp_in(&environment, &[&served, &path_argument(&local)])?;
    matrix::check_and_remove(&source, &local)
}

/// Puts and gets files with a key for encryption.
fn encrypt(store: &TestStore, peer: &BucketPeer, environment: &GridEnvironment) -> Result<()> {
    let key = store.local();
    std::fs::write(&key, [7; 32])?;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
    let environment = environment
        .clone()
        .with("LONGHAUL_S3_SSE_C_KEY", path_argument(&key));
    for size in [65_536, 20_000_000] {
        let (source, local) = (test_files::shared(size)?, store.local());
        let served = peer.url("encrypted");
        copy::cp_in(&environment, &[&path_argument(&source), &served])?;
        copy::cp_in(&environment, &["-p", "3", &served, &path_argument(&local)])?;
        matrix::check_and_remove(&source, &local)?;
        verb(&environment, &["mv", &served, &peer.url("moved")])?.expect_success()?;
    }
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644))?;
    let refused = verb(&environment, &["stat", &peer.url("moved")])?;
    refused.expect_code(3).map(drop)
}

/// Gets an object that Amazon's library has stored in parts, with checksums of these.
fn compare_parts(
    store: &TestStore,
    peer: &BucketPeer,
    environment: &GridEnvironment,
    algorithm: &str,
) -> Result<()> {
    let (source, local) = (test_files::shared(20_000_000)?, store.local());
    moto::store_in_parts(&peer.server, &source, (peer.bucket, "parts"), algorithm)?;
    let get = copy::cp_in(environment, &[&peer.url("parts"), &path_argument(&local)])?;
    let expected = format!("{}-composite", algorithm.to_lowercase());
    ensure!(get.verified == expected, "{get:?}");
    matrix::check_and_remove(&source, &local)
}

/// Compares a file with its object in parts by what the server keeps of these, with the same and with other content.
fn sync_parts(
    store: &TestStore,
    peer: &BucketPeer,
    environment: &GridEnvironment,
    put: impl FnOnce(&Path, &str) -> Result<()>,
) -> Result<()> {
    const SIZE: u64 = 20_000_000;
    let (local, there) = (store.local(), store.upload());
    std::fs::create_dir_all(&local)?;
    let file = local.join("f");
    std::fs::copy(test_files::shared(SIZE)?, &file)?;
    put(&file, &format!("{there}/f"))?;
    let (from, to) = (path_argument(&local), peer.url(&there));
    let arguments = ["sync", "--checksum", "--json", &from, &to];
    let bytes = || -> Result<u64> {
        let run = verb(environment, &arguments)?.expect_success()?;
        Ok(copy::summary(&run)?.bytes)
    };
    let moved = bytes()?;
    ensure!(moved == 0, "{moved} bytes were copied again");
    let changed = std::fs::File::options().write(true).open(&file)?;
    changed.write_all_at(b"changed", SIZE / 2)?;
    let moved = bytes()?;
    ensure!(moved == SIZE, "{moved} bytes of a changed file were copied");
    Ok(())
}

/// Copies a tree of which some objects are in an archive, and one of these is restored.
fn copy_from_an_archive(
    store: &TestStore,
    peer: &BucketPeer,
    environment: &GridEnvironment,
) -> Result<()> {
    let (source, there, local) = (test_files::shared(65_536)?, store.upload(), store.local());
    let plain = peer.url(&format!("{there}/plain"));
    copy::cp_in(environment, &[&path_argument(&source), &plain])?;
    for (name, is_restored) in [("a", false), ("b", false), ("restored", true)] {
        let key = format!("{there}/{name}");
        moto::store_in_archive(&peer.server, &source, (peer.bucket, &key), is_restored)?;
    }
    let (from, to) = (peer.url(&there), path_argument(&local));
    let dry = verb(environment, &["cp", "-n", "-r", &from, &to])?.expect_code(3)?;
    let text = dry.stderr_text();
    let (told, files) = text.split_once("would copy").unwrap_or_default();
    ensure!(told.contains("it is in the archive GLACIER"), "{dry}");
    ensure!(told.contains("the same for 1 more file: s3://"), "{dry}");
    ensure!(files.contains("2 files would be copied"), "{dry}");
    copy::run_in(environment, &["-r", &from, &to])?.expect_code(1)?;
    for name in ["plain", "restored"] {
        test_files::ensure_same(&source, &local.join(name))?;
    }
    let without = ["-r", "--exclude", "[ab]", &from, &to];
    copy::cp_in(environment, &without).map(drop)
}

/// Kills a put on another machine, which is gone, and has its upload told and removed.
fn leave_an_upload(
    store: &TestStore,
    peer: &BucketPeer,
    environment: &GridEnvironment,
) -> Result<()> {
    let source = test_files::shared(test_files::LARGE)?;
    let (from, to) = (path_argument(&source), peer.url(&store.upload()));
    let elsewhere = environment
        .clone()
        .with("XDG_STATE_HOME", path_argument(&store.local()));
    let slow = ["-p", "3", "--limit-rate", "240M", &from, &to];
    let slow = copy::command_in(&elsewhere, &slow)?;
    running_copy::kill_when_safe(slow, 20_000_000, Duration::ZERO)?;
    let put = copy::run_in(environment, &["-p", "3", &from, &to])?.expect_success()?;
    ensure!(put.stdout_text().contains("rm --unfinished"), "{put}");
    let expect = |arguments: &[&str], expected: &str| -> Result<()> {
        let run = verb(environment, arguments)?.expect_success()?;
        let told = format!("{}{}", run.stdout_text(), run.stderr_text());
        ensure!(told.contains(expected), "{arguments:?}: {run}");
        Ok(())
    };
    expect(&["doctor", &to], "unfinished uploads: 1, with")?;
    expect(&["rm", "--unfinished", &to], "1 unfinished upload is kept")?;
    expect(&["rm", "-n", "--unfinished=0s", &to], "would delete")?;
    expect(&["rm", "--unfinished=0s", &to], "")?;
    expect(&["doctor", &to], "unfinished uploads: none")?;
    verb(environment, &["stat", &to])?
        .expect_success()
        .map(drop)
}

/// Files and trees there and back, interrupted, listed, changed and removed, in the buckets `bucket` and `other`. `verified`: how an
/// object of a size is compared.
fn keep_what_is_stored(
    name: &str,
    (store, peer): (&TestStore, &BucketPeer),
    environment: &GridEnvironment,
    verified: impl Fn(u64) -> &'static str,
) {
    let mut cells = MatrixRow::new(name);
    let there_and_back = |size: u64, options: &[&str]| -> Result<[CpSummary; 2]> {
        let served = peer.url(&store.upload());
        let (source, local) = (test_files::shared(size)?, store.local());
        let (from, to) = (path_argument(&source), path_argument(&local));
        let put = copy::cp_in(environment, &[options, &[&from, &served]].concat())?;
        let get = copy::cp_in(environment, &[options, &[&served, &to]].concat())?;
        matrix::check_and_remove(&source, &local)?;
        Ok([put, get])
    };
    for size in test_files::SIZES {
        cells.check(format!("{size} bytes there and back"), || {
            let verified = verified(size);
            for summary in there_and_back(size, &["-p", "4"])? {
                ensure!(summary.verified == verified, "{summary:?}");
            }
            Ok(())
        });
    }
    cells.check("a killed put goes on with the parts that arrived", || {
        let source = test_files::shared(test_files::LARGE)?;
        let (from, to) = (path_argument(&source), peer.url(&store.upload()));
        // 30 MB/s
        let slow = ["-p", "3", "--limit-rate", "240M", &from, &to];
        let slow = copy::command_in(environment, &slow)?;
        let safe = running_copy::kill_when_safe(slow, 30_000_000, Duration::ZERO)?;
        let summary = copy::cp_in(environment, &["-p", "3", &from, &to])?;
        ensure!(
            summary.bytes <= test_files::LARGE - safe,
            "{} bytes moved again, {safe} were safe",
            summary.bytes
        );
        let local = store.local();
        copy::cp_in(environment, &[&to, &path_argument(&local)])?;
        matrix::check_and_remove(&source, &local)
    });
    cells.check("a tree there and back, listed, and removed", || {
        let (tree, local, back) = (tree(), store.local(), store.local());
        tree.write(&local)?;
        let there = "s3://bucket/tree";
        copy::cp_in(environment, &["-r", &path_argument(&local), there])?;
        copy::cp_in(environment, &["-r", there, &path_argument(&back)])?;
        tree.ensure_same_as(&back)?;
        let listed = verb(environment, &["ls", "s3://bucket/"])?.expect_success()?;
        ensure!(listed.stdout_text().contains("tree"), "{listed}");
        verb(environment, &["rm", "-r", there])?.expect_success()?;
        verb(environment, &["ls", there])?.expect_code(4).map(drop)
    });
    cells.check("sync copies nothing twice", || {
        sync_twice(store, environment)
    });
    cells.check("from a pipe, and from bucket to bucket", || {
        let text = vec![b'x'; 100_000];
        let mut command = longhaul()?;
        environment.apply(&mut command);
        command.args(["cp", "-", "s3://bucket/piped"]);
        run::run_with_input(&mut command, &text, run::LIMIT)?.expect_success()?;
        copy::cp_in(environment, &["s3://bucket/piped", "s3://other/relayed"])?;
        let to = store.local();
        copy::cp_in(environment, &["s3://other/relayed", &path_argument(&to)])?;
        ensure!(std::fs::read(&to)? == text, "the bytes differ");
        Ok(())
    });
    cells.check("what is missing is told", || {
        let to = path_argument(&store.local());
        for from in ["s3://bucket/missing", "s3://nobody/missing"] {
            copy::run_in(environment, &[from, &to])?.expect_code(4)?;
        }
        Ok(())
    });
    cells.check("one request for a small object", || {
        ask_once(store, environment)
    });
    cells.check("mv, mkdir and rm", || {
        let file = path_argument(&test_files::shared(65_536)?);
        copy::cp_in(environment, &[file.as_str(), "s3://bucket/old"])?;
        verb(environment, &["mv", "s3://bucket/old", "s3://bucket/new"])?.expect_success()?;
        verb(environment, &["stat", "s3://bucket/old"])?.expect_code(4)?;
        verb(environment, &["rm", "s3://bucket/new"])?.expect_success()?;
        verb(environment, &["mkdir", "s3://bucket/d"])?.expect_success()?;
        verb(environment, &["stat", "s3://bucket/d"])?
            .expect_success()
            .map(drop)
    });
    cells.finish();
}

#[test]
fn moto_compares_the_checksums_of_what_longhaul_stores() {
    require!(moto::find());
    let store = TestStore::new().unwrap();
    let peer = BucketPeer {
        server: moto::start(&store, &["bucket", "other"]).unwrap(),
        bucket: "bucket",
    };
    let environment = peer.environment(("key", "secret"));
    // Of objects in parts it has a checksum of checksums, and does not say so.
    let verified = |size: u64| if size < 16 << 20 { "crc32c" } else { "size" };
    keep_what_is_stored("moto", (&store, &peer), &environment, verified);
}

#[test]
fn minio_has_what_longhaul_stores_in_it() {
    // It takes a quarter of an hour to build, so it may be missing.
    if let Err(reason) = minio::find() {
        println!("SKIPPED: {reason}");
        return;
    }
    let store = TestStore::new().unwrap();
    let peer = BucketPeer {
        server: minio::start(&store, &["bucket", "other"]).unwrap(),
        bucket: "bucket",
    };
    // Another test has a bucket of this name at the same time.
    let state = path_argument(&store.local());
    let environment = peer.environment(minio::KEY).with("XDG_STATE_HOME", state);
    keep_what_is_stored("MinIO", (&store, &peer), &environment, |_| "crc32c");
    let mut cells = MatrixRow::new("MinIO");
    cells.check("a wrong key is refused", || {
        let wrong = peer.environment((minio::KEY.0, "another secret"));
        let refused = verb(&wrong, &["ls", "s3://bucket/"])?;
        refused.expect_code(3).map(drop)
    });
    cells.check("uploads that were left are shown and removed", || {
        leave_an_upload(&store, &peer, &environment)
    });
    cells.finish();
}

#[test]
fn moto_has_roles_keys_and_parts_of_others() {
    require!(moto::find());
    let store = TestStore::new().unwrap();
    let peer = BucketPeer {
        server: moto::start(&store, &["bucket"]).unwrap(),
        bucket: "bucket",
    };
    let environment = peer.environment(("key", "secret"));
    let mut cells = MatrixRow::new("moto");
    cells.check("a role is taken with the key of another profile", || {
        take_a_role(&store, &peer)
    });
    cells.check("objects are encrypted with a key of the user's", || {
        encrypt(&store, &peer, &environment)
    });
    for algorithm in ["SHA256", "CRC32"] {
        cells.check(format!("a {algorithm} of parts is compared"), || {
            compare_parts(&store, &peer, &environment, algorithm)
        });
    }
    cells.check("sync compares the checksums of parts", || {
        sync_parts(&store, &peer, &environment, |file, key| {
            moto::store_in_parts(&peer.server, file, (peer.bucket, key), "SHA256")
        })
    });
    cells.check("sync compares the tags of objects in parts", || {
        let tags = "AWS_REQUEST_CHECKSUM_CALCULATION";
        let environment = environment.clone().with(tags, "when_required");
        sync_parts(&store, &peer, &environment, |file, key| {
            let (from, to) = (path_argument(file), peer.url(key));
            let put = copy::cp_in(&environment, &["-p", "3", &from, &to])?;
            ensure!(put.verified == "md5-composite", "{put:?}");
            Ok(())
        })
    });
    cells.check("objects of an archive are told and others copied", || {
        copy_from_an_archive(&store, &peer, &environment)
    });
    cells.check("uploads that were left are told, shown and removed", || {
        leave_an_upload(&store, &peer, &environment)
    });
    cells.finish();
}
