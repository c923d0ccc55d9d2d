//! Symbolic links out of the root that appear and vanish while clients use the path.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::scratch::ScratchFolder;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::session::IntruderSession;
use super::target::{AttackTarget, add_options};

const RACE: Duration = Duration::from_secs(30);

/// Clients that race at the same time.
const RACERS: usize = 3;

/// Code of a refused path in the transfer log.
const REFUSED: &str = "\"code\":550";

const INSIDE: &[u8] = b"inside the root";
const OUTSIDE: &[u8] = b"OUTSIDE of the root";

/// Every path below a folder with its content.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(contents(&path));
            found.insert(name, Vec::new());
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

fn make_folder(folder: &Path, content: &[u8]) {
    fs::create_dir_all(folder.join("sub")).unwrap();
    for name in ["secret", "victim", "sub/secret"] {
        fs::write(folder.join(name), content).unwrap();
    }
}

/// Outcomes of the racing commands.
#[derive(Default)]
struct RaceCounts {
    accepted: u64,
    refused: u64,
}

impl RaceCounts {
    fn count(&mut self, reply: &str) -> bool {
        let accepted = reply.starts_with(['1', '2', '3']);
        match accepted {
            true => self.accepted += 1,
            false => self.refused += 1,
        }
        accepted
    }
}

struct Racer {
    session: IntruderSession,
    counts: RaceCounts,
}

impl Racer {
    fn command(&mut self, line: &str) -> Result<bool> {
        let reply = self.session.command(line)?;
        Ok(self.counts.count(&reply))
    }

    /// A transfer in passive mode; `send`: what is uploaded. Returns what was downloaded.
    fn transfer(&mut self, line: &str, send: Option<&[u8]>) -> Result<Vec<u8>> {
        let address = interop::net::passive_address(&self.session.expect("PASV", "227")?)?;
        let mut data = TcpStream::connect(address)?;
        let mut received = Vec::new();
        if self.command(line)? {
            // The server resets the connection of a transfer that fails; the reply tells it.
            let _ = match send {
                Some(bytes) => data.write_all(bytes),
                None => data.read_to_end(&mut received).map(drop),
            };
            drop(data);
            let reply = self.session.reply()?;
            self.counts.count(&reply);
        }
        Ok(received)
    }

    /// One round of all commands that could be led out of the root.
    fn round(&mut self) -> Result<()> {
        for path in ["race/swing/secret", "race/swing/sub/secret", "race/file"] {
            let read = self.transfer(&format!("RETR {path}"), None)?;
            ensure!(!read.starts_with(b"OUT"), "{path} was read outside");
            self.transfer(&format!("STOR {path}"), Some(INSIDE))?;
        }
        let listed = self.transfer("NLST race/swing", None)?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        ensure!(!listed.contains("only-outside"), "{listed}");
        self.transfer("STOR race/swing/planted", Some(INSIDE))?;
        self.transfer("APPE race/swing/victim", Some(b""))?;
        for line in [
            "DELE race/swing/planted",
            "MKD race/swing/made",
            "RMD race/swing/made",
            "SIZE race/swing/only-outside",
            "SITE CHMOD 777 race/swing/victim",
            "MFMT 20010203040506 race/swing/victim",
        ] {
            let accepted = self.command(line)?;
            ensure!(!(accepted && line.contains("only-outside")), "{line}");
        }
        for (from, to) in [
            ("race/swing/victim", "race/stolen"),
            ("race/stolen", "race/swing/victim"),
        ] {
            if self.command(&format!("RNFR {from}"))? {
                self.command(&format!("RNTO {to}"))?;
            }
        }
        if self.command("CWD race/swing/sub")? {
            let read = self.transfer("RETR secret", None)?;
            ensure!(!read.starts_with(b"OUT"), "read outside after CWD");
            self.session.expect("CWD /", "250")?;
        }
        Ok(())
    }
}

#[test]
fn racing_links_never_lead_out_of_the_root() {
    // Landlock would hide a mistake of the server's own confinement.
    let target = AttackTarget::start_with(|pki, command| {
        let log = pki.text_path("transfers");
        Ok(add_options(
            command,
            &["--sandbox", "off", "--transfer-log", &log],
        ))
    })
    .unwrap();
    let outside = ScratchFolder::new().unwrap();
    make_folder(outside.path(), OUTSIDE);
    fs::write(outside.join("only-outside"), OUTSIDE).unwrap();
    let race = target.store.path("race");
    make_folder(&race.join("swing"), INSIDE);
    symlink(outside.path(), race.join("link")).unwrap();
    fs::write(race.join("file"), INSIDE).unwrap();
    // One link is absolute, the other one climbs.
    let climb = format!("..{}{}", "/..".repeat(20), outside.join("secret").display());
    symlink(climb, race.join("file-link")).unwrap();
    let before = contents(outside.path());
    let is_over = AtomicBool::new(false);
    let totals = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (one, other) in [("swing", "link"), ("file", "file-link")] {
                    let (one, other) = (race.join(one), race.join(other));
                    // A client may hold or remove what is exchanged; the next round goes on.
                    let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
                }
            }
        });
        let end = Instant::now() + RACE;
        let address = target.server.address();
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                scope.spawn(move || -> Result<RaceCounts> {
                    let mut session = IntruderSession::connect(address)?;
                    session.log_in_anonymously()?;
                    let counts = RaceCounts::default();
                    let mut racer = Racer { session, counts };
                    while Instant::now() < end {
                        racer.round()?;
                    }
                    Ok(racer.counts)
                })
            })
            .collect();
        let ended: Vec<_> = racers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    let mut sum = RaceCounts::default();
    for counts in totals {
        let counts = target.server.explain(counts.unwrap()).unwrap();
        sum.accepted += counts.accepted;
        sum.refused += counts.refused;
    }
    assert_eq!(contents(outside.path()), before, "changed outside");
    // Both states of the paths were met.
    assert!(
        sum.accepted > 100 && sum.refused > 100,
        "{} accepted, {} refused",
        sum.accepted,
        sum.refused
    );
    let log = fs::read_to_string(target.pki.path("transfers")).unwrap();
    for path in ["race/swing/secret", "race/file"] {
        let failed = log
            .lines()
            .any(|line| line.contains(path) && line.contains(REFUSED));
        assert!(failed, "no refused transfer of {path} is logged");
    }
    target.serves_others().unwrap();
}
