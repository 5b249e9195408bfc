//! The check of an archive: that it is an OCI image layout, and that its image is what ours promise to be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Where the layout keeps what digests name.
const BLOBS: &str = "blobs/sha256";

/// The labels that every image of ours has.
const LABELS: [&str; 4] = [
    "org.opencontainers.image.title",
    "org.opencontainers.image.version",
    "org.opencontainers.image.revision",
    "org.opencontainers.image.licenses",
];

/// A fault of an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// It could not be read: try again, or pack it again.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// It is no OCI image layout: `pack.sh` is wrong, or something changed the archive.
    #[error("is no OCI image layout: {0}")]
    Layout(String),
    /// The image is not what ours promise: change what goes into it.
    #[error("holds an image that breaks a promise: {0}")]
    Promise(String),
}

impl From<io::Error> for Invalid {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// The image of an archive that passed the check.
#[derive(Debug)]
#[non_exhaustive]
pub struct Image {
    /// The whole name: registry, path and tag.
    pub name: String,
    /// The digest of its manifest, which pods and registries pin.
    pub digest: String,
    /// Bytes of its compressed layer.
    pub layer: u64,
    /// Its files.
    pub files: BTreeSet<String>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}@{}", self.name, self.digest)?;
        let files: Vec<_> = self.files.iter().map(String::as_str).collect();
        write!(f, "  {} kB compressed: {}", self.layer / 1000, files.join(", "))
    }
}

/// Checks the archive at `path`: its image may have `limit` megabytes, its binary and `files` beside it.
pub fn check(path: &Path, limit: u64, files: &[String]) -> Result<Image, Invalid> {
    let size = fs::metadata(path)?.len();
    if size > limit * 1_000_000 {
        return Err(Invalid::Promise(format!("it has {} kB; {limit} MB are allowed", size / 1000)));
    }
    let layout = Layout::open(path)?;
    let (manifest_at, manifest) = layout.manifest()?;
    let (config_at, config) = layout.described(&manifest["config"], "config.v1+json")?;
    let [layer] = array(&manifest, "layers")? else {
        return Err(Invalid::Promise("it has other than one layer".to_owned()));
    };
    let layer_at = layout.verified(layer, "layer.v1.tar+gzip")?;
    let used = BTreeSet::from([&manifest_at, &config_at, &layer_at].map(|digest| digest["sha256:".len()..].to_owned()));
    if used != layout.blobs {
        return Err(Invalid::Layout(format!("its blobs are {:?}, and used are {used:?}", layout.blobs)));
    }

    let diff = digest_of(layout.layer(&layer_at)?.stdout.take())?;
    if config["rootfs"]["diff_ids"] != serde_json::json!([diff]) {
        return Err(Invalid::Layout(format!("the layer is {diff}, and the configuration says {}", config["rootfs"])));
    }
    if config["os"] != "linux" || !config["architecture"].is_string() {
        return Err(Invalid::Layout("the configuration names no platform".to_owned()));
    }
    let annotations = &layout.index["manifests"][0]["annotations"];
    let name = string(annotations, "io.containerd.image.name")?;
    if name.rsplit(':').next() != annotations["org.opencontainers.image.ref.name"].as_str() {
        return Err(Invalid::Layout(format!("{annotations} are two names")));
    }
    let found = contents(&layout, &layer_at)?;
    promises(&config["config"], &found, files)?;
    Ok(Image { name, digest: manifest_at, layer: layer["size"].as_u64().unwrap_or_default(), files: found })
}

/// Checks the promises of every image of ours: its user, its entry point, and that it holds nothing else.
fn promises(config: &Value, found: &BTreeSet<String>, files: &[String]) -> Result<(), Invalid> {
    let user = string(config, "User")?;
    let ids: Option<Vec<u32>> = user.split(':').map(|id| id.parse().ok()).collect();
    // Kubernetes compares numbers: it starts no image with a user's name under runAsNonRoot.
    if !ids.is_some_and(|ids| ids.len() == 2 && !ids.contains(&0)) {
        return Err(Invalid::Promise(format!("its user is {user}, not UID:GID of a user that is not root")));
    }
    let [Value::String(entrypoint)] = array(config, "Entrypoint")? else {
        return Err(Invalid::Promise(format!("its entrypoint is {}, not the binary", config["Entrypoint"])));
    };
    let wanted: BTreeSet<String> = files.iter().chain([entrypoint]).cloned().collect();
    if *found != wanted {
        return Err(Invalid::Promise(format!("its files are {found:?}, not {wanted:?}")));
    }
    match LABELS.iter().find(|label| config["Labels"][**label].as_str().is_none_or(str::is_empty)) {
        Some(label) => Err(Invalid::Promise(format!("it has no label {label}"))),
        None => Ok(()),
    }
}

/// An unpacked image layout whose every blob is what its name says.
/// <https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md>
struct Layout {
    folder: tempfile::TempDir,
    index: Value,
    blobs: BTreeSet<String>,
}

