//! Runs a transcript and writes it again with the actual output of the session.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::IpAddr;

use proto::line::LineEvent;
use proto::security::{ExchangeKind, SecurityMechanism};
use proto::server::{
    AccountRights, DriverEvent, ExpectedInput, LoginGrant, ServerSession, SessionAction,
    SessionConfig,
};
use proto::sizing::BufferSizing;

use super::describe::describe;
use super::driver_event;
use super::script::{ScriptLine, ScriptStep, parse};
use super::tree::FileTree;

/// A session that runs a transcript.
struct TranscriptPlayer {
    session: ServerSession,
    tree: FileTree,
    /// Lines queued until the driver has answered.
    queued_lines: VecDeque<LineEvent>,
    out: String,
}

/// Runs a transcript; returns it with the actual output of the session.
pub(crate) fn play(text: &str) -> Result<String, String> {
    let lines = parse(text)?;
    let mut config = SessionConfig {
        congestion_controls: ["auto", "system", "bbr"].map(String::from).into(),
        banner: "test.example longhaul ready.".to_owned(),
        version: "longhaul 0.1.0".to_owned(),
        max_login_failures: 3,
        clear_passwords: true,
        ..SessionConfig::new(IpAddr::from([127, 0, 0, 1]))
    };
    let mut tree = FileTree::new();
    let mut out = String::new();
    let mut start = 0;
    let mut secured = None;
    for line in &lines {
        match &line.step {
            ScriptStep::Text(_) => {}
            ScriptStep::Setting(setting) if setting.starts_with("secured ") => {
                secured = Some(secured_by(setting)?);
            }
            ScriptStep::Setting(setting) if !setting.starts_with("login") => {
                configure(setting, &mut config, &mut tree)?;
            }
            _ => break,
        }
        writeln!(out, "{}", line.source).map_err(|e| e.to_string())?;
        start += 1;
    }
    let mut player = TranscriptPlayer {
        session: match secured {
            Some((mechanism, identified)) => {
                ServerSession::secured_from_start(config, mechanism, identified)
            }
            None => ServerSession::new(config),
        },
        tree,
        queued_lines: VecDeque::new(),
        out,
    };
    player.run(&lines[start..])?;
    Ok(player.out)
}

fn configure(setting: &str, config: &mut SessionConfig, tree: &mut FileTree) -> Result<(), String> {
    let words: Vec<&str> = setting.split_whitespace().collect();
    let number = |text: &str| text.parse().map_err(|_| format!("not a number: {text}"));
    match words[..] {
        ["peer", address] => {
            config.peer = address.parse().map_err(|_| "not an address".to_owned())?;
        }
        ["offers", ..] => {
            let names = words[1..].iter();
            config.mechanisms = names
                .map(|name| mechanism(name))
                .collect::<Result<_, _>>()?;
        }
        ["no-clear-passwords"] => config.clear_passwords = false,
        ["tls-required"] => config.tls_required = true,
        ["data-protection-required"] => config.require_data_protection = true,
        ["bearer-tokens"] => config.bearer_tokens = true,
        ["allow-ccc"] => config.allow_ccc = true,
        ["enable-port", port] => {
            let port = port.parse().map_err(|_| format!("not a port: {port}"))?;
            config.enable_port = Some(port);
        }
        ["greeting", ..] => {
            let lines = setting.trim_start_matches("greeting").trim().split(" | ");
            config.greeting_lines = lines.map(str::to_owned).collect();
        }
        ["foreign-data-addresses"] => config.foreign_data_addresses = true,
        ["max_bad_lines", n] => config.max_bad_lines = number(n)?,
        ["max_login_failures", n] => config.max_login_failures = number(n)?,
        ["max_streams", n] => config.max_streams = number(n)?,
        ["markers", perf, range] => {
            config.perf_marker_seconds = number(perf)?;
            config.range_marker_seconds = number(range)?;
        }
        ["sizing", name] => {
            config.buffer_sizing =
                BufferSizing::parse(name).ok_or_else(|| format!("no sizing: {name}"))?;
        }
        ["congestion", ..] => {
            config.congestion_controls = words[1..].iter().copied().map(String::from).collect();
        }
        ["dir", path] => tree.add_dir(path),
        ["file", path, content] => tree.add_file(path, content),
        _ => return Err(format!("unknown setting: {setting}")),
    }
    Ok(())
}

fn mechanism(name: &str) -> Result<SecurityMechanism, String> {
    Ok(SecurityMechanism {
        name: name.to_owned(),
        exchange: match name {
            "TLS" => ExchangeKind::Handshake,
            "GSSAPI" => ExchangeKind::Tokens,
            _ => return Err(format!("no mechanism: {name}")),
        },
    })
}

