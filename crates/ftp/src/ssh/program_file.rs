//! The files of this machine that may become the program of a far end.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use data::checksum::ChecksumHasher;
use proto::checksum::ChecksumAlgorithm;

use super::far_end::FarPlatform;
use crate::Failure;

/// Bytes from the beginning of a program that show its kind. Linkers put the program headers there.
const HEAD: u64 = 64 << 10;
/// Length of an ELF header (elf(5)).
const ELF_HEADER: usize = 64;
/// A program header that names the dynamic linker.
const PT_INTERP: u32 = 3;
/// `e_machine` of the processors of Linux that uname(1) names so.
const MACHINES: &[(&str, u16)] = &[
    ("x86_64", 62),
    ("aarch64", 183),
    ("riscv64", 243),
    ("ppc64le", 21),
    ("loongarch64", 258),
];

/// A program for a far end.
#[derive(Debug)]
pub(super) struct ProgramFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) bytes: u64,
    /// It needs no libraries.
    is_static: bool,
}

/// The header of an executable file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ElfFacts {
    machine: u16,
    is_static: bool,
}

impl ElfFacts {
    /// `None`: the file is of another kind.
    fn parse(head: &[u8]) -> Option<Self> {
        let number = |at: usize, length: usize| {
            let bytes = head.get(at..at.checked_add(length)?)?;
            // Little endian.
            Some(
                bytes
                    .iter()
                    .rev()
                    .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)),
            )
        };
        if head.len() < ELF_HEADER || !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (first, length, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut is_static = true;
        for n in 0..count {
            let at = usize::try_from(first.checked_add(n * length)?).ok()?;
            is_static &= number(at, 4)? != u64::from(PT_INTERP);
        }
        Some(Self {
            machine: u16::try_from(number(18, 2)?).ok()?,
            is_static,
        })
    }

    fn is_for(self, platform: &FarPlatform) -> bool {
        let known = MACHINES.iter().find(|(name, _)| *name == platform.machine);
        known.is_none_or(|(_, machine)| *machine == self.machine)
    }
}

impl ProgramFile {
    fn open(path: &Path, platform: &FarPlatform) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Ok(None);
        }
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head)?;
        file.rewind()?;
        let elf = ElfFacts::parse(&head);
        Ok(elf.is_none_or(|elf| elf.is_for(platform)).then(|| Self {
            path: path.to_owned(),
            file,
            bytes: facts.len(),
            is_static: elf.is_some_and(|elf| elf.is_static),
        }))
    }

    /// The SHA-256 of its bytes, in hex. Reads the file, and goes back to its beginning.
    pub(super) fn digest(&mut self) -> io::Result<String> {
        let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Sha256);
        let mut buffer = vec![0; 1 << 20];
        loop {
            match self.file.read(&mut buffer)? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        self.file.rewind()?;
        Ok(hasher.finish())
    }
}

/// The programs for a far end, the best first; none: this machine has none for it. `named` is the only one if it is given.
///
/// # Errors
/// `Usage`: the one that is named is for another platform; `NotFound`, `Local`: it cannot be read.
pub(super) fn candidates(
    named: Option<&Path>,
    platform: &FarPlatform,
) -> Result<Vec<ProgramFile>, Failure> {
    if let Some(path) = named {
        let shown = path.display();
        let helper = ProgramFile::open(path, platform).map_err(|error| {
            Failure::about(crate::FailureKind::of_named_file(&error), shown, &error)
        })?;
        let wrong = || Failure::usage(format!("{} is no program for {platform}", path.display()));
        return Ok(vec![helper.ok_or_else(wrong)?]);
    }
    let own = std::env::current_exe();
    let found = own.map(|own| installed(&own, platform)).unwrap_or_default();
    let opened = found
        .iter()
        .filter_map(|path| ProgramFile::open(path, platform).ok()?);
    let mut opened: Vec<ProgramFile> = opened.collect();
    // One that needs libraries is sent last: the far end may not have them.
    opened.sort_by_key(|helper| !helper.is_static);
    Ok(opened)
}

/// The places of programs for a platform in the installation of a program.
fn installed(own: &Path, platform: &FarPlatform) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if !platform.system.eq_ignore_ascii_case(std::env::consts::OS) {
        return places;
    }
    // Its header says whether this one is for the processor.
    if MACHINES.iter().any(|(name, _)| *name == platform.machine) {
        places.push(own.to_owned());
    }
    let name = format!("longhaul-{}", platform.machine);
    if let Some(beside) = own.parent() {
        places.push(beside.join(&name));
        let prefix = beside.parent();
        places.extend(prefix.map(|prefix| prefix.join("lib/longhaul").join(&name)));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(machine: &str) -> FarPlatform {
        FarPlatform::parse(format!("longhaul absent 1 Linux {machine}").as_bytes()).unwrap()
    }

    #[test]
    fn the_header_of_a_program_says_its_processor_and_whether_it_is_static() {
        let mut program = vec![0; ELF_HEADER + 2 * 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (program[18], program[32], program[54], program[56]) = (183, 64, 56, 2);
        let facts = ElfFacts::parse(&program).unwrap();
        assert_eq!(
            facts,
            ElfFacts {
                machine: 183,
                is_static: true
            }
        );
        assert!(facts.is_for(&platform("aarch64")) && !facts.is_for(&platform("x86_64")));
        program[ELF_HEADER + 56] = 3;
        assert!(!ElfFacts::parse(&program).unwrap().is_static);
        assert_eq!(ElfFacts::parse(&program[..100]), None);
        assert_eq!(ElfFacts::parse(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn an_installation_has_programs_for_other_processors() {
        let own = Path::new("/usr/bin/longhaul");
        let found = installed(own, &platform("aarch64"));
        let places = [
            "/usr/bin/longhaul",
            "/usr/bin/longhaul-aarch64",
            "/usr/lib/longhaul/longhaul-aarch64",
        ];
        assert_eq!(found, places.map(PathBuf::from));
        let unknown = installed(own, &platform("armv7l"));
        assert!(!unknown.contains(&own.to_owned()));
        let other = FarPlatform::parse(b"longhaul absent 1 FreeBSD amd64").unwrap();
        assert!(installed(own, &other).is_empty());
    }

    #[test]
    fn this_program_is_one_for_its_own_platform_only() {
        let own = std::env::consts::ARCH;
        let other = if own == "x86_64" { "aarch64" } else { "x86_64" };
        let found = candidates(None, &platform(own)).unwrap();
        assert_eq!(found[0].path, std::env::current_exe().unwrap());
        assert!(candidates(None, &platform(other)).unwrap().is_empty());
        let named = candidates(Some(&found[0].path), &platform(other)).unwrap_err();
        assert_eq!(named.kind(), crate::FailureKind::Usage);
    }
}
