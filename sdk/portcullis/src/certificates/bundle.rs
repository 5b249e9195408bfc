//! The CA in the webhook configurations and in the CRDs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PatchParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use portcullis_pki::{bundle_fingerprints, check_trust};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Material;
use super::carrier::{CONVERSION, Carrier, Entry};
use super::clock::Clock;
use super::metrics::CertificateMetrics;
use crate::names::DEV_SESSION;
use crate::pauses::Pauses;

/// First and longest pause between two writes to one object, whether the first failed or was undone.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the Secret is waited for, and believed more than what was read from it before.
const DOUBT: Duration = Duration::from_secs(20);
/// How long one write may take.
const WRITE: Duration = Duration::from_secs(30);

/// The objects that carry the bundle; empty ones are not looked after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configurations {
    /// Name of the validating configuration and the names of its webhooks that are ours.
    pub validating: Option<(String, Vec<String>)>,
    /// The same for the mutating one.
    pub mutating: Option<(String, Vec<String>)>,
    /// Names of the CRDs whose objects we convert.
    pub crds: Vec<String>,
}

impl Configurations {
    /// Kind and name of each.
    fn objects(&self) -> Vec<String> {
        let validating = self.validating.iter().map(|(name, _)| object::<ValidatingWebhookConfiguration>(name));
        let mutating = self.mutating.iter().map(|(name, _)| object::<MutatingWebhookConfiguration>(name));
        let crds = self.crds.iter().map(|name| object::<CustomResourceDefinition>(name));
        validating.chain(mutating).chain(crds).collect()
    }
}

/// Publishes the CA in the webhook configurations and the CRDs' conversion stanzas, and puts it back when something
/// else takes it out (Helm, GitOps, a user's `apply`). Or it only looks on, where publishing is somebody else's business
/// ([`Supplied`](super::Supplied)).
///
/// Its field manager owns nothing but `caBundle`, so that whoever applies the manifests can go on doing so. Nothing is
/// sent while the bytes are right. Who takes the conversion out of a CRD by server-side apply takes
/// `spec.conversion.webhook` out by a patch first: the CA in it is not theirs, and without the rest the API server
/// refuses it.
#[derive(Clone, Debug)]
pub struct Bundle {
    wanted: watch::Sender<Wanted>,
    /// How each object stands, and since when.
    standings: watch::Sender<BTreeMap<String, (Standing, Instant)>>,
    /// As whom it writes; nobody when it only looks on.
    manager: Option<String>,
    /// What its owner has to do about a bundle that is not right, when it only looks on.
    cure: String,
    namespace: Option<String>,
    /// Where all replicas read what is to be published; nowhere when there is but one.
    origin: Option<Origin>,
    metrics: CertificateMetrics,
    clock: Clock,
}

/// What callers must trust.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// This bundle, byte for byte.
    Held(Arc<str>),
    /// Whatever makes them accept this chain; the bundle is what they would trust at best.
    Accepted { chain: Arc<str>, bundle: Arc<str> },
}

/// How an object stands, as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// These are the names and the bundles of its entries of ours.
    Carries(Vec<(String, Option<Vec<u8>>)>),
    /// It could not be read or written, for this reason.
    Waits(String),
    /// Nobody calls us because of it, for this reason.
    Absent(String),
}

/// What an object says by which nobody calls us.
#[derive(Clone, Copy)]
enum Absence {
    /// That we cannot be called as we should.
    Missed,
    /// Nothing.
    Passed,
}

impl Wanted {
    fn bundle(&self) -> &Arc<str> {
        match self {
            Self::Held(bundle) | Self::Accepted { bundle, .. } => bundle,
        }
    }

    fn of(material: &Material) -> Self {
        let (chain, bundle) = (Arc::from(&*material.cert_pem), Arc::from(&*material.ca_pem));
        Self::Accepted { chain, bundle }
    }

    /// Why callers with this bundle do not trust what they must, at `now`; `None` when they do.
    fn missing(&self, carried: Option<&[u8]>, now: Timestamp) -> Option<String> {
        match self {
            Self::Held(bundle) => (carried != Some(bundle.as_bytes())).then(String::new),
            Self::Accepted { chain, .. } => {
                let carried = carried.unwrap_or_default();
                check_trust(chain.as_bytes(), carried, now).err().map(|problem| problem.to_string())
            }
        }
    }
}

impl Bundle {
    /// A publisher that writes as field manager `<operator>-ca-bundle`.
    pub fn new(operator: &str, ca_pem: &str) -> Self {
        let (wanted, _) = watch::channel(Wanted::Held(Arc::from(ca_pem)));
        let manager = Some(format!("{operator}-ca-bundle"));
        Self {
            wanted,
            standings: watch::Sender::default(),
            manager,
            cure: String::new(),
            namespace: None,
            origin: None,
            metrics: CertificateMetrics::default(),
            clock: Clock::system(),
        }
    }

