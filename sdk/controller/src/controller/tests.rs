use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use tokio_util::sync::CancellationToken;
use tracing::subscriber::NoSubscriber;

use super::*;
use crate::ControllerError;
use crate::apply::DocumentError;
use portcullis_manifest::Switch;

/// A user who creates and deletes invalid objects all day must not fill our memory. Without a finalizer, no
/// reconcile sees such an object while it is deleted.
#[tokio::test]
async fn nothing_is_kept_of_what_was_said_of_an_object_that_is_gone() {
    let nowhere = tower::service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let stop = CancellationToken::new();
    let mut runtime = Runtime::new(kube::Client::new(nowhere, "default"), "default", stop.clone());
    runtime.webhooks = Switch::Off;
    let controller = Controller::<ConfigMap>::new("maps");
    let reconciler = Arc::new(controller.reconciler(&runtime));
    let offline = reconciler.offline.as_ref().unwrap();
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = (Some("team".into()), Some("odd".into()));
    let old = Observed::of(DeserializeGuard(Ok(map)), &Managers::of("maps"), |_| Vec::new());
    let key = Key::new("team", "odd");
    assert!(offline.is_news(&key, "1", Some("odd")));
    assert!(!offline.is_news(&key, "1", Some("odd")), "it was said");
    assert!(offline.is_news(&key, "2", Some("odd")), "another object of this name");

    controller.changes.delivered(&Change { old: Some(Arc::new(old)), new: None, delivered: u64::MAX });
    let work = controller.changes.queue.run(1, &stop, Names::default(), |asked| {
        let (reconciler, stop) = (reconciler.clone(), stop.clone());
        async move {
            stop.cancel();
            reconciler.reconcile(asked, &|_| ready(Ok::<_, Infallible>(Action::await_change()))).await
        }
    });
    tokio::time::timeout(Duration::from_mins(1), work).await.expect("a deletion is asked for");
    assert!(offline.is_news(&key, "2", Some("odd")), "it is forgotten");
}

/// Answers a list with one ConfigMap, once `lists` has `true`; a watch brings nothing.
fn one_map(lists: tokio::sync::watch::Receiver<bool>) -> kube::Client {
    let server = tower::service_fn(move |request: Request<Body>| {
        let mut lists = lists.clone();
        async move {
            if request.uri().query().unwrap_or_default().contains("watch=") {
                return std::future::pending().await;
            }
            let _ = lists.wait_for(|listed| *listed).await;
            let metadata = serde_json::json!({"namespace": "team", "name": "a", "uid": "u", "resourceVersion": "7"});
            let list = serde_json::json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"},
                "items": [{"metadata": metadata}],
            });
            Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    kube::Client::new(server, "default")
}

/// A controller that has not started is not idle.
#[tokio::test(start_paused = true)]
async fn a_controller_is_pending_until_its_first_list_is_reconciled() {
    let (listed, lists) = tokio::sync::watch::channel(false);
    let (stop, gate) = (CancellationToken::new(), Arc::new(tokio::sync::Semaphore::new(0)));
    let runtime = Runtime::new(one_map(lists), "default", stop.clone());
    let (metrics, opens) = (runtime.metrics.clone(), gate.clone());
    let pending = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let text = metrics.encode();
        let line = text.lines().find(|line| line.starts_with("portcullis_reconciles_pending{"));
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, objects)| objects.to_owned()).unwrap()
    };
    let maps = Controller::<ConfigMap>::new("maps");
    let run = maps.run(runtime, |_| {
        let gate = gate.clone();
        async move { gate.acquire().await.map(|_| Action::await_change()) }
    });
    let look = async {
        assert_eq!(pending().await, "1", "nothing is listed");
        listed.send_replace(true);
        assert_eq!(pending().await, "1", "it is being reconciled");
        opens.add_permits(1);
        assert_eq!(pending().await, "0", "nothing is left");
        stop.cancel();
    };
    join(run, look).await;
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_is_logged_with_causes_and_names() {
    let bank = || anyhow::anyhow!("connection refused").context("cannot ask the bank");
    let kind = DocumentError::UnknownKind { api_version: "v1".into(), kind: "Pod".into() };
    let pod = anyhow::Error::from(ControllerError::from(kind)).context("cannot bring it up");
    for (error, level, text) in [
        (bank(), "WARN", "cannot ask the bank: connection refused"),
        (
            pod,
            "ERROR",
            "cannot bring it up: cannot apply a child: the controller does not own the kind Pod of v1: add .owns::<Pod>() \
             where it is defined",
        ),
    ] {
        let line = log_of_failure(error).await;
        assert_eq!((line["level"].as_str(), line["fields"]["error"].as_str()), (Some(level), Some(text)));
        let span = serde_json::json!({
            "name": "reconcile", "controller": "maps", "kind": "ConfigMap", "namespace": "team", "object.name": "a",
        });
        assert_eq!(line["span"], span);
        let fields =
            ["controller", "kind", "namespace", "name", "retry_in"].map(|field| line["fields"][field].as_str());
        assert_eq!(fields, ["maps", "ConfigMap", "team", "a", "500ms"].map(Some));
    }
}

