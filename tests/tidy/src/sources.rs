use std::path::{Path, PathBuf};
use std::process::Command;

/// One tracked text file.
#[derive(Debug)]
pub struct Source {
    /// Path from the root of the repository.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl Source {
    /// The content without items that follow `#[cfg(test)]`: a declaration up to its semicolon, a block up to its end.
    pub fn without_tests(&self) -> String {
        let mut lines = self.text.lines();
        let mut shipped = Vec::new();
        while let Some(line) = lines.next() {
            let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
                shipped.push(line);
                continue;
            };
            let end = format!("{indent}}}");
            lines.by_ref().find(|line| line.ends_with(';') && !line.starts_with(&format!("{indent} ")) || *line == end);
        }
        shipped.join("\n")
    }

    /// The content without tests and without comment lines.
    pub fn shipped_code(&self) -> String {
        let shipped = self.without_tests();
        shipped.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    }
}

/// The root of the repository.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The paths that git tracks, and those that it would: new files count before they are committed.
pub fn tracked_files() -> std::io::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository_root())
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// The tracked files whose path `wanted` accepts.
pub fn sources(wanted: impl Fn(&str) -> bool) -> std::io::Result<Vec<Source>> {
    let root = repository_root();
    let paths = tracked_files()?.into_iter().filter(|path| wanted(path) && root.join(path).is_file());
    paths.map(|path| Ok(Source { text: std::fs::read_to_string(root.join(&path))?, path })).collect()
}
