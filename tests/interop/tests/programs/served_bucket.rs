//! `longhaul serve --root s3://…`: a bucket, seen by clients of FTP and GridFTP.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, TestServer, path_argument};
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::{self, TestStore};
use interop::peer::curl::Curl;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::peer::lftp::Lftp;
use interop::peer::{PeerServer, moto, s3s_fs};
use interop::pki::environment::GridEnvironment;
use interop::require;
use interop::run;
use interop::test_files;
use interop::tree::{ASCII, TestTree, UNICODE};

/// The variables of a program that asks this server for buckets.
pub(crate) fn environment(bucket_server: &PeerServer) -> GridEnvironment {
    GridEnvironment::default()
        .with(
            "AWS_ENDPOINT_URL",
            format!("http://{}", bucket_server.address()),
        )
        .with("AWS_ACCESS_KEY_ID", s3s_fs::KEY.0)
        .with("AWS_SECRET_ACCESS_KEY", s3s_fs::KEY.1)
        .with("AWS_REGION", "us-east-1")
}

/// A server of a bucket.
fn serve(bucket_server: &PeerServer, root: &str) -> Result<LonghaulServer> {
    ServeCommand::anonymous(root.as_ref())
        .environment(&environment(bucket_server))
        .start()
}

/// A folder that s3s-fs has as a bucket, which longhaul serves. It compares signatures, and has no directories.
struct FolderBucket {
    store: TestStore,
    _bucket_server: PeerServer,
    server: LonghaulServer,
}

impl FolderBucket {
    fn start() -> Result<Self> {
        let store = TestStore::new()?;
        let bucket_server = s3s_fs::start(&store)?;
        let server = serve(&bucket_server, &format!("s3://{}", s3s_fs::BUCKET))?;
        Ok(Self {
            store,
            _bucket_server: bucket_server,
            server,
        })
    }
}

impl TestServer for FolderBucket {
    fn url(&self, served: &str) -> String {
        self.server.url(served)
    }

    fn log(&self) -> String {
        self.server.log()
    }
}

#[test]
fn curl_and_lftp_move_files_of_a_served_bucket() {
    require!(s3s_fs::find());
    let (curl, lftp) = (require!(Curl::find()), require!(Lftp::find()));
    let bucket = FolderBucket::start().unwrap();
    let (store, server) = (&bucket.store, &bucket.server);
    let curl = |arguments: &[&str]| -> Result<()> {
        let run = curl.run(arguments)?;
        server.explain(run.expect_success()).map(drop)
    };
    let mut cells = MatrixRow::new("a served bucket");
    matrix::get(&mut cells, store, &test_files::SIZES, |from, to| {
        curl(&["-o", &path_argument(to), &server.url(from)])
    });
    matrix::put(&mut cells, store, &test_files::SIZES, |from, to| {
        // As one path: s3s-fs fails (500) for the directory that curl would enter.
        let method = ["--ftp-method", "nocwd"];
        curl(&[&method[..], &["-T", &path_argument(from), &server.url(to)]].concat())
    });
    matrix::get_parts(&mut cells, store, |from, offset, length, to| {
        let range = format!("{offset}-{}", offset + length - 1);
        curl(&["-r", &range, "-o", &path_argument(to), &server.url(from)])
    });
    let script = |commands: &str| -> Result<()> {
        let run = lftp.script(server.address(), commands);
        server.explain(run).map(drop)
    };
    matrix::put(&mut cells, store, &test_files::SIZES, |from, to| {
        script(&format!("put \"{}\" -o /{to}", from.display()))
    });
    matrix::get(&mut cells, store, &test_files::SIZES, |from, to| {
        script(&format!("pget -n 4 /{from} -o \"{}\"", to.display()))
    });
    cells.finish();
}

