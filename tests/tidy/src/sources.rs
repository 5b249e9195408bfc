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
    /// The content without comment lines and without what follows `#[cfg(test)]`.
    pub fn shipped_code(&self) -> String {
        self.text
            .lines()
            .take_while(|line| line.trim() != "#[cfg(test)]")
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n")
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
