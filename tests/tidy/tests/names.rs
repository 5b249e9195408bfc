//! What was renamed keeps its new name: the table "Renamed" of CHANGELOG.md says what the old ones were.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be read fails the test")]

use std::collections::BTreeSet;

use portcullis_tidy::{Source, sources};

/// What is a step of HTTP between two proxies, in RFC 9110's own words.
const HTTP: [&str; 2] = ["hop-by-hop", "next hop"];
/// What begins the declaration of an item, after its visibility.
const ITEMS: [&str; 7] = ["struct", "enum", "trait", "type", "union", "fn", "const"];
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
    let mut attribute = false;
    for (number, line) in text.lines().enumerate() {
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
            let private = line.starts_with("pub(") || PRIVATE.contains(&first);
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
fn the_book_uses_no_old_name() {
    let renamed = Renamed::read();
    let pages = sources(|path| path.starts_with("docs/src/") && path.rsplit('.').next() == Some("md")).unwrap();
    assert!(pages.len() > 20, "the book has another place");
    let mut found = Vec::new();
    for page in pages {
        let mut fenced = false;
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