#[test]
fn globus_url_copy_moves_files_of_a_served_bucket() {
    require!(s3s_fs::find());
    let client = require!(GlobusUrlCopy::find());
    let bucket = FolderBucket::start().unwrap();
    let (store, server) = (&bucket.store, &bucket.server);
    let mut cells = MatrixRow::new("a served bucket, globus-url-copy");
    for options in [&[][..], &["-p", "4"], &["-fast", "-p", "4"]] {
        matrix::get(&mut cells, store, &test_files::SIZES, |from, to| {
            let copied = client.copy(options, &server.url(from), &file_url(to));
            server.explain(copied).map(drop)
        });
        matrix::put(&mut cells, store, &test_files::SIZES, |from, to| {
            let copied = client.copy(options, &file_url(from), &server.url(to));
            server.explain(copied).map(drop)
        });
    }
    cells.finish();
}

#[test]
fn longhaul_copies_to_and_from_a_served_bucket() {
    require!(s3s_fs::find());
    let bucket = FolderBucket::start().unwrap();
    let target = ServerUnderTest::new(&bucket.store, &bucket);
    let mut cells = MatrixRow::new("a served bucket, longhaul");
    for options in [&[][..], &["-p", "4", "--verify", "crc32c"]] {
        rows::get_and_put(&mut cells, &target, options, &test_files::SIZES);
    }
    rows::parts(&mut cells, &target, &["-p", "4"]);
    cells.finish();
}

/// Trees, with the names that keys can have, and requests that change names.
#[test]
fn trees_and_names_of_a_served_bucket() {
    require!(moto::find());
    let (curl, lftp) = (require!(Curl::find()), require!(Lftp::find()));
    let store = TestStore::new().unwrap();
    let bucket_server = moto::start(&store, &["bucket"]).unwrap();
    let server = serve(&bucket_server, "s3://bucket/data").unwrap();
    let tree = TestTree::generate(60, &[ASCII, UNICODE].concat());
    store.add_tree("tree", &tree).unwrap();
    let source = store.path("src/tree");
    let mut cells = MatrixRow::new("trees of a served bucket");
    cells.check("longhaul", || {
        let local = store.local();
        copy::cp(&["-r", &path_argument(&source), &server.url("lh")])?;
        copy::cp(&["-r", &server.url("lh"), &path_argument(&local)])?;
        tree.ensure_same_as(&local)
    });
    cells.check("lftp", || {
        let local = store.local();
        let script = format!(
            "mirror -R \"{}\" /lftp; mirror /lftp \"{}\"; mkdir /new; mv /lftp/x /y; rm -r /lftp; rmdir /new; cls -1 /",
            source.display(),
            local.display()
        );
        std::fs::write(source.join("x"), "moved")?;
        let listed = server.explain(lftp.script(server.address(), &script))?;
        std::fs::remove_file(source.join("x"))?;
        std::fs::remove_file(local.join("x"))?;
        tree.ensure_same_as(&local)?;
        ensure!(listed.stdout_text().ends_with("/lh/\n/y\n"), "{listed}");
        Ok(())
    });
    cells.check("what a bucket has not", || {
        let url = server.url("");
        for (command, code) in [
            ("-SITE CHMOD 600 y", "502"),
            ("-MFMT 20200101000000 y", "502"),
            ("-SITE UTIME 20200101000000 y", "502"),
            ("-RMD lh", "550"),
            ("-CWD y", "550"),
            ("-SIZE none", "550"),
        ] {
            let run = curl.run(&["-Q", command, &url])?.expect_failure()?;
            let reply = format!("< {code}");
            ensure!(run.stderr_text().contains(&reply), "{command}: {run}");
        }
        let file = path_argument(&test_files::shared(1)?);
        let appended = curl
            .run(&["-a", "-T", &file, &server.url("y")])?
            .expect_failure()?;
        ensure!(appended.stderr_text().contains("< 504"), "{appended}");
        Ok(())
    });
    cells.finish();
}

