//! Links of the book in docs/ lead to something.

use std::path::{Component, Path, PathBuf};

use portcullis_tidy::{Source, repository_root, sources};

/// The targets of Markdown links, outside of code blocks, with the text of each.
fn links(text: &str) -> Vec<(&str, &str)> {
    let mut fenced = false;
    let outside = text.lines().filter(|line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced && !line.trim_start().starts_with("```")
    });
    let mut found = Vec::new();
    for line in outside {
        for (at, _) in line.match_indices("](") {
            let label = line[..at].rsplit_once('[').map_or("", |(_, label)| label);
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            found.push((label, target));
        }
    }
    found
}

fn has_extension(path: &str, wanted: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == wanted)
}

fn documents() -> Vec<Source> {
    sources(|path| has_extension(path, "md") && !path.contains("node_modules")).unwrap()
}

/// A path from the root of the repository, with `..` taken away.
fn resolve(document: &str, target: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in Path::new(document).parent().unwrap().join(target).components() {
        match part {
            Component::ParentDir => assert!(resolved.pop(), "{document} links to {target}, outside of the repository"),
            part => resolved.push(part),
        }
    }
    resolved
}

/// As GitHub and mdBook make anchors of headings.
fn anchors(text: &str) -> Vec<String> {
    let headings =
        text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for document in documents() {
        for (_, target) in links(&document.text).into_iter().filter(|(_, target)| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { PathBuf::from(&document.path) } else { resolve(&document.path, file) };
            let found = repository_root().join(&path);
            assert!(found.exists(), "{} links to {target}, which does not exist", document.path);
            if !anchor.is_empty() && found.is_file() {
                let there = anchors(&std::fs::read_to_string(found).unwrap());
                assert!(
                    there.iter().any(|a| a == anchor),
                    "{} links to {target}; it has no such heading",
                    document.path
                );
            }
        }
    }
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut tests = 0;
    for document in documents() {
        for (label, target) in links(&document.text).into_iter().filter(|(_, target)| has_extension(target, "rs")) {
            let Some(name) = label.strip_prefix('`').and_then(|label| label.strip_suffix('`')) else { continue };
            if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                continue;
            }
            let path = resolve(&document.path, target);
            let source = std::fs::read_to_string(repository_root().join(&path)).unwrap();
            // A test, or one that a macro makes under this name.
            let named = source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name} ("));
            assert!(named, "{} names the test {name}, which is not in {}", document.path, path.display());
            tests += 1;
        }
    }
    assert!(tests > 20, "{tests} tests are named in documents; has the table of issues another form?");
}

/// Twenty-five rows, each with a test or with what is still to be done.
#[test]
fn the_table_of_issues_is_whole() {
    let table = sources(|path| path == "docs/src/reference/issues.md").unwrap().remove(0).text;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 25);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!((row[0].parse(), row.len()), (Ok(index + 1), 4), "{row:?}");
        let tested = row[3].contains("](");
        assert!(row[2] == "kept" && tested || row[2].contains("open"), "issue {} is neither kept nor open", row[0]);
    }
}
