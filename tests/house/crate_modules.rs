//! The modules of a crate: what each defines, and which paths its code names.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::is_for_tests;

/// Most re-exports of one name that are followed.
const MAX_STEPS: u32 = 8;

/// The words between the `::` of a path.
type Words = Vec<String>;

#[derive(Debug, Default)]
struct Module {
    /// The folder of its file, from `src`.
    folder: String,
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    /// The names that `use` brings, each with its path.
    imports: BTreeMap<String, Words>,
    /// The modules that `use` brings whole, with `*`.
    globs: Vec<Words>,
    /// The paths that count: those of its code, and those of `use` except re-exports.
    paths: BTreeSet<Words>,
}

/// The modules of a crate, without tests.
#[derive(Debug, Default)]
pub struct CrateModules {
    modules: BTreeMap<Words, Module>,
    /// The module that is read.
    at: Words,
    folder: String,
    /// Whether its file is a place of re-exports.
    is_index: bool,
}

impl CrateModules {
    /// Reads files, each with its path from `src`.
    ///
    /// # Panics
    /// One is no Rust.
    pub fn of<'s>(files: impl IntoIterator<Item = (&'s str, &'s str)>) -> Self {
        let mut read = Self::default();
        for (path, text) in files {
            let mut module: Words = path.split('/').map(String::from).collect();
            let file = module.pop().expect("a file name");
            read.folder = module.join("/");
            read.is_index = ["lib.rs", "main.rs", "mod.rs"].contains(&file.as_str());
            if !read.is_index {
                module.push(file.trim_end_matches(".rs").to_owned());
            }
            if !module
                .iter()
                .any(|name| name == "tests" || name == "fixtures")
            {
                read.at = module;
                read.visit_file(&syn::parse_file(text).expect("Rust"));
            }
        }
        read
    }

    fn module(&mut self) -> &mut Module {
        let module = self.modules.entry(self.at.clone()).or_default();
        module.folder.clone_from(&self.folder);
        module
    }

    /// Whether the crate has this module outside of tests.
    fn is_declared(&self, module: &[String]) -> bool {
        let Some((name, above)) = module.split_last() else {
            return true;
        };
        let declares = |above: &Module| above.children.contains(name);
        self.modules.get(above).is_some_and(declares) && self.is_declared(above)
    }

    /// The module to which a path leads, and the item if it is not the module itself. `None`: it leads out of the crate.
    fn resolve(
        &self,
        from: &[String],
        path: &[String],
        steps: u32,
    ) -> Option<(Words, Option<String>)> {
        let (mut at, mut rest) = (from.to_vec(), path);
        while let Some((name, behind)) = rest.split_first() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop();
                }
                _ => break,
            }
            rest = behind;
        }
        while let Some((name, behind)) = rest.split_first() {
            let module = self.modules.get(&at)?;
            if module.children.contains(name) {
                at.push(name.clone());
            } else if module.items.contains(name) {
                return Some((at, Some(name.clone())));
            } else if steps == MAX_STEPS {
                return None;
            } else if let Some(found) = module
                .imports
                .get(name)
                .and_then(|imported| self.resolve(&at, imported, steps + 1))
            {
                match found {
                    (imported, None) => at = imported,
                    item => return Some(item),
                }
            } else {
                return module.globs.iter().find_map(|glob| {
                    let (whole, item) = self.resolve(&at, glob, steps + 1)?;
                    let is_other = item.is_none() && whole != at;
                    let found = is_other.then(|| self.resolve(&whole, rest, steps + 1))??;
                    found.1.is_some().then_some(found)
                });
            }
            rest = behind;
        }
        Some((at, None))
    }

    /// The uses of each folder (from `src`) by each other.
    pub fn uses(&self) -> BTreeMap<(&str, &str), BTreeSet<String>> {
        let mut uses: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for (at, module) in self.modules.iter().filter(|(at, _)| self.is_declared(at)) {
            for path in &module.paths {
                if let Some((of, Some(item))) = self.resolve(at, path, 0)
                    && let folder = &self.modules[&of].folder
                    && *folder != module.folder
                {
                    let item = [&*of, &[item]].concat().join("::");
                    let pair = (module.folder.as_str(), folder.as_str());
                    let used = format!("{} uses {item}", at.join("::"));
                    uses.entry(pair).or_default().insert(used);
                }
            }
        }
        uses
    }
}

impl<'ast> Visit<'ast> for CrateModules {
    fn visit_file(&mut self, file: &'ast syn::File) {
        if !is_for_tests(&file.attrs) {
            self.module();
            visit::visit_file(self, file);
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (name, attributes) = match item {
            syn::Item::Const(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Enum(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
            syn::Item::Impl(item) => (None, &item.attrs),
            syn::Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
            syn::Item::Mod(item) => (None, &item.attrs),
            syn::Item::Static(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Struct(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Trait(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Type(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Union(item) => (Some(&item.ident), &item.attrs),
            syn::Item::Use(item) => (None, &item.attrs),
            _ => return,
        };
        if !is_for_tests(attributes) {
            let name = name.map(ToString::to_string);
            self.module().items.extend(name);
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module().children.insert(item.ident.to_string());
        if item.content.is_some() {
            self.at.push(item.ident.to_string());
            self.module();
            visit::visit_item_mod(self, item);
            self.at.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_reexport = self.is_index && !matches!(item.vis, syn::Visibility::Inherited);
        if item.leading_colon.is_some() {
            return;
        }
        for (path, name) in imports(&item.tree, &[]) {
            let module = self.module();
            if name == "*" {
                module.globs.push(path);
                continue;
            }
            if !is_reexport {
                module.paths.insert(path.clone());
            }
            module.imports.insert(name, path);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words = path.segments.iter().map(|part| part.ident.to_string());
        let words = words.collect();
        self.module().paths.insert(words);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let paths = paths_in(&call.tokens.to_string());
        self.module().paths.extend(paths);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            let paths = paths_in(&list.tokens.to_string());
            self.module().paths.extend(paths);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// The paths among the tokens of a macro or an attribute.
fn paths_in(tokens: &str) -> Vec<Words> {
    // Texts hold no paths.
    let code = tokens.replace("\\\"", "").replace("'\"'", "");
    let code: Vec<&str> = code.split('"').step_by(2).collect();
    let code = code.join(" ").replace(" :: ", "::");
    let is_between = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    let words = code.split(is_between).map(|word| word.trim_matches(':'));
    let paths = words.filter(|word| !word.is_empty());
    paths
        .map(|path| path.split("::").map(String::from).collect())
        .collect()
}

/// The paths that a `use` names, each with the name that it gets here.
fn imports(tree: &syn::UseTree, above: &[String]) -> Vec<(Words, String)> {
    let below = |name: &syn::Ident| [above, &[name.to_string()]].concat();
    let of = |name: &syn::Ident| match name == "self" {
        true => above.to_vec(),
        false => below(name),
    };
    match tree {
        syn::UseTree::Path(part) => imports(&part.tree, &below(&part.ident)),
        syn::UseTree::Name(item) => {
            let path = of(&item.ident);
            let name = path.last().cloned();
            name.map(|name| (path, name)).into_iter().collect()
        }
        syn::UseTree::Rename(item) => vec![(of(&item.ident), item.rename.to_string())],
        syn::UseTree::Glob(_) => vec![(above.to_vec(), "*".to_owned())],
        syn::UseTree::Group(group) => {
            let trees = group.items.iter();
            trees.flat_map(|tree| imports(tree, above)).collect()
        }
    }
}
