//! Generated files: printed, written, or compared with those on disk.

use std::io::Write as _;
use std::path::Path;

use super::{GenerateError, GenerateFlags, KUSTOMIZATION, program, quoted};
use crate::cli::input::beginning;

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Its name in the folder.
    pub(super) name: String,
    /// All that is in it.
    pub(super) text: String,
}

/// Prints, writes or compares.
///
/// By how they begin, `heads`, files that are not generated any more are told from those of others. A file of
/// somebody else's that has the name of one of these is not overwritten, and then nothing is written at all: a
/// `kustomization.yaml` or an `rbac.yaml` is soon somebody's own.
pub(super) fn deliver(
    operator: &str,
    heads: &[String],
    files: &[File],
    flags: &GenerateFlags,
) -> Result<(), GenerateError> {
    let Some(folder) = &flags.out else {
        let text: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
        let printed = std::io::stdout().lock().write_all(text.join("---\n").as_bytes());
        return printed.map_err(failed("write", Path::new("standard output")));
    };
    if folder.is_file() {
        return Err(GenerateError::NoFolder(folder.clone()));
    }
    // Reading a pipe would wait for somebody who writes to it.
    if let Some(path) = files.iter().map(|file| folder.join(&file.name)).find(|path| path.exists() && !path.is_file()) {
        return Err(GenerateError::NoFile(path));
    }
    let stale = stale(folder, heads, files)?;
    if is_of_another(folder, operator, heads, files)? {
        return Err(GenerateError::Kustomization(folder.clone()));
    }
    if flags.check {
        let mut differing = differing(folder, files)?;
        differing.extend(stale.into_iter().map(|name| format!("{name} (not generated any more)")));
        return if differing.is_empty() {
            Ok(())
        } else {
            Err(GenerateError::Stale { folder: folder.clone(), differing, command: command(operator) })
        };
    }
    let foreign = foreign(folder, operator, files)?;
    if !foreign.is_empty() {
        return Err(GenerateError::Foreign { folder: folder.clone(), foreign });
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
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = words.filter(|word| word != "--check").map(quoted);
    [program(operator)].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> GenerateError {
    let path = path.to_owned();
    move |source| GenerateError::File { action, path, source }
}

/// Reads the beginning of a file, if it exists: a little more than twice the length of `like`, which may have other
/// line endings. Bytes that are not UTF-8 are replaced, and so differ from anything that is generated.
fn read(path: &Path, like: &str) -> Result<Option<String>, GenerateError> {
    match beginning(path, like.len() as u64 * 2 + 1) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// The files that are not as they are generated.
fn differing(folder: &Path, files: &[File]) -> Result<Vec<String>, GenerateError> {
    let mut differing = Vec::new();
    for File { name, text } in files {
        match read(&folder.join(name), text)? {
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

/// The names in `files` at which a file exists that no `generate` of this operator wrote. An empty file does not count.
fn foreign(folder: &Path, operator: &str, files: &[File]) -> Result<Vec<String>, GenerateError> {
    let ours = ours(operator);
    let mut foreign = Vec::new();
    for File { name, .. } in files {
        if read(&folder.join(name), &ours)?.is_some_and(|text| !text.is_empty() && !text.starts_with(&ours)) {
            foreign.push(name.clone());
        }
    }
    Ok(foreign)
}

/// The prefix of every file that this operator's `generate` writes.
pub(super) fn ours(operator: &str) -> String {
    format!("# Generated by '{operator} generate ")
}

/// Whether a kustomization among `files` would take the place of one that another of this operator's `generate`s wrote.
fn is_of_another(folder: &Path, operator: &str, heads: &[String], files: &[File]) -> Result<bool, GenerateError> {
    let ours = ours(operator);
    let Some(File { name, text }) = files.iter().find(|file| file.name == KUSTOMIZATION) else { return Ok(false) };
    Ok(read(&folder.join(name), text)?.is_some_and(|found| found.starts_with(&ours) && !begins(&found, heads)))
}

fn begins(text: &str, heads: &[String]) -> bool {
    heads.iter().any(|head| text.lines().next() == Some(head.trim_end()))
}

/// Files of the folder that begin with one of `heads`, whatever their line endings, and are not among `files`, in the order of
/// their names.
fn stale(folder: &Path, heads: &[String], files: &[File]) -> Result<Vec<String>, GenerateError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", folder)(error)),
    };
    let longest = heads.iter().max_by_key(|head| head.len()).map_or("", String::as_str);
    let mut stale = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed("read", folder))?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|extension| extension == "yaml")
            && !files.iter().any(|file| file.name == name)
            && folder.join(&name).is_file()
            && read(&folder.join(&name), longest)?.is_some_and(|text| begins(&text, heads))
        {
            stale.push(name);
        }
    }
    stale.sort();
    Ok(stale)
}
