//! Patterns and rules of `--include`, `--exclude` and `--filter-from`, beside those of rclone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::peer::find_installed;
use interop::require;
use interop::run;
use interop::scratch::ScratchFolder;
use serde_json::Value;

/// Rclone saves itself listings by rules for directories, which it derives from those for files, and so misses files that
/// match. It does not if there is a regular expression; this one matches nothing.
const NOTHING: &str = "{{no such name}}";

/// Files of the tree.
const FILES: [&str; 34] = [
    "a.txt",
    "b.bin",
    "A.TXT",
    "cache",
    "cache2/y",
    "d/a.txt",
    "d/e/c.txt",
    "d/e/cache/x",
    "d/e/cache/keep.txt",
    "d/e/f/g/h.txt",
    "dir/file.jpg",
    "x/dir/file.jpg",
    "x/dir/sub/file.jpg",
    "prefix-a-suffix",
    "prefix-a/b-suffix",
    "a+b",
    "a(b)",
    "a|b",
    "a^b$",
    "a,b",
    "a{b}",
    "a[b]",
    "a*b",
    "a?b",
    "a\\b",
    "!a",
    "-a",
    "#a",
    " spaced",
    "é.txt",
    "数据/検.txt",
    "1.dat",
    "12.dat",
    "a&b",
];

/// Patterns, each tried as an include and as an exclude.
const PATTERNS: [&str; 63] = [
    "*",
    "**",
    "/*",
    "/**",
    "*.txt",
    "/*.txt",
    "**.txt",
    "/**.txt",
    "*.{txt,jpg}",
    "file.jpg",
    "dir/file.jpg",
    "/dir/file.jpg",
    "dir/*",
    "dir/**",
    "/dir/**",
    "d**",
    "/d**",
    "d**t",
    "**/c.txt",
    "/**/c.txt",
    "**/a.txt",
    "d/**/c.txt",
    "d/**/a.txt",
    "prefix**suffix",
    "prefix*suffix",
    "cache",
    "cache*",
    "cache*/*",
    "e/*/x",
    "e/**/h.txt",
    "?.txt",
    "??.dat",
    "[ab].*",
    "[a-b].*",
    "[^a].*",
    "[!a]*",
    "[[:digit:]].dat",
    "[[:digit:]]*.dat",
    "[a&&b]*",
    "[a~~!]*",
    r"a[\*{]b*",
    r"a\*b",
    r"a\?b",
    r"a\\b",
    r"a\{b\}",
    r"a\[b\]",
    "a+b",
    "a(b)",
    "a|b",
    "a^b$",
    "a,b",
    "a{,+}b",
    "{a,b}.*",
    "{dir/,}file.jpg",
    "{d,x}/**",
    "{{[0-9]+}}.dat",
    "{{(a|b)}}.*",
    "d/{{[a-e]}}/*",
    "数*/**",
    "*検*",
    "#a",
    "a//b",
    "e/",
];

/// Contents of files of rules.
const RULES: [&str; 12] = [
    "- *.bin\n",
    "+ *.txt\n- *\n",
    "# comment\n; comment\n\n  - *.bin  \r\n",
    "- cache/\n+ *.txt\n- *\n",
    "+ */\n+ *.txt\n- *\n",
    "+ cache/keep.txt\n- cache/\n+ d/**\n- *\n",
    "- a.txt\n!\n- *.bin\n",
    "+ a.txt\n- *.txt\n+ *\n",
    "-  spaced\n",
    "- /d/\n- /x/**\n",
    "+ /d/e/*.txt\n- /d/**\n",
    "- **/e/**\n",
];

/// Flags with a text that is no pattern for either.
const INVALID: [(&str, &str); 8] = [
    ("--include", "a["),
    ("--include", "a]"),
    ("--include", "a{b"),
    ("--include", "a}b"),
    ("--exclude", "a***"),
    ("--exclude", "[b-a]"),
    ("--exclude", "{{a"),
    ("--exclude", "{{(}}"),
];

