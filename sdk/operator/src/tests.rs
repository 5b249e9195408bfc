use portcullis_controller::{Action, Controller, Reconcile};
use portcullis_webhook::Webhooks;

use super::*;

#[test]
fn a_controller_returns_nothing_or_any_result() {
    let components = Components::default()
        .leader_task("silent", [], |runtime| async move { runtime.stop.cancelled().await })
        .leader_task("failing", [], |_| async move {
            "no number".parse::<u8>()?;
            Ok::<_, BoxError>(())
        });
    assert_eq!(components.controllers.len(), 2);
}

#[test]
fn an_invalid_or_reserved_metric_name_fails_at_startup() {
    use prometheus_client::metrics::counter::Counter;

    let table = [
        (vec!["shop_refused", "shop_served"], None),
        (vec!["shop_refused", "shop_refused"], Some("two metrics are named shop_refused: ")),
        (vec!["portcullis_refused"], Some("metric portcullis_refused begins with portcullis_")),
        (vec!["shop-refused"], Some("\"shop-refused\" cannot name a metric")),
        (vec!["1st"], Some("\"1st\" cannot name a metric")),
    ];
    for (names, expected) in table {
        let counted = Counter::<u64>::default();
        counted.inc();
        let components = names
            .iter()
            .fold(Components::default(), |components, name| components.metric(name, "Help", counted.clone()));
        let said = components.checked().err().map(|error| error.to_string());
        assert_eq!(said.is_some(), expected.is_some(), "{names:?}");
        if let (Some(said), Some(expected)) = (said, expected) {
            assert!(said.starts_with(expected), "{said}");
            continue;
        }
        let metrics = portcullis_metrics::Metrics::new();
        metrics.adopt(components.metrics).unwrap();
        assert!(metrics.register(names[1], "Help", Counter::<u64>::default()).is_err(), "it is taken");
        let page = metrics.encode();
        assert!(page.contains("\nshop_refused_total 1\n") && page.ends_with("# EOF\n"), "{page}");
        assert_eq!(page.matches("# EOF").count(), 1);
    }
}

#[test]
fn setup_gets_the_command_lines_restriction_and_webhooks() {
    use std::cell::RefCell;
    use std::rc::Rc;

    let directory = tempfile::tempdir().unwrap();
    let out = format!("--out={}", directory.path().display());
    let plain = SetupContext {
        restricted_to: None,
        webhooks: Switch::On,
        namespace: None,
        release: "op".to_owned(),
        secret: "op-webhook-tls".to_owned(),
    };
    let restricted = SetupContext {
        restricted_to: Some("team-a".to_owned()),
        namespace: Some("op-system".to_owned()),
        ..plain.clone()
    };
    let named = SetupContext { release: "other".to_owned(), secret: "other-webhook-tls".to_owned(), ..plain.clone() };
    let table = [
        (vec!["--restrict-to-namespace=team-a", "--namespace=op-system"], restricted),
        (vec!["--restrict-to-namespace=", "--webhooks=off"], SetupContext { webhooks: Switch::Off, ..plain.clone() }),
        (vec!["--release=other"], named.clone()),
        (vec!["--release=other", "--certificate-secret=tls"], SetupContext { secret: "tls".to_owned(), ..named }),
        (vec![], plain),
    ];
    for (flags, expected) in table {
        let contexts = Rc::new(RefCell::new(Vec::new()));
        let seen = contexts.clone();
        let operator = Operator::new("op").setup_with_context(move |(): &(), context| {
            seen.borrow_mut().push(context.clone());
            Ok(Components::default())
        });
        let words = ["op", "generate", "rbac", &out].into_iter().chain(flags.iter().copied());
        operator.main_with_args(words);
        assert_eq!(*contexts.borrow(), [expected], "{flags:?}");
    }
}

#[test]
fn components_without_arguments_join_those_of_setup() {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use portcullis_webhook::{Context, Validate, Verdict};

    async fn idle<K>(_: Reconcile<K>) -> Result<Action, BoxError> {
        Ok(Action::await_change())
    }
    let webhooks = |name: &str| {
        let handler = async |_, _: Context| Verdict::allow();
        Webhooks::new().validate(Validate::<ConfigMap>::new(name).on_create_or_update(handler))
    };
    let operator = |name: &'static str| {
        let made = webhooks("made");
        Operator::new("op")
            .webhooks(webhooks("one"))
            .webhooks(webhooks("two"))
            .controller(Controller::<ConfigMap>::new("maps"), idle)
            .setup(move |(): &()| Ok(Components::new(made.clone()).controller(Controller::<Pod>::new(name), idle)))
    };
    let components = operator("pods").components(&(), &SetupContext::default()).unwrap();
    let routes = components.webhooks.routes().unwrap();
    assert_eq!(routes.paths(), ["/validate/made", "/validate/one", "/validate/two"]);
    assert!(components.controllers.keys().eq(["maps", "pods"]), "{components:?}");
    let error = operator("maps").components(&(), &SetupContext::default()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "two controllers are named maps: give one of them another name");
}

#[test]
fn two_controllers_of_one_name_are_an_error() {
    async fn idle(_: Runtime) {}
    let expected = Err("two controllers are named orders: give one of them another name".to_owned());
    let table: [(fn() -> Components, _); 3] = [
        (|| Components::default().leader_task("orders", [], idle).leader_task("orders", [], idle), expected.clone()),
        (|| Components::default().replica_task("orders", idle).replica_task("orders", idle), expected),
        (|| Components::default().replica_task("orders", idle).leader_task("orders", [], idle), Ok(())),
    ];
    for (components, expected) in table {
        let operator = Operator::new("op").setup(move |(): &()| Ok(components()));
        let made = operator.components(&(), &SetupContext::default());
        assert_eq!(made.map(drop).map_err(|error| error.to_string()), expected);
    }
}

#[tokio::test]
async fn an_operator_with_controllers_is_embedded_once() {
    use k8s_openapi::api::core::v1::ConfigMap;

    async fn idle(_: Reconcile<ConfigMap>) -> Result<Action, BoxError> {
        Ok(Action::await_change())
    }
    let maps = || Controller::<ConfigMap>::new("maps");
    let made = Operator::new("op").setup(move |(): &()| Ok(Components::default().controller(maps(), idle)));
    let expected =
        "operator op was embedded before: make its controllers and caches in Operator::setup, or another operator";
    for (operator, second) in [(made, None), (Operator::new("op").controller(maps(), idle), Some(expected))] {
        let embed = async || {
            let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
            let client = kube::Client::try_from(config).unwrap();
            let options = EmbedOptions::new(operator.installation("here").unwrap());
            operator.embed(client, options).await.map(drop).map_err(|error| error.to_string()).err()
        };
        assert_eq!(embed().await, None);
        assert_eq!(embed().await.as_deref(), second);
    }
}
