//! Small files with keys and certificates: found again when they change, however they are replaced.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Which content a path has, as far as the file system tells. kubelet replaces the files of a volume by swapping a
/// symlink, which shows as another inode behind the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(meta: Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl Stamp {
    /// The stamp of what is at `path` now. Take it before reading: what changes while it is read shows as another stamp later.
    pub fn of(path: &Path) -> Result<Self, String> {
        fs::metadata(path).map(Self::from).map_err(|error| unreadable(path, &error))
    }
}

/// `path` under `root`; `None` when it is not absolute.
pub fn rooted(path: &str, root: Option<&Path>) -> Option<PathBuf> {
    let relative = Path::new(path).strip_prefix("/").ok()?;
    Some(root.unwrap_or(Path::new("/")).join(relative))
}

/// The content of the file at `path`, which must not be empty.
///
/// # Errors
/// A sentence with the path.
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: io::Error| unreadable(path, &error);
    let meta = fs::metadata(path).map_err(fail)?;
    // A pipe would be waited for, and a device has no end.
    if !meta.is_file() {
        return Err(format!("{} cannot be read (it is not a regular file)", path.display()));
    }
    let size = meta.size();
    if size > MAX_FILE {
        return Err(format!("{} has {size} bytes, more than {MAX_FILE}", path.display()));
    }
    let content = fs::read(path).map_err(fail)?;
    if content.is_empty() {
        return Err(format!("{} is empty", path.display()));
    }
    Ok(content)
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read ({error})", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_move_under_the_root_and_others_are_refused() {
        let root = Path::new("/tmp/files");
        assert_eq!(rooted("/etc/x", Some(root)), Some("/tmp/files/etc/x".into()));
        assert_eq!(rooted("/etc/x", None), Some("/etc/x".into()));
        assert_eq!(rooted("name,target=X", Some(root)), None);
    }
}
