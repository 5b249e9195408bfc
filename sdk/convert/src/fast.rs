//! The fast path for an object that loses nothing, as most do: decoded once, converted there and back, written once.
//!
//! No document is built. The output of the source's type is compared, byte by byte, with its output after converting
//! back; the metadata is copied unchanged.

use crate::edge::Edge;
use crate::object::{Object, begin, into_string};
use crate::pieces::Pieces;
use crate::problem::unless_it_panics;
use crate::trace::Trace;
use crate::watch::Notice;

/// The object after all edges of the route; None where any of them would lose something, or fails: the slow path then
/// finds out what.
pub(crate) fn convert(object: &Object<'_>, route: &[Edge<'_>]) -> Option<String> {
    if object.metadata.has_own_metadata() || object.is_too_large() {
        return None;
    }
    unless_it_panics(|| attempt(object, route)).flatten()
}

fn attempt(source: &Object<'_>, route: &[Edge<'_>]) -> Option<String> {
    let (first, last) = (route.first()?, route.last()?);
    let members: Vec<(&str, &str)> = source.members.iter().map(|member| (&*member.key, member.value)).collect();
    let length: usize = members.iter().map(|(key, value)| key.len() + value.len() + 4).sum();

    let notice = Notice::default();
    let pieces = Pieces {
        api_version: &source.api_version,
        kind: &source.kind,
        metadata: &source.metadata.for_converters(),
        members: &members,
    };
    let mut object = first.from.read(pieces, &notice).ok()?;
    // Converters may read the metadata, and their changes to it are ignored: each gets it unchanged.
    let mut metadata = object.metadata().clone();

    let mut said = Vec::with_capacity(route.len());
    for (index, edge) in route.iter().enumerate() {
        let mut trace = Trace::with_capacity(length * 2).with_digests(index == 0 && notice.is_buffered());
        object.trace(&mut trace).ok()?;
        if index == 0 && notice.passed_over(&trace) {
            return None;
        }
        if index > 0 {
            object.metadata().clone_from(&metadata);
        }
        said.push(trace);
        object = (edge.there)(object).ok()?;
    }

    let mut out = Vec::with_capacity(source.metadata.raw.len() + length + 256);
    begin(&mut out, &last.to.api_version, &source.kind);
    out.extend_from_slice(source.metadata.raw.as_bytes());
    out.push(b',');
    let start = out.len();
    object.write(&mut out).ok()?;
    if out.len() == start {
        out.pop();
    }
    out.push(b'}');

    for (index, (edge, before)) in route.iter().zip(said).enumerate().rev() {
        *object.metadata() = if index == 0 { std::mem::take(&mut metadata) } else { metadata.clone() };
        object = (edge.back)(object).ok()?;
        let mut after = Trace::with_capacity(length * 2);
        object.trace(&mut after).ok()?;
        if after != before {
            return None;
        }
    }
    Some(into_string(out))
}
