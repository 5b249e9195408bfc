//! The cases in the files of `cases/`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

/// Files of one kind each, and `shared`, whose rows are components.
pub(crate) const FILES: [&str; 5] =
    ["dynamocomponentdeployment", "dynamographdeployment", "dynamomodel", "dynamographdeploymentrequest", "shared"];

/// The check that refuses an object.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    Schema,
    Cel,
    Webhook,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Said {
    pub(crate) error: Option<String>,
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    #[serde(rename = "case")]
    pub(crate) name: String,
    /// It is in none of Dynamo's tables.
    #[serde(default)]
    extra: bool,
    /// It is about an operator that is restricted to the object's namespace.
    #[serde(default)]
    pub(crate) restricted: bool,
    /// The user of the request, where that matters; an unknown one if empty.
    pub(crate) user: Option<String>,
    /// The spec that is there already: it is an update.
    old: Option<Value>,
    #[serde(default)]
    spec: Value,
    /// Instead of a spec, in `shared`.
    component: Option<Value>,
    /// `profilingConfig.config` as no JSON object can have it: the validator alone is asked.
    pub(crate) text: Option<String>,
    /// The check that refuses it first; none if it is admitted.
    pub(crate) stage: Option<Stage>,
    /// The field that a schema or its rules name.
    pub(crate) field: Option<String>,
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    /// The validator's own answer, where it differs.
    pub(crate) rules: Option<Said>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    kind: Option<String>,
    /// The number of rows in Dynamo's table.
    pub(crate) rows: usize,
    cases: Vec<Case>,
}

impl File {
    pub(crate) fn named(name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&file).unwrap();
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// The cases of Dynamo's tables.
    pub(crate) fn in_tables(&self) -> usize {
        self.cases.iter().filter(|case| !case.extra).count()
    }

    /// As objects of kinds: a component is the spec of one, and a service of a graph.
    pub(crate) fn vectors(self) -> Vec<Vector> {
        let kind = self.kind.unwrap_or_default();
        self.cases
            .into_iter()
            .flat_map(|case| match case.component.clone() {
                None => vec![Vector { kind: kind.clone(), path: "", case }],
                Some(component) => {
                    let graph = Case { spec: json!({"services": {"main": component.clone()}}), ..case.clone() };
                    let alone = Case { spec: component, ..case };
                    let vector = |kind: &str, path, case| Vector { kind: kind.to_owned(), path, case };
                    vec![
                        vector("DynamoComponentDeployment", "spec", alone),
                        vector("DynamoGraphDeployment", "spec.services[main]", graph),
                    ]
                }
            })
            .collect()
    }
}

/// A case as an object of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    pub(crate) kind: String,
    path: &'static str,
    pub(crate) case: Case,
}

impl Vector {
    /// Whether a request can say this, rather than the validator alone be asked.
    pub(crate) fn can_be_sent(&self) -> bool {
        self.case.text.is_none() && self.case.user.as_deref() != Some("")
    }

    /// The object before, if it is an update, and the one that is asked for.
    pub(crate) fn objects(&self, namespace: &str, name: &str) -> (Option<Value>, Value) {
        let object = |spec: &Value| {
            json!({
                "apiVersion": "nvidia.com/v1alpha1",
                "kind": self.kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            })
        };
        (self.case.old.as_ref().map(object), object(&self.case.spec))
    }

    /// The answer to the user.
    pub(crate) fn said(&self, namespace: &str, name: &str) -> Said {
        self.filled(&Said { error: self.case.error.clone(), warnings: self.case.warnings.clone() }, namespace, name)
    }

    /// The validator's own answer.
    pub(crate) fn said_alone(&self, namespace: &str, name: &str) -> Said {
        match &self.case.rules {
            Some(said) => self.filled(said, namespace, name),
            None => self.said(namespace, name),
        }
    }

    fn filled(&self, said: &Said, namespace: &str, name: &str) -> Said {
        let fill =
            |text: &String| text.replace("{path}", self.path).replace("{namespace}", namespace).replace("{name}", name);
        Said { error: said.error.as_ref().map(fill), warnings: said.warnings.iter().map(fill).collect() }
    }
}
