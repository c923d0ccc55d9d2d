//! The sources of the workspace, for the rules of CONTRIBUTING.md that a program can check; the rules stand in `tests/`.

#![expect(clippy::expect_used, reason = "a test reports by panicking")]

mod crate_modules;
mod markdown;

use std::fs;
use std::path::{Path, PathBuf};

pub use crate_modules::CrateModules;
pub use markdown::{MarkdownPage, anchor_of, markdown_pages};

/// A Rust file of the workspace.
pub struct SourceFile {
    /// From the root of the repository.
    pub path: String,
    /// Content.
    pub text: String,
}

impl SourceFile {
    /// The lines with their numbers, from 1, without indentation.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, line.trim_start()))
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the root").to_path_buf()
}

/// Every Rust file of the workspace.
pub fn sources() -> Vec<SourceFile> {
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

/// Whether an item with these attributes is test code.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::NameValue(_) => false,
    })
}

/// Fails with the places that break a rule.
///
/// # Panics
/// There are some.
pub fn assert_none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n{}", broken.join("\n"));
}
