//! Reviews in the process: what reaches a handler, what is read from the answer, and how each assertion fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use portcullis_testing::admission::{Answer, Reviews, assert_idempotent};
use portcullis_webhook::{Context, Mutate, Mutation, Scale, Validate, Verdict, Webhooks};
use serde::Deserialize;
use serde_json::{Value, json};

/// The part of the options of `kubectl exec` that matters here.
#[derive(Deserialize)]
struct PodExecOptions {
    #[allow(dead_code, reason = "read and not looked at")]
    command: Vec<String>,
}

/// Asks through the key `say` of the data what the webhook shall answer.
fn echo() -> Webhooks {
    let judge = |data: &ConfigMap, cx: &Context| {
        let said = data.data.as_ref().and_then(|data| data.get("say")).map_or("", String::as_str);
        match said {
            "no" => Verdict::deny("it said no").code(422).cause("data[say]", "is no"),
            "panic" => panic!("as it was told"),
            "warn" => Verdict::allow().warn("it said warn"),
            _ => Verdict::allow().audit("saw", format!("{cx:?}")),
        }
    };
    let validate = Validate::<ConfigMap>::new("echo")
        .on_create(move |new: Arc<ConfigMap>, cx| async move { judge(&new, &cx) })
        .on_update(move |_: Arc<ConfigMap>, new: Arc<ConfigMap>, cx| async move { judge(&new, &cx) })
        .on_delete(move |old: Arc<ConfigMap>, cx| async move { judge(&old, &cx) });
    let mutate = Mutate::<ConfigMap>::new("echo").on_create(|mut new: ConfigMap, _| async move {
        new.data.get_or_insert_default().insert("seen".into(), "yes".into());
        Mutation::modified(new)
    });
    Webhooks::new().validate(validate).mutate(mutate)
}

fn says(word: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {"say": word}})
}