#[test]
fn nothing_is_left_in_a_bucket_of_an_upload_whose_client_dies() {
    require!(moto::find());
    let store = TestStore::new().unwrap();
    let bucket_server = moto::start(&store, &["bucket"]).unwrap();
    let server = serve(&bucket_server, "s3://bucket/data").unwrap();
    let source = path_argument(&test_files::shared(test_files::LARGE).unwrap());
    let arguments = [
        "-p",
        "3",
        "--limit-rate",
        "240M",
        &source,
        &server.url("dead"),
    ];
    let unfinished = || {
        let mut command = longhaul().unwrap();
        environment(&bucket_server).apply(&mut command);
        let arguments = ["rm", "--unfinished=0s", "-n", "s3://bucket/"];
        let run = run::run(command.args(arguments)).unwrap();
        let run = run.expect_success().unwrap();
        format!("{}{}", run.stdout_text(), run.stderr_text())
    };
    let wait_until = |is_there: bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while unfinished().contains("dead") != is_there {
            assert!(Instant::now() < deadline, "{is_there}: {}", server.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let mut put = RunningCopy::start(copy::command(&arguments).unwrap()).unwrap();
    wait_until(true);
    put.kill();
    wait_until(false);
    let mut list = longhaul().unwrap();
    environment(&bucket_server).apply(&mut list);
    let listed = run::run(list.args(["ls", "-R", "s3://bucket/"])).unwrap();
    let listed = listed.expect_success().unwrap().stdout_text();
    assert!(!listed.contains("dead"), "{listed}");
}

#[test]
fn a_bucket_that_refuses_or_is_away_is_told_in_plain_words() {
    require!(s3s_fs::find());
    let curl = require!(Curl::find());
    let store = TestStore::new().unwrap();
    let mut bucket_server = s3s_fs::start(&store).unwrap();
    let root = format!("s3://{}", s3s_fs::BUCKET);
    let mut wrong = longhaul().unwrap();
    environment(&bucket_server)
        .with("AWS_SECRET_ACCESS_KEY", "another secret")
        .apply(&mut wrong);
    let refused = run::run(wrong.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--anonymous",
        "ro",
        "--root",
        &root,
    ]));
    let refused = refused.unwrap().expect_failure().unwrap();
    let told = refused.stderr_text();
    assert!(told.contains("cannot serve s3://store"), "{refused}");
    let mut check = longhaul().unwrap();
    environment(&bucket_server).apply(&mut check);
    let quota = [
        "serve",
        "--check",
        "--anonymous",
        "rw",
        "--quota",
        "1G",
        "--root",
        &root,
    ];
    let refused = run::run(check.args(quota)).unwrap().expect_code(2).unwrap();
    assert!(
        refused
            .stderr_text()
            .contains("quota is for a root that is a directory"),
        "{refused}"
    );

    let server = serve(&bucket_server, &root).unwrap();
    let small = format!("src/{}", test_files::name(65_536));
    let get = || curl.run(&["-o", "/dev/null", &server.url(&small)]).unwrap();
    get().expect_success().unwrap();
    bucket_server.guard().kill();
    let away = get().expect_failure().unwrap();
    assert!(away.stderr_text().contains("< 451"), "{away}");
    let file = path_argument(&test_files::shared(65_536).unwrap());
    let put = curl.run(&["-T", &file, &server.url("new")]).unwrap();
    assert!(
        put.expect_failure()
            .unwrap()
            .stderr_text()
            .contains("< 451")
    );
}

#[test]
fn an_object_that_goes_away_while_it_is_sent_fails_the_transfer() {
    require!(s3s_fs::find());
    let bucket = FolderBucket::start().unwrap();
    let (store, server) = (&bucket.store, &bucket.server);
    let served = store.path("gone");
    std::fs::copy(test_files::shared(test_files::LARGE).unwrap(), &served).unwrap();
    let local = path_argument(&store.local());
    let arguments = [
        "--limit-rate",
        "80M",
        "--retries",
        "0",
        &server.url("gone"),
        &local,
    ];
    let mut get = RunningCopy::start(copy::command(&arguments).unwrap()).unwrap();
    get.wait_until_safe(1_000_000).unwrap();
    std::fs::remove_file(&served).unwrap();
    let status = get.wait_for_end().unwrap();
    // No such file.
    assert_eq!(status.code(), Some(4), "{}", server.log());
}
