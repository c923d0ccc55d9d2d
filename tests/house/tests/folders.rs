//! Within a crate, no folder imports a folder that imports it.
//!
//! A folder imports another where its code or a `use` of it names an item that a file directly in the other defines.
//! Declarations of modules, re-exports in `lib.rs` and `mod.rs`, and tests do not count; a name that is re-exported counts
//! for the folder that defines it. A folder of a `mod.rs` and its tests is a file of the folder above. Methods are no
//! names: who calls one is not seen.

use std::collections::BTreeMap;

use house::{CrateModules, assert_none, sources};

/// Each circle of two folders, with the uses that make it.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let modules = CrateModules::of(files.iter().copied());
    let uses = modules.uses();
    let mut circles = Vec::new();
    for ((one, other), forth) in &uses {
        if let Some(back) = uses.get(&(*other, *one))
            && one < other
            && home(one, files) != home(other, files)
        {
            let all: Vec<&str> = forth.union(back).map(String::as_str).collect();
            let one = if one.is_empty() { "." } else { one };
            circles.push(format!("{one} <-> {other}: {}", all.join(", ")));
        }
    }
    circles
}

/// The folder in which a folder is one file: it holds a `mod.rs` and its tests alone. Any other is at home in itself.
fn home<'f>(folder: &'f str, files: &[(&str, &str)]) -> &'f str {
    let is_test = |path: &str| {
        let mut names = path.split('/');
        names.any(|name| ["tests", "tests.rs", "fixtures", "fixtures.rs"].contains(&name))
    };
    let below = format!("{folder}/");
    let mut code = files
        .iter()
        .filter(|(path, _)| path.starts_with(&below) && !is_test(path));
    let is_file = code.all(|(path, _)| *path == format!("{folder}/mod.rs"));
    match folder.rsplit_once('/') {
        _ if folder.is_empty() || !is_file => folder,
        Some((above, _)) => above,
        None => "",
    }
}

#[test]
fn no_folder_imports_a_folder_that_imports_it() {
    let sources = sources();
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for source in &sources {
        if let ["crates", name, "src", path] = source.path.splitn(4, '/').collect::<Vec<_>>()[..] {
            crates
                .entry(name)
                .or_default()
                .push((path, source.text.as_str()));
        }
    }
    assert!(crates.len() > 10, "crates are found");
    let broken: Vec<String> = crates
        .into_iter()
        .flat_map(|(name, files)| {
            let circles = circles(&files).into_iter();
            circles.map(move |circle| format!("{name}: {circle}"))
        })
        .collect();
    assert_none(&broken, "these folders import each other");
}

#[test]
fn a_circle_of_folders_is_found() {
    let root = (
        "lib.rs",
        "mod low; mod high; pub use low::{deep::Item as Thing, rest};",
    );
    let low = ("low/mod.rs", "pub mod deep; pub mod rest; mod inner;");
    let rest = ("low/rest.rs", "pub struct Rest;");
    let deep = "pub struct Item; impl Item { fn f() { assert!(crate::high::is_on()) } }";
    let high = "use crate::{Thing, rest::{self, Rest}}; pub fn is_on() -> bool { true }";
    let inner = "use super::*; pub fn g(_: rest::Rest) {}";
    let (inner, above) = (
        ("low/inner/mod.rs", inner),
        "mod deep; fn f() { inner::g() } mod inner; mod rest;",
    );
    let found = [
        "high <-> low: high uses low::deep::Item, high uses low::rest::Rest, low::deep uses high::is_on",
    ];
    let files = [
        root,
        low,
        rest,
        ("low/deep.rs", deep),
        ("high/mod.rs", high),
        inner,
    ];
    assert_eq!(circles(&files), found);
    // A folder and the one above it, unless the folder is one file.
    let (above, more) = (("low/mod.rs", above), ("low/inner/more.rs", ""));
    assert_eq!(circles(&[root, above, rest, inner]), [""; 0]);
    let files = [root, above, rest, inner, more];
    let found = ["low <-> low/inner: low uses low::inner::g, low::inner uses low::rest::Rest"];
    assert_eq!(circles(&files), found);
    // Re-exports, methods, texts and tests are no uses.
    let tests =
        "#[cfg(test)] mod tests; #[cfg(test)] mod fixtures; #[cfg(test)] use crate::high::is_on;
        pub struct Item; impl Item { #[cfg(test)] fn f() { crate::high::is_on() } }
        #[cfg(test)] mod more { fn f() { crate::high::is_on() } }
        fn f(item: Item) { item.is_on(); panic!(\"crate::high::is_on\") }";
    let used = "use crate::high::is_on; fn f() { is_on() }";
    let files = [
        root,
        low,
        rest,
        ("low/deep.rs", tests),
        ("low/tests.rs", used),
        ("low/fixtures/mod.rs", used),
        ("high/mod.rs", high),
    ];
    assert_eq!(circles(&files), [""; 0]);
}
