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