impl Layout {
    fn open(archive: &Path) -> Result<Self, Invalid> {
        let folder = tempfile::tempdir()?;
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(archive).arg("-C").arg(folder.path());
        if !tar.status()?.success() {
            return Err(Invalid::Layout("tar does not unpack it".to_owned()));
        }
        let version = read(&folder.path().join("oci-layout"))?;
        if version["imageLayoutVersion"] != "1.0.0" {
            return Err(Invalid::Layout(format!("its version is {version}")));
        }
        let mut blobs = BTreeSet::new();
        for entry in fs::read_dir(folder.path().join(BLOBS))? {
            let path = entry?.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
            let digest = digest_of(Some(File::open(&path)?))?;
            if digest != format!("sha256:{name}") {
                return Err(Invalid::Layout(format!("the blob {name} is {digest}")));
            }
            blobs.insert(name);
        }
        let index = read(&folder.path().join("index.json"))?;
        Ok(Self { folder, index, blobs })
    }

    /// The one manifest, and its digest.
    fn manifest(&self) -> Result<(String, Value), Invalid> {
        let typed = |value: &Value, kind: &str| {
            value["schemaVersion"] == 2 && value["mediaType"] == format!("application/vnd.oci.image.{kind}")
        };
        let [descriptor] = array(&self.index, "manifests")? else {
            return Err(Invalid::Layout("its index names other than one manifest".to_owned()));
        };
        let (digest, manifest) = self.described(descriptor, "manifest.v1+json")?;
        if !typed(&self.index, "index.v1+json") || !typed(&manifest, "manifest.v1+json") {
            return Err(Invalid::Layout("index and manifest do not say what they are".to_owned()));
        }
        Ok((digest, manifest))
    }

    /// The digest in a descriptor, whose blob has the type and the size that it says.
    /// <https://github.com/opencontainers/image-spec/blob/v1.1.1/descriptor.md>
    fn verified(&self, descriptor: &Value, kind: &str) -> Result<String, Invalid> {
        let digest = string(descriptor, "digest")?;
        let size = fs::metadata(self.blob(&digest))
            .map(|file| file.len())
            .map_err(|error| Invalid::Layout(format!("there is no blob {digest}: {error}")))?;
        let of_kind = descriptor["mediaType"] == format!("application/vnd.oci.image.{kind}");
        if !of_kind || descriptor["size"] != size {
            return Err(Invalid::Layout(format!("{descriptor} describes a {kind} of {size} bytes")));
        }
        Ok(digest)
    }

    /// As `verified`, with the JSON in the blob.
    fn described(&self, descriptor: &Value, kind: &str) -> Result<(String, Value), Invalid> {
        let digest = self.verified(descriptor, kind)?;
        let document = read(&self.blob(&digest))?;
        Ok((digest, document))
    }

    fn blob(&self, digest: &str) -> std::path::PathBuf {
        self.folder.path().join(BLOBS).join(digest.trim_start_matches("sha256:"))
    }

    /// A process that writes the layer's tar to its stdout.
    fn layer(&self, digest: &str) -> io::Result<std::process::Child> {
        Command::new("gzip").arg("-dc").stdin(File::open(self.blob(digest))?).stdout(Stdio::piped()).spawn()
    }
}

/// The files of a layer. Folders and files are root's, and nobody else may write them.
fn contents(layout: &Layout, layer: &str) -> Result<BTreeSet<String>, Invalid> {
    let mut unpacked = layout.layer(layer)?;
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "-tvf", "-"]).stdin(unpacked.stdout.take().map_or_else(Stdio::null, Stdio::from));
    let listed = tar.output()?;
    if !listed.status.success() || !unpacked.wait()?.success() {
        return Err(Invalid::Layout("tar does not list its layer".to_owned()));
    }
    let modes = BTreeMap::from([("drwxr-xr-x", false), ("-rwxr-xr-x", true), ("-rw-r--r--", true)]);
    let mut files = BTreeSet::new();
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        // Mode, owner, size, day, time, path.
        let words: Vec<_> = line.split_whitespace().collect();
        match (words.as_slice(), words.first().and_then(|mode| modes.get(mode))) {
            ([_, "0/0", _, _, _, path], Some(file)) => {
                if *file {
                    files.insert(format!("/{path}"));
                }
            }
            _ => return Err(Invalid::Promise(format!("its layer has this: {line}"))),
        }
    }
    Ok(files)
}

/// Computes the digest of the stream with `sha256sum`.
fn digest_of(stream: Option<impl Into<Stdio>>) -> Result<String, Invalid> {
    let stream = stream.map_or_else(Stdio::null, Into::into);
    let said = Command::new("sha256sum").stdin(stream).output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(format!("sha256:{}", said.split_whitespace().next().unwrap_or_default()))
}

fn read(path: &Path) -> Result<Value, Invalid> {
    let name = path.file_name().unwrap_or_default().display();
    let text = fs::read(path).map_err(|error| Invalid::Layout(format!("{name}: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| Invalid::Layout(format!("{name}: {error}")))
}

fn string(value: &Value, member: &str) -> Result<String, Invalid> {
    let found = value[member].as_str().map(str::to_owned);
    found.ok_or_else(|| Invalid::Layout(format!("{member} is no string in {value}")))
}

fn array<'a>(value: &'a Value, member: &str) -> Result<&'a [Value], Invalid> {
    let found = value[member].as_array().map(Vec::as_slice);
    found.ok_or_else(|| Invalid::Layout(format!("{member} is no list in {value}")))
}
