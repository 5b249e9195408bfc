//! `generate`: manifests from the registration, and their comparison with files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use portcullis_manifest::{
    FailurePolicy, ServiceRef, Webhook, mutating_configuration, to_yaml, validating_configuration,
};
use serde_json::Value;

use super::Operator;
use super::cli::{GenerateFlags, What};
use crate::webhooks::{RegistrationError, Webhooks};

/// What goes wrong when manifests are generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The registration is at fault.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// A value that JSON or YAML cannot hold.
    #[error("cannot write the manifests: {0}")]
    Encode(#[from] serde_json::Error),
    /// The same, for YAML.
    #[error(transparent)]
    Yaml(#[from] portcullis_manifest::YamlError),
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write` or `create`.
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// `--check` found files that are not what would be generated.
    #[error("{} of {} differ from what is generated: {}; write them again with '{command}'", differing.len(), folder.display(), differing.join(", "))]
    Stale {
        /// The folder.
        folder: PathBuf,
        /// Names of the files, with `(missing)` or `(not generated any more)` where that is the matter.
        differing: Vec<String>,
        /// What to run.
        command: String,
    },
}

/// File names and contents.
pub(super) type Files = BTreeMap<String, String>;

pub(super) fn files<A: clap::Args>(
    operator: &Operator<A>,
    webhooks: &Webhooks,
    what: What,
    flags: &GenerateFlags,
) -> Result<Files, GenerateError> {
    let namespace = flags.namespace.clone().unwrap_or_else(|| format!("{}-system", operator.name));
    let one = |name: &str, objects: &[Value]| Ok(Files::from([(format!("{name}.yaml"), to_yaml(objects)?)]));
    match what {
        What::Crds => {
            let file = |crd| Ok((format!("{}.yaml", crd_name(crd)), to_yaml(&[serde_json::to_value(crd)?])?));
            operator.crds.iter().map(file).collect()
        }
        What::Rbac => one("rbac", &operator.full_access(webhooks).manifests(operator.name, &namespace)),
        What::Webhooks => {
            let name = flags.place.service_name.clone().unwrap_or_else(|| operator.names().service());
            let service = ServiceRef { namespace, name, port: flags.place.service_port };
            one("webhooks", &configurations(operator, webhooks, &service)?)
        }
    }
}

fn configurations<A: clap::Args>(
    operator: &Operator<A>,
    webhooks: &Webhooks,
    service: &ServiceRef,
) -> Result<Vec<Value>, GenerateError> {
    let entries: Vec<Webhook> =
        webhooks.manifests()?.into_iter().map(|webhook| guard(webhook, &service.namespace)).collect();
    let (names, present) = (operator.names(), operator.names().configurations(webhooks)?);
    let mut objects = Vec::new();
    if present.validating.is_some() {
        objects.push(serde_json::to_value(validating_configuration(&names.validating(), &entries, service))?);
    }
    if present.mutating.is_some() {
        objects.push(serde_json::to_value(mutating_configuration(&names.mutating(), &entries, service))?);
    }
    Ok(objects)
}

/// A webhook that fails closed leaves out the operator's own namespace: when it is down, nothing that would start it again may depend on it.
fn guard(webhook: Webhook, namespace: &str) -> Webhook {
    if webhook.failure_policy == FailurePolicy::Fail { webhook.excluding_namespace(namespace) } else { webhook }
}

fn crd_name(
    crd: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
) -> String {
    format!("{}.{}", crd.spec.names.plural, crd.spec.group)
}

/// Prints, writes or compares.
pub(super) fn deliver(operator: &str, what: What, files: &Files, flags: &GenerateFlags) -> Result<(), GenerateError> {
    let Some(folder) = &flags.out else {
        let text: Vec<&str> = files.values().map(String::as_str).collect();
        let printed = std::io::stdout().lock().write_all(text.join("---\n").as_bytes());
        return printed.map_err(|source| GenerateError::File {
            action: "write",
            path: "standard output".into(),
            source,
        });
    };
    if flags.check {
        let differing = differing(folder, files)?;
        let word = format!("{what:?}").to_lowercase();
        let command = format!("{operator} generate {word} --out {}", folder.display());
        return if differing.is_empty() {
            Ok(())
        } else {
            Err(GenerateError::Stale { folder: folder.clone(), differing, command })
        };
    }
    std::fs::create_dir_all(folder).map_err(|source| GenerateError::File {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| GenerateError::File { action: "write", path, source })?;
    }
    Ok(())
}

fn differing(folder: &std::path::Path, files: &Files) -> Result<Vec<String>, GenerateError> {
    let mut differing = Vec::new();
    for (name, text) in files {
        match std::fs::read_to_string(folder.join(name)) {
            Ok(found) if found == *text => {}
            Ok(_) => differing.push(name.clone()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => differing.push(format!("{name} (missing)")),
            Err(source) => return Err(GenerateError::File { action: "read", path: folder.join(name), source }),
        }
    }
    let unread = |source| GenerateError::File { action: "read", path: folder.to_owned(), source };
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder).map_err(unread)? {
            let name = entry.map_err(unread)?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".yaml") && !files.contains_key(&name) {
                differing.push(format!("{name} (not generated any more)"));
            }
        }
    }
    Ok(differing)
}
