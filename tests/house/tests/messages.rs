//! Messages of the program and entries of the documentation about them: each advice has an entry, and each entry is said.

#![expect(clippy::expect_used, reason = "a test reports by panicking")]

use house::{MarkdownPage, assert_none, is_for_tests, markdown_pages, sources};
use syn::buffer::Cursor;
use syn::parse::{Parse, ParseStream};
use syn::visit::{self, Visit};

/// The page with messages as headings, and the heading that they are below.
const HEADINGS: (&str, &str) = ("docs/how/troubleshooting.md", "## By message");

/// The begin of a table with messages in its first column, in lower case.
const TABLE: &str = "| message |";

/// Words in capitals that stand for themselves.
const ACRONYMS: &[&str] = &["FTP", "GSI", "TLS"];

/// Below this length, words of an entry are in many messages.
const MIN_PART: usize = 10;

/// The crates whose messages users see.
const CRATES: &[&str] = &[
    "advisor",
    "command-line",
    "copy",
    "data",
    "emulator",
    "enable",
    "ftp",
    "history",
    "lab",
    "link",
    "longhaul",
    "longhaul-advisor",
    "longhaul-lab",
    "longhaul-queue",
    "queue",
    "security",
    "server",
    "smallfile",
];

/// Places in them that speak to other programs, or whose remarks are about the settings of another server.
const NOT_FOR_USERS: &[&str] = &[
    "crates/advisor/src/http/",
    "crates/server/src/config/import/",
];

/// Files whose messages say why without any advice; all of them need entries.
const WITH_REASONS: &[&str] = &[
    "crates/copy/src/sums/read_receipt.rs",
    "crates/enable/src/client.rs",
    "crates/longhaul/src/receipt.rs",
];

/// Calls that make a message of a reason, besides `#[error]`.
const TELL_REASONS: &[&str] = &["broken", "refused", "usage"];

/// First words of advice, which follows a semicolon.
const ADVICE: &[&str] = &[
    "add", "ask", "check", "choose", "copy", "correct", "create", "end", "fetch", "give", "if",
    "install", "keep", "leave", "log", "look", "make", "move", "name", "omit", "put", "remove",
    "rename", "repeat", "report", "restore", "rewrite", "run", "see", "set", "sort", "start",
    "there", "try", "update", "use", "wait", "write",
];

/// Advice that names who can help.
const OF_OTHERS: &str = "its administrator can";

/// Advice that needs no entry of its own, and the reason.
const WITHOUT_ENTRY: &[(&str, &str)] = &[
    ("lost {name} at once", "the advice is complete"),
    ("lost {name}; try again", "the advice is complete"),
    (
        "lost {}: {reason}; try again later",
        "the advice is complete",
    ),
    ("{} answered {} of {} with {}", "the advice is complete"),
    (
        " at {server}; try again",
        "its message is the text before it",
    ),
    ("make room there and repeat", "the message is the system's"),
    ("wait for it to end", "its callers make the message"),
    (
        "a login that may run no commands",
        "its callers make the message",
    ),
    ("use TYPE I", "a reply to another program"),
    ("use SITE SYMLINKFROM", "a reply to another program"),
    ("use EPSV", "a reply to another program"),
    ("use SPOR or PORT", "a reply to another program"),
    (
        "devices have virtio-net headers",
        "an error of the lab itself",
    ),
];

/// A message in the documentation.
struct MessageEntry {
    place: String,
    text: String,
}

impl MessageEntry {
    fn all(pages: &[MarkdownPage]) -> Vec<Self> {
        let mut found = Vec::new();
        for page in pages {
            let (mut is_below, mut is_in_table) = (false, false);
            for (n, line) in page.prose() {
                if line.starts_with("## ") {
                    is_below = (page.path.as_str(), line) == HEADINGS;
                }
                let is_row = is_in_table && line.starts_with("| ") && !line.starts_with("| ---");
                is_in_table = line.starts_with('|')
                    && (is_in_table || line.to_lowercase().starts_with(TABLE));
                let text = match is_row {
                    true => line[2..].split(" | ").next(),
                    false => line.strip_prefix("### ").filter(|_| is_below),
                };
                found.extend(text.map(|text| Self {
                    place: format!("{}:{n}", page.path),
                    text: text.to_owned(),
                }));
            }
        }
        found
    }

