//! The controllers of a session: a candidate in the same election as the installed operator's replicas. And the
//! namespaces that its webhooks leave to restricted operators.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use portcullis_lease::Record;

use super::cluster::call;
use super::rights;
use super::session_lease::{SESSION, SessionLease, is_session};
use super::session_mark::SessionMark;
use super::text::say;
use crate::Installation;
use crate::leases::{LeaseFlags, LeaseTiming, Leases};
use portcullis_manifest::names::leaders;

/// What a session has to do with leases.
pub(super) struct Candidate {
    pub(super) leases: Leases,
    /// With controllers, where there is an election.
    pub(super) session_lease: Option<SessionLease>,
    /// With controllers: what people are told of them at first.
    pub(super) told: Option<String>,
}

impl Candidate {
    /// Of a session that serves nothing.
    pub(super) fn none() -> Self {
        Self { leases: Leases::none(), session_lease: None, told: None }
    }

    /// Of a session without controllers: its webhooks stand back for restricted operators, as those of the installed
    /// one do. A restricted session is called for its own namespace alone.
    pub(super) async fn of_webhooks(client: &Client, installation: &Installation) -> anyhow::Result<Self> {
        let mut candidate = Self::none();
        if installation.restricted_to.is_none() {
            if let Some(lack) = rights::lacks(client, &rights::TO_STAND_BACK).await? {
                say(&format!("Webhooks also serve namespaces of restricted operators: {lack}"));
            } else {
                // It holds none: it is no candidate, and marks nothing.
                let flags = LeaseFlags::of_session(SESSION.to_owned(), BTreeMap::new(), None);
                candidate.leases = Leases::new(client, installation, false, &flags)?;
            }
        }
        Ok(candidate)
    }

    /// With controllers: takes the leases of this installation, as `run` does. Where the namespace that it lives in is
    /// not there, no replica is either, and no Lease could be made in it: an installation that leads somewhere else is
    /// an error then.
    pub(super) async fn of_controllers(
        client: &Client,
        installation: &Installation,
        me: &SessionMark,
        timing: Option<LeaseTiming>,
    ) -> anyhow::Result<Self> {
        let session_lease = SessionLease::new(client, installation);
        let namespace = &session_lease.namespace;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let elects = call(&format!("read Namespace {namespace}"), namespaces.get_opt(namespace)).await?.is_some();
        let flags = LeaseFlags::of_session(format!("{SESSION}{}", me.owner), me.whole(), timing);
        let leases = Leases::new(client, installation, elects, &flags)?;
        if !elects {
            ensure!(
                installation.restricted_to.is_none(),
                "there is no namespace {namespace}, which --restrict-to-namespace names: create it first"
            );
            alone(client, installation).await?;
            let told = format!("run here too, with your rights; beside no others: there is no namespace {namespace}");
            return Ok(Self { leases, session_lease: None, told: Some(told) });
        }
        let told = format!("run here while this session holds the {session_lease}, with your rights");
        Ok(Self { leases, session_lease: Some(session_lease), told: Some(told) })
    }
}

/// That no controllers of another installation run beside those of a session that takes part in no election.
async fn alone(client: &Client, installation: &Installation) -> anyhow::Result<()> {
    let Some(lease) = leading(client, installation).await?.into_iter().next() else { return Ok(()) };
    let whose = if is_session(&Record::from(&lease)) { "another session of" } else { "the installed operator" };
    let namespace = lease.namespace().unwrap_or_default();
    bail!(
        "controllers would run beside those of {whose} in namespace {namespace}; to take turns with them, say \
         --leader-election-namespace {namespace}"
    )
}

/// The Leases of the leaders of the operator's installations that somebody holds.
async fn leading(client: &Client, installation: &Installation) -> anyhow::Result<Vec<Lease>> {
    let labelled = ListParams::default().labels(&leaders(installation.operator));
    let leases = Api::<Lease>::all(client.clone());
    let mut found = call("list the Leases of other installations", leases.list(&labelled)).await?.items;
    found.retain(|lease| Record::from(lease).holder.is_some());
    Ok(found)
}