async fn log_of_failure(error: anyhow::Error) -> serde_json::Value {
    // With a single subscriber, tracing asks only the thread that comes to a line first.
    let _others = [(); 2].map(|()| tracing::Dispatch::new(NoSubscriber::new()));
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let ((_listed, lists), stop) = (tokio::sync::watch::channel(true), CancellationToken::new());
    let runtime = Runtime::new(one_map(lists), "default", stop.clone());
    let error = std::cell::Cell::new(Some(error));
    let maps = Controller::<ConfigMap>::new("maps");
    let run = maps.run(runtime, |_| {
        stop.cancel();
        ready(error.take().map_or(Ok(Action::await_change()), Err))
    });
    run.await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let line = log.lines().find(|line| line.contains("reconcile failed")).unwrap_or_else(|| panic!("{log}"));
    serde_json::from_str(line).unwrap()
}

/// A reconcile without a finalizer could create things outside of the cluster that no cleanup removes.
#[tokio::test]
async fn an_object_deleted_before_its_finalizer_is_not_reconciled() {
    let (asked, mut patches) = tokio::sync::mpsc::unbounded_channel();
    let gone = tower::service_fn(move |request: Request<Body>| {
        let asked = asked.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let _ = asked.send(serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default());
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404});
            Ok::<_, Infallible>(
                Response::builder().status(404).body(Body::from(status.to_string().into_bytes())).unwrap(),
            )
        }
    });
    let runtime = Runtime::new(kube::Client::new(gone, "default"), "default", CancellationToken::new());
    let controller = Controller::<ConfigMap>::new("maps")
        .finalizer("maps.example/hold", |_| ready(Ok::<_, Infallible>(Cleanup::Done)));
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = (Some("team".into()), Some("brief".into()));
    (map.metadata.uid, map.metadata.resource_version) = (Some("first".into()), Some("7".into()));
    let known = Observed::of(DeserializeGuard(Ok(map)), &Managers::of("maps"), |_| Vec::new());
    controller.store.written(known, controller.store.begin());
    let reconciler = Arc::new(controller.reconciler(&runtime));
    let key = Key::new("team", "brief");
    let was_called = std::sync::atomic::AtomicBool::new(false);
    let reconcile = |_: Reconcile<ConfigMap>| {
        was_called.store(true, std::sync::atomic::Ordering::SeqCst);
        ready(Ok::<_, Infallible>(Action::await_change()))
    };
    let next = reconciler.reconcile(key, &reconcile).await.map_err(|error| error.to_string());
    assert_eq!(next, Ok(Action::await_change()));
    assert!(!was_called.into_inner(), "it has no finalizer");
    let patch = patches.recv().await.unwrap();
    let uid = serde_json::json!({"op": "test", "path": "/metadata/uid", "value": "first"});
    assert!(patch.as_array().unwrap().contains(&uid), "a successor of its name is left alone: {patch}");
}