    /// One that writes nothing: somebody else publishes, and it says whether callers accept the chain that is served,
    /// and what is to be done if not.
    pub(super) fn observing(material: &Material, cure: &str) -> Self {
        let (wanted, _) = watch::channel(Wanted::of(material));
        Self {
            wanted,
            standings: watch::Sender::default(),
            manager: None,
            cure: cure.to_owned(),
            namespace: None,
            origin: None,
            metrics: CertificateMetrics::default(),
            clock: Clock::system(),
        }
    }

    /// Leaves entries alone that call a Service of another namespace than this one. They are those of another
    /// installation of the operator: with our CA in them, its webhooks could not be called.
    #[must_use]
    pub fn of_services_in(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Looks into this Secret before it writes, and writes nothing that is not what its `ca.crt` says any more: other
    /// replicas publish too, and one that has slept through a change must not undo it.
    #[must_use]
    pub(super) fn said_by(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    #[must_use]
    pub(super) fn counted_in(mut self, metrics: CertificateMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    #[must_use]
    pub(super) fn judged_by(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// What callers must trust from now on.
    pub fn publish(&self, ca_pem: &str) {
        self.want(Wanted::Held(Arc::from(ca_pem)));
    }

    /// What callers must accept from now on, where somebody else publishes.
    pub(super) fn expect(&self, material: &Material) {
        self.want(Wanted::of(material));
    }

    fn want(&self, new: Wanted) {
        self.wanted.send_if_modified(|wanted| {
            let changed = *wanted != new;
            if changed {
                *wanted = new;
            }
            changed
        });
    }

    /// Waits until every object has been seen to hold the bundle that is wanted now, and returns it. It has no deadline
    /// of its own, and tells `waiting` what is missing whenever that changes.
    pub async fn published(&self, configurations: &Configurations, waiting: impl FnMut(&str)) -> Arc<str> {
        self.until(None, configurations, waiting).await
    }

    /// Waits until callers accept this chain, wherever it is that they find what they trust. What is wanted of the
    /// published bundles stays as it is. What nobody is called by does not count.
    pub(super) async fn accepted(
        &self,
        material: &Material,
        configurations: &Configurations,
        waiting: impl FnMut(&str),
    ) {
        self.until(Some(Wanted::of(material)), configurations, waiting).await;
    }

    /// Waits until an entry is seen under which callers do not accept what is wanted now. What nobody is called by does
    /// not count.
    pub(super) async fn refused(&self, configurations: &Configurations) {
        let look = |_: &Wanted, missing: Option<&str>| match missing {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        };
        self.look(None, Absence::Passed, configurations, look).await;
    }

    async fn until(
        &self,
        other: Option<Wanted>,
        configurations: &Configurations,
        mut waiting: impl FnMut(&str),
    ) -> Arc<str> {
        let look = |now: &Wanted, missing: Option<&str>| match missing {
            None => ControlFlow::Break(Arc::clone(now.bundle())),
            Some(missing) => {
                waiting(missing);
                ControlFlow::Continue(())
            }
        };
        let absence = if other.is_some() { Absence::Passed } else { Absence::Missed };
        self.look(other, absence, configurations, look).await
    }

    /// Tells, for ever, what is missing whenever that changes: nothing, or what.
    pub(super) async fn report(&self, configurations: &Configurations, mut tell: impl FnMut(Option<&str>)) {
        let look = |_: &Wanted, missing: Option<&str>| {
            tell(missing);
            ControlFlow::<()>::Continue(())
        };
        self.look(None, Absence::Missed, configurations, look).await;
    }

    async fn look<T>(
        &self,
        other: Option<Wanted>,
        absence: Absence,
        configurations: &Configurations,
        mut look: impl FnMut(&Wanted, Option<&str>) -> ControlFlow<T>,
    ) -> T {
        let objects = configurations.objects();
        let (mut wanted, mut standings) = (self.wanted.subscribe(), self.standings.subscribe());
        loop {
            let now = wanted.borrow_and_update().clone();
            let now = other.as_ref().unwrap_or(&now);
            let missing = {
                let standings = standings.borrow_and_update();
                let standing = |object: &String| standings.get(object).map(|(standing, _)| standing);
                objects.iter().find_map(|object| match (standing(object), absence) {
                    (Some(Standing::Absent(_)), Absence::Passed) => None,
                    (standing, _) => self.missing_in(now, object, standing),
                })
            };
            if let ControlFlow::Break(done) = look(now, missing.as_deref()) {
                return done;
            }
            // Neither channel ends while `self` is here.
            tokio::select! {
                _ = wanted.changed() => {}
                _ = standings.changed() => {}
            }
        }
    }

    /// What is missing in this object, of which this is known.
    fn missing_in(&self, wanted: &Wanted, object: &str, standing: Option<&Standing>) -> Option<String> {
        match standing {
            None => Some(format!("the CA to be published in {object}")),
            Some(Standing::Waits(why) | Standing::Absent(why)) => {
                Some(format!("the CA to be published in {object}: {why}"))
            }
            Some(Standing::Carries(entries)) => entries.iter().find_map(|(entry, carried)| {
                let why = wanted.missing(carried.as_deref(), self.clock.now())?;
                let why = if why.is_empty() { why } else { format!(": {entry}: {why}; {}", self.cure) };
                Some(format!("the CA to be published in {object}{why}"))
            }),
        }
    }

    /// Since when every object has been seen to hold `bundle`; not before `begun`, when it became wanted. What nobody is
    /// called by does not count.
    pub(super) fn held_since(&self, configurations: &Configurations, bundle: &str, begun: Instant) -> Option<Instant> {
        let (wanted, standings) = (Wanted::Held(Arc::from(bundle)), self.standings.borrow());
        configurations.objects().iter().try_fold(begun, |since, object| match standings.get(object) {
            Some((Standing::Absent(_), _)) => Some(since),
            Some((standing, at)) => {
                self.missing_in(&wanted, object, Some(standing)).is_none().then_some(since.max(*at))
            }
            None => None,
        })
    }

    /// Changes whenever one of the objects stands otherwise than before.
    pub(super) fn changes(&self) -> Changes {
        Changes(self.standings.subscribe())
    }

    /// Looks after the objects until `stop`.
    pub async fn maintain(&self, client: &Client, configurations: &Configurations, stop: &CancellationToken) {
        let Configurations { validating, mutating, crds } = configurations;
        let validating =
            validating.iter().map(|(name, ours)| self.follow::<ValidatingWebhookConfiguration>(client, name, ours));
        let mutating =
            mutating.iter().map(|(name, ours)| self.follow::<MutatingWebhookConfiguration>(client, name, ours));
        let conversion = [CONVERSION.to_owned()];
        let crds = crds.iter().map(|name| self.follow::<CustomResourceDefinition>(client, name, &conversion));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = async { tokio::join!(join_all(validating), join_all(mutating), join_all(crds)) } => stop.cancelled().await,
        }
    }

    async fn follow<C: Carrier>(&self, client: &Client, name: &str, ours: &[String]) {
        let api: Api<C> = Api::all(client.clone());
        let mut events = std::pin::pin!(watch_one(api.clone(), name));
        let mut wanted = self.wanted.subscribe();
        let (mut live, mut listed, mut missing): (Option<C>, Option<C>, Vec<&String>) = (None, None, Vec::new());
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut not_before = Instant::now();
        let (mut due, mut doubted, mut published): (_, Option<Instant>, Option<Arc<str>>) = (None, None, None);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => { listed = None; continue }
                    Some(Ok(Event::InitApply(object))) => { listed = Some(object); continue }
                    Some(Ok(Event::InitDone)) => live = listed.take(),
                    Some(Ok(Event::Apply(object))) => live = Some(object),
                    Some(Ok(Event::Delete(_))) => live = None,
                    Some(Err(error)) => {
                        warn!(%error, object = object::<C>(name), "cannot watch what the CA is published in");
                        if live.is_none() {
                            self.stands::<C>(name, Standing::Waits(error.to_string()));
                        }
                        continue;
                    }
                    None => return,
                },
                _ = wanted.changed() => {}
                () = sleep_until(due.unwrap_or(not_before)), if due.is_some() => {}
            }
            due = None;
            let wanted = wanted.borrow_and_update().clone();
            let Some(current) = &live else {
                self.stands::<C>(name, Standing::Absent(format!("it is not installed; see '{}'", C::COMMAND)));
                continue;
            };
            if current.annotations().contains_key(DEV_SESSION) {
                // A development session has borrowed its conversion and gives it back. That the session is called for
                // now is no reason to be in its way, nor to wait for it.
                self.stands::<C>(name, Standing::Carries(Vec::new()));
                continue;
            }
            let entries = current.entries();
            let absent: Vec<&String> =
                ours.iter().filter(|name| entries.iter().all(|entry| entry.name != **name)).collect();
            if absent != missing && !absent.is_empty() {
                warn!(object = object::<C>(name), webhooks = ?absent, see = C::COMMAND, "webhooks that are served are not registered");
            }
            missing = absent;
            let named = entries.iter().filter(|entry| ours.iter().any(|ours| ours == entry.name));
            let elsewhere = |entry: &&Entry<'_>| {
                self.namespace.is_some() && entry.namespace.is_some() && entry.namespace != self.namespace.as_ref()
            };
            let (others, mine): (Vec<_>, Vec<_>) = named.partition(elsewhere);
            if let (true, Some(Entry { namespace: Some(other), .. })) = (mine.is_empty(), others.first()) {
                let why = format!(
                    "it belongs to the installation in namespace {other}; give --namespace, or see '{}'",
                    C::COMMAND
                );
                self.stands::<C>(name, Standing::Absent(why));
            } else if mine.is_empty() {
                self.stands::<C>(name, Standing::Absent(C::STRANGE.to_owned()));
            } else {
                self.stands::<C>(name, carries(&mine));
                let right = mine.iter().all(|entry| wanted.missing(entry.bundle, self.clock.now()).is_none());
                let Some(manager) = self.manager.as_ref().filter(|_| !right) else {
                    doubted = None;
                    continue;
                };
                if Instant::now() < not_before {
                    due = Some(not_before);
                    continue;
                }
                let doubts = doubted.get_or_insert_with(Instant::now);
                if doubts.elapsed() < DOUBT && self.origin_says_otherwise(wanted.bundle()).await {
                    due = Some(Instant::now() + FIRST_PAUSE);
                    continue;
                }
                doubted = None;
                if published.as_ref() == Some(wanted.bundle()) {
                    let others = current.meddlers(manager).join(", ");
                    warn!(
                        object = object::<C>(name),
                        others,
                        "callers do not trust the right CA, which is put back; its other managers must leave caBundle alone"
                    );
                }
                let entries: Vec<&str> = mine.iter().map(|entry| entry.name).collect();
                let written = self.write(&api, current, &entries, wanted.bundle()).await;
                // A write that failed, or that someone undoes again and again, is repeated ever more slowly.
                not_before = Instant::now() + pauses.next(Instant::now());
                match written {
                    Ok(written) => {
                        info!(object = object::<C>(name), webhooks = entries.len(), "published the CA");
                        self.metrics.wrote_bundle(object::<C>(name));
                        let held = written.entries();
                        let held: Vec<_> = held.iter().filter(|entry| entries.contains(&entry.name)).collect();
                        self.stands::<C>(name, carries(&held));
                        published = Some(Arc::clone(wanted.bundle()));
                        live = Some(written);
                    }
                    Err(error) => {
                        warn!(error, object = object::<C>(name), "cannot publish the CA");
                        self.stands::<C>(name, Standing::Waits(error));
                        due = Some(not_before);
                    }
                }
            }
        }
    }

    /// Whether the Secret that all replicas read may have another bundle by now. One that is not there, or has none that
    /// reads, says nothing; an API server that does not answer may be hiding one.
    async fn origin_says_otherwise(&self, wanted: &str) -> bool {
        let Some(origin) = &self.origin else { return false };
        let secret = match timeout(DOUBT, origin.secrets.get_opt(&origin.name)).await {
            Ok(Ok(Some(secret))) => secret,
            Ok(Ok(None)) => return false,
            Ok(Err(_)) | Err(_) => return true,
        };
        let said = secret.data.as_ref().and_then(|data| bundle_fingerprints(&data.get("ca.crt")?.0).ok());
        said.is_some_and(|said| bundle_fingerprints(wanted.as_bytes()).is_ok_and(|wanted| wanted != said))
    }

    /// Puts the bundle into these entries, if nobody has changed the object since it was read.
    async fn write<C: Carrier>(&self, api: &Api<C>, read: &C, entries: &[&str], wanted: &str) -> Result<C, String> {
        let patch = read.patch(entries, &ByteString(wanted.as_bytes().to_vec()));
        let params = PatchParams { field_manager: self.manager.clone(), ..PatchParams::default() };
        match timeout(WRITE, api.patch(&read.name_any(), &params, &patch)).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the API server did not answer within {} s", WRITE.as_secs())),
        }
    }

    fn stands<C: Carrier>(&self, name: &str, standing: Standing) {
        self.standings.send_if_modified(|standings| {
            let object = object::<C>(name);
            let changed = standings.get(&object).is_none_or(|(before, _)| *before != standing);
            if changed {
                standings.insert(object, (standing, Instant::now()));
            }
            changed
        });
    }
}

/// The Secret that says what is to be published.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) secrets: Api<Secret>,
    pub(super) name: String,
}

/// Whether the objects stand otherwise than before.
pub(super) struct Changes(watch::Receiver<BTreeMap<String, (Standing, Instant)>>);

impl Changes {
    /// Waits for a change since the last one that was waited for.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn carries(entries: &[&Entry<'_>]) -> Standing {
    Standing::Carries(entries.iter().map(|e| (e.name.to_owned(), e.bundle.map(<[u8]>::to_vec))).collect())
}

/// Events of the one object of this name. Errors are repeated ever more slowly.
pub(super) fn watch_one<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default().fields(&format!("metadata.name={name}"))).default_backoff()
}

fn object<C: Carrier>(name: &str) -> String {
    format!("{} {name}", C::kind(&()))
}
