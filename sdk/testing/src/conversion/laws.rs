//! The laws, and the search for an object that breaks one.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::cell::OnceCell;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use portcullis_convert::{PROBLEM, STASH};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use super::Converter;
use super::edits::edits;
use super::objects::object;
use super::schema::{default, normal, prune};
use crate::difference::differences;

/// Objects for each ordered pair of versions.
const CASES: u32 = 128;
/// When the search ends, finished or not.
const PATIENCE: Duration = Duration::from_secs(20);

/// Converts objects of every version of the CRD into every other one, and back.
///
/// Objects are generated from the schemas: required and optional members, nulls where they may be, enums, limits,
/// simple patterns, formats, choices, lists, maps, and junk where unknown members are kept. CEL rules are not
/// evaluated. The objects are the same in every run. For each pair of versions, say from `v1` to `v3`, these must hold,
/// where absent, null and empty count the same:
///
/// 1. Every object that the schema admits can be converted, comes out in the version that was asked for and with its
///    metadata as it was, and twice the same.
/// 2. There and back is nothing: `v1` → `v3` → `v1` ends where it began.
/// 3. So it is when the API server prunes and defaults the object by the schema of `v3` in between, as it does when the
///    object is stored in `v3` or written there without a change. (Where it is not, the schema of `v1` commonly has a
///    member that its type lacks: give the type that member.)
/// 4. What is changed in `v3` in between stays: after `v1` → `v3`, an edit, → `v1` → `v3` the object is the one that
///    was edited. Nothing that was kept beside it comes back in the edit's place. (Deletions of members that the types
///    do not know are not tried: they look like the API server's pruning, and the engine rather undoes them than lose
///    what was pruned.)
/// 5. And it shows in `v1`: what was kept beside the object does not make it say something else than what it says
///    without.
///
/// The search stops after 20 s.
///
/// # Panics
/// When one of them does not hold, with the smallest example that was found, step by step; and when the CRD has a
/// single version or a schema that no object can be generated for.
pub fn assert_laws(converter: &impl Converter, crd: &CustomResourceDefinition) {
    let versions: Vec<Version<'_>> = crd.spec.versions.iter().map(|version| Version::new(crd, version)).collect();
    assert!(versions.len() > 1, "{} has one version: there is nothing to convert", crd.spec.names.kind);
    let pairs: Vec<_> = versions
        .iter()
        .flat_map(|from| versions.iter().map(move |to| Pair { converter, from, to }))
        .filter(|pair| pair.from.name != pair.to.name)
        .collect();
    let share = PATIENCE / u32::try_from(pairs.len()).unwrap_or(u32::MAX);
    for pair in pairs {
        if let Err(broken) = pair.search(share) {
            panic!("{broken}");
        }
    }
}

/// A version of the CRD.
struct Version<'c> {
    name: &'c str,
    served_as: String,
    schema: JSONSchemaProps,
    objects: BoxedStrategy<Value>,
}

impl<'c> Version<'c> {
    fn new(crd: &CustomResourceDefinition, version: &'c CustomResourceDefinitionVersion) -> Self {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.clone()).unwrap_or_default();
        let served_as = format!("{}/{}", crd.spec.group, version.name);
        let objects = object(&served_as, &crd.spec.names.kind, crd.spec.scope == "Namespaced", &schema);
        Self { name: &version.name, served_as, schema, objects }
    }

    /// Returns the object as the API server stores or returns it in this version.
    fn stored(&self, mut object: Value) -> Value {
        prune(&self.schema, &mut object);
        default(&self.schema, &mut object);
        object
    }
}

/// The way from one version to another.
struct Pair<'a, C> {
    converter: &'a C,
    from: &'a Version<'a>,
    to: &'a Version<'a>,
}

/// A law that does not hold, and how that was seen.
#[derive(Debug, Default)]
struct Broken {
    law: String,
    trail: Trail,
    differences: Vec<String>,
}

/// The states of an object on its way.
#[derive(Debug, Default)]
struct Trail(Vec<(String, Value)>);

