//! Kinds without a namespace: as what a controller is for, as a child, and as what is watched. Each controller acts
//! under the rights that follow from it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::predicates;
use kube::{Api, ResourceExt as _};
use portcullis::controller::{Action, Cleanup, Controller, EventType, Key, Namespaces, PlannedEvent, Reconcile};
use portcullis::operator::Runtime;
use portcullis_testing::{Grant, wait_for_object, wait_until};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::boat::{Boat, Fleet, FleetSpec, FleetStatus};
use crate::fixture::{PATIENCE, Place, Running, rules};

/// A fleet has a flag in its home, a rank in the cluster, and counts its boats.
async fn muster(cx: Reconcile<Fleet>, boats: Api<Boat>) -> anyhow::Result<Action> {
    let FleetSpec { home, motto } = &cx.object.spec;
    if motto.is_empty() {
        cx.delete_in::<ConfigMap>(home, &cx.key.name, PropagationPolicy::Background).await?;
        cx.delete::<PriorityClass>(&cx.key.name, PropagationPolicy::Background).await?;
    } else {
        let mut flag = ConfigMap::default();
        (flag.metadata.name, flag.metadata.namespace) = (Some(cx.key.name.clone()), Some(home.clone()));
        flag.data = Some(BTreeMap::from([("motto".to_owned(), motto.clone())]));
        cx.apply(&flag).await?;
        let mut rank = PriorityClass { value: 7, ..PriorityClass::default() };
        rank.metadata.name = Some(cx.key.name.clone());
        cx.apply(&rank).await?;
    }
    let all = boats.list(&ListParams::default()).await?.items;
    let ours = all.iter().filter(|boat| boat.spec.name.as_ref() == Some(&cx.key.name)).count();
    if cx.apply_status(&FleetStatus { boats: Some(ours) }).await? {
        cx.publish_events(&[PlannedEvent::new(EventType::Normal, "Mustered", "the boats were counted")]).await;
    }
    Ok(Action::await_change())
}

