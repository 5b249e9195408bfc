//! The fixes: lines that the operator's binary takes, and that are about the damage that was found.

use portcullis_manifest::INJECT_CA_FROM;

use super::*;
use portcullis::operator::Operator;

/// The command lines of the operator's own binary in a text, each up to a pipe or a further command.
fn lines(text: &str) -> Vec<Vec<&str>> {
    let words: Vec<_> = text.split_whitespace().collect();
    let starts = (0..words.len()).filter(|at| {
        let next = words.get(at + 1).copied().unwrap_or_default();
        ["shop", "till"].contains(&words[*at])
            && ["run", "generate", "certs", "dev", "doctor", "migrate-storage"].contains(&next)
    });
    let ends = |word: &str| word == "|" || word.ends_with([';', ')', ',']);
    let line = |from: usize| {
        let rest = &words[from..];
        let end = rest.iter().position(|word| ends(word)).unwrap_or(rest.len());
        let last =
            rest.get(end).map(|word| word.trim_end_matches([';', ')', ',', '|'])).filter(|word| !word.is_empty());
        rest[..end].iter().copied().chain(last).collect()
    };
    starts.map(line).collect()
}

/// Installations with other names, certificates and reach, each with the flags that mean it.
fn subjects() -> Vec<Subject> {
    let of = |certificates, restricted_to: Option<&str>, flags: &str| {
        let mut subject = subject();
        subject.installation.certificates = certificates;
        subject.installation.restricted_to = restricted_to.map(str::to_owned);
        subject.flags = flags.to_owned();
        if restricted_to.is_none() {
            subject.conversions = vec![("orders.shop.example".to_owned(), "/convert/orders".to_owned())];
        }
        subject
    };
    let off = {
        let mut subject = of(CertificateMode::Automatic, None, " --webhooks=off");
        subject.installation.webhooks = Switch::Off;
        subject
    };
    vec![
        of(CertificateMode::Automatic, None, " --namespace=here --service-port=9443"),
        of(CertificateMode::CertManager, None, " --certificates=cert-manager"),
        of(CertificateMode::External, None, " --certificates=external --certificate-secret=pair"),
        of(CertificateMode::Automatic, Some("team"), " --release=blue --restrict-to-namespace=team"),
        of(CertificateMode::External, Some("team"), " --restrict-to-namespace=team --certificates=external"),
        off,
    ]
}

/// A CRD that is converted by a webhook, in the state that all the entries are in.
fn converted(snapshot: &mut Snapshot) {
    let Look::Seen(configurations) = &snapshot.configurations else { panic!("they are there") };
    let mut client = serde_json::to_value(&configurations.items[0].entries[0].client).unwrap();
    client["service"]["path"] = json!("/convert/orders");
    let conversion = json!({
        "strategy": "Webhook", "webhook": { "clientConfig": client, "conversionReviewVersions": ["v1"] },
    });
    change(&mut snapshot.crds, |all| all[0].spec.conversion = Some(of(conversion)));
}

/// Further states than those of the table, most of them of everything at once.
fn further() -> Vec<Snapshot> {
    type All = fn(&mut crate::configuration::Entry);
    let of_all: &[All] = &[
        |entry| entry.client.ca_bundle = None,
        |entry| entry.client.ca_bundle = Some(ByteString(b"garbage".to_vec())),
        |entry| {
            let other = Ca::generate("other", now(), now() + SignedDuration::from_hours(9_000)).unwrap();
            entry.client.ca_bundle = Some(ByteString(other.cert_pem().as_bytes().to_vec()));
        },
        |entry| entry.client.service.as_mut().unwrap().name = "other".to_owned(),
        |entry| entry.client.service.as_mut().unwrap().path = Some("/nothing".to_owned()),
        |entry| {
            entry.client.service = None;
            entry.client.url = Some("https://elsewhere".to_owned());
        },
        |entry| entry.fails_closed = false,
        |entry| entry.rules.clear(),
    ];
    let mut all: Vec<_> = of_all
        .iter()
        .map(|spoil| {
            let mut snapshot = well();
            change(&mut snapshot.configurations, |all| all.iter_mut().flat_map(|one| &mut one.entries).for_each(spoil));
            snapshot
        })
        .collect();
    all.iter_mut().for_each(converted);
    let annotated = |certificate: &str| {
        let mut snapshot = well();
        let annotations = || Some([(INJECT_CA_FROM.to_owned(), certificate.to_owned())].into());
        change(&mut snapshot.configurations, |all| {
            for one in all {
                one.metadata.annotations = annotations();
            }
        });
        snapshot.issuance = Look::Seen(Issuance { installed: true, ..Issuance::default() });
        converted(&mut snapshot);
        snapshot
    };
    all.extend([annotated("shop-system/shop-webhook-tls"), annotated("shop-system/other")]);
    let issuance = |installed| Look::Seen(Issuance { installed, ..Issuance::default() });
    let mut bare = well();
    converted(&mut bare);
    bare.issuance = issuance(true);
    bare.secret = Look::Seen(None);
    bare.ca_secret = Look::Seen(None);
    bare.pods = list(&[]);
    bare.accounts = list(&[]);
    bare.services = behind(None);
    let empty = Snapshot { now: now(), issuance: issuance(false), ..Snapshot::default() };
    all.extend([well(), bare, empty]);
    all
}

