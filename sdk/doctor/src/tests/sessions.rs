//! Development sessions beside an installation: what they borrowed is not mended, nor counted as damage.

use super::*;

/// A session of `dev --only-namespace a` beside the installation.
pub(super) fn develop(snapshot: &mut Snapshot) {
    change(&mut snapshot.configurations, |all| {
        let mut session = all[0].clone();
        let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": "a" } });
        session.entries.iter_mut().for_each(|entry| entry.namespaces = Some(of(only.clone())));
        session.metadata = of(json!({
            "name": "shop-dev-ann-validating",
            "labels": { "portcullis.dev/dev-of": "shop", "portcullis.dev/dev-owner": "ann" },
            "annotations": { "portcullis.dev/dev-expires": "2026-01-01T13:00:00Z" },
        }));
        all.push(session);
    });
}

#[test]
fn a_development_session_is_not_taken_for_a_restricted_operator_that_is_gone() {
    let mut snapshot = well();
    develop(&mut snapshot);
    let findings = examined(&snapshot).findings;
    let bad: Vec<_> = findings.iter().filter(|one| one.id.starts_with('L') && one.verdict > Verdict::Info).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// A kind that is converted, by the operator; and the same while a session of `dev` has borrowed its conversion until then.
fn converted(expires: Option<&str>) -> (Subject, Snapshot) {
    let (mut subject, mut snapshot) = (subject(), well());
    subject.conversions = vec![("orders.shop.example".to_owned(), "/convert/orders".to_owned())];
    let Some(Look::Seen(Some(crd))) = snapshot.crds.get_mut("orders.shop.example") else { panic!("it is there") };
    let [ca, ..] = pair();
    let service = json!({ "namespace": "shop-system", "name": "shop-webhook", "path": "/convert/orders", "port": 443 });
    let client = match expires {
        None => json!({ "service": service, "caBundle": ByteString(ca.clone().into_bytes()) }),
        // As behind a tunnel; with a certificate of its own a session has a bundle of its own.
        Some(_) => json!({ "url": "https://laptop.example/convert/orders" }),
    };
    let conversion =
        json!({ "strategy": "Webhook", "webhook": { "clientConfig": client, "conversionReviewVersions": ["v1"] } });
    crd.spec.conversion = Some(of(conversion));
    if let Some(expires) = expires {
        crd.metadata.annotations = Some(of(json!({
            "portcullis.dev/dev-session": "0123", "portcullis.dev/dev-of": "shop", "portcullis.dev/dev-owner": "ann",
            "portcullis.dev/dev-expires": expires,
        })));
    }
    (subject, snapshot)
}

fn bad(subject: &Subject, snapshot: &Snapshot) -> Vec<super::super::Finding> {
    let report = examine(subject, snapshot, &Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    report.findings.into_iter().filter(|finding| finding.verdict >= Verdict::Warn).collect()
}

#[test]
fn what_a_session_borrowed_is_not_mended_away_from_it() {
    let (subject, snapshot) = converted(None);
    assert!(bad(&subject, &snapshot).is_empty());
    let (subject, snapshot) = converted(Some("2026-01-01T13:00:00Z"));
    assert!(bad(&subject, &snapshot).is_empty(), "{:#?}", bad(&subject, &snapshot));
    // Its clock may be wrong, by minutes.
    let (subject, snapshot) = converted(Some("2026-01-01T11:58:00Z"));
    assert!(bad(&subject, &snapshot).is_empty());
}

#[test]
fn a_session_that_is_over_and_gave_nothing_back_is_swept() {
    let (subject, snapshot) = converted(Some("2026-01-01T11:00:00Z"));
    let bad = bad(&subject, &snapshot);
    let [only] = bad.as_slice() else { panic!("{bad:#?}") };
    assert_eq!((only.id, only.verdict), ("W4", Verdict::Fail));
    assert!(only.message.contains("of ann is over since 2026-01-01T11:00:00Z"), "{only:?}");
    assert_eq!(only.fix.as_deref(), Some("shop dev --sweep --owner ann"));
}
