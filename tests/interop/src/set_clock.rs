//! A clock of the wall that a test sets while programs run. Their monotonic clocks go on as they are. (A time namespace cannot do
//! that: it moves the monotonic clocks alone, time_namespaces(7).)

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::peer::find_unpacked;

/// Finds libfaketime.
pub fn find() -> Result<PathBuf, String> {
    let machine = std::env::consts::ARCH;
    let file = format!("usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1");
    find_unpacked("libfaketime", &file)
}

/// The clock of the programs that are started with it.
#[derive(Debug)]
pub struct SettableClock {
    library: PathBuf,
    offset: PathBuf,
}

impl SettableClock {
    /// A clock that is right, kept in a new file, with the library that [`find`] finds. All programs must be able to read both.
    pub fn new(library: &Path, file: &Path) -> Result<Self> {
        let clock = Self {
            library: library.to_owned(),
            offset: file.to_owned(),
        };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets the clock so many days after the true time, or before it.
    pub fn set(&self, days: i32) -> Result<()> {
        // Nobody reads half of it.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, format!("{:+}\n", i64::from(days) * 86_400))
            .and_then(|()| std::fs::rename(&new, &self.offset))
            .with_context(|| format!("cannot set {}", self.offset.display()))
    }

    /// The words of env(1) that give this clock to the program whose command line follows.
    #[must_use]
    pub fn env(&self) -> Vec<String> {
        let set = |(name, value): (&str, String)| format!("{name}={value}");
        let variables = self.variables().into_iter().map(set);
        std::iter::once("env".to_owned()).chain(variables).collect()
    }

    /// Gives this clock to a program.
    pub fn apply(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.offset.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // Times of files are the kernel's, which nobody sets here.
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }
}
