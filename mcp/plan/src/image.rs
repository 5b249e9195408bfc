//! References of images, in the grammar of [distribution/reference](https://pkg.go.dev/github.com/distribution/reference).

use mcp_runconfig::paths::PROGRAM;

/// Longest name, its registry included, in bytes.
const MAX_NAME: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG: usize = 128;
/// Shortest value of a digest, in hexadecimal digits.
const MIN_DIGEST: usize = 32;

/// Whether the text refers to an image: `[DOMAIN[:PORT]/]PATH[:TAG][@DIGEST]`. No reference begins with `-`, so that none is
/// taken for an option where it is an argument.
pub fn is_reference(text: &str) -> bool {
    let (text, digest) = text.split_once('@').map_or((text, None), |(text, digest)| (text, Some(digest)));
    let last = text.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match text[last..].find(':') {
        Some(colon) => (&text[..last + colon], Some(&text[last + colon + 1..])),
        None => (text, None),
    };
    name.len() <= MAX_NAME && is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

/// The program to start in an image of the proxy: in one that is called like this platform's, whatever the registry. Another
/// image starts what it was built to start.
pub fn program(image: &str) -> Option<&'static str> {
    let name = Parts::of(image).path;
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    PROGRAM.strip_prefix('/').is_some_and(|program| name == program).then_some(PROGRAM)
}

/// Whether the text begins references of images, as `--image-mirrors` names registries and paths in them: `DOMAIN[:PORT][/PATH]`.
pub fn is_prefix(text: &str) -> bool {
    is_reference(&format!("{text}/x"))
}

/// Whether a pod that was asked to run `asked` and runs `found` has the same image.
///
/// A digest is the image, wherever it comes from. A tag means what the repository says that it does: it counts in the
/// repository that was asked for and below the prefixes of `mirrors`, where policies may pin it to a digest.
pub fn is_same(asked: &str, found: &str, mirrors: &[String]) -> bool {
    let (asked, found) = (Parts::of(asked), Parts::of(found));
    if asked.digest.is_some() {
        return asked.digest == found.digest;
    }
    let is_mirrored = |mirror: &String| {
        let below = found.name.strip_prefix(&**mirror).and_then(|rest| rest.strip_prefix('/'));
        below.is_some_and(|below| below == asked.path || below == asked.name)
    };
    let is_pinned = found.tag.is_none() && found.digest.is_some();
    (found.tag == asked.tag || is_pinned) && (found.name == asked.name || mirrors.iter().any(is_mirrored))
}

/// A reference of an image, taken apart.
struct Parts<'a> {
    /// Its registry and path.
    name: &'a str,
    path: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let (text, digest) = text.split_once('@').map_or((text, None), |(text, digest)| (text, Some(digest)));
        let (name, tag) = match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (text, None),
        };
        let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
        let path = name.split_once('/').filter(|(first, _)| is_registry(first)).map_or(name, |(_, path)| path);
        Self { name, path, tag, digest }
    }
}

fn is_name(name: &str) -> bool {
    match name.split_once('/') {
        Some((first, path)) => (is_domain(first) || is_component(first)) && path.split('/').all(is_component),
        None => is_component(name),
    }
}

/// Lower-case letters and digits; between them one `.`, one or two `_`, or any number of `-`.
fn is_component(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    text.starts_with(is_end) && text.ends_with(is_end) && text.split(is_end).all(is_separator)
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text.ends_with(']') => (&text[..colon], Some(&text[colon + 1..])),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        let is_end = |c: char| c.is_ascii_alphanumeric();
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        label.starts_with(is_end) && label.ends_with(is_end) && label.bytes().all(is_inner)
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => consists_of(address, |byte| byte.is_ascii_hexdigit() || byte == b':'),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| consists_of(port, |byte| byte.is_ascii_digit()))
}

fn is_tag(text: &str) -> bool {
    text.len() <= MAX_TAG
        && !text.starts_with(['.', '-'])
        && consists_of(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, value)) = text.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && value.len() >= MIN_DIGEST
        && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether there is at least one byte, and all are such.
fn consists_of(text: &str, is_such: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(is_such)
}
