//! The doctor neither says that all is well with an object at which it did not look, nor names damage that is none.

use super::*;

fn findings(subject: &Subject, snapshot: &Snapshot, id: &str) -> Vec<Finding> {
    judge(subject, snapshot).findings.into_iter().filter(|finding| finding.id == id).collect()
}

#[test]
fn a_configuration_left_with_webhooks_off_is_named_with_the_fix() {
    let validating = "kubectl delete validatingwebhookconfiguration shop-validating";
    let mutating = "kubectl delete mutatingwebhookconfiguration shop-mutating";
    let mut subject = subject();
    subject.installation.webhooks = Switch::Off;
    for (kept, fix) in [
        (vec![WebhookKind::Validating, WebhookKind::Mutating], Some(format!("{validating}; {mutating}"))),
        (vec![WebhookKind::Validating], Some(validating.to_owned())),
        (vec![WebhookKind::Mutating], Some(mutating.to_owned())),
        (vec![], None),
    ] {
        let mut snapshot = well();
        change(&mut snapshot.configurations, |all| all.retain(|one| kept.contains(&one.kind)));
        let said = findings(&subject, &snapshot, "W9");
        let expected = if fix.is_some() { Verdict::Fail } else { Verdict::Info };
        assert_eq!((said.len(), said[0].verdict, &said[0].fix), (1, expected, &fix), "{said:?}");
    }
}

/// Marks a list as truncated.
fn cut<T>(look: &mut Look<Listed<T>>) {
    let Look::Seen(list) = look else { panic!("it was not seen") };
    list.more = true;
}

/// Findings of the checks that are not as they are when all is well.
fn changed(snapshot: &Snapshot) -> Vec<Finding> {
    let well = examined(&well()).findings;
    examined(snapshot).findings.into_iter().filter(|finding| !well.contains(finding)).collect()
}

fn ids(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.id).collect()
}

#[test]
fn a_truncated_list_does_not_pass_a_check() {
    type Change = fn(&mut Snapshot);
    let cases: &[(&[&str], Change)] = &[
        (&["T1", "T2"], |s| cut(&mut s.objects)),
        (&["W7", "L1"], |s| cut(&mut s.leases)),
        (&["W7"], |s| cut(&mut s.handed_over)),
        (&["L6"], |s| cut(&mut s.leaders)),
        (&["X10", "H1", "H7"], |s| cut(&mut s.jobs)),
        (&["T2"], |s| cut(&mut s.events)),
        (&["H4"], |s| cut(&mut s.rights)),
        (&["H3"], |s| cut(&mut s.accounts)),
        (&["C4", "C5", "X6"], |s| cut(&mut s.listeners)),
    ];
    for (expected, change) in cases {
        let mut snapshot = well();
        change(&mut snapshot);
        let changed = changed(&snapshot);
        assert_eq!(&ids(&changed), expected);
        assert!(changed.iter().all(|finding| finding.verdict == Verdict::Info), "{changed:?}");
    }
}

// A part says where to find another: the check of the other needs the right to read it too.
#[test]
fn a_check_names_the_right_that_it_lacks() {
    let mut snapshot = well();
    snapshot.pods = Look::Refused("list pods".to_owned());
    let changed = changed(&snapshot);
    assert_eq!(ids(&changed), ["C1", "C3", "C4", "C5", "C8", "X6"]);
    for finding in changed {
        assert!(finding.verdict == Verdict::Warn && finding.message.ends_with("could not look: needs list pods"));
    }
}

#[test]
fn a_truncated_list_does_not_make_an_object_missing() {
    type Change = fn(&mut Snapshot);
    let cases: &[(&str, Change)] = &[
        ("C1", |s| s.pods = Look::Seen(Listed { items: vec![], more: true })),
        ("H3", |s| s.accounts = Look::Seen(Listed { items: vec![], more: true })),
        ("L1", |s| {
            let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": "a" } });
            change(&mut s.configurations, |all| all[0].entries[0].namespaces = Some(of(only)));
            cut(&mut s.leases);
        }),
    ];
    for (id, change) in cases {
        let mut snapshot = well();
        change(&mut snapshot);
        let said = findings(&subject(), &snapshot, id);
        assert!(said.iter().all(|one| one.verdict == Verdict::Warn && one.fix.is_some()), "{id}: {said:?}");
    }
}

// A developer's session serves under a URL.
#[test]
fn a_configuration_with_a_url_is_no_lost_restricted_operator() {
    let mut snapshot = well();
    change(&mut snapshot.configurations, |all| {
        let mut session = all[0].clone();
        session.metadata.name = Some("shop-dev-ann-validating".to_owned());
        for entry in &mut session.entries {
            entry.namespaces = Some(of(json!({ "matchLabels": { "kubernetes.io/metadata.name": "a" } })));
            entry.client.service = None;
            entry.client.url = Some("https://laptop.example/validate/sober".to_owned());
        }
        all.push(session);
    });
    assert!(changed(&snapshot).is_empty(), "{:#?}", changed(&snapshot));
}

