//! The rules of CONTRIBUTING.md that a program can check: names, comments, layout, dependencies.

#![expect(clippy::expect_used, reason = "a test reports by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use house::{assert_none, is_for_tests, root, sources};
use syn::visit::Visit;

/// How many lines the file of one subject may have. Past that, something in it is a subject of its own.
const MAX_LINES: usize = 1_000;

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
        "ftp",
        &["data", "proto", "security", "smallfile", "tune", "units"],
    ),
    (
        "copy",
        &[
            "data",
            "enable",
            "ftp",
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
    ("queue", &["smallfile", "units"]),
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

fn table(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).expect("a file of Cargo");
    text.parse().expect("TOML")
}

/// The dependencies of a crate, on whichever system; without those of its tests.
fn dependencies(manifest: &toml::Table) -> Vec<&str> {
    let of_systems = manifest.get("target").and_then(toml::Value::as_table);
    let of_systems = of_systems.into_iter().flat_map(toml::Table::values);
    let tables = of_systems.filter_map(|system| system.get("dependencies"));
    tables
        .chain(manifest.get("dependencies"))
        .filter_map(toml::Value::as_table)
        .flat_map(toml::Table::keys)
        .map(String::as_str)
        .collect()
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
    // A counterpart for macOS has the names of that for Linux.
    let is_counterpart = |path: &str| path.split(['/', '.']).any(|part| part == "macos");
    for source in sources() {
        if is_counterpart(&source.path) {
            continue;
        }
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
fn a_file_has_one_subject_and_no_more_than_1000_lines() {
    let mut broken = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
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
        for used in dependencies(&manifest) {
            if names.contains(&used) && !allowed.contains(&used) {
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
        let known = package.get("dependencies").and_then(toml::Value::as_array);
        for dependency in dependencies(&manifest) {
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

/// The places that make texts of failures, and may look at them: of those of copies, and of those of libraries.
const MAKES_TEXTS: &[&str] = &[
    "crates/ftp/src/failure/",
    "crates/longhaul/src/output/",
    "crates/longhaul/src/settings/mod.rs",
    "crates/copy/src/options/selection/pattern.rs",
    "crates/smallfile/src/settings/mod.rs",
    "crates/advisor/src/import/whole_file.rs",
    "crates/advisor/src/http/connections.rs",
];

/// Variables that hold messages, as their names say.
const MESSAGE_NAMES: &[&str] = &["problem", "reason"];

/// Functions that show what is in a text.
const READS_TEXT: &[&str] = &[
    "contains",
    "ends_with",
    "eq_ignore_ascii_case",
    "find",
    "matches",
    "rfind",
    "rsplit",
    "rsplit_once",
    "split",
    "split_once",
    "splitn",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
    "trim_start_matches",
    "trim_end_matches",
];

/// Places that read the message of a failure. Tests may.
#[derive(Default)]
struct MessageReads {
    function: String,
    /// Variables of the function that hold messages.
    messages: Vec<String>,
    found: Vec<String>,
}

impl MessageReads {
    fn of(text: &str) -> Vec<String> {
        let mut reads = Self::default();
        reads.visit_file(&syn::parse_file(text).expect("Rust"));
        reads.found
    }

    fn visit_body(&mut self, name: &syn::Ident, block: &syn::Block) {
        let outer = std::mem::replace(&mut self.function, name.to_string());
        let messages = std::mem::take(&mut self.messages);
        self.visit_block(block);
        (self.function, self.messages) = (outer, messages);
    }

    /// Whether an expression is the text of a failure.
    fn is_message(&self, expression: &syn::Expr) -> bool {
        match expression {
            syn::Expr::MethodCall(call) => match call.method.to_string().as_str() {
                "to_string" | "reason" | "cause" => is_failure(&call.receiver),
                "as_str" | "clone" | "replace" | "to_ascii_lowercase" | "to_lowercase" | "trim" => {
                    self.is_message(&call.receiver)
                }
                _ => false,
            },
            syn::Expr::Field(field) => {
                matches!(&field.member, syn::Member::Named(name) if name == "message")
                    && is_failure(&field.base)
            }
            syn::Expr::Macro(formatted) => {
                let text = formatted.mac.tokens.to_string();
                let is_shown = ["failure", "error"].map(|name| format!("{{{name}}}"));
                formatted.mac.path.is_ident("format") && is_shown.iter().any(|n| text.contains(n))
            }
            syn::Expr::Paren(inner) => self.is_message(&inner.expr),
            syn::Expr::Path(path) => {
                let name = path.path.get_ident().map(ToString::to_string);
                name.is_some_and(|name| self.messages.contains(&name))
            }
            syn::Expr::Reference(inner) => self.is_message(&inner.expr),
            _ => false,
        }
    }
}

/// Whether an expression is a variable that holds a message. Other variables of such a name are enums, whose variants
/// nobody searches.
fn is_named_message(expression: &syn::Expr) -> bool {
    let syn::Expr::Path(path) = expression else {
        return false;
    };
    let name = path.path.get_ident();
    name.is_some_and(|name| MESSAGE_NAMES.iter().any(|message| name == message))
}

/// The condition after the pattern of `matches!`.
fn guard_of_matches(input: syn::parse::ParseStream<'_>) -> syn::Result<Option<syn::Expr>> {
    input.parse::<syn::Expr>()?;
    input.parse::<syn::Token![,]>()?;
    syn::Pat::parse_multi_with_leading_vert(input)?;
    let guard = match input.parse::<Option<syn::Token![if]>>()? {
        Some(_) => Some(input.parse()?),
        None => None,
    };
    input.parse::<Option<syn::Token![,]>>()?;
    Ok(guard)
}

/// Whether an expression is a failure, as its name says.
fn is_failure(expression: &syn::Expr) -> bool {
    let name = match expression {
        syn::Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        syn::Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        syn::Expr::MethodCall(call) if call.method == "unwrap_err" => return true,
        syn::Expr::MethodCall(call) => return is_failure(&call.receiver),
        syn::Expr::Paren(inner) => return is_failure(&inner.expr),
        syn::Expr::Reference(inner) => return is_failure(&inner.expr),
        _ => None,
    };
    let names = ["err", "fail", "lost", "mismatch", "missing", "refus"];
    name.is_some_and(|name| names.iter().any(|part| name.contains(part)))
}

impl<'ast> Visit<'ast> for MessageReads {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.visit_body(&item.sig.ident, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.visit_body(&item.sig.ident, &item.block);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (syn::Pat::Ident(name), Some(init)) = (&local.pat, &local.init)
            && self.is_message(&init.expr)
        {
            self.messages.push(name.ident.to_string());
        }
        syn::visit::visit_local(self, local);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_message = self.is_message(&call.receiver) || is_named_message(&call.receiver);
        if is_message && READS_TEXT.iter().any(|name| call.method == name) {
            let read = format!("{} calls {} on a message", self.function, call.method);
            self.found.push(read);
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_binary(&mut self, compared: &'ast syn::ExprBinary) {
        let is_equality = matches!(compared.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_));
        if is_equality && (self.is_message(&compared.left) || self.is_message(&compared.right)) {
            self.found
                .push(format!("{} compares a message", self.function));
        }
        syn::visit::visit_expr_binary(self, compared);
    }

    // Other macros are not looked into.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if called.path.is_ident("matches")
            && let Ok(Some(guard)) = called.parse_body_with(guard_of_matches)
        {
            let mut reads = Self {
                function: self.function.clone(),
                messages: self.messages.clone(),
                found: Vec::new(),
            };
            reads.visit_expr(&guard);
            self.found.append(&mut reads.found);
        }
    }

    fn visit_expr_match(&mut self, decision: &'ast syn::ExprMatch) {
        if self.is_message(&decision.expr) {
            self.found
                .push(format!("{} decides by a message", self.function));
        }
        syn::visit::visit_expr_match(self, decision);
    }
}

#[test]
fn no_decision_is_made_by_the_message_of_a_failure() {
    let mut broken = Vec::new();
    for source in sources() {
        let is_checked = source.path.starts_with("crates/") && source.path.contains("/src/");
        let is_test = source.path.split('/').any(|part| part.starts_with("test"));
        let makes_texts = MAKES_TEXTS
            .iter()
            .any(|place| source.path.starts_with(place));
        if is_checked && !is_test && !makes_texts {
            let reads = MessageReads::of(&source.text);
            broken.extend(reads.iter().map(|read| format!("{}: {read}", source.path)));
        }
    }
    assert_none(&broken, "decide by the kind of the failure instead");
}

#[test]
fn a_read_of_a_message_is_found() {
    let offending = r#"
        fn retries(failure: &Failure) -> bool { failure.to_string().contains("lost") }
        fn cuts(failure: Failure) -> String {
            let message = failure.message.clone();
            message.as_str().rsplit_once("; ").map_or(String::new(), |(reason, _)| reason.to_owned())
        }
        impl Pool {
            fn is_full(&self) -> bool { format!("{failure}").to_lowercase().starts_with("full") }
            fn is_same(&self) -> bool { self.failure.reason().to_string() == "full" }
        }
        fn is_unknown(error: &TrustError) -> bool {
            matches!(error, TrustError::Chain { problem, .. } if problem.contains("trusted"))
        }
    "#;
    assert_eq!(
        MessageReads::of(offending),
        [
            "retries calls contains on a message",
            "cuts calls rsplit_once on a message",
            "is_full calls starts_with on a message",
            "is_same compares a message",
            "is_unknown calls contains on a message",
        ]
    );
    let harmless = r#"
        fn warns(failure: &Failure) -> String { format!("{failure}; starting over") }
        fn is_missing(failure: &Failure) -> bool { failure.kind() == FailureKind::NotFound }
        #[cfg(test)]
        mod tests { fn t() { assert!(failure.to_string().contains("x")); } }
    "#;
    assert_eq!(MessageReads::of(harmless), [""; 0]);
}
