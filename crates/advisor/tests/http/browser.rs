//! The web page in a real browser: Chromium without a display, driven by its DevTools protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use advisor::config::StoreUrl;
use advisor::http::ServerLimits;

use crate::harness::{PATIENCE, TestService, program, until};

/// A browser with one page. Its processes are killed when this is dropped.
struct Browser {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: String,
    number: u64,
    /// Errors that the page or the browser told.
    errors: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start(chromium: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The pipe is on the descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
                "sh",
            ])
            .arg(chromium)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-extensions",
            ])
            .args(["--remote-debugging-pipe", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut browser = Self {
            commands: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
            session: String::new(),
            number: 0,
            errors: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &target);
        attached["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut browser.session);
        for domain in [
            "Page.enable",
            "Runtime.enable",
            "Log.enable",
            "Network.enable",
        ] {
            browser.call(domain, &json!({}));
        }
        browser
    }

    /// Calls a method and returns its result; events that come before it are looked through for errors.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.commands
            .write_all(format!("{command}\0").as_bytes())
            .unwrap();
        loop {
            let mut text = Vec::new();
            self.answers.read_until(0, &mut text).unwrap();
            assert_eq!(text.pop(), Some(0), "the browser has ended");
            let message: Value = serde_json::from_slice(&text).unwrap();
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let is_error = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => parameters["type"] == "error",
            "Log.entryAdded" => parameters["entry"]["level"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(parameters.to_string());
        }
    }

    /// The value of an expression on the page.
    fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &parameters);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    fn until(&mut self, expression: &str) {
        until(expression, || self.value(expression) == true);
    }

    fn open(&mut self, address: &str, width: u32) {
        let screen =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        self.call("Page.navigate", &json!({ "url": address }));
        self.until("location.protocol === 'http:' && document.readyState === 'complete'");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        // Killing fails if no process is left, which is fine.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}

const CHROMIUM: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

fn rows() -> &'static str {
    "document.querySelectorAll('#paths tbody tr').length"
}

#[test]
fn the_page_shows_paths_and_follows_them() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let service = TestService::start();
    service.measured("192.0.2.1", 100.0, 100.0);
    service.measured("192.0.2.1", 110.0, 90.0);
    service.measured("198.51.100.7", 5.0, 1000.0);
    let mut browser = Browser::start(&chromium);
    browser.open(&format!("http://{}/", service.address), 1280);
    browser.until(&format!("{} === 2", rows()));
    browser.until("document.getElementById('state').textContent === 'live'");
    let text = browser.value("document.querySelector('#paths tbody').innerText");
    for part in [
        "192.0.2.1",
        "105 ms",
        "95.0 Mbit/s",
        "198.51.100.7",
        "1.00 Gbit/s",
    ] {
        assert!(
            text.as_str().unwrap().contains(part),
            "{part} is not in {text}"
        );
    }
    // A new path appears, and a transfer in progress is seen, without a reload.
    service.measured("203.0.113.5", 50.0, 10.0);
    browser.until(&format!("{} === 3", rows()));
    service
        .advisor
        .transfer_started("192.0.2.1".parse().unwrap());
    browser.until("document.body.innerText.includes('1 transfer runs')");
    service.advisor.transfer_ended("192.0.2.1".parse().unwrap());
    browser.until("!document.body.innerText.includes('1 transfer runs')");
    service.advisor.remove_host("203.0.113.5".parse().unwrap());
    browser.until(&format!("{} === 2", rows()));
    // Search.
    browser.value(
        "const box = document.getElementById('search'); box.value = '198'; box.dispatchEvent(new Event('input'))",
    );
    browser.until(&format!("{} === 1", rows()));
    let found = browser.value("document.querySelector('#paths tbody button').textContent");
    assert_eq!(found, "198.51.100.7");
    browser.value("box.value = ''; box.dispatchEvent(new Event('input'))");
    browser.until(&format!("{} === 2", rows()));
    // History.
    until("the history is written", || {
        let history = service.get("/api/v1/paths/192.0.2.1/history").json();
        history["points"].as_array().unwrap().len() == 2
    });
    browser.value("document.querySelector('#paths tbody button').click()");
    browser.until("document.querySelectorAll('#plots svg path.line').length === 2");
    assert_eq!(
        browser.value("document.querySelectorAll('#plots svg circle').length"),
        4
    );
    let line = browser.value("document.querySelector('#plots path.line').getTotalLength() > 10");
    assert_eq!(line, true);
    assert_eq!(browser.errors, [] as [String; 0]);
}

#[test]
fn an_empty_page_says_the_next_step_and_who_serves_it() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let service = TestService::with(ServerLimits::default(), |config| {
        config.server_name = "dtn1.example".to_owned();
    });
    let mut browser = Browser::start(&chromium);
    browser.open(&format!("http://{}/", service.address), 1280);
    browser.until("document.title === 'dtn1.example – longhaul advisor'");
    let head = browser.value("document.querySelector('h1').textContent");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(head, format!("longhaul advisor {version} on dtn1.example"));
    browser.until(
        "document.getElementById('empty').textContent.includes('longhaul advisor add CLIENT')",
    );
    let zone = browser.value("document.getElementById('zone').textContent");
    assert!(zone.as_str().unwrap().contains("time zone, "), "{zone}");
    service.measured("192.0.2.1", 100.0, 100.0);
    browser.until(&format!("{} === 1", rows()));
    browser.until("document.getElementById('empty').hidden");
    browser.value(
        "const box = document.getElementById('search'); box.value = '198'; box.dispatchEvent(new Event('input'))",
    );
    browser.until("document.getElementById('empty').textContent.includes('No client has “198”')");
    assert_eq!(browser.errors, [] as [String; 0]);
}

