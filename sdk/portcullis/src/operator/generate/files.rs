//! What is generated, as files: printed, written, or compared with those that are there.

use std::io::Write as _;
use std::path::Path;

use super::{GenerateError, GenerateFlags};

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Its name in the folder.
    pub(super) name: String,
    /// All that is in it.
    pub(super) text: String,
}

/// Prints, writes or compares.
/// `head` is how each file begins: by it, those that are not generated any more are told from those of others.
pub(super) fn deliver(operator: &str, head: &str, files: &[File], flags: &GenerateFlags) -> Result<(), GenerateError> {
    let Some(folder) = &flags.out else {
        let text: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
        let printed = std::io::stdout().lock().write_all(text.join("---\n").as_bytes());
        return printed.map_err(failed("write", Path::new("standard output")));
    };
    if folder.is_file() {
        return Err(GenerateError::NoFolder(folder.clone()));
    }
    let stale = stale(folder, head, files)?;
    if flags.check {
        let mut differing = differing(folder, files)?;
        differing.extend(stale.into_iter().map(|name| format!("{name} (not generated any more)")));
        return if differing.is_empty() {
            Ok(())
        } else {
            Err(GenerateError::Stale { folder: folder.clone(), differing, command: command(operator) })
        };
    }
    std::fs::create_dir_all(folder).map_err(failed("create", folder))?;
    for File { name, text } in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(failed("write", &path))?;
    }
    for name in stale {
        let path = folder.join(name);
        std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

/// This command line without `--check`.
fn command(operator: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@".contains(c);
    let quoted =
        |word: String| if word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) };
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = words.filter(|word| word != "--check").map(quoted);
    [operator.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> GenerateError {
    let path = path.to_owned();
    move |source| GenerateError::File { action, path, source }
}

/// What is in a file, if it is there. Bytes that are not text differ from all that is generated.
fn read(path: &Path) -> Result<Option<String>, GenerateError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// The files that are not as they are generated.
fn differing(folder: &Path, files: &[File]) -> Result<Vec<String>, GenerateError> {
    let mut differing = Vec::new();
    for File { name, text } in files {
        match read(&folder.join(name))? {
            Some(found) if found == *text => {}
            Some(found) if found.replace("\r\n", "\n") == *text => {
                differing.push(format!("{name} (other line endings)"));
            }
            Some(_) => differing.push(format!("{name} (changed)")),
            None => differing.push(format!("{name} (missing)")),
        }
    }
    Ok(differing)
}

/// Files of the folder that begin with `head` and are not among `files`, in the order of their names.
fn stale(folder: &Path, head: &str, files: &[File]) -> Result<Vec<String>, GenerateError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", folder)(error)),
    };
    let mut stale = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed("read", folder))?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|extension| extension == "yaml")
            && !files.iter().any(|file| file.name == name)
            && folder.join(&name).is_file()
            && read(&folder.join(&name))?.is_some_and(|text| text.starts_with(head))
        {
            stale.push(name);
        }
    }
    stale.sort();
    Ok(stale)
}
