//! An operator whose one kind has three versions, any of which can be written and read.
//!
//! ```text
//! cargo run -p portcullis-operator --example versions_operator -- generate crds
//! cargo run -p portcullis-operator --example versions_operator -- run --kubeconfig ~/.kube/config
//! cargo run -p portcullis-operator --example versions_operator -- migrate-storage --kubeconfig ~/.kube/config
//! ```

use std::process::ExitCode;

use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;
use portcullis::controller::{Action, Controller, ControllerError, Reconcile};
use portcullis::conversion::Convert;
use portcullis::operator::{Components, Operator};
use portcullis::webhooks::Webhooks;
use tracing::info;

/// The first version: a name is a name.
mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A person with a name.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "versions.example", version = "v1", kind = "Person", plural = "people", namespaced)]
    pub(crate) struct PersonSpec {
        /// The whole name.
        pub(crate) name: String,
    }
}

/// The second version: names have two parts.
mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A person with a name.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "versions.example", version = "v2", kind = "Person", plural = "people", namespaced)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct PersonSpec {
        /// All but the last name.
        pub(crate) first_name: String,
        /// The last name, where there is one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub(crate) last_name: String,
    }
}

/// The third version, the hub: and there may be nicknames, of which the other two know nothing.
mod v3 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A person with a name.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "versions.example", version = "v3", kind = "Person", plural = "people", namespaced)]
    pub(crate) struct PersonSpec {
        /// The name in its parts.
        pub(crate) name: Name,
        /// Nicknames among friends.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub(crate) nicknames: Vec<String>,
    }

    /// A name in its parts.
    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Name {
        /// All but the last name.
        pub(crate) first: String,
        /// The last name, where there is one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub(crate) last: String,
    }
}

// Metadata is not the functions' business: what they give a new object is ignored.

fn v1_to_v3(old: v1::Person) -> v3::Person {
    let (first, last) = old.spec.name.rsplit_once(' ').unwrap_or((&old.spec.name, ""));
    let name = v3::Name { first: first.to_owned(), last: last.to_owned() };
    v3::Person::new("", v3::PersonSpec { name, nicknames: Vec::new() })
}

fn v3_to_v1(new: v3::Person) -> v1::Person {
    let v3::Name { first, last } = new.spec.name;
    v1::Person::new("", v1::PersonSpec { name: if last.is_empty() { first } else { format!("{first} {last}") } })
}

fn v2_to_v3(old: v2::Person) -> v3::Person {
    let name = v3::Name { first: old.spec.first_name, last: old.spec.last_name };
    v3::Person::new("", v3::PersonSpec { name, nicknames: Vec::new() })
}

fn v3_to_v2(new: v3::Person) -> v2::Person {
    v2::Person::new("", v2::PersonSpec { first_name: new.spec.name.first, last_name: new.spec.name.last })
}

#[derive(clap::Args, Clone, Debug)]
struct Args {
    /// Log the name of each person
    #[arg(long)]
    name: bool,
}

/// A controller that has not learnt of later versions yet: the API server has what it reads converted.
async fn name(cx: Reconcile<v1::Person>) -> Result<Action, ControllerError> {
    info!(name = cx.object.spec.name, "reconciled a person");
    Ok(Action::await_change())
}

fn main() -> anyhow::Result<ExitCode> {
    // Objects are stored in the version that is named here.
    let crd = merge_crds(vec![v1::Person::crd(), v2::Person::crd(), v3::Person::crd()], "v3")?;
    let operator =
        Operator::new("versions-operator").version(env!("CARGO_PKG_VERSION")).crds(vec![crd]).setup(|args: &Args| {
            let people = Convert::<v3::Person>::hub().spoke(v1_to_v3, v3_to_v1).spoke(v2_to_v3, v3_to_v2);
            let parts = Components::new(Webhooks::new().convert(people));
            if !args.name {
                return Ok(parts);
            }
            Ok(parts.controller(Controller::new("names"), name))
        });
    Ok(operator.main())
}
