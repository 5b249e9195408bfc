//! The parts of pods that are refused: those that `--restrict-workloads` names, and in the operator's own namespace what belongs to the
//! operator.
//!
//! The rendered children are judged, not the fields of a spec: a field that comes later cannot be forgotten.

use mcp_plan::{
    config::Uses,
    problem::Problem,
    reference::{Data, SECRET},
    settings::Settings,
    workload::{Child, ChildKind, Owner},
};
use serde_json::Value;

use super::{Rendering, Workload};

/// Members of a pod that reach its node when they are `true`.
const HOST_SWITCHES: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "privileged", "hostProcess"];

/// Lists the parts of this workload's pods that the operator's settings refuse, each with the field of the spec that asks for it.
/// Configurations bring none of that: they are judged as such.
pub fn refused_pods<W: Workload>(workload: &W, settings: &Settings) -> Vec<Problem> {
    let home = settings.home_in(Owner::of(workload).namespace);
    if home.is_none() && !settings.restrict_workloads {
        return Vec::new();
    }
    let data = Data::default();
    let uses = Uses::default();
    let children = workload.render(&Rendering { uses: &uses, data: &data, settings });
    // The accounts that are made for it now: one of its names that the spec asks for may be another's.
    let own_accounts =
        children.iter().map(|child| &child.reference).filter(|child| child.kind == ChildKind::ServiceAccount);
    let own_accounts: Vec<_> = own_accounts.collect();
    let spec = serde_json::to_value(workload.spec()).unwrap_or_default();
    let mut problems: Vec<Problem> = Vec::new();
    // The Secrets of what the spec says itself are in no child that is rendered without configurations.
    for reference in workload.uses().references().into_iter().filter(|it| it.kind == SECRET) {
        let message = home.and_then(|home| home.secret_problem(&reference.name));
        problems.extend(message.map(|message| Problem::new(reference.field, message)));
    }
    let mut refuse = |key: &str, value: &Value, message: String| {
        let field = field_of(&spec, "spec", key, value).unwrap_or_else(|| "spec".to_owned());
        let problem = Problem::new(field, message);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    for pod in children.iter().filter_map(pod) {
        for key in ["serviceAccountName", "serviceAccount"] {
            let Some(value @ Value::String(name)) = pod.get(key) else { continue };
            let foreign = settings.restrict_workloads && !own_accounts.iter().any(|own| own.name == *name);
            let foreign = foreign.then(|| {
                format!("ServiceAccount {name:?} is not one that the operator makes for this, and --restrict-workloads refuses others")
            });
            if let Some(message) = home.and_then(|home| home.account_problem(name)).or(foreign) {
                refuse(key, value, message);
            }
        }
        members(pod, &mut |key, value| {
            if settings.restrict_workloads && reaches_node(key, value) {
                refuse(key, value, format!("{key} is refused by --restrict-workloads"));
            }
            for (home, (key, name)) in home.into_iter().flat_map(|home| secrets(key, value).map(move |it| (home, it))) {
                if let Some(message) = name.as_str().and_then(|name| home.secret_problem(name)) {
                    refuse(key, name, message);
                }
            }
        });
    }
    problems
}

/// The pod that a child describes; of a ServiceAccount, what its pods get of it.
fn pod(child: &Child) -> Option<&Value> {
    match child.reference.kind {
        ChildKind::Deployment | ChildKind::StatefulSet => child.object.pointer("/spec/template/spec"),
        ChildKind::ServiceAccount => Some(&child.object),
        _ => None,
    }
}

/// Calls `visit` with every member of an object at any depth.
fn members<'a>(value: &'a Value, visit: &mut impl FnMut(&'a str, &'a Value)) {
    match value {
        Value::Object(all) => {
            for (key, member) in all {
                visit(key, member);
                members(member, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, visit)),
        _ => {}
    }
}

/// Whether this member of a pod gives it something of its node.
fn reaches_node(key: &str, value: &Value) -> bool {
    match key {
        "hostPath" => value.is_object(),
        "hostPort" => value.as_i64().is_some_and(|port| port != 0),
        _ => *value == true && HOST_SWITCHES.contains(&key),
    }
}

/// The names of Secrets that this member of a pod holds, and the member that each is in. Volumes of every driver call them so
/// (`secretName`, `secretRef`, `nodePublishSecretRef`), and so do variables and pull secrets.
fn secrets<'a>(key: &'a str, value: &'a Value) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let named = |object: &'a Value| ["name", "secretName"].into_iter().filter_map(|key| Some((key, object.get(key)?)));
    let found = match value {
        _ if !key.to_ascii_lowercase().contains("secret") => Vec::new(),
        Value::String(_) => vec![(key, value)],
        Value::Array(items) => items.iter().flat_map(named).collect(),
        _ => named(value).collect(),
    };
    found.into_iter()
}

/// Where a spec says this of its pods, in a template or in a field of its own for a ServiceAccount or a hostPath.
fn field_of(spec: &Value, path: &str, key: &str, wanted: &Value) -> Option<String> {
    let is_it = |name: &str, member: &Value| {
        let is_key = name == key || name == "serviceAccount" && key == "serviceAccountName";
        is_key && (member == wanted || wanted.get("path").is_some_and(|path| member == path))
    };
    match spec {
        Value::Object(all) => all.iter().find_map(|(name, member)| {
            let path = format!("{path}.{name}");
            if is_it(name, member) { Some(path) } else { field_of(member, &path, key, wanted) }
        }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, item)| field_of(item, &format!("{path}[{at}]"), key, wanted))
        }
        _ => None,
    }
}
