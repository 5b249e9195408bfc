//! Metrics of reviews.

use portcullis::webhooks::Routes;
use serde_json::{Value, json};

use crate::client::{ask, connect, post, send};
use crate::fixture::{entity, review, serve, webhooks};

fn value(routes: &Routes, series: &str) -> Option<f64> {
    let text = routes.metrics().encode();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// D11
#[tokio::test]
async fn reviews_are_counted_by_webhook_operation_and_decision() {
    let routes = webhooks().routes().unwrap();
    let serving = serve(routes.clone(), portcullis::server::Limits::default(), &["webhook.test.svc"]).await;
    let create = |name: &str| review("CREATE", entity(json!({"username": name})), Value::Null);
    let mut dry = create("dry");
    dry["request"]["dryRun"] = json!(true);
    for (path, review) in [
        ("/validate/username", create("fine")),
        ("/validate/username", create("fine")),
        ("/validate/username", create("forbidden")),
        ("/validate/username", dry),
        ("/validate/username", create("panic")),
        ("/validate/strict", create("panic")),
        ("/validate/username", create("fail")),
        ("/validate/strict", create("fail")),
        ("/mutate/defaults", create("overwrite")),
        ("/mutate/defaults", review("DELETE", Value::Null, entity(json!({"username": "a"})))),
    ] {
        ask(&serving, path, &review).await;
    }
    let mut connection = connect(&serving).await;
    assert_eq!(send(&mut connection, &post("/validate/username", "{")).await.status, 400);
    assert_eq!(send(&mut connection, "GET /validate/username HTTP/1.1\r\nhost: w\r\n\r\n").await.status, 405);

    let requests = |labels: &str| value(&routes, &format!("portcullis_admission_requests_total{{{labels}}}"));
    let of_username = "webhook=\"/validate/username\",operation=\"CREATE\"";
    for (labels, count) in [
        (format!("{of_username},decision=\"allow\",dry_run=\"false\""), 2.0),
        (format!("{of_username},decision=\"deny\",dry_run=\"false\""), 1.0),
        (format!("{of_username},decision=\"deny\",dry_run=\"true\""), 1.0),
        (format!("{of_username},decision=\"error\",dry_run=\"false\""), 2.0),
        ("webhook=\"/validate/strict\",operation=\"CREATE\",decision=\"deny\",dry_run=\"false\"".into(), 2.0),
        ("webhook=\"/mutate/defaults\",operation=\"CREATE\",decision=\"patch\",dry_run=\"false\"".into(), 1.0),
        ("webhook=\"/mutate/defaults\",operation=\"DELETE\",decision=\"allow\",dry_run=\"false\"".into(), 1.0),
    ] {
        assert_eq!(requests(&labels), Some(count), "{labels}: {}", routes.metrics().encode());
    }
    for (series, expected) in [
        ("portcullis_admission_duration_seconds_count{webhook=\"/validate/username\"}", Some(6.0)),
        ("portcullis_admission_duration_seconds_bucket{le=\"10.0\",webhook=\"/validate/username\"}", Some(6.0)),
        ("portcullis_webhook_in_flight{webhook=\"/validate/username\"}", Some(0.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/username\",reason=\"panic\"}", Some(1.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/strict\",reason=\"panic\"}", Some(1.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/username\",reason=\"failed\"}", Some(1.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/strict\",reason=\"failed\"}", Some(1.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/username\",reason=\"malformed\"}", Some(1.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/username\",reason=\"not_served\"}", Some(1.0)),
        ("portcullis_webhook_rejected_total{webhook=\"/validate/username\",reason=\"shed\"}", None),
    ] {
        assert_eq!(value(&routes, series), expected, "{series}: {}", routes.metrics().encode());
    }
    let patched = value(&routes, "portcullis_admission_patch_bytes_total{webhook=\"/mutate/defaults\"}");
    let patch = r#"[{"op":"replace","path":"/spec/username","value":"random overwritten"}]"#;
    #[allow(clippy::cast_precision_loss, reason = "a patch is short")]
    let bytes = patch.len() as f64;
    assert_eq!(patched, Some(bytes));
}