impl<C: Converter> Pair<'_, C> {
    /// Tries the laws on many objects. An error is the smallest of those that break one.
    fn search(&self, patience: Duration) -> Result<(), Broken> {
        let config = Config {
            cases: CASES,
            failure_persistence: None,
            max_shrink_iters: 4096,
            max_shrink_time: 10_000,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let picks = proptest::collection::vec(any::<Index>(), 1..4);
        let inputs = (self.from.objects.clone(), self.to.objects.clone(), picks);
        let end = Instant::now() + patience;
        // Shrinking keeps to the law that broke first.
        let first = OnceCell::new();
        let found = runner.run(&inputs, |(object, donor, picks)| {
            if Instant::now() > end {
                return Ok(());
            }
            match self.laws(&object, &donor, &picks) {
                Err(broken) if *first.get_or_init(|| broken.law.clone()) == broken.law => {
                    Err(TestCaseError::fail(broken.law))
                }
                _ => Ok(()),
            }
        });
        match found {
            Ok(()) => Ok(()),
            Err(TestError::Fail(_, (object, donor, picks))) => self.laws(&object, &donor, &picks),
            Err(TestError::Abort(reason)) => {
                panic!("cannot generate objects of {} or {}: {reason}", self.from.served_as, self.to.served_as)
            }
        }
    }

    fn laws(&self, object: &Value, donor: &Value, picks: &[Index]) -> Result<(), Broken> {
        let (from, to) = (self.from.name, self.to.name);
        let mut trail = Trail::default();
        trail.push(format!("{from}, generated"), object);
        let there = self.step(&mut trail, object, self.to)?;

        let mut back = trail.fork();
        let returned = self.step(&mut back, &there, self.from)?;
        back.same(self.from, object, &returned, || format!("there and back is nothing, from {from} to {to} and back"))?;

        let mut back = trail.fork();
        let stored = self.to.stored(there.clone());
        back.push(format!("{to}, pruned and defaulted by its schema"), &stored);
        let returned = self.step(&mut back, &stored, self.from)?;
        back.same(self.from, object, &returned, || {
            format!("{from} is as it was after an update in {to} that changes nothing")
        })?;

        let mut possible = edits(&self.to.schema, &stored, donor);
        // A deletion of what the types do not know is taken for the pruning of the API server, and undone.
        possible.retain(|edit| !edit.removed().is_some_and(|path| is_unknown(&there, path)));
        let mut edited = stored;
        let mut told = Vec::new();
        if !possible.is_empty() {
            for pick in picks {
                let edit = pick.get(&possible);
                edit.apply(&mut edited);
                told.push(edit.to_string());
            }
        }
        edited["metadata"]["labels"]["edited"] = json!("yes");
        let edited = self.to.stored(edited);
        trail.push(format!("{to}, edited: {}", told.join(", ")), &edited);
        let back = self.step(&mut trail, &edited, self.from)?;
        let mut shown = trail.fork();
        let stored = self.from.stored(back.clone());
        trail.push(format!("{from}, pruned and defaulted by its schema"), &stored);
        let again = self.step(&mut trail, &stored, self.to)?;
        trail.same(self.to, &edited, &again, || format!("an edit in {to} stays, on the way to {from} and back"))?;

        shown.push(format!("{from}, without what was kept beside it"), &bare(&back));
        let seen = self.step(&mut shown, &bare(&back), self.to)?;
        shown.push(format!("{to}, as it was edited, without what was kept beside it"), &bare(&edited));
        let fresh = self.step(&mut shown, &bare(&edited), self.from)?;
        let expected = self.step(&mut shown, &bare(&fresh), self.to)?;
        shown.same(self.to, &expected, &seen, || {
            format!("an edit in {to} shows in {from}, whatever was kept beside the object")
        })
    }

    /// Converts, and sees to the first law.
    fn step(&self, trail: &mut Trail, object: &Value, to: &Version<'_>) -> Result<Value, Broken> {
        let convert = || self.converter.convert(object, &to.served_as);
        let converted = match convert() {
            Ok(converted) => converted,
            Err(problem) => {
                let law = format!("every object that the schema admits can be converted to {}", to.name);
                return Err(Broken { law, trail: trail.fork(), differences: vec![problem] });
            }
        };
        trail.push(format!("{}, converted", to.name), &converted);
        let again = convert().unwrap_or_else(Value::from);
        trail.equal(&converted, &again, || format!("what is converted to {} twice is twice the same", to.name))?;
        let head = |object: &Value| json!({"apiVersion": object["apiVersion"], "kind": object["kind"]});
        let expected = json!({"apiVersion": to.served_as, "kind": object["kind"]});
        trail.equal(&expected, &head(&converted), || {
            "an object comes out in the version that was asked for".to_owned()
        })?;
        trail.equal(&metadata(object), &metadata(&converted), || "metadata stays as it is".to_owned())?;
        Ok(converted)
    }
}

/// The metadata without what the engine keeps beside the object.
fn metadata(object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    let none = Map::new();
    let annotations = metadata["annotations"].as_object().unwrap_or(&none);
    let users: Map<_, _> =
        annotations.iter().filter(|(key, _)| !own(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    metadata["annotations"] = if users.is_empty() { Value::Null } else { Value::Object(users) };
    metadata
}

/// The object without what the engine keeps beside it.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    if let Some(annotations) = bare["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !own(key));
    }
    bare
}

/// Whether the engine both put a member over and kept it beside the object, as it does with what types do not know: the
/// way back (`r`) does not have it, and the original (`o`) does.
fn is_unknown(object: &Value, path: &[String]) -> bool {
    let has = |value: &Value| path.iter().try_fold(value, |value, key| value.get(key)).is_some();
    let stash = object["metadata"]["annotations"][STASH].as_str().unwrap_or_default();
    let stash: Map<String, Value> = serde_json::from_str(stash).unwrap_or_default();
    stash.values().any(|entry| has(&entry["o"]) && !has(&entry["r"]))
}

/// Annotations of the engine.
fn own(key: &str) -> bool {
    key == STASH || key == PROBLEM
}

impl Trail {
    fn push(&mut self, what: String, object: &Value) {
        self.0.push((what, object.clone()));
    }

    fn fork(&self) -> Self {
        Self(self.0.clone())
    }

    fn equal(&self, expected: &Value, found: &Value, law: impl Fn() -> String) -> Result<(), Broken> {
        if expected == found {
            return Ok(());
        }
        Err(Broken { law: law(), trail: self.fork(), differences: differences(expected, found) })
    }

    /// Compares what an object says, apart from its metadata.
    fn same(
        &self,
        version: &Version<'_>,
        expected: &Value,
        found: &Value,
        law: impl Fn() -> String,
    ) -> Result<(), Broken> {
        let body = |object: &Value| {
            let mut body = object.clone();
            body["metadata"] = Value::Null;
            normal(Some(&version.schema), &body)
        };
        self.equal(&body(expected), &body(found), law)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a law of conversion does not hold: {}", self.law)?;
        writeln!(f, "the smallest example that was found:")?;
        for (what, object) in &self.trail.0 {
            let mut shown = object.clone();
            if let Some(metadata) = shown["metadata"].as_object_mut() {
                // The other metadata is the same in every example.
                metadata.retain(|key, _| matches!(key.as_str(), "labels" | "annotations"));
            }
            writeln!(f, "  {what}:\n    {shown}")?;
        }
        writeln!(f, "what is wrong (expected -> found):")?;
        self.differences.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}
