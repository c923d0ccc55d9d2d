//! `longhaul cp` through tinyproxy and microsocks, with servers that refuse data connections which do not come from the proxy.

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, TestServer, path_argument};
use interop::longhaul::serve::{self, ServeCommand};
use interop::matrix::TestStore;
use interop::peer::forward_proxy::{self, ForwardProxy};
use interop::peer::tls::PeerTls;
use interop::peer::{globus_gridftp_server, nginx, vsftpd};
use interop::pki::environment::GridEnvironment;
use interop::pki::{PeerPki, PeerProxy};
use interop::require;
use interop::test_files;
use interop::tree::TestTree;

/// Starts one of the proxies.
type StartProxy = fn() -> Result<ForwardProxy>;

const PROXIES: [(&str, StartProxy); 3] = [
    ("tinyproxy", forward_proxy::start_tinyproxy),
    ("microsocks, names", || {
        forward_proxy::start_microsocks("socks5h")
    }),
    ("microsocks, addresses", || {
        forward_proxy::start_microsocks("socks5")
    }),
];

/// Files and a tree in both directions through each proxy.
fn through_each(name: &str, store: &TestStore, server: &dyn TestServer, more: &[&str]) {
    through_each_to(name, &ServerUnderTest::new(store, server), more);
}

fn through_each_to(name: &str, target: &ServerUnderTest<'_>, more: &[&str]) {
    let tree = TestTree::generate(60, interop::tree::ASCII);
    for (proxy_name, start) in PROXIES {
        let proxy = start().unwrap();
        let options = [&["--proxy", proxy.url()], more].concat();
        let mut cells = MatrixRow::new(format!("longhaul cp, {name} through {proxy_name}"));
        rows::get_and_put(&mut cells, target, &options, &test_files::SIZES);
        let streams = [&options[..], &["-p", "4"]].concat();
        rows::get_and_put(&mut cells, target, &streams, &test_files::SMALL);
        rows::trees(&mut cells, target, &tree, &options);
        cells.finish();
        if proxy_name == "tinyproxy" {
            let requests = proxy.log().matches("CONNECT ").count();
            assert!(requests > 20, "{requests} connections were asked for");
        }
    }
}

#[test]
fn cp_works_with_longhaul_through_proxies() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    through_each("longhaul", &store, &server, &[]);
    // A put over several streams: this end opens all of them.
    let proxy = forward_proxy::start_tinyproxy().unwrap();
    let source = test_files::shared(20_000_000).unwrap();
    let (from, to) = (path_argument(&source), server.url("streams"));
    let put = copy::cp(&["-p", "4", "--mode", "e", "--proxy", proxy.url(), &from, &to]).unwrap();
    assert!(put.streams > 1, "{put:?}");
    test_files::ensure_same(&source, &store.path("streams")).unwrap();
}

#[test]
fn cp_works_with_vsftpd_through_proxies() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let server = vsftpd::start(&store).unwrap();
    through_each("vsftpd", &store, &server, &[]);
}

#[test]
fn ftps_cp_works_with_vsftpd_through_proxies() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    require!(vsftpd::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let tls = PeerTls {
        session_reuse: true,
        ..PeerTls::new(&pki.host)
    };
    let server = vsftpd::start_with_tls(&store, &tls).unwrap();
    let authority = path_argument(&pki.ca_file());
    through_each("vsftpd with TLS", &store, &server, &["--ca", &authority]);
}

#[test]
fn cp_works_with_globus_gridftp_server_through_proxies() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    require!(globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = globus_gridftp_server::start(&store).unwrap();
    through_each("globus-gridftp-server", &store, &server, &[]);
}

#[test]
fn gsi_cp_works_with_globus_gridftp_server_through_proxies() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    require!(globus_gridftp_server::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let own = GridEnvironment::proxy(&pki, &pki.proxy(PeerProxy::Full).unwrap());
    let server = globus_gridftp_server::start_gsi(&store, &pki).unwrap();
    let target = ServerUnderTest::new(&store, &server).with(&own);
    through_each_to("globus-gridftp-server with GSI", &target, &[]);
}

#[test]
fn cp_works_with_web_servers_through_proxies() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    require!(nginx::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = nginx::start(&store, None).unwrap().scheme("http");
    through_each("nginx", &store, &server, &[]);
    let store = TestStore::new().unwrap();
    let server = nginx::start(&store, Some(&pki.host)).unwrap();
    let server = server.scheme("https").host("localhost");
    let authority = path_argument(&pki.ca_file());
    through_each("nginx with TLS", &store, &server, &["--ca", &authority]);
}

#[test]
fn data_goes_directly_between_two_servers_and_control_through_the_proxy() {
    require!(forward_proxy::find_tinyproxy());
    require!(forward_proxy::find_microsocks());
    let stores = [TestStore::new().unwrap(), TestStore::new().unwrap()];
    let servers = stores.each_ref().map(|store| {
        let users = store.scratch().join("users");
        serve::add_user(&users, store.root()).unwrap();
        let serving = ServeCommand::new(store.root());
        let serving = serving.option("--users", &users.to_string_lossy());
        serving.start().unwrap()
    });
    for (name, start) in PROXIES {
        let proxy = start().unwrap();
        let file = format!("src/{}", test_files::name(65_536));
        let (from, to) = (servers[0].user_url(&file), servers[1].user_url("between"));
        copy::cp(&["--proxy", proxy.url(), &from, &to])
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        if name == "tinyproxy" {
            let log = proxy.log();
            for server in &servers {
                let control = format!("CONNECT {} ", server.address());
                assert!(log.contains(&control), "{log}");
            }
            let ports = servers
                .each_ref()
                .map(|server| server.address().port().to_string());
            let requests = log.lines().filter_map(|line| line.split("CONNECT ").nth(1));
            let targets = requests.filter(|rest| rest.contains("HTTP/1.1"));
            let is_control = |target: &str| {
                ports
                    .iter()
                    .any(|port| target.contains(&format!(":{port} ")))
            };
            assert!(targets.clone().all(is_control), "{log}");
        }
    }
}