/// The paths of a tree that rclone takes.
fn taken_by_rclone(rclone: &Path, flags: &[&str], tree: &Path) -> Result<BTreeSet<String>> {
    let mut command = Command::new(rclone);
    command.env("RCLONE_CONFIG", "/dev/null");
    command.args(["lsf", "-R", "--files-only", "--local-encoding", "None"]);
    let listed = run::run(command.args(flags).arg(tree))?.expect_success()?;
    Ok(listed.stdout_text().lines().map(str::to_owned).collect())
}

/// Those that longhaul would copy.
fn taken_by_longhaul(flags: &[&str], tree: &Path) -> Result<BTreeSet<String>> {
    let mut command = longhaul()?;
    command
        .args(["cp", "-r", "--dry-run", "--json"])
        .args(flags);
    let planned = run::run(command.arg(tree).arg(tree.with_extension("copy")))?.expect_success()?;
    let mut taken = BTreeSet::new();
    for line in planned.stdout_text().lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["event"] == "would_copy" {
            let source = event["source"].as_str().context("no source")?;
            let path = Path::new(source).strip_prefix(tree)?;
            taken.insert(path.to_str().context("no text")?.to_owned());
        }
    }
    Ok(taken)
}

fn same(rclone: &Path, flags: &[&str], tree: &Path) -> Result<()> {
    let theirs = taken_by_rclone(rclone, flags, tree)?;
    let ours = taken_by_longhaul(flags, tree)?;
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let surplus: Vec<_> = ours.difference(&theirs).collect();
    ensure!(
        theirs == ours,
        "only rclone takes {missing:?}, only longhaul {surplus:?}"
    );
    Ok(())
}

fn tree() -> Result<(ScratchFolder, std::path::PathBuf)> {
    let scratch = ScratchFolder::new()?;
    let tree = scratch.folder("tree")?;
    for name in FILES {
        let path = tree.join(name);
        std::fs::create_dir_all(path.parent().context("no parent")?)?;
        std::fs::write(path, "x")?;
    }
    Ok((scratch, tree))
}

#[test]
fn patterns_and_rules_take_the_files_that_rclone_takes() {
    let rclone = require!(find_installed("rclone"));
    let (scratch, tree) = tree().unwrap();
    let mut cells = MatrixRow::new("filters");
    for pattern in PATTERNS {
        let include = ["--include", NOTHING, "--include", pattern];
        cells.check(format!("--include {pattern}"), || {
            same(&rclone, &include, &tree)
        });
        cells.check(format!("--exclude {pattern}"), || {
            same(&rclone, &["--exclude", pattern], &tree)
        });
    }
    for (flags, name) in [
        (&["--include", "*.txt", "--exclude", "/d/**"][..], "both"),
        (&["--include", "a.txt", "--include", "*.jpg"], "several"),
    ] {
        let flags = [&["--include", NOTHING], flags].concat();
        cells.check(name, || same(&rclone, &flags, &tree));
    }
    for (number, rules) in RULES.iter().enumerate() {
        cells.check(format!("--filter-from {rules:?}"), || {
            let text = format!("+ {NOTHING}\n{rules}");
            let file = scratch.file(format!("rules{number}"), text.as_bytes())?;
            let file = file.to_str().context("no text")?;
            same(&rclone, &["--filter-from", file], &tree)
        });
    }
    cells.finish();
}

#[test]
fn what_rclone_refuses_as_a_pattern_is_refused() {
    let rclone = require!(find_installed("rclone"));
    let (_scratch, tree) = tree().unwrap();
    let mut cells = MatrixRow::new("no filters");
    for (flag, pattern) in INVALID {
        cells.check(pattern, || {
            let theirs = taken_by_rclone(&rclone, &[flag, pattern], &tree);
            ensure!(theirs.is_err(), "rclone takes it");
            let mut command = longhaul()?;
            command.args(["cp", "-r", "--dry-run", flag, pattern]);
            let ours = run::run(command.arg(&tree).arg(tree.with_extension("copy")))?;
            ours.expect_code(2).map(drop)
        });
    }
    cells.finish();
}
