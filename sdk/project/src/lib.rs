//! The crate of a new operator on the SDK: the files of `template/`, with the names that the user chose.
//!
//! The template is an operator for kettles. The tests of this crate build and run a project that is made from it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files of a new crate, and what is in them.
const TEMPLATE: [(&str, &str); 16] = [
    ("Cargo.toml", include_str!("../template/Cargo.toml.template")),
    (".gitignore", "/target\n"),
    ("README.md", include_str!("../template/README.md")),
    ("src/main.rs", include_str!("../template/src/main.rs")),
    ("src/lib.rs", include_str!("../template/src/lib.rs")),
    ("src/v1.rs", include_str!("../template/src/v1.rs")),
    ("src/rules.rs", include_str!("../template/src/rules.rs")),
    ("src/controller.rs", include_str!("../template/src/controller.rs")),
    ("tests/operator.rs", include_str!("../template/tests/operator.rs")),
    ("chart/Chart.yaml", include_str!("../template/chart/Chart.yaml")),
    ("chart/values.yaml", include_str!("../template/chart/values.yaml")),
    ("chart/templates/_helpers.tpl", include_str!("../template/chart/templates/_helpers.tpl")),
    ("chart/templates/crds.yaml", include_str!("../template/chart/templates/crds.yaml")),
    ("chart/templates/operator.yaml", include_str!("../template/chart/templates/operator.yaml")),
    ("chart/templates/rbac.yaml", include_str!("../template/chart/templates/rbac.yaml")),
    ("chart/templates/webhooks.yaml", include_str!("../template/chart/templates/webhooks.yaml")),
];

/// The longest name: with what is added to it, it still names a Service.
const LONGEST: usize = 40;

/// Kinds whose type would hide another one in the file that declares it.
const TAKEN: [&str; 13] = [
    "Condition",
    "CustomResource",
    "Default",
    "Deserialize",
    "JsonSchema",
    "None",
    "Option",
    "Self",
    "Serialize",
    "Some",
    "Spec",
    "Status",
    "Vec",
];

/// The names of a new operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    name: String,
    kind: String,
    group: String,
    sdk: PathBuf,
}

/// Why a project cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// The name cannot name a crate, an executable and a Service.
    #[error(
        "NAME {0:?} cannot name an operator: take at most {LONGEST} lower-case letters, digits and single '-', first a \
         letter, as in beer-operator"
    )]
    InvalidName(String),
    /// The kind's name cannot name a kind and its Rust type.
    #[error("--kind {0:?} cannot name a kind: take letters and digits, the first a capital, as in Beer")]
    InvalidKind(String),
    /// The kind's Rust type would shadow another type.
    #[error("--kind {0:?} is the name of something that every kind's file needs: give another")]
    Taken(String),
    /// The group is no valid API group.
    #[error("--group {0:?} cannot be an API group: take a domain of lower-case labels, as in beer.example.com")]
    InvalidGroup(String),
    /// The SDK is not in this folder.
    #[error("--sdk {}: no SDK is there: give the folder 'sdk' of a checkout", .0.display())]
    Sdk(PathBuf),
    /// The folder exists already.
    #[error("{} is there already: give another --out, or move it away", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl Project {
    /// A project of this name for a `kind` (by default named after it) in `group`. `sdk` is the folder with the crates
    /// of the SDK.
    ///
    /// # Errors
    /// When a name is invalid, and when `sdk` is not there.
    pub fn new(name: &str, kind: Option<String>, group: String, sdk: &Path) -> Result<Self, ProjectError> {
        let well_formed = name.split('-').all(|part| !part.is_empty()) && is_label(name);
        if !well_formed || name.len() > LONGEST || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
            return Err(ProjectError::InvalidName(name.to_owned()));
        }
        let kind = kind.unwrap_or_else(|| kind_of(name));
        let letters = kind.len() <= LONGEST && kind.chars().all(|c| c.is_ascii_alphanumeric());
        if !letters || !kind.starts_with(|first: char| first.is_ascii_uppercase()) {
            return Err(ProjectError::InvalidKind(kind));
        }
        if TAKEN.contains(&&*kind) {
            return Err(ProjectError::Taken(kind));
        }
        if group.len() > 200 || !group.contains('.') || !group.split('.').all(is_label) {
            return Err(ProjectError::InvalidGroup(group));
        }
        let crates = ["portcullis", "testing"].map(|each| sdk.join(each).join("Cargo.toml"));
        let sdk = match sdk.canonicalize() {
            Ok(sdk) if crates.iter().all(|manifest| manifest.is_file()) => sdk,
            _ => return Err(ProjectError::Sdk(sdk.to_owned())),
        };
        Ok(Self { name: name.to_owned(), kind, group, sdk })
    }

    /// The files of the project, each with its path in the new folder.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, String)> {
        let identifier = self.name.replace('-', "_");
        let plural = plural(&self.kind);
        let sdk = self.sdk.display().to_string().replace('\\', "/").replace('"', "\\\"");
        TEMPLATE.into_iter().map(move |(path, text)| {
            let names = [
                ("kettles", &plural),
                ("kettle-operator", &self.name),
                ("kettle_operator", &identifier),
                ("kettle.example", &self.group),
                ("Kettle", &self.kind),
                ("@sdk@", &sdk),
            ];
            (path, names.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
        })
    }

    /// Creates `folder` and writes the files. Existing files are never changed.
    ///
    /// # Errors
    /// When `folder` exists, and when it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ProjectError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| match source.kind() {
                io::ErrorKind::AlreadyExists => ProjectError::Exists(path),
                _ => ProjectError::Write { path, source },
            }
        };
        fs::create_dir(folder).map_err(at(folder))?;
        for (path, text) in self.files() {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).map_err(at(parent))?;
            fs::write(&path, text).map_err(at(&path))?;
        }
        Ok(())
    }
}

/// `beer-operator` looks after a `Beer`.
fn kind_of(name: &str) -> String {
    let subject = name.strip_suffix("-operator").unwrap_or(name);
    let words = subject.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    });
    words.collect()
}

/// Objects of the kind, as paths of the API have them.
fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if ["s", "x", "z", "ch", "sh"].iter().any(|end| singular.ends_with(end)) => format!("{singular}es"),
        _ => format!("{singular}s"),
    }
}

/// A label of DNS (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
