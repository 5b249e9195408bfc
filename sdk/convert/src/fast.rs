//! The way of an object that loses nothing, which is how most go: decoded once, converted there and back, written once.
//!
//! No document is built. What the source's type writes is compared, byte by byte, with what it writes after the way
//! back; the metadata is copied as it came.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::crossing::Hop;
use crate::object::{Object, begin, into_string};
use crate::unknown;

/// The object after all hops; None where any of them would lose something, or fails: then the long way finds out what.
pub(crate) fn convert(object: &Object<'_>, hops: &[Hop<'_>]) -> Option<String> {
    if object.metadata.is_annotated() {
        return None;
    }
    catch_unwind(AssertUnwindSafe(|| attempt(object, hops))).ok().flatten()
}

fn attempt(source: &Object<'_>, hops: &[Hop<'_>]) -> Option<String> {
    let (first, last) = (hops.first()?, hops.last()?);
    let json = source.for_converters();
    let mut is_whole = true;
    let mut object = first.from.read(&json, &mut |path| is_whole &= unknown::is_engines(path)).ok()?;
    if !is_whole {
        return None;
    }
    let metadata = object.metadata().clone();

    let mut written = Vec::with_capacity(hops.len());
    for hop in hops {
        let mut members = Vec::with_capacity(json.len());
        object.write(&mut members).ok()?;
        written.push(members);
        object.metadata().clone_from(&metadata);
        object = (hop.there)(object)?;
    }

    let mut out = Vec::with_capacity(source.metadata.raw.len() + json.len() + 256);
    begin(&mut out, &last.to.api_version, &source.kind);
    out.extend_from_slice(source.metadata.raw.as_bytes());
    out.push(b',');
    let start = out.len();
    object.write(&mut out).ok()?;
    if out.len() == start {
        out.pop();
    }
    out.push(b'}');

    let mut again = Vec::with_capacity(json.len());
    for (hop, members) in hops.iter().zip(written).rev() {
        object.metadata().clone_from(&metadata);
        object = (hop.back)(object)?;
        again.clear();
        object.write(&mut again).ok()?;
        if again != members {
            return None;
        }
    }
    Some(into_string(out))
}
