//! The tutorial shows the files that are built: each of its blocks is one of them, whole.

use std::collections::BTreeSet;
use std::path::Path;

/// A fenced block of a chapter.
struct Block {
    language: String,
    text: String,
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn blocks(chapter: &str) -> Vec<Block> {
    let text = read(&format!("src/{chapter}"));
    let mut parts = text.split("\n```");
    let mut blocks = Vec::new();
    parts.next();
    // Every second part is inside of a fence.
    while let (Some(inside), outside) = (parts.next(), parts.next()) {
        let (language, text) = inside.split_once('\n').unwrap();
        blocks.push(Block { language: language.to_owned(), text: format!("{text}\n") });
        assert!(outside.is_some(), "{chapter} ends inside of a block");
    }
    blocks
}

/// The name in a block's first line, `// src/lib.rs` or `# manifests/a.yaml`, and the rest.
fn file(block: &Block) -> Option<(&str, &str)> {
    let (first, rest) = block.text.split_once('\n')?;
    let name = first.strip_prefix("// ").or_else(|| first.strip_prefix("# "))?;
    (name.contains('.') && !name.contains(' ')).then_some((name, rest))
}

/// Compares the named blocks of the chapters with the files of a crate; gives the names that were shown.
fn shown(chapters: &[&str], folder: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for chapter in chapters {
        for block in blocks(chapter).iter().filter(|block| ["rust", "yaml"].contains(&block.language.as_str())) {
            let (name, text) =
                file(block).unwrap_or_else(|| panic!("a block of {chapter} names no file:\n{}", block.text));
            assert_eq!(text, read(&format!("tutorial/{folder}/{name}")), "{chapter} shows another {folder}/{name}");
            names.insert(name.to_owned());
        }
    }
    names
}

fn files(folder: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tutorial").join(folder);
    let mut files = BTreeSet::new();
    for part in ["src", "tests", "examples", "manifests", "deploy"] {
        for entry in std::fs::read_dir(root.join(part)).into_iter().flatten() {
            files.insert(format!("{part}/{}", entry.unwrap().file_name().to_string_lossy()));
        }
    }
    files
}

#[test]
fn the_first_half_shows_every_file_as_it_is_built() {
    assert_eq!(shown(&["tutorial/first.md"], "first"), files("first"));
}

#[test]
fn the_second_half_shows_every_file_that_changes() {
    let mut expected = files("second");
    // It stays as it was, says the chapter.
    assert_eq!(read("tutorial/second/src/v1.rs"), read("tutorial/first/src/v1.rs"));
    expected.remove("src/v1.rs");
    // This test does what a reader does by hand; it is not part of the tutorial.
    expected.remove("tests/playground.rs");
    assert_eq!(shown(&["tutorial/second.md", "tutorial/cluster.md"], "second"), expected);
}

#[test]
fn the_shown_manifest_names_the_built_dependencies() {
    let shown = blocks("tutorial/first.md").into_iter().find(|block| block.language == "toml").unwrap();
    let names = |text: &str, table: &str| -> BTreeSet<String> {
        let after = text.split(&format!("[{table}]\n")).nth(1).unwrap_or_default();
        let lines = after.lines().take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| line.split([' ', '.']).next()).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    for half in ["first", "second"] {
        let built = read(&format!("tutorial/{half}/Cargo.toml"));
        for table in ["dependencies", "dev-dependencies"] {
            // `tests/playground.rs` is ours, and reads manifests.
            let built = built.replace("serde-saphyr.workspace = true\n", "");
            let missing: Vec<_> = names(&built, table).difference(&names(&shown.text, table)).cloned().collect();
            assert!(missing.is_empty(), "the tutorial's Cargo.toml lacks {missing:?} in [{table}], which {half} uses");
        }
    }
}

#[test]
fn every_chapter_is_in_the_summary_and_its_code_is_checked() {
    let (summary, library) = (read("src/SUMMARY.md"), read("code/lib.rs"));
    for folder in ["", "tutorial", "how-to", "explanation", "reference"] {
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let chapter = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if Path::new(&name).extension().is_none_or(|extension| extension != "md") || name == "SUMMARY.md" {
                continue;
            }
            assert!(summary.contains(&format!("({chapter})")), "{chapter} is not in SUMMARY.md");
            let rust = blocks(&chapter).iter().any(|block| block.language.starts_with("rust"));
            let checked = folder == "tutorial" || library.contains(&format!("\"{chapter}\""));
            assert!(!rust || checked, "nothing compiles the code of {chapter}: name it in docs/code/lib.rs");
            let skipped = blocks(&chapter).iter().any(|block| block.language.contains("ignore"));
            assert!(!skipped, "{chapter} has code that nothing checks");
        }
    }
}
