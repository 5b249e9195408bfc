//! What was renamed keeps its new name: the table "Renamed" of CHANGELOG.md says what the old ones were.

use std::collections::BTreeSet;

use portcullis_tidy::{Source, sources};

/// What is a step of HTTP between two proxies, in RFC 9110's own words.
const HTTP: [&str; 2] = ["hop-by-hop", "next hop"];
/// What begins the declaration of an item, after its visibility.
const ITEMS: [&str; 7] = ["struct", "enum", "trait", "type", "union", "fn", "const"];
/// Old names of types that everybody knows as names of functions.
const ORDINARY: [&str; 1] = ["next"];
/// What follows the documentation of something that no user sees.
const PRIVATE: [&str; 12] =
    ["fn", "async", "struct", "enum", "trait", "type", "const", "static", "mod", "impl", "let", "macro_rules!"];

/// The first column of the table, by what each entry is; and the second one.
#[derive(Debug, Default)]
struct Renamed {
    items: BTreeSet<String>,
    members: BTreeSet<String>,
    files: BTreeSet<String>,
    words: BTreeSet<String>,
    new_items: BTreeSet<String>,
    new_files: BTreeSet<String>,
}

impl Renamed {
    fn read() -> Self {
        let changelog = sources(|path| path == "CHANGELOG.md").unwrap().remove(0).text;
        let section = changelog.split("\n### Renamed\n").nth(1).unwrap();
        let section = section.lines().take_while(|line| !line.starts_with('#'));
        let rows = section.filter(|line| line.starts_with("| ")).skip(1);
        let mut renamed = Self::default();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [old, new] = cells[..] else { panic!("{row} has more than two cells") };
            if !old.contains('`') {
                renamed.words.insert(old.to_lowercase());
            }
            for name in spans(old) {
                let kind = match name {
                    name if is_file(name) => &mut renamed.files,
                    name if name.contains("::") => &mut renamed.members,
                    name if is_item(name) => &mut renamed.items,
                    _ => panic!("{name} in {row} is neither an item nor `Type::member` nor a file"),
                };
                kind.insert(name.to_owned());
            }
            renamed.new_items.extend(spans(new).filter(|name| is_item(name)).map(str::to_owned));
            renamed.new_files.extend(spans(new).filter(|name| is_file(name)).map(str::to_owned));
        }
        assert!(renamed.items.len() > 10 && renamed.words.len() > 2, "the table has another form: {renamed:?}");
        renamed
    }

    /// The old words in a text that people read, and the old names in it that are marked as code.
    fn found_in(&self, text: &str) -> Vec<&str> {
        let lower = HTTP.iter().fold(text.to_lowercase(), |text, known| text.replace(known, ""));
        let words: BTreeSet<&str> = words(&lower).collect();
        let plural = |word: &str| words.contains(&*format!("{word}s"));
        let spoken = self.words.iter().filter(|word| words.contains(word.as_str()) || plural(word));
        let code: Vec<&str> = spans(text).collect();
        let items = self.items.iter().filter(|name| code.iter().any(|code| names(code, name)));
        let members = self.members.iter().filter(|name| code.iter().any(|code| code.contains(name.as_str())));
        spoken.chain(items).chain(members).map(String::as_str).collect()
    }

    /// The old names in a path of the public API: of types, of methods, and of modules, fields and functions that were
    /// called after a type.
    fn found_in_path<'a>(&'a self, path: &'a str) -> Vec<&'a str> {
        let segments: Vec<&str> = path.split("::").collect();
        let after_type =
            |segment: &str| !ORDINARY.contains(&segment) && self.items.iter().any(|ty| snake(ty) == segment);
        let old = segments.iter().filter(|segment| self.items.contains(**segment) || after_type(segment)).copied();
        let methods = self.members.iter().filter(|method| segments.windows(2).any(|pair| pair.join("::") == **method));
        old.chain(methods.map(String::as_str)).collect()
    }

    /// The old words and the old names in a text that a program prints, where nothing is marked as code.
    fn found_in_literal(&self, text: &str) -> Vec<&str> {
        let items = self.items.iter().filter(|name| names(text, name)).map(String::as_str);
        self.found_in(text).into_iter().chain(items).collect()
    }
}

/// Whether code names an item of ours so: with nothing of another crate before it, such as in `middleware::Next`.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        !before.ends_with(|c: char| inside(c) || c == ':') && !after.starts_with(inside)
    })
}

fn is_file(name: &str) -> bool {
    name.strip_suffix(".rs").is_some()
}