#[test]
fn a_path_has_an_address_of_its_own_and_its_plots_have_round_ticks() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let service = TestService::start();
    service.measured("2001:db8::7", 87.0, 100.0);
    service.measured("192.0.2.1", 5.0, 10.0);
    until("the history is written", || {
        let history = service.get("/api/v1/paths/2001:db8::7/history").json();
        history["points"].as_array().unwrap().len() == 1
    });
    let mut browser = Browser::start(&chromium);
    let address = format!("http://{}/#2001%3Adb8%3A%3A7?since=24h", service.address);
    browser.open(&address, 1280);
    browser.until("document.querySelectorAll('#plots svg').length === 2");
    assert_eq!(
        browser.value("document.getElementById('since').value"),
        "24h"
    );
    let ticks = "[...document.querySelectorAll('#plots figure:first-child .tick')].map((tick) => tick.textContent)";
    let expected = json!(["0.00 ms", "50.0 ms", "100 ms"]);
    assert_eq!(browser.value(ticks), expected);
    browser.until("document.title.startsWith('2001:db8::7 – ')");
    // Another path is another address, and the browser's way back leads to the first.
    browser.until(&format!("{} === 2", rows()));
    browser.value(
        "[...document.querySelectorAll('#paths button')].find((one) => one.textContent === '192.0.2.1').click()",
    );
    browser.until("document.getElementById('detail-client').textContent === '192.0.2.1'");
    assert_eq!(browser.value("location.hash"), "#192.0.2.1?since=24h");
    browser.value("history.back()");
    browser.until("document.getElementById('detail-client').textContent === '2001:db8::7'");
    browser.value("document.getElementById('close').click()");
    browser.until("document.getElementById('detail').hidden && location.hash === ''");
    assert_eq!(browser.errors, [] as [String; 0]);
}

#[test]
fn the_page_says_why_the_service_does_less_than_it_should() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let service = TestService::with(ServerLimits::default(), |config| {
        config.store = StoreUrl::Sqlite("/dev/null/paths.sqlite".into());
    });
    let mut browser = Browser::start(&chromium);
    browser.open(&format!("http://{}/", service.address), 1280);
    let trouble =
        "document.getElementById('troubles').textContent.includes('the database is unavailable')";
    browser.until(trouble);
    assert_eq!(
        browser.value("document.getElementById('troubles').hidden"),
        false
    );
}

#[test]
fn the_page_fits_a_phone() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let service = TestService::start();
    service.measured("2001:db8:1234:5678:9abc:def0:1234:5678", 100.0, 100.0);
    service.measured("192.0.2.1", 100.0, 100.0);
    service
        .advisor
        .transfer_started("192.0.2.1".parse().unwrap());
    let mut browser = Browser::start(&chromium);
    browser.open(&format!("http://{}/", service.address), 360);
    browser.until(&format!("{} === 2", rows()));
    browser.value("document.querySelector('#paths tbody tr:last-child button').click()");
    browser.until("!document.getElementById('detail').hidden");
    browser.until("document.getElementById('detail-why').textContent !== ''");
    let width = browser
        .value("[document.documentElement.clientWidth, document.documentElement.scrollWidth]");
    assert_eq!(width, json!([360, 360]), "the page scrolls sideways");
    let outside = "[...document.querySelectorAll('main :not(thead, thead *)')].filter((element) => {\
        const box = element.getBoundingClientRect();\
        return box.width > 1 && (box.right > 360.5 || box.left < -0.5);\
    }).map((element) => element.outerHTML.slice(0, 80))";
    assert_eq!(browser.value(outside), json!([]));
    // A finger needs room.
    let low = "[...document.querySelectorAll('nav button, input, select')]\
        .filter((element) => element.getBoundingClientRect().height < 36).length";
    assert_eq!(browser.value(low), 0);
    assert_eq!(browser.errors, [] as [String; 0]);
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_runs_no_text() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let service = TestService::start();
    let page = service.get("/");
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'; script-src 'self'")
    );
    assert!(!page.head.contains("set-cookie") && !page.head.contains("unsafe"));
    for text in [
        &page.body,
        &service.get("/page.js").body,
        &service.get("/page.css").body,
    ] {
        let foreign: Vec<_> = text.match_indices("://").collect();
        // The name of the SVG namespace is no address.
        let names = text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(foreign.len(), names, "{text}");
        assert!(!text.contains("innerHTML") && !text.contains("eval("));
    }
    let mut browser = Browser::start(&chromium);
    browser.open(&format!("http://{}/", service.address), 1280);
    assert_eq!(browser.value("document.cookie"), "");
    let ran = "new Promise((done) => {\
        try {\
            const script = document.createElement('script');\
            script.textContent = 'window.ran = true';\
            document.body.append(script);\
        } catch (error) { }\
        setTimeout(() => done(window.ran === true), 100);\
    })";
    assert_eq!(
        browser.value(ran),
        false,
        "the policy permits text as a program"
    );
}

#[test]
fn the_page_connects_again_when_the_server_was_away() {
    let Some(chromium) = program(&CHROMIUM) else {
        return;
    };
    let mut service = TestService::start();
    let mut browser = Browser::start(&chromium);
    browser.open(&format!("http://{}/", service.address), 1280);
    browser.until("document.getElementById('state').textContent === 'live'");
    let taken = service.stop_http();
    assert!(taken < PATIENCE, "{taken:?}");
    let away = format!("not connected: nothing answers at {}", service.address);
    browser.until(&format!(
        "document.getElementById('state').textContent.startsWith('{away}')"
    ));
    service.start_http();
    service.measured("192.0.2.1", 100.0, 100.0);
    browser.until("document.getElementById('state').textContent === 'live'");
    browser.until(&format!("{} === 1", rows()));
}