#[test]
fn a_restricted_installations_namespace_is_read_by_name() {
    let mut subject = subject();
    subject.installation.restricted_to = Some("team-x".to_owned());
    let mut snapshot = well();
    snapshot.asked_namespace = Look::Seen(Some(of(json!({ "metadata": { "name": "team-x" } }))));
    assert_eq!(findings(&subject, &snapshot, "W6")[0].verdict, Verdict::Ok);
    snapshot.asked_namespace = Look::Seen(None);
    let said = &findings(&subject, &snapshot, "W6")[0];
    assert!(
        said.verdict == Verdict::Warn && said.fix.as_deref() == Some("kubectl create namespace team-x"),
        "{said:?}"
    );
}

#[test]
fn a_job_belongs_by_its_label_or_by_its_name_and_command() {
    let labelled = |instance: &str| json!({ "app.kubernetes.io/instance": instance });
    let (hook, none) = (json!({ "helm.sh/hook": "pre-install" }), json!({}));
    let certs = json!(["certs", "ensure"]);
    let migrate = json!(["migrate"]);
    for (name, labels, annotations, words, ours) in [
        ("shop-frontend-migrate", &none, &hook, &migrate, false),
        ("shop-frontend-certs", &labelled("shop-frontend"), &hook, &certs, false),
        ("shopping-certs", &none, &none, &certs, false),
        ("web-admission-create", &none, &hook, &certs, false),
        ("shop-certs-1", &none, &none, &certs, true),
        ("shop-webhook-cert-gen-1", &none, &hook, &none, true),
        ("prepare", &labelled("shop"), &none, &migrate, true),
    ] {
        let mut snapshot = well();
        let mut failed = job(&json!({ "failed": 4 }));
        failed["metadata"]["name"] = json!(name);
        failed["metadata"]["labels"] = labels.clone();
        failed["metadata"]["annotations"] = annotations.clone();
        failed["spec"]["template"]["spec"]["containers"][0]["args"] =
            if words.is_array() { words.clone() } else { json!([]) };
        snapshot.jobs = list(&[failed]);
        let (failed, cleanup) = (findings(&subject(), &snapshot, "H1"), findings(&subject(), &snapshot, "H7"));
        assert_eq!(failed[0].verdict == Verdict::Fail, ours, "{name}: {failed:?}");
        assert_eq!(cleanup[0].fix.is_some(), ours, "{name}: {cleanup:?}");
    }
}

// The keys are those that the operator itself reads.
#[test]
fn damage_to_any_key_of_the_authoritys_secret_is_said() {
    for key in ["ca.crt", "ca.key", "next.crt", "next.key", "previous.crt"] {
        let mut snapshot = well();
        let Look::Seen(Some(Stored(ca))) = &mut snapshot.ca_secret else { panic!("it is there") };
        ca.data.get_or_insert_default().insert(key.to_owned(), ByteString(b"garbage".to_vec()));
        let said = findings(&subject(), &snapshot, "X1");
        assert!(
            said.iter().any(|one| one.verdict == Verdict::Fail && one.message.contains("-ca: ")),
            "{key}: {said:?}"
        );
    }
}

#[test]
fn an_entry_with_another_port_than_the_flags_is_a_warning() {
    let mut snapshot = well();
    change(&mut snapshot.configurations, |all| {
        let clients = all.iter_mut().flat_map(|one| &mut one.entries).map(|entry| &mut entry.client);
        clients.for_each(|client| client.service.as_mut().unwrap().port = Some(8443));
    });
    snapshot.services = behind(Some(json!({ "spec": { "ports": [{ "port": 8443, "targetPort": "webhooks" }] } })));
    let said = findings(&subject(), &snapshot, "W4");
    assert!(said.iter().all(|one| one.verdict == Verdict::Warn), "{said:?}");
    assert!(said[0].fix.as_ref().unwrap().starts_with("give every command --service-port=8443; or "), "{said:?}");
}

#[test]
fn a_lost_operators_blocking_configuration_is_named() {
    let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": "a" } });
    for closed in [WebhookKind::Validating, WebhookKind::Mutating] {
        let mut snapshot = well();
        change(&mut snapshot.configurations, |all| {
            for one in all {
                let fails_closed = one.kind == closed;
                let entries = one.entries.iter_mut();
                entries
                    .for_each(|entry| (entry.namespaces, entry.fails_closed) = (Some(of(only.clone())), fails_closed));
            }
        });
        let said = findings(&subject(), &snapshot, "L1");
        let kind = format!("{closed:?}").to_lowercase();
        let named = format!("but shop-{kind} still calls it, and rejects with Fail");
        assert!(said.len() == 1 && said[0].message.contains(&named), "{said:?}");
        let fix = said[0].fix.as_ref().unwrap();
        for kind in ["validating", "mutating"] {
            assert!(fix.contains(&format!("kubectl delete {kind}webhookconfiguration shop-{kind}")), "{fix}");
        }
    }
}
