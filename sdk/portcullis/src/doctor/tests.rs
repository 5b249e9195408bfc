//! A snapshot in which everything is as it should be, and what becomes of it when something is not.

use portcullis_manifest::{Access, Operation, Rule, Scope, ServiceRef, Webhook, WebhookKind};

use super::subject::{Kind, Subject};
use crate::certificates::CertificateMode;
use crate::operator::{Installation, Switch};

/// An operator of one kind, with a validating webhook and a mutating one.
pub(super) fn subject() -> Subject {
    let rule = Rule {
        groups: vec!["shop.example".to_owned()],
        versions: vec!["v1".to_owned()],
        resources: vec!["orders".to_owned()],
        scope: Scope::Namespaced,
        operations: vec![Operation::Create, Operation::Update],
    };
    let webhook = |name: &str, kind, path: &str| {
        Webhook::new(format!("{name}.orders.shop.example"), kind, path, vec![rule.clone()])
    };
    Subject {
        installation: Installation {
            operator: "shop",
            release: "shop".to_owned(),
            namespace: "shop-system".to_owned(),
            restricted_to: None,
            service: ServiceRef { namespace: "shop-system".to_owned(), name: "shop-webhook".to_owned(), port: 443 },
            cluster_domain: "cluster.local".to_owned(),
            certificates: CertificateMode::Automatic,
            secret: "shop-webhook-tls".to_owned(),
            webhooks: Switch::On,
        },
        flags: String::new(),
        webhooks: vec![
            webhook("sober", WebhookKind::Validating, "/validate/sober"),
            webhook("glass", WebhookKind::Mutating, "/mutate/glass"),
        ],
        conversions: Vec::new(),
        kinds: vec![Kind {
            crd: "orders.shop.example".to_owned(),
            group: "shop.example".to_owned(),
            version: "v1".to_owned(),
            kind: "Order".to_owned(),
            plural: "orders".to_owned(),
            namespaced: true,
            subresources: vec!["status"],
        }],
        access: Access::default(),
        scope_leases: vec!["shop-namespace-scope".to_owned(), "shop-ns-lock".to_owned()],
    }
}