/// The name of a type, a constant or a function; one word in small letters is a field or a word.
fn is_item(name: &str) -> bool {
    let of_letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    of_letters && (name.contains('_') || name.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// The name of a type as that of a field or a module.
fn snake(name: &str) -> String {
    let word = |(at, c): (usize, char)| {
        let begins = c.is_ascii_uppercase() && at > 0;
        begins.then_some('_').into_iter().chain([c.to_ascii_lowercase()])
    };
    name.char_indices().flat_map(word).collect()
}

/// Our own paths in a line of a listing of the public API, without generic arguments: what is one of ours has a line of
/// its own.
fn paths(line: &str) -> Vec<String> {
    let (mut plain, mut depth, mut before) = (String::new(), 0, ' ');
    for c in line.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
        before = c;
    }
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = plain.split(|c: char| !inside(c)).filter(|path| path.starts_with("portcullis"));
    paths.map(|path| path.trim_end_matches(':').to_owned()).collect()
}

/// What stands between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The string literals of code without comments: what logs, errors and help texts are written as.
fn literals(code: &str) -> Vec<String> {
    let (mut found, mut letters) = (Vec::new(), code.chars().peekable());
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        match letter {
            // The character `"` begins nothing.
            '\'' if letters.peek() == Some(&'"') => _ = letters.next(),
            '"' => {
                let raw = before == 'r' || before == '#';
                let mut literal = String::new();
                while let Some(letter) = letters.next() {
                    match letter {
                        // An escape: a quote or the end of a line, and part of no word.
                        '\\' if !raw => {
                            letters.next();
                            literal.push(' ');
                        }
                        '"' if before != '#' || letters.peek() == Some(&'#') => break,
                        letter => literal.push(letter),
                    }
                }
                found.push(literal);
            }
            _ => {}
        }
        before = letter;
    }
    found
}

/// The documentation that users read, each with the number of its last line: that of public items, of modules, of fields
/// and variants, which flags of the command line are among.
fn documentation(source: &Source) -> Vec<(usize, String)> {
    let text = source.without_tests();
    let (mut found, mut block) = (Vec::new(), String::new());
    let (mut attribute, mut public_trait) = (false, false);
    for (number, line) in text.lines().enumerate() {
        // What a public trait has is public without saying so.
        public_trait = line.starts_with("pub trait ") || (public_trait && line != "}");
        let line = line.trim_start();
        let said = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        if let Some(said) = said {
            block.push_str(said);
            block.push('\n');
            continue;
        }
        attribute = line.starts_with("#[") || attribute;
        if attribute && !block.is_empty() {
            // Its documentation goes on with what the attribute is for.
            attribute = !line.ends_with(']');
            continue;
        }
        attribute = false;
        if !block.is_empty() {
            let first = line.split([' ', '<', '(']).next().unwrap();
            let private = line.starts_with("pub(") || (!public_trait && PRIVATE.contains(&first));
            let block = std::mem::take(&mut block);
            if !private {
                found.push((number, block));
            }
        }
    }
    found
}

/// Library code of the SDK.
fn sdk() -> Vec<Source> {
    let shipped = |path: &str| path.starts_with("sdk/") && path.contains("/src/") && !path.contains("tests");
    let found = sources(|path| shipped(path) && is_file(path)).unwrap();
    assert!(found.len() > 100, "sdk/ has another layout");
    found
}

/// The items that code declares, whoever may see them.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let keyword = words.next().filter(|word| ITEMS.contains(word));
        keyword.and_then(|_| words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next())
    })
}

#[test]
fn no_item_of_the_sdk_has_an_old_name_and_every_new_one_exists() {
    let renamed = Renamed::read();
    let mut new: BTreeSet<&str> = renamed.new_items.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    for source in sdk() {
        let code = source.shipped_code();
        for name in declared(&code) {
            new.remove(name);
            if renamed.items.contains(name) {
                found.push(format!("{}: {name}", source.path));
            }
        }
        for exported in code.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap()) {
            let old = renamed.items.iter().filter(|name| words(exported).any(|word| word == *name));
            found.extend(old.map(|name| format!("{}: pub use {name}", source.path)));
        }
    }
    assert!(found.is_empty(), "CHANGELOG.md says that these were renamed:\n{}", found.join("\n"));
    assert!(new.is_empty(), "CHANGELOG.md gives names that nothing has: {new:?}");
}

#[test]
fn no_file_of_the_sdk_has_an_old_name_and_every_new_one_exists() {
    let renamed = Renamed::read();
    let sdk = sdk();
    let files: BTreeSet<&str> = sdk.iter().map(|source| source.path.rsplit('/').next().unwrap()).collect();
    let old: Vec<_> = renamed.files.iter().filter(|name| files.contains(name.as_str())).collect();
    assert!(old.is_empty(), "CHANGELOG.md says that these were renamed: {old:?}");
    let missing: Vec<_> = renamed.new_files.iter().filter(|name| !files.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "CHANGELOG.md names files that are not there: {missing:?}");
}

