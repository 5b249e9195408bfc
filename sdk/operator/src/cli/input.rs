//! Files that a command line names, and those in a folder that it names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a file of at most `most` bytes. The length is not asked beforehand, because `/dev/zero` has none and never
/// ends.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = beginning(path, most.saturating_add(1))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > most) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads this many bytes of a file, or all that there are.
pub(super) fn beginning(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    File::open(path)?.take(bytes).read_to_end(&mut read)?;
    Ok(read)
}
