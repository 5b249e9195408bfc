//! Authorization outside of a middleware that puts another message in place of the one that was let pass.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::{Body, BoxService, full};
use mcp_middleware::{Middleware, Next, ReplaceError};
use mcp_runconfig::NoParameters;
use serde_json::json;

use crate::support::{Files, configs, post};

/// Puts a call of `rm` in place of every message.
struct Swap;

impl Middleware for Swap {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        Box::pin(async move {
            let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"rm"}}"#;
            match next.context().replace(request, call.into()).await {
                Ok(request) => next.call(request).await,
                Err(ReplaceError::Refused(refusal)) => *refusal,
                Err(error) => panic!("{error}"),
            }
        })
    }
}

#[tokio::test]
async fn a_message_that_is_changed_behind_authorization_is_refused() {
    let policies = ["permit(principal, action, resource);"];
    let authorization =
        json!({"type": "authorization", "parameters": {"config_data": {"cedar": {"policies": policies}}}});
    for (more, status, reason) in [
        (None, 200, None),
        (Some("swap"), 403, Some("another middleware has changed the message behind authorization")),
    ] {
        let mut registry = mcp_gate::registry();
        mcp_authn::register(&mut registry);
        registry.register("swap", |_: NoParameters, _| ready(Ok(Swap)));
        let entries: Vec<_> = [json!({"type": "auth"}), authorization.clone()]
            .into_iter()
            .chain(more.map(|more| json!({"type": more})))
            .collect();
        let chain = registry.build(&configs(entries.into()), Files::new().settings()).await.unwrap();
        let (served, count) = (Arc::new(AtomicUsize::new(0)), |served: &AtomicUsize| served.load(Ordering::SeqCst));
        let counted = Arc::clone(&served);
        let transport = BoxService::new(tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            ready(Ok::<_, Infallible>(Response::new(full("{}"))))
        }));
        let context = chain.context(([10, 0, 0, 9], 4711).into());
        let request =
            post("application/json", r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}"#);
        let answer = chain.serve(&context, request, &transport).await;
        assert_eq!((answer.status().as_u16(), count(&served)), (status, usize::from(status == 200)));
        assert_eq!(context.denial().as_deref().map(|denial| &*denial.reason), reason);
    }
}