    /// The parts that a message has as they stand: words in capitals are names and numbers, and remarks are in brackets.
    fn fixed_parts(&self) -> Vec<String> {
        let is_stand_in = |word: &&str| {
            word.chars().all(|c| c.is_ascii_uppercase() || c == '.') && !ACRONYMS.contains(word)
        };
        let plain = self.text.split(['(', ')']).step_by(2);
        let phrases = plain.flat_map(|text| text.split([',', ':', ';', '`']));
        let parts = phrases.flat_map(|phrase| {
            let words: Vec<&str> = phrase.split_whitespace().collect();
            let parts = words.split(is_stand_in).map(|part| part.join(" "));
            parts.collect::<Vec<_>>()
        });
        parts.collect()
    }
}

/// The texts among the tokens of a macro or an attribute.
struct TokenTexts(Vec<String>);

impl Parse for TokenTexts {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.step(|start| {
            let mut texts = Vec::new();
            let end = texts_from(*start, &mut texts);
            Ok((Self(texts), end))
        })
    }
}

fn texts_from<'t>(mut at: Cursor<'t>, texts: &mut Vec<String>) -> Cursor<'t> {
    loop {
        if let Some((inside, _, _, behind)) = at.any_group() {
            texts_from(inside, texts);
            at = behind;
        } else if let Some((literal, behind)) = at.literal() {
            if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                texts.push(text.value());
            }
            at = behind;
        } else if let Some((_, behind)) = at.token_tree() {
            at = behind;
        } else {
            return at;
        }
    }
}

/// The texts of a file that advise the user. Tests have none.
#[derive(Default)]
struct AdviceTexts {
    /// All texts of the function.
    texts: Vec<String>,
    /// Whether it calls `advise` with a text. Its message is then another text.
    advises: bool,
    found: Vec<String>,
    /// The texts of errors and of calls of [`TELL_REASONS`].
    reasons: Vec<String>,
}

impl AdviceTexts {
    fn of(text: &str) -> Self {
        let mut texts = Self::default();
        texts.visit_file(&syn::parse_file(text).expect("Rust"));
        texts
    }

    fn add(&mut self, text: String) {
        if has_advice(&text) {
            self.found.push(text.clone());
        }
        self.texts.push(text);
    }

    fn add_tokens(&mut self, tokens: syn::Result<TokenTexts>) {
        for text in tokens.map(|tokens| tokens.0).unwrap_or_default() {
            self.add(text);
        }
    }

    fn visit_body(&mut self, block: &syn::Block) {
        let outer = (std::mem::take(&mut self.texts), self.advises);
        self.advises = false;
        self.visit_block(block);
        if self.advises {
            self.found.push(self.texts.join("\n"));
        }
        (self.texts, self.advises) = outer;
    }
}

fn has_advice(text: &str) -> bool {
    let is_advice = |part: &str| {
        let word = part.split(|c: char| !c.is_ascii_alphabetic()).next();
        word.is_some_and(|word| ADVICE.contains(&word)) || part.contains(" must ")
    };
    text.contains(OF_OTHERS) || text.split("; ").skip(1).any(is_advice)
}