/// The message of an assertion that must not hold.
fn failure(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("the assertion holds");
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

async fn asked(word: &str) -> Answer {
    Reviews::new(&echo()).unwrap().create(&says(word)).validate("echo").await
}

#[tokio::test]
async fn each_operation_reaches_its_handler_with_all_its_data() {
    let reviews = Reviews::new(&echo()).unwrap();
    let object = says("fine");
    let context = |answer: Answer| answer.assert_allowed().audit("saw").unwrap().to_owned();

    let create = reviews.create(&object).user("alice").groups(&["admins"]).dry_run().namespace("team");
    let seen = context(create.validate("echo").await);
    for part in [
        "Create",
        "alice",
        "admins",
        "system:authenticated",
        "dry_run: true",
        "Some(\"team\")",
        "Some(\"words\")",
        "CreateOptions",
    ] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    let account = reviews.update(&object, &object).user("system:serviceaccount:ops:robot");
    let seen = context(account.validate("echo").await);
    for part in ["Update", "system:serviceaccounts:ops", "dry_run: false", "Some(\"default\")"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 7});
    let seen = context(reviews.delete(&object).options(options).name("other").validate("echo").await);
    for part in ["Delete", "gracePeriodSeconds", "Some(\"other\")"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
}

#[tokio::test]
async fn an_answer_gives_access_to_its_parts() {
    let denied = asked("no").await;
    denied.assert_denied(422, "it said no").assert_cause("data[say]");
    assert!(!denied.is_allowed());
    assert_eq!((denied.message(), denied.causes()[0].message.as_str()), ("it said no", "is no"));
    asked("warn").await.assert_allowed().assert_warning("said warn").assert_unchanged();
    asked("panic").await.assert_http_error(500);

    let changed = Reviews::new(&echo()).unwrap().create(&says("fine")).mutate("echo").await;
    changed.assert_patch(&json!([{"op": "add", "path": "/data/seen", "value": "yes"}]));
    assert_eq!(changed.patched()["data"], json!({"say": "fine", "seen": "yes"}));
    let typed: ConfigMap = changed.patched_as();
    assert_eq!(typed.metadata.namespace.as_deref(), Some("default"), "as the API server sends it");
}

/// Each assertion fails on an answer that breaks it, and shows the answer.
#[tokio::test]
async fn an_assertion_that_fails_shows_what_was_answered() {
    let (denied, allowed, warned, crashed) =
        (asked("no").await, asked("fine").await, asked("warn").await, asked("panic").await);
    let changed = Reviews::new(&echo()).unwrap().create(&says("fine")).mutate("echo").await;
    let question = "webhook 'echo' on CREATE of v1 ConfigMap default/words by tester answered:";
    let failures = [
        (
            failure(|| _ = denied.assert_allowed()),
            "expected the request to be allowed",
            "denied with 422 (Invalid): it said no",
        ),
        (
            failure(|| _ = denied.assert_denied(400, "it said no")),
            "expected a denial with 400: it said no",
            "denied with 422",
        ),
        (
            failure(|| _ = denied.assert_denied(422, "no")),
            "expected a denial with 422: no",
            "cause: data[say]: is no (FieldValueInvalid)",
        ),
        (failure(|| _ = allowed.assert_denied(422, "x")), "expected a denial", "allowed as it was sent"),
        (failure(|| _ = denied.assert_cause("spec")), "expected a cause for the field spec", "cause: data[say]"),
        (failure(|| _ = warned.assert_warning("x")), "expected a warning with 'x'", "warning: it said warn"),
        (
            failure(|| _ = changed.assert_unchanged()),
            "expected the object to be allowed as it was sent",
            "patch: {\"op\":\"add\",\"path\":\"/data/seen\"",
        ),
        (failure(|| _ = denied.assert_unchanged()), "expected the object", "denied with 422"),
        (failure(|| _ = changed.assert_patch(&json!([]))), "expected the patch []", "allowed, changed"),
        (failure(|| _ = allowed.assert_patch(&json!([]))), "expected the patch []", "audit: saw: "),
        (failure(|| _ = allowed.assert_http_error(500)), "expected the HTTP error 500", "allowed"),
        (
            failure(|| _ = crashed.assert_allowed()),
            "expected the request to be allowed",
            "HTTP error 500: handler failed",
        ),
        (failure(|| _ = denied.patched()), "expected an object that goes on", "denied with 422"),
        (failure(|| _ = changed.patched_as::<u8>()), "expected an object of its type", "allowed, changed"),
    ];
    for (message, expected, answered) in failures {
        assert!(message.starts_with(expected), "{expected}: {message}");
        assert!(message.contains(question) && message.contains(answered), "{answered}: {message}");
    }
}

/// A review that the API server would never send makes a meaningless test.
#[tokio::test]
async fn a_request_that_the_rules_do_not_match_fails_the_test() {
    let reviews = Reviews::new(&echo()).unwrap();
    let object = says("fine");
    let cases = [
        (
            reviews.delete(&object).mutate("echo").await_failure().await,
            "would not ask echo.configmaps.core about DELETE of /v1 ConfigMap",
        ),
        (
            reviews.create(&object).sub_resource("status").validate("echo").await_failure().await,
            "of /v1 ConfigMap at /status",
        ),
        (
            reviews.create(&object).validate("eco").await_failure().await,
            "no validating webhook is named 'eco'; there are [\"echo.configmaps.core\"]",
        ),
        (
            reviews.create(&json!({"data": {}})).validate("echo").await_failure().await,
            "the object has no apiVersion and kind",
        ),
    ];
    for (message, part) in cases {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(failure(|| _ = reviews.create(&7)).contains("not an object: 7"));
}

trait AwaitFailure {
    async fn await_failure(self) -> String;
}

impl<F: Future<Output = Answer>> AwaitFailure for F {
    /// The message of a question that must panic.
    async fn await_failure(self) -> String {
        let panic = futures_catch(self).await.expect_err("the question was asked");
        panic.downcast_ref::<String>().cloned().unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
    }
}

/// A panic of a future, as its result.
async fn futures_catch<F: Future>(future: F) -> std::thread::Result<F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}

type Handler = fn(ConfigMap) -> Mutation<ConfigMap>;

fn mutating(create: Option<Handler>, update: Option<Handler>) -> Reviews {
    let mut webhook = Mutate::<ConfigMap>::new("edit");
    if let Some(handler) = create {
        webhook = webhook.on_create(move |new, _| async move { handler(new) });
    }
    if let Some(handler) = update {
        webhook = webhook.on_update(move |_, new, _| async move { handler(new) });
    }
    Reviews::new(&Webhooks::new().mutate(webhook)).unwrap()
}

fn set(mut map: ConfigMap) -> Mutation<ConfigMap> {
    map.data.get_or_insert_default().insert("set".into(), "once".into());
    Mutation::modified(map)
}

fn count(mut map: ConfigMap) -> Mutation<ConfigMap> {
    let data = map.data.get_or_insert_default();
    let next = data.get("count").and_then(|count| count.parse::<u32>().ok()).unwrap_or_default() + 1;
    data.insert("count".into(), next.to_string());
    Mutation::modified(map)
}

fn refuse_what_is_set(map: ConfigMap) -> Mutation<ConfigMap> {
    if map.data.iter().flatten().any(|(key, _)| key == "set") { Mutation::deny("is set") } else { set(map) }
}

/// D10's promise: the check fails on each mutation that is not idempotent, and says where.
#[tokio::test]
async fn a_non_idempotent_mutation_is_shown_with_its_path() {
    let object = says("fine");
    for (create, update) in [(Some(set as Handler), None), (None, Some(set as Handler)), (Some(set), Some(set))] {
        assert_idempotent(&mutating(create, update), "edit", &object).await;
    }
    let cases: [(Option<Handler>, Option<Handler>, &str); 5] = [
        (
            Some(count),
            None,
            "asked again in the same creation, it changes its own result (first -> second)\n  /data/count: \"1\" -> \"2\"",
        ),
        (
            Some(set),
            Some(count),
            "when the result is updated as it is, it changes its own result (first -> second)\n  /data/count: absent -> \"1\"",
        ),
        (None, Some(count), "/data/count: \"1\" -> \"2\""),
        (Some(refuse_what_is_set), None, "refuses its own result, when the same creation asks again"),
        (Some(|_| Mutation::deny("never")), None, "refuses the object\n"),
    ];
    for (create, update, part) in cases {
        let reviews = mutating(create, update);
        let panic = futures_catch(assert_idempotent(&reviews, "edit", &object)).await.expect_err(part);
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("mutating webhook 'edit' ") && message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn subresources_and_connections_reach_their_handlers() {
    let told = |cx: Context| {
        let at = cx.sub_resource.unwrap_or_default();
        let Context { operation, kind, resource, name, .. } = cx;
        Verdict::deny(format!("{operation} {} of {} {}/{at}", kind.kind, name.unwrap_or_default(), resource.resource))
    };
    let webhooks = Webhooks::new()
        .validate(Validate::<Scale>::subresource_of::<Deployment>("scale", "scale").on_update(
            move |_, new: Arc<Scale>, cx| async move {
                assert_eq!(new.spec.as_ref().and_then(|spec| spec.replicas), Some(3));
                told(cx)
            },
        ))
        .validate(
            Validate::<PodExecOptions>::subresource_of::<Pod>("exec", "exec")
                .on_connect(move |_: Arc<PodExecOptions>, cx| async move { told(cx) }),
        )
        .validate(
            Validate::<Pod>::subresource_of::<Pod>("status", "status")
                .on_update(move |_, _: Arc<Pod>, cx| async move { told(cx) }),
        );
    let reviews = Reviews::new(&webhooks).unwrap();
    let scale = |replicas: u32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": replicas}});
    let answer = reviews.update(&scale(2), &scale(3)).sub_resource("scale").validate("scale").await;
    answer.assert_denied(400, "UPDATE Scale of web deployments/scale");

    let options = json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]});
    let answer = reviews.connect(&options).name("web-1").sub_resource("exec").validate("exec").await;
    answer.assert_denied(400, "CONNECT PodExecOptions of web-1 pods/exec");

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1"}});
    let answer = reviews.update(&pod, &pod).sub_resource("status").validate("status").await;
    answer.assert_denied(400, "UPDATE Pod of web-1 pods/status");
}