/// `secured NAME [identified]`
fn secured_by(setting: &str) -> Result<(SecurityMechanism, bool), String> {
    match setting.split_whitespace().collect::<Vec<_>>()[..] {
        ["secured", name] => Ok((mechanism(name)?, false)),
        ["secured", name, "identified"] => Ok((mechanism(name)?, true)),
        _ => Err(format!("unknown setting: {setting}")),
    }
}

impl TranscriptPlayer {
    fn run(&mut self, lines: &[ScriptLine]) -> Result<(), String> {
        let shows_greeting = !lines
            .iter()
            .any(|l| matches!(&l.step, ScriptStep::Setting(_)));
        if shows_greeting {
            let greeting = SessionAction::Reply(self.session.greeting());
            self.write(&greeting);
        }
        for (at, line) in lines.iter().enumerate() {
            self.out.push_str(&line.source);
            self.out.push('\n');
            let scripted = self.next_step_answers_file_request(&lines[at + 1..]);
            match &line.step {
                ScriptStep::Text(_) => {}
                ScriptStep::Setting(setting) => self.login(setting)?,
                ScriptStep::Client(bytes) => self.line(LineEvent::Line(bytes.clone()), scripted),
                ScriptStep::Protected(bytes) => {
                    self.line(LineEvent::Protected(bytes.clone()), scripted);
                }
                ScriptStep::Forged => self.line(LineEvent::Forged, scripted),
                ScriptStep::TooLong => self.line(LineEvent::TooLong, scripted),
                ScriptStep::DriverEvent(text) if text == "drain" => self.session.drain(),
                ScriptStep::DriverEvent(text) => {
                    let actions = self.session.on_driver_event(driver_event::parse(text)?);
                    self.carry_out(actions, scripted);
                    self.send_queued_lines(scripted);
                }
            }
        }
        match self.queued_lines.len() {
            0 => Ok(()),
            n => Err(format!("{n} lines are still queued")),
        }
    }

    /// Passes a line to the session or queues it, as a driver does.
    fn line(&mut self, line: LineEvent, scripted: bool) {
        let accepted = match self.session.expected_input() {
            ExpectedInput::Line => true,
            ExpectedInput::DriverEventOrUrgentLine => self.session.is_urgent(&line),
            ExpectedInput::DriverEvent => false,
        };
        if accepted {
            let actions = self.session.on_line(&line);
            self.carry_out(actions, scripted);
        } else {
            self.queued_lines.push_back(line);
        }
    }

    fn send_queued_lines(&mut self, scripted: bool) {
        while self.session.expected_input() == ExpectedInput::Line {
            let Some(line) = self.queued_lines.pop_front() else {
                return;
            };
            let actions = self.session.on_line(&line);
            self.carry_out(actions, scripted);
        }
    }

    /// Shows the actions. File operations are answered by the tree, unless the transcript answers them.
    fn carry_out(&mut self, actions: Vec<SessionAction>, scripted: bool) {
        for action in actions {
            match action {
                SessionAction::File(request) if !scripted => {
                    let response = self.tree.answer(&request);
                    let next = self.session.on_driver_event(DriverEvent::File(response));
                    self.carry_out(next, scripted);
                }
                other => self.write(&other),
            }
        }
    }

    fn write(&mut self, action: &SessionAction) {
        for line in describe(action) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    /// `login [rw|ro] [third-party]`: logs in without showing it; home is `/`.
    fn login(&mut self, setting: &str) -> Result<(), String> {
        let words: Vec<&str> = setting.split_whitespace().collect();
        if words.first() != Some(&"login") {
            return Err(format!("{setting} comes after the start"));
        }
        let grant = LoginGrant {
            user: "ann".to_owned(),
            home: proto::path::VPath::root(),
            rights: AccountRights {
                write: words.contains(&"rw"),
                third_party: words.contains(&"third-party"),
            },
            welcome_lines: Vec::new(),
        };
        let line: fn(Vec<u8>) -> LineEvent = match self.session.expects_protected_lines() {
            true => LineEvent::Protected,
            false => LineEvent::Line,
        };
        self.session.on_line(&line(b"USER ann".to_vec()));
        self.session.on_line(&line(b"PASS x".to_vec()));
        self.session.on_driver_event(DriverEvent::Login(Ok(grant)));
        Ok(())
    }

    /// Whether the next step of the transcript answers a file operation; ABOR and STAT may precede it.
    fn next_step_answers_file_request(&self, rest: &[ScriptLine]) -> bool {
        let next = rest.iter().find(|l| match &l.step {
            ScriptStep::Text(_) => false,
            ScriptStep::Client(line) => !self.session.is_urgent(&LineEvent::Line(line.clone())),
            ScriptStep::Protected(line) => {
                !self.session.is_urgent(&LineEvent::Protected(line.clone()))
            }
            _ => true,
        });
        matches!(
            next.map(|l| &l.step),
            Some(ScriptStep::DriverEvent(text)) if text.starts_with("File") || text.starts_with("ChecksumProgress")
        )
    }
}
