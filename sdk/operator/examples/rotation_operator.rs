//! An operator that is called for everything that happens to its kind: two versions, a default and a rule.
//!
//! ```text
//! cargo run -p portcullis-operator --example rotation_operator -- generate crds
//! cargo run -p portcullis-operator --example rotation_operator -- run --kubeconfig ~/.kube/config
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;
use portcullis::certificates::{RotationTiming, TimeOfDay};
use portcullis::conversion::Convert;
use portcullis::operator::{Components, Operator};
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};

/// Rotations that are over within seconds, and clocks that are wrong.
#[derive(clap::Args)]
struct Args {
    /// Time for which a new CA is published before anything is issued under it, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 120_000)]
    ca_settle: u64,
    /// Time for which a CA stays trusted after the last certificate under it was replaced, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3_600_000)]
    ca_drain: u64,
    /// Error of this machine's clock in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_hyphen_values = true)]
    clock_skew: i64,
}

impl Args {
    fn timing(&self) -> RotationTiming {
        let (settle, drain) = (Duration::from_millis(self.ca_settle), Duration::from_millis(self.ca_drain));
        RotationTiming { settle, drain, ..RotationTiming::default() }
    }
}

/// The first version: a ticket is a text.
mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A wish of a user.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "rotation.example", version = "v1", kind = "Ticket", plural = "tickets", namespaced)]
    pub(crate) struct TicketSpec {
        /// The text of the wish.
        pub(crate) text: String,
        /// Urgency of the wish.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) urgency: Option<u8>,
    }
}

/// The second version, which is stored: the text is called a title.
mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A wish of a user.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "rotation.example", version = "v2", kind = "Ticket", plural = "tickets", namespaced)]
    pub(crate) struct TicketSpec {
        /// The title of the wish.
        pub(crate) title: String,
        /// Urgency of the wish.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) urgency: Option<u8>,
    }
}

fn v1_to_v2(old: v1::Ticket) -> v2::Ticket {
    v2::Ticket::new("", v2::TicketSpec { title: old.spec.text, urgency: old.spec.urgency })
}

fn v2_to_v1(new: v2::Ticket) -> v1::Ticket {
    v1::Ticket::new("", v1::TicketSpec { text: new.spec.title, urgency: new.spec.urgency })
}

async fn hurry(mut ticket: v2::Ticket, _: Context) -> Mutation<v2::Ticket> {
    if ticket.spec.urgency.is_some() {
        return Mutation::unchanged();
    }
    ticket.spec.urgency = Some(1);
    Mutation::modified(ticket)
}

async fn judge(ticket: Arc<v2::Ticket>, _: Context) -> Verdict {
    if ticket.spec.title.is_empty() {
        return Verdict::deny("a ticket needs a title").code(422).cause("spec.title", "is empty");
    }
    Verdict::allow()
}

fn main() -> anyhow::Result<ExitCode> {
    let crd = merge_crds(vec![v1::Ticket::crd(), v2::Ticket::crd()], "v2")?;
    let operator = Operator::new("rotation-operator").crds(vec![crd]).setup(|args: &Args| {
        let webhooks = Webhooks::new()
            .convert(Convert::<v2::Ticket>::hub().spoke(v1_to_v2, v2_to_v1))
            .mutate(Mutate::<v2::Ticket>::new("hurry").on_create(hurry))
            .validate(Validate::<v2::Ticket>::new("judge").on_create(judge));
        let clock = TimeOfDay::with_offset(SignedDuration::from_secs(args.clock_skew));
        Ok(Components::new(webhooks).rotation_timing(args.timing()).time_of_day(clock))
    });
    Ok(operator.main())
}
