//! Files with tokens that somebody else is shown.

use std::fmt;
use std::fs::canonicalize;
use std::path::{Path, PathBuf};

use mcp_runconfig::paths::{ACCOUNT, hidden_directory, is_of_account};

use crate::file::{read_file, rooted};

/// A file with a token that an identity provider, or a remote server, is shown. It is read again each time: kubelet replaces it long before it expires.
#[derive(Clone, Debug)]
pub struct TokenFile {
    /// As the document has it.
    written: String,
    path: PathBuf,
    root: Option<PathBuf>,
}

/// Its path.
impl fmt::Display for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl TokenFile {
    /// The file at the path that the document has, below `root`; `None` where the path is not absolute.
    pub fn new(path: &str, root: Option<&Path>) -> Option<Self> {
        let written = path.to_owned();
        Some(Self { written, path: rooted(path, root)?, root: root.map(Path::to_owned) })
    }

    /// Reads the file where the links of its path lead now.
    ///
    /// # Errors
    /// A sentence with the path: it cannot be read, or no provider may see it. The operator writes the path of the pod's
    /// ServiceAccount where the Kubernetes API is the provider, and refuses it elsewhere; a link does not lead there.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let refused = |directory: &str| Err(format!("{self} is below {directory}, whose files no provider may see"));
        if let Some(directory) = hidden_directory(&self.written) {
            return refused(directory);
        }
        let unreadable = |error: std::io::Error| format!("{self} cannot be read ({error})");
        let target = canonicalize(&self.path).map_err(unreadable)?;
        let root = self.root.as_deref().map(canonicalize).transpose().map_err(unreadable)?;
        let below_root = root.and_then(|root| Some(Path::new("/").join(target.strip_prefix(root).ok()?)));
        for path in [Some(&target), below_root.as_ref()].into_iter().flatten() {
            let path = path.to_string_lossy();
            if let Some(directory) = hidden_directory(&path) {
                return refused(directory);
            }
            if is_of_account(&path) && !is_of_account(&self.written) {
                return refused(ACCOUNT);
            }
        }
        read_file(&target)
    }

    /// The token that it holds now. Blanks around it do not count: no token has any.
    ///
    /// # Errors
    /// A sentence with the path, as for [`read`](Self::read), or as it holds no text.
    pub fn read_token(&self) -> Result<String, String> {
        let text = String::from_utf8(self.read()?).map_err(|_| format!("{self} is not UTF-8"))?;
        match text.trim() {
            "" => Err(format!("{self} is blank")),
            token => Ok(token.to_owned()),
        }
    }
}