#[test]
fn the_documentation_of_the_sdk_and_the_help_of_its_command_line_use_no_old_name() {
    let renamed = Renamed::read();
    let mut found = Vec::new();
    for source in sdk() {
        for (line, text) in documentation(&source) {
            let old = renamed.found_in(&text);
            if !old.is_empty() {
                found.push(format!("{} before line {}: {}", source.path, line + 1, old.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "CHANGELOG.md says what to write instead:\n{}", found.join("\n"));
}

#[test]
fn what_the_sdk_logs_and_what_its_errors_say_uses_no_old_name() {
    let renamed = Renamed::read();
    let mut found = Vec::new();
    for source in sdk() {
        for literal in literals(&source.shipped_code()) {
            let old = renamed.found_in_literal(&literal);
            if !old.is_empty() {
                found.push(format!("{}: {} in {literal:?}", source.path, old.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "CHANGELOG.md says what to write instead:\n{}", found.join("\n"));
}

#[test]
fn nothing_in_the_public_api_has_an_old_name() {
    let renamed = Renamed::read();
    let listings = sources(|path| path.starts_with("tests/tidy/api/")).unwrap();
    assert!(listings.len() > 10, "the listings of the public API have another place");
    let mut found = BTreeSet::new();
    for path in listings.iter().flat_map(|listing| listing.text.lines()).flat_map(paths) {
        let old = renamed.found_in_path(&path);
        if !old.is_empty() {
            found.insert(format!("{path}: {}", old.join(", ")));
        }
    }
    let found: Vec<_> = found.into_iter().collect();
    assert!(found.is_empty(), "CHANGELOG.md says that these were renamed:\n{}", found.join("\n"));
}

#[test]
fn the_book_the_readmes_the_examples_and_new_projects_use_no_old_name() {
    let renamed = Renamed::read();
    let page = |path: &str| {
        let readme = path.starts_with("sdk/") && path.ends_with("/README.md");
        let shown = ["docs/src/", "examples/", "sdk/project/template/"].iter().any(|place| path.starts_with(place));
        (readme || shown) && [Some("md"), Some("rs")].contains(&path.rsplit('.').next())
    };
    let pages = sources(page).unwrap();
    for (place, least) in [("docs/src/", 20), ("sdk/", 10), ("examples/", 10), ("sdk/project/template/", 5)] {
        let there = pages.iter().filter(|page| page.path.starts_with(place)).count();
        assert!(there >= least, "{place} has only {there} pages: they have another place");
    }
    let mut found = Vec::new();
    for page in pages {
        // All of a program is code.
        let mut fenced = page.path.rsplit('.').next() == Some("rs");
        for (number, line) in page.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                continue;
            }
            let old = if fenced { renamed.found_in_literal(line) } else { renamed.found_in(line) };
            if !old.is_empty() {
                found.push(format!("{}:{}: {}", page.path, number + 1, old.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "CHANGELOG.md says what to write instead:\n{}", found.join("\n"));
}

#[test]
fn literals_are_found_however_they_are_written() {
    let code = r##"warn!(%name, "one \"hop\""); let quote = '"'; raw(r#"a "kit" b"#); info!("three")"##;
    assert_eq!(literals(code), ["one  hop ", "a \"kit\" b", "three"]);
}

#[test]
fn an_old_name_is_found_in_a_path_of_the_public_api() {
    let renamed = Renamed::read();
    for (line, old) in [
        ("pub struct portcullis_x::pass::Spec", &["pass"][..]),
        ("pub fn portcullis_x::Controller<K>::marks(self, &str) -> Self", &["marks", "Controller::marks"]),
        ("pub portcullis_x::Runtime::session_lease: core::option::Option<portcullis_x::Lease>", &[]),
        ("pub portcullis_x::Runtime::seat: portcullis_x::SessionLease", &["seat"]),
        ("pub fn portcullis_x::Epoch::next(self) -> http::request::Parts", &[]),
    ] {
        let paths = paths(line);
        let found: Vec<_> = paths.iter().flat_map(|path| renamed.found_in_path(path)).collect();
        assert_eq!(found, old, "{line}");
    }
}

#[test]
fn an_old_name_is_found_where_it_is_one_and_not_in_other_words() {
    let renamed = Renamed::read();
    for (text, old) in [
        ("a [`Pass`] and its `Parts`", &["Parts", "Pass"][..]),
        ("Next, the parts pass; `axum::middleware::Next` and `PassThrough` stay", &[]),
        ("two hops", &["hop"]),
        ("headers that end at the next hop", &[]),
        ("`Controller::marks(marks)`", &["Controller::marks"]),
        ("`begun_anew(watch)` is called, and nothing is begun anew", &["begun_anew"]),
    ] {
        assert_eq!(renamed.found_in(text), old, "{text}");
    }
}