impl<'ast> Visit<'ast> for AdviceTexts {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.visit_body(&item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.visit_body(&item.block);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("error") {
            let tokens: syn::Result<TokenTexts> = attribute.parse_args();
            if let Ok(texts) = &tokens {
                self.reasons.extend(texts.0.iter().cloned());
            }
            self.add_tokens(tokens);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(called) = &*call.func
            && TELL_REASONS.iter().any(|name| called.path.is_ident(name))
        {
            for argument in &call.args {
                if let syn::Expr::Lit(literal) = argument
                    && let syn::Lit::Str(text) = &literal.lit
                {
                    self.reasons.push(text.value());
                }
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.add_tokens(called.parse_body());
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.add(text.value());
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_text = |e: &syn::Expr| matches!(e, syn::Expr::Lit(_) | syn::Expr::Macro(_));
        self.advises |= call.method == "advise" && call.args.iter().any(is_text);
        visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn each_advice_of_the_program_is_in_the_documentation() {
    let entries = MessageEntry::all(&markdown_pages());
    let parts = entries.iter().flat_map(MessageEntry::fixed_parts);
    let parts: Vec<String> = parts.filter(|part| part.len() >= MIN_PART).collect();
    let (mut advice, mut broken) = (Vec::new(), Vec::new());
    for source in sources() {
        let mut folders = source.path.split('/').skip(1);
        let is_seen = folders.next().is_some_and(|name| CRATES.contains(&name))
            && folders.next() == Some("src")
            && !folders.any(|name| name.starts_with("test"))
            && !NOT_FOR_USERS
                .iter()
                .any(|place| source.path.starts_with(place));
        if !is_seen {
            continue;
        }
        let mut texts = AdviceTexts::of(&source.text);
        if WITH_REASONS.contains(&source.path.as_str()) {
            assert!(!texts.reasons.is_empty(), "{}: reasons", source.path);
            texts.found.append(&mut texts.reasons);
        }
        for text in texts.found {
            let is_needless = WITHOUT_ENTRY.iter().any(|(part, _)| text.contains(part));
            if !is_needless && !parts.iter().any(|part| text.contains(part)) {
                broken.push(format!("{}: {text:?}", source.path));
            }
            advice.push(text);
        }
    }
    assert!(advice.len() > 100, "advice is found");
    assert_none(
        &broken,
        "these messages have no entry in docs/how/troubleshooting.md or in a table of messages",
    );
    let is_given = |part: &str| advice.iter().any(|text| text.contains(part));
    let stale = WITHOUT_ENTRY.iter().filter(|(part, _)| !is_given(part));
    let stale: Vec<String> = stale.map(|(part, _)| (*part).to_owned()).collect();
    assert_none(&stale, "the program no longer advises this");
}

#[test]
fn the_messages_of_the_documentation_are_those_of_the_program() {
    let entries = MessageEntry::all(&markdown_pages());
    assert!(entries.len() > 100, "messages are found");
    let sources = sources().into_iter();
    let sources = sources
        .filter(|source| source.path.starts_with("crates/") && source.path.contains("/src/"));
    // A text may go on in the next line.
    let joined = sources.map(|source| {
        let lines = source.text.split("\\\n").map(str::trim_start);
        lines.collect::<String>()
    });
    let joined: Vec<String> = joined.collect();
    let is_said = |part: &str| joined.iter().any(|text| text.contains(part));
    let broken: Vec<String> = entries
        .iter()
        .filter(|entry| {
            let longest = entry.fixed_parts().into_iter().max_by_key(String::len);
            !longest.is_some_and(|part| is_said(&part))
        })
        .map(|entry| format!("{}: {}", entry.place, entry.text))
        .collect();
    assert_none(&broken, "the program does not say this");
}

#[test]
fn the_fixed_parts_of_an_entry_are_found() {
    let text = "# P\n## By message\n### HOST has no TLS, to it\n\
        | message | do |\n| --- | --- |\n| `longhaul VERB` needs A (a remark) of: B | x |\n\
        ## Others\n### no message\n";
    let page = MarkdownPage {
        path: HEADINGS.0.to_owned(),
        text: text.to_owned(),
    };
    let entries = MessageEntry::all(&[page]);
    let parts: Vec<String> = entries
        .iter()
        .flat_map(MessageEntry::fixed_parts)
        .filter(|part| !part.is_empty())
        .collect();
    assert_eq!(parts, ["has no TLS", "to it", "longhaul", "needs", "of"]);
}

#[test]
fn advice_is_found() {
    let text = r#"
        #[error("no file {}; name it", .path)]
        struct Missing;
        fn refused() -> Failure { Failure::usage(format!("it is {n}; \
            use less")) }
        fn lost() -> Failure { Failure::new("lost").advise("wait") }
        fn told() -> Failure { Failure::new("a; b").advise(advice) }
        fn why() -> Failure { if late { return broken("no end"); } Failure::usage("none") }
        #[cfg(test)]
        mod tests { const T: &str = "x; try again"; }
    "#;
    let expected = ["no file {}; name it", "it is {n}; use less", "lost\nwait"];
    let texts = AdviceTexts::of(text);
    assert_eq!(texts.found, expected);
    assert_eq!(texts.reasons, ["no file {}; name it", "no end"]);
}
