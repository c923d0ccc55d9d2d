//! Clients that were written for other servers.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{TOKEN, TestService, program};

/// The paper's two calls, and everything else, with the client in Python's library and nothing more.
const PYTHON: &str = r#"
import sys, xmlrpc.client
address, token = sys.argv[1:]
server = xmlrpc.client.ServerProxy("http://" + address)
assert server.EnableGetBufferSize("data") == 125000
info = server.EnableGetNetInfo("data")
assert info["client"] == "127.0.0.1" and info["rtt"]["latest"] == 0.001, info
assert info["bandwidth"]["latest"] == 1e9, info
assert server.EnableGetBufferSize("data", "192.0.2.1") == 1250000
assert server.EnableGetStreams("data") >= 1
advice = server.EnableGetAdvice("data", {"client": "192.0.2.1", "bytes": 5e12, "must_set_buffer": True})
assert advice["client"] == "192.0.2.1" and 0 < advice["confidence"] <= 1 and advice["why"], advice
assert server.EnableGetQoS("data")["dscp"] == 10
assert "EnableGetNetInfo" in server.system.listMethods()
assert "buffer" in server.system.methodHelp("EnableGetBufferSize")
assert server.system.methodSignature("EnableGetStreams")[0] == ["int", "string"]
for call, code in [
    (lambda: server.EnableGetBufferSize("data", "192.0.2.200"), 404),
    (lambda: server.EnableAddHost("192.0.2.8"), 403),
    (lambda: server.EnableNothing(), -32601),
    (lambda: server.EnableGetBufferSize(1, 2, 3), -32602),
]:
    try:
        print("no fault:", call())
        sys.exit(1)
    except xmlrpc.client.Fault as fault:
        assert fault.faultCode == code, fault
with_token = xmlrpc.client.ServerProxy("http://admin:%s@%s/RPC2" % (token, address))
assert with_token.EnableAddHost("192.0.2.8") is True
assert with_token.EnableSetTests("192.0.2.8", {"ping": False}) is True
assert with_token.EnableReport({"client": "192.0.2.8", "values": {"rtt": 0.25}}) is True
assert server.EnableGetNetInfo("data", "192.0.2.8")["rtt"]["latest"] == 0.25
assert with_token.EnableRunTest("192.0.2.8", "ping") is True
assert any(host["client"] == "192.0.2.8" for host in server.EnableListHosts())
assert with_token.EnableRemoveHost("192.0.2.8") is True
"#;

fn service() -> TestService {
    let service = TestService::start();
    service.measured("127.0.0.1", 1.0, 1000.0);
    service.measured("192.0.2.1", 100.0, 100.0);
    service
}

fn output(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
fn pythons_xmlrpc_client_works_unaided() {
    let Some(python) = program(&["python3"]) else {
        return;
    };
    let service = service();
    let mut command = Command::new(python);
    command.args(["-c", PYTHON, &service.address.to_string(), TOKEN]);
    output(&mut command, "");
}

#[test]
fn curl_sends_a_chunked_call() {
    let Some(curl) = program(&["curl"]) else {
        return;
    };
    let service = service();
    let call = "<?xml version=\"1.0\"?><methodCall><methodName>EnableGetBufferSize</methodName><params><param>\
                <value>data</value></param></params></methodCall>";
    let mut command = Command::new(curl);
    command
        .args([
            "-sS",
            "--fail",
            "-H",
            "Transfer-Encoding: chunked",
            "--data-binary",
            "@-",
        ])
        .arg(format!("http://{}/RPC2", service.address));
    let text = output(&mut command, call);
    assert!(
        text.contains("<i4>125000</i4>") || text.contains("<int>125000</int>"),
        "{text}"
    );
}

#[test]
fn the_xmlrpc_command_of_the_c_library_works() {
    let Some(xmlrpc) = program(&["xmlrpc"]) else {
        return;
    };
    let service = service();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(&xmlrpc);
        command.arg(format!("http://{}/RPC2", service.address));
        output(command.args(arguments), "")
    };
    let buffer = ask(&["EnableGetBufferSize", "s/data"]);
    assert!(buffer.contains("125000"), "{buffer}");
    let advice = ask(&["EnableGetAdvice", "s/data"]);
    assert!(
        advice.contains("confidence") && advice.contains("why"),
        "{advice}"
    );
    let methods = ask(&["system.listMethods"]);
    assert!(methods.contains("EnableGetQoS"), "{methods}");
}