/// Fleets, which each boat that names one enqueues.
fn fleets() -> Controller<Fleet> {
    Controller::<Fleet>::new("fleets")
        .owns::<ConfigMap>()
        .owns::<PriorityClass>()
        .finalizer("kit.example/fleets", |_| async { anyhow::Ok(Cleanup::Done) })
        .watches_when::<Boat>(predicates::generation, |boat, _| {
            boat.spec.name.iter().map(|it| Key::new("", it)).collect()
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_scoped_kind_owns_children_and_watches_another_kind() {
    let place = Place::new("fleets").await;
    let admin = place.cluster.admin();
    let user = place.cluster.user_with("fleets", &[Grant::ClusterRules(&rules(&fleets()))]).await;
    let (api, name): (Api<Fleet>, _) = (Api::all(admin.clone()), format!("fleet-{}", place.namespace));
    let runtime = Runtime::new(user.client.clone(), "default", CancellationToken::new());
    let boats: Api<Boat> = Api::namespaced(user.client.clone(), &place.namespace);
    let mark = place.cluster.audit().mark();
    let running = Running::start(fleets(), runtime, move |cx| muster(cx, boats.clone()));
    let spec = FleetSpec { home: place.namespace.clone(), motto: "onwards".to_owned() };
    api.create(&PostParams::default(), &Fleet::new(&name, spec)).await.unwrap();
    let counts = |boats| move |fleet: &Fleet| fleet.status.as_ref().is_some_and(|status| status.boats == Some(boats));
    wait_for_object(&api, &name, "no boats", PATIENCE, counts(0)).await;

    let mut boat = crate::boat::boat("b", 2);
    boat.spec.name = Some(name.clone());
    place.api().create(&PostParams::default(), &boat).await.unwrap();
    wait_for_object(&api, &name, "one boat", PATIENCE, counts(1)).await;
    place.merge("b", json!({"spec": {"name": "another fleet"}})).await;
    wait_for_object(&api, &name, "that it has left, which the boat as it was tells", PATIENCE, counts(0)).await;

    let (flags, ranks) = (place.api::<ConfigMap>(), Api::<PriorityClass>::all(admin.clone()));
    for (owner, of) in [
        (flags.get(&name).await.unwrap().metadata.owner_references, "flag"),
        (ranks.get(&name).await.unwrap().metadata.owner_references, "rank"),
    ] {
        assert_eq!(owner.unwrap()[0].kind, "Fleet", "of the {of}");
    }
    flags.delete(&name, &DeleteParams::default()).await.unwrap();
    let onwards = |flag: &ConfigMap| flag.data.as_ref().is_some_and(|data| data["motto"] == "onwards");
    wait_for_object(&flags, &name, "a new flag", PATIENCE, onwards).await;
    ranks.delete(&name, &DeleteParams::default()).await.unwrap();
    wait_for_object(&ranks, &name, "a new rank", PATIENCE, |rank| rank.value == 7).await;

    let silent = Patch::Merge(json!({"spec": {"motto": ""}}));
    api.patch(&name, &PatchParams::default(), &silent).await.unwrap();
    wait_until("no children", PATIENCE, || async {
        let left = (flags.get_opt(&name).await.unwrap(), ranks.get_opt(&name).await.unwrap());
        matches!(left, (None, None)).then_some(())
    })
    .await;
    // Where the API server takes events about what has no namespace.
    let events: Api<Event> = Api::namespaced(admin, "default");
    let about = |event: &Event| event.regarding.as_ref().is_some_and(|it| it.name.as_ref() == Some(&name));
    assert!(events.list(&ListParams::default()).await.unwrap().iter().any(about));
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    wait_until("the fleet to go", PATIENCE, || async { api.get_opt(&name).await.unwrap().is_none().then_some(()) })
        .await;
    running.end().await;
    let writes = place.cluster.audit().writes_by(&user.name, mark).await;
    assert!(!writes.is_empty() && writes.iter().all(|event| event.code != 403), "{writes:?}");
}

/// Reads the description of the rank that it names.
async fn shout(cx: Reconcile<Boat>, ranks: Api<PriorityClass>) -> anyhow::Result<Action> {
    let rank = ranks.get_opt(cx.object.spec.name.as_deref().unwrap_or_default()).await?;
    let phase = rank.map_or_else(|| Some("alone".to_owned()), |rank| rank.description);
    cx.apply_status(&crate::boat::BoatStatus { phase, conditions: None }).await?;
    Ok(Action::await_change())
}

/// Ranks are watched here, not fleets: the controller of the test above reconciles each fleet of the cluster, and holds it
/// by a finalizer that nobody removes once that test has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_scoped_object_enqueues_the_objects_that_name_it() {
    let place = Place::new("watched-ranks").await;
    let (ranks, name): (Api<PriorityClass>, _) = (Api::all(place.cluster.admin()), format!("rank-{}", place.namespace));
    let controller = Controller::<Boat>::new("shouts")
        .namespaces(Namespaces::parse(&place.namespace))
        .watches::<PriorityClass>(|rank, boats| boats.keys_where(|boat| boat.spec.name == Some(rank.name_any())));
    let user = place.cluster.user_with("shouts", &[Grant::ClusterRules(&rules(&controller))]).await;
    let runtime = Runtime::new(user.client.clone(), "default", CancellationToken::new());
    let read = Api::all(user.client.clone());
    let running = Running::start(controller, runtime, move |cx| shout(cx, read.clone()));
    let mut boat = crate::boat::boat("b", 2);
    boat.spec.name = Some(name.clone());
    place.api().create(&PostParams::default(), &boat).await.unwrap();
    let says = |word: &'static str| {
        move |boat: &Boat| boat.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some(word))
    };
    place.until("b", "that it is alone", says("alone")).await;
    let mut rank = PriorityClass { value: 7, description: Some("onwards".to_owned()), ..PriorityClass::default() };
    rank.metadata.name = Some(name.clone());
    ranks.create(&PostParams::default(), &rank).await.unwrap();
    place.until("b", "the description of the new rank", says("onwards")).await;
    let changed = Patch::Merge(json!({"description": "homewards"}));
    ranks.patch(&name, &PatchParams::default(), &changed).await.unwrap();
    place.until("b", "the new description", says("homewards")).await;
    ranks.delete(&name, &DeleteParams::default()).await.unwrap();
    place.until("b", "that it is alone again", says("alone")).await;
    running.end().await;
}
