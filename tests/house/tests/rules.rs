//! The rules of CONTRIBUTING.md that a program can check: names, comments, layout, dependencies.

#![expect(clippy::expect_used, reason = "a test reports by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// The most lines that a source file may have before its subject is split.
const MOST_LINES: usize = 500;

/// Which crates of the workspace a crate may use; tests may use more.
const MAY_USE: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("proto", &["units"]),
    ("tune", &["units"]),
    ("link", &["units"]),
    ("sim", &["link", "tune", "units"]),
    ("emulator", &["link", "units"]),
    ("smallfile", &[]),
    ("security", &["smallfile"]),
    ("data", &["proto", "security", "tune", "units"]),
    ("enable", &["units"]),
    ("history", &["tune", "units"]),
    (
        "server",
        &[
            "data",
            "enable",
            "history",
            "proto",
            "security",
            "smallfile",
            "tune",
            "units",
        ],
    ),
    (
        "client",
        &[
            "data",
            "enable",
            "history",
            "proto",
            "security",
            "smallfile",
            "tune",
            "units",
        ],
    ),
    ("advisor", &["enable", "smallfile", "tune", "units"]),
    ("command-line", &["data", "enable", "proto", "units"]),
    (
        "lab",
        &[
            "emulator",
            "link",
            "proto",
            "sim",
            "smallfile",
            "tune",
            "units",
        ],
    ),
];

struct SourceFile {
    /// From the root of the repository.
    path: String,
    text: String,
}

impl SourceFile {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, line.trim_start()))
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the root").to_path_buf()
}

/// Every Rust file of the workspace.
fn sources() -> Vec<SourceFile> {
    let root = root();
    let mut waiting = vec![root.join("crates"), root.join("tests")];
    let mut found = Vec::new();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("its entries").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let path = path.strip_prefix(&root).expect("below the root");
                found.push(SourceFile {
                    path: path.display().to_string(),
                    text,
                });
            }
        }
    }
    assert!(
        found.len() > 100,
        "the sources are where this test looks for them"
    );
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn table(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).expect("a file of Cargo");
    text.parse().expect("TOML")
}

fn assert_none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n{}", broken.join("\n"));
}

#[derive(Default)]
struct TypeNames(Vec<String>);

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.0.push(item.ident.to_string());
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.0.push(item.ident.to_string());
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.0.push(item.ident.to_string());
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.0.push(item.ident.to_string());
        syn::visit::visit_item_type(self, item);
    }
}

#[test]
fn a_type_name_is_unique_in_the_workspace() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        let file = syn::parse_file(&source.text).expect("Rust");
        let mut names = TypeNames::default();
        names.visit_file(&file);
        for name in names.0 {
            places.entry(name).or_default().push(source.path.clone());
        }
    }
    assert!(places.len() > 500, "types are found");
    let broken: Vec<String> = places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert_none(&broken, "these names stand for more than one type");
}

#[test]
fn comments_begin_with_their_subject() {
    let mut broken = Vec::new();
    for source in sources() {
        for (n, line) in source.lines() {
            let comment = line
                .strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"))
                .or_else(|| line.strip_prefix("//"));
            if comment.is_some_and(|c| c.trim_start().starts_with("What ")) {
                broken.push(format!("{}:{n}: {line}", source.path));
            }
        }
    }
    assert_none(&broken, "these comments begin with `What`");
}

#[test]
fn a_file_has_one_subject_and_no_more_than_500_lines() {
    let mut broken = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            broken.push(format!("{}: {lines} lines", source.path));
        }
        for part in source.path.split(['/', '.']) {
            if ["util", "utils", "common", "helper", "helpers", "manager"].contains(&part) {
                broken.push(format!("{}: {part} is no subject", source.path));
            }
        }
    }
    assert_none(&broken, "these files are too long or have no subject");
}

#[test]
fn unit_tests_are_at_the_end_of_their_file_or_in_tests_rs_beside_it() {
    let mut broken = Vec::new();
    for source in sources() {
        if source.path.ends_with("_tests.rs") {
            broken.push(format!(
                "{}: belongs into tests.rs of its module",
                source.path
            ));
        }
        let lines = source.text.lines().count();
        for (n, line) in source.lines() {
            if line.starts_with("#[path") {
                broken.push(format!("{}:{n}: {line}", source.path));
            }
            if line == "mod tests {" && lines - n > n {
                broken.push(format!(
                    "{}: its tests are longer than its code",
                    source.path
                ));
            }
        }
    }
    assert_none(&broken, "these tests stand elsewhere");
}

#[test]
fn crates_depend_one_way() {
    let mut broken = Vec::new();
    let names: Vec<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    for (name, allowed) in MAY_USE {
        let manifest = table(&root().join("crates").join(name).join("Cargo.toml"));
        let used = manifest.get("dependencies").and_then(toml::Value::as_table);
        for used in used.into_iter().flat_map(toml::Table::keys) {
            if names.contains(&used.as_str()) && !allowed.contains(&used.as_str()) {
                broken.push(format!("{name} uses {used}"));
            }
        }
    }
    assert_none(&broken, "these dependencies point back");
}

/// The fuzz targets are a workspace of their own, which Cargo does not lock with the rest.
#[test]
fn the_lock_file_of_the_fuzz_targets_has_what_the_crates_use() {
    let locked = table(&root().join("fuzz/Cargo.lock"));
    let packages = locked["package"].as_array().expect("the packages");
    let crates = packages
        .iter()
        .filter(|package| package.get("source").is_none());
    let mut missing = Vec::new();
    for package in crates {
        let name = package["name"].as_str().expect("a name");
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        let manifest = table(&manifest);
        let used = manifest.get("dependencies").and_then(toml::Value::as_table);
        let known = package.get("dependencies").and_then(toml::Value::as_array);
        for dependency in used.into_iter().flat_map(toml::Table::keys) {
            // Where there are several versions, the version follows the name.
            let is_known = known.into_iter().flatten().any(|entry| {
                entry.as_str().and_then(|entry| entry.split(' ').next()) == Some(dependency)
            });
            if !is_known {
                missing.push(format!("{name} uses {dependency}"));
            }
        }
    }
    assert_none(
        &missing,
        "fuzz/Cargo.lock is current (run `cargo update --workspace` in fuzz)",
    );
}

#[test]
fn unsafe_code_is_in_data_os_alone() {
    let mut broken = Vec::new();
    for source in sources() {
        if !source.path.contains("/src/") || source.path.starts_with("crates/data/src/os/") {
            continue;
        }
        for (n, line) in source.lines() {
            if line.contains("unsafe {")
                || line.contains("unsafe fn ")
                || line.contains("unsafe impl ")
            {
                broken.push(format!("{}:{n}: {line}", source.path));
            }
        }
    }
    assert_none(&broken, "unsafe code outside data::os");
}
