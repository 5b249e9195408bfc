//! Files that a command line names, and those in a folder that it names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// What is in a file, unless that is more than `most` bytes. What never ends (`/dev/zero`) has no length to ask for.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = beginning(path, most.saturating_add(1))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > most) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// The same of a regular file alone: to open a pipe waits for its other end, which a process that serves cannot.
pub(super) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    read(path, most)
}

/// As many bytes of a file, or as there are.
pub(super) fn beginning(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    File::open(path)?.take(bytes).read_to_end(&mut read)?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_serves_does_not_wait_for_the_other_end_of_a_pipe() {
        let folder = tempfile::TempDir::new().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = read_regular(&pipe, 9).unwrap_err();
        assert_eq!(error.to_string(), "it is no regular file");
        std::fs::write(folder.path().join("file"), "text").unwrap();
        assert_eq!(read_regular(&folder.path().join("file"), 9).unwrap(), b"text");
    }
}
