//! The span of a review.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use serde_json::{Value, json};

use super::lines::{Lines, heard_by};
use crate::fixture::{Entity, entity, review};

/// D11: what a handler logs can be found by the API server's uid and by the trace that the request is part of.
#[test]
fn a_handlers_log_carries_the_uid_and_trace_of_its_review() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_env_filter("portcullis=debug,webhook=info")
        .with_writer(lines.clone())
        .finish();
    heard_by(subscriber, handlers(lines));
}

async fn handlers(lines: Lines) {
    let webhook = Validate::<Entity>::new("username").on_create(|_: Arc<Entity>, _: Context| async {
        tracing::info!("looking it up");
        Verdict::allow()
    });
    let routes = Webhooks::new().validate(webhook).routes().unwrap();
    let body = review("CREATE", entity(json!({"username": "a"})), Value::Null).to_string();
    for (traceparent, trace) in [
        (Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), json!("0af7651916cd43dd8448eb211c80319c")),
        (Some("not a trace"), Value::Null),
        (None, Value::Null),
    ] {
        let mut request = Request::post("/validate/username").header("content-type", "application/json");
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        routes.respond(request.body(Full::new(Bytes::from(body.clone()))).unwrap()).await;
        let said = lines.take();
        let told: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(told.len(), 2, "{said}");
        assert_eq!(told[0]["fields"]["message"], "looking it up");
        assert_eq!(told[1]["fields"]["trace"], trace, "the decision itself says it, too: spans are for debugging");
        for line in &told {
            let span = &line["span"];
            assert_eq!((&span["name"], &span["webhook"]), (&json!("review"), &json!("username")), "{said}");
            assert_eq!(span["uid"], "e911857d-c318-11e8-bbad-025000000001");
            assert_eq!(span["trace"], trace, "{traceparent:?}");
        }
    }
}