#[test]
fn every_command_of_ours_in_a_fix_parses() {
    let operator = Operator::new("shop");
    let mut command = operator.command();
    command.build();
    let snapshots = cases().iter().map(|(.., change)| {
        let mut snapshot = well();
        change(&mut snapshot);
        snapshot
            .options
            .denial
            .get_or_insert_with(|| "admission webhook \"sober.orders.shop.example\" denied the request".to_owned());
        snapshot
    });
    let snapshots: Vec<_> = snapshots.chain(further()).collect();
    let mut taken = std::collections::BTreeSet::new();
    for subject in subjects() {
        for snapshot in &snapshots {
            for Finding { id, message, fix, .. } in judge(&subject, snapshot).findings {
                for line in lines(&message).into_iter().chain(lines(fix.as_deref().unwrap_or_default())) {
                    if taken.contains(&line.join(" ")) {
                        continue;
                    }
                    assert_eq!(line[0], "till", "the operator's binary, and not its name");
                    let matches = command.clone().try_get_matches_from(&line);
                    assert!(matches.is_ok(), "{id} says {}:\n{}", line.join(" "), matches.unwrap_err());
                    // `generate` makes no CRD for a part of the cluster, so applying it would do nothing.
                    let nothing =
                        line[1..].starts_with(&["generate", "crds"]) && line.join(" ").contains("--restrict-to");
                    assert!(!nothing, "{id} says {}", line.join(" "));
                    taken.insert(line.join(" "));
                }
            }
        }
    }
    for part in [
        "generate crds",
        "generate webhooks",
        "generate rbac",
        "generate operator",
        "generate certificates",
        "certs ensure",
        "certs publish",
        "certs show",
        "doctor explain",
    ] {
        assert!(taken.iter().any(|line| line.starts_with(&format!("till {part}"))), "{part} is nowhere: {taken:#?}");
    }
}

#[test]
fn a_wrong_conversion_is_fixed_in_its_crd() {
    let mut repaired = 0;
    for subject in subjects().into_iter().filter(|one| one.installation.webhooks.is_on() && !one.conversions.is_empty())
    {
        for snapshot in further() {
            for Finding { id, message, fix, .. } in judge(&subject, &snapshot).findings {
                let Some(fix) = fix.filter(|fix| message.contains("orders.shop.example") && fix.contains("generate"))
                else {
                    continue;
                };
                let of_crd = message.starts_with("orders.shop.example") || message.contains("the CRD ");
                if of_crd && !fix.contains("generate operator") {
                    assert!(
                        fix.contains("generate crds") || fix.contains("generate certificates"),
                        "{id} {message}: {fix}"
                    );
                    repaired += usize::from(id == "X5" || id == "X11" || id == "W3");
                }
            }
        }
    }
    assert!(repaired >= 3, "{repaired}");
}

#[test]
fn the_fix_without_cert_manager_is_automatic_certificates() {
    let mut subject = subject();
    subject.installation.certificates = CertificateMode::CertManager;
    subject.flags = " --release=blue --certificates=cert-manager".to_owned();
    let snapshot = Snapshot { issuance: Look::Seen(Issuance::default()), ..well() };
    let report = judge(&subject, &snapshot);
    let fix = report.findings.into_iter().find(|one| one.id == "X11").and_then(|one| one.fix).unwrap();
    assert!(
        fix.ends_with(
            "till generate operator --image IMAGE --release=blue | kubectl apply --server-side --force-conflicts -f -"
        ),
        "{fix}"
    );
}

#[test]
fn a_conversion_left_with_webhooks_off_is_named_with_the_fix() {
    let mut subject = subject();
    subject.installation.webhooks = Switch::Off;
    subject.conversions = vec![("orders.shop.example".to_owned(), "/convert/orders".to_owned())];
    let mut snapshot = well();
    converted(&mut snapshot);
    let report = |snapshot: &Snapshot| judge(&subject, snapshot);
    let fix = |report: Report| report.findings.into_iter().find(|one| one.id == "W9").and_then(|one| one.fix).unwrap();
    let ends = "kubectl patch crd orders.shop.example --type=json -p \
                '[{\"op\":\"replace\",\"path\":\"/spec/conversion\",\"value\":{\"strategy\":\"None\"}}]'";
    assert!(fix(report(&snapshot)).ends_with(ends));
    // Another installation's goes on.
    change(&mut snapshot.crds, |all| {
        let webhook = all[0].spec.conversion.as_mut().and_then(|one| one.webhook.as_mut()).unwrap();
        webhook.client_config.as_mut().and_then(|one| one.service.as_mut()).unwrap().name = "other".to_owned();
    });
    assert!(!fix(report(&snapshot)).contains("kubectl patch"));
}

#[test]
fn a_fix_for_a_process_outside_of_the_cluster_names_no_pods() {
    let mut snapshot = well();
    snapshot.services = behind(Some(json!({ "spec": { "type": "ExternalName", "externalName": "host.example" } })));
    for reached in [Reached::Refused, Reached::Unreachable("no route".to_owned()), Reached::NoTls("no".to_owned())] {
        reach(&mut snapshot, reached);
        let findings = examined(&snapshot).findings;
        let fix = findings.iter().find(|one| one.id == "C4").and_then(|one| one.fix.clone()).unwrap();
        assert!(!fix.contains("pods") && !fix.contains("deployment") && !fix.contains("port-forward"), "{fix}");
    }
}

// They come from one manifest.
#[test]
fn however_many_rights_are_missing_it_is_one_finding() {
    let refused = |on: &str| Right { verb: "list".to_owned(), on: on.to_owned(), allowed: false };
    let mut snapshot = well();
    snapshot.rights = Look::Seen(vec![refused("a"), refused("b")].into());
    let said: Vec<_> = examined(&snapshot).findings.into_iter().filter(|one| one.id == "H4").collect();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert_eq!(said[0].message, "ServiceAccount shop cannot list a\ncannot list b");
}
