//! What `doctor` does not say: that all is well with what it did not look at, and that something is wrong which is not.

use super::*;

fn findings(subject: &Subject, snapshot: &Snapshot, id: &str) -> Vec<super::super::Finding> {
    let report = examine(subject, snapshot, &Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    report.findings.into_iter().filter(|finding| finding.id == id).collect()
}

#[test]
fn each_configuration_that_is_left_when_webhooks_are_off_is_named_with_the_command_that_deletes_it() {
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

/// As if there were more of a list than is read.
fn cut<T>(look: &mut Look<Listed<T>>) {
    let Look::Seen(list) = look else { panic!("it was not seen") };
    list.more = true;
}

#[test]
fn a_check_that_finds_nothing_in_a_list_that_was_cut_does_not_say_that_all_is_well() {
    type Change = fn(&mut Snapshot);
    let cases: &[(&[&str], &str, Change)] = &[
        (&["W10", "T1", "T2", "T3", "T5"], "objects of a kind", |s| {
            s.objects = [("orders.shop.example".to_owned(), Look::Seen(Listed { items: vec![], more: true }))].into();
        }),
        (&["L1", "L6", "T2", "T4"], "webhook configurations", |s| cut(&mut s.configurations)),
        (&["W7", "L2", "L4", "L5"], "Leases by which", |s| cut(&mut s.leases)),
        (&["W7", "L2"], "policies that hand", |s| cut(&mut s.handed_over)),
        (&["L6"], "Leases of leaders", |s| cut(&mut s.leaders)),
        (&["W9", "C9", "C11"], "Deployments", |s| cut(&mut s.deployments)),
        (&["C3", "C6", "C7", "H2"], "pods", |s| cut(&mut s.pods)),
        (&["X10", "X13", "H1", "H2", "H7"], "Jobs", |s| cut(&mut s.jobs)),
        (&["C6"], "NetworkPolicies", |s| cut(&mut s.policies)),
        (&["C12", "H2", "T2"], "warnings", |s| cut(&mut s.events)),
        (&["H4"], "rights", |s| cut(&mut s.rights)),
        (&["T2", "T4"], "Services", |s| s.services.clear()),
        (&["C4", "C5", "X6", "X7"], "pods that could be called", |s| {
            change(&mut s.pods, |all| all.push(of(pod("shop-1"))));
        }),
    ];
    for (ids, what, change) in cases {
        let mut snapshot = well();
        change(&mut snapshot);
        for id in *ids {
            let said = findings(&subject(), &snapshot, id);
            assert!(said[0].verdict == Verdict::Info && said[0].message.contains(what), "{id}, {what}: {said:?}");
        }
    }
}

#[test]
fn what_may_be_in_the_rest_of_a_list_that_was_cut_is_not_said_to_be_missing() {
    type Change = fn(&mut Snapshot);
    let cases: &[(&str, Change)] = &[
        ("C1", |s| s.pods = Look::Seen(Listed { items: vec![], more: true })),
        ("H3", |s| s.accounts = Look::Seen(Listed { items: vec![], more: true })),
        ("L1", |s| {
            let only = json!({ "matchLabels": { "kubernetes.io/metadata.name": "a" } });
            change(&mut s.configurations, |all| all[0].entries[0].namespaces = Some(of(only)));
            cut(&mut s.leases);
        }),
        ("L2", |s| {
            s.leases = list(&[lease("shop-namespace-scope", "pod-a", 1, "2026-01-01T11:59:50.000000Z")]);
            s.handed_over = Look::Seen(Listed { items: vec![], more: true });
        }),
        ("C9", |s| s.budgets = Look::Seen(Listed { items: vec![], more: true })),
    ];
    for (id, change) in cases {
        let mut snapshot = well();
        change(&mut snapshot);
        let said = findings(&subject(), &snapshot, id);
        assert!(said.iter().all(|one| one.verdict <= Verdict::Warn), "{id}: {said:?}");
        let of_the_cut = |one: &super::super::Finding| {
            one.verdict == Verdict::Ok
                || one.message.contains("could not look")
                || one.message.contains("only the first")
        };
        assert!(said.iter().all(of_the_cut), "{id}: {said:?}");
    }
}

#[test]
fn the_namespace_that_a_restricted_installation_is_for_is_looked_up_by_its_name() {
    let mut subject = subject();
    subject.installation.restricted_to = Some("team-x".to_owned());
    let mut snapshot = well();
    let namespace = |name: &str| Look::Seen(Some(of(json!({ "metadata": { "name": name } }))));
    snapshot.namespaces = [("team-x".to_owned(), namespace("team-x"))].into();
    assert_eq!(findings(&subject, &snapshot, "W6")[0].verdict, Verdict::Ok);
    // That the operator's own was not asked for, or may not be read, does not make it missing.
    assert_eq!(findings(&subject, &snapshot, "C1")[0].verdict, Verdict::Ok);
    snapshot.namespaces = [("team-x".to_owned(), Look::Seen(None))].into();
    let said = &findings(&subject, &snapshot, "W6")[0];
    assert!(said.verdict == Verdict::Warn && said.message == "there is no namespace team-x", "{said:?}");
}

#[test]
fn a_job_counts_as_the_installations_by_its_label_or_by_its_name_and_its_work() {
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

/// The whole installation was made with another port.
fn called_on(snapshot: &mut Snapshot, port: i32) {
    change(&mut snapshot.configurations, |all| {
        let clients = all.iter_mut().flat_map(|one| &mut one.entries).map(|entry| &mut entry.client);
        clients.for_each(|client| client.service.as_mut().unwrap().port = Some(port));
    });
    let Some(Look::Seen(Some(service))) = snapshot.services.get_mut(&subject().place()) else { panic!("it is there") };
    service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = port;
}

#[test]
fn no_command_moves_an_installation_to_a_port_that_was_given_by_mistake() {
    let mut snapshot = well();
    called_on(&mut snapshot, 8443);
    // What else is broken is mended by commands with the port that is called.
    change(&mut snapshot.configurations, |all| all[0].entries[0].client.ca_bundle = None);
    let said = &findings(&subject(), &snapshot, "W4")[0];
    let message = "the API server calls port 8443 of Service shop-system/shop-webhook, while --service-port is 443: ";
    assert!(said.verdict == Verdict::Warn && said.message.starts_with(message), "{said:?}");
    assert_eq!(said.fix.as_deref(), Some("give every command of this installation --service-port=8443"));
    let bundle = findings(&subject(), &snapshot, "W3")[0].fix.clone().unwrap();
    assert!(bundle.ends_with("shop certs publish --service-port=8443"), "{bundle}");

    // And back to the usual one.
    let (mut subject, mut snapshot) = (subject(), well());
    (subject.installation.service.port, subject.flags) = (8443, " --service-port=8443".to_owned());
    change(&mut snapshot.configurations, |all| all[0].entries[0].client.ca_bundle = None);
    let bundle = findings(&subject, &snapshot, "W3")[0].fix.clone().unwrap();
    assert!(bundle.ends_with("shop certs publish"), "{bundle}");
    // Where the Service has both, the port that is given is as good.
    let Some(Look::Seen(Some(service))) = snapshot.services.get_mut(&subject.place()) else { panic!("it is there") };
    service.spec.as_mut().unwrap().ports.as_mut().unwrap().push(of(json!({ "port": 8443, "targetPort": "webhooks" })));
    assert!(findings(&subject, &snapshot, "W4").iter().all(|one| one.verdict == Verdict::Ok));
}

#[test]
fn slow_calls_of_the_past_are_not_warned_of_for_ever() {
    let slow = [(0.5, 10), (5.0, 100), (f64::INFINITY, 100)];
    let later = |more: u64| counted(&[(0.5, 10 + more), (5.0, 100 + more), (f64::INFINITY, 100 + more)]);
    let mut snapshot = Snapshot { calls: Some(counted(&slow)), ..well() };
    let verdict = |snapshot: &Snapshot| findings(&subject(), snapshot, "C10")[0].verdict;
    assert_eq!(verdict(&snapshot), Verdict::Info, "nobody knows when they were");
    // Quick ones since; none; and an API server that was started anew.
    for (later, expected) in
        [(later(50), Verdict::Ok), (later(0), Verdict::Info), (counted(&[(0.5, 1), (f64::INFINITY, 1)]), Verdict::Info)]
    {
        snapshot.calls_later = Some(later);
        assert_eq!(verdict(&snapshot), expected, "{:?}", snapshot.calls_later);
    }
}

#[test]
fn calls_that_were_let_pass_in_the_past_are_not_warned_of_for_ever() {
    let counted = |count: u64| {
        let webhook = "sober.orders.shop.example".to_owned();
        Look::Seen(Calls { failed_open: [(webhook, count)].into(), ..Calls::default() })
    };
    let mut snapshot = Snapshot { calls: Some(counted(7)), ..well() };
    let said = |snapshot: &Snapshot| {
        let found = findings(&subject(), snapshot, "W8");
        let said = found.iter().find(|one| one.message.contains("were let pass")).unwrap();
        (said.verdict, said.message.clone())
    };
    assert_eq!(said(&snapshot).0, Verdict::Info, "nobody knows when they were");
    // None since; some since; and an API server that was started anew.
    for (later, expected, count) in
        [(7, Verdict::Info, "7 calls"), (9, Verdict::Warn, "2 calls"), (3, Verdict::Info, "3 calls")]
    {
        snapshot.calls_later = Some(counted(later));
        let (verdict, message) = said(&snapshot);
        assert!(verdict == expected && message.contains(count), "{later}: {message}");
    }
}

#[test]
fn of_the_configurations_of_a_lost_operator_the_one_that_refuses_writes_is_named_and_all_are_deleted() {
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
