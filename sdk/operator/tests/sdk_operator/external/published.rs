//! Published bundles, compared with the pair that is served.

use portcullis::certificates::ProvidedBy;
use portcullis_pki::Ca;
use portcullis_testing::wait_until;

use super::fixture::{DAY, Place, Serving, authority, ca};
use crate::PATIENCE;

async fn start(provided_by: ProvidedBy, ca: &Ca) -> (Place, Serving) {
    let place = Place::new(provided_by).await;
    place.put_pair(&place.pair(ca), ca.cert_pem()).await;
    let serving = place.serve().await;
    (place, serving)
}

/// Waits until the report of missing bundles contains these words.
async fn missing(place: &Place, serving: &Serving, words: &str) -> String {
    let said = || async {
        let (mut said, configurations) = (String::new(), place.configurations());
        let looked = serving.bundle.wait_until_published(&configurations, |missing| missing.clone_into(&mut said));
        let _ = tokio::time::timeout(std::time::Duration::from_millis(200), looked).await;
        said.contains(words).then_some(said)
    };
    wait_until(words, PATIENCE, said).await
}

// A bundle that is repaired by index goes to the wrong entry when the list is in another order: entries count by name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_whose_bundle_does_not_trust_the_pair_is_named() {
    let (owner, stranger) = (ca("owner"), ca("stranger"));
    let ended = authority("ended", -DAY * 9, -DAY);
    for (provided_by, cure) in [
        (ProvidedBy::User, "apply what 'generate webhooks --ca-bundle FILE' and"),
        (ProvidedBy::CertManager, "fills it in by the annotation 'cert-manager.io/inject-ca-from: NS/pair'"),
    ] {
        let (place, serving) = start(provided_by, &owner).await;
        let port = serving.address.port();
        let good = Some(owner.cert_pem());
        let object = format!("ValidatingWebhookConfiguration {}", place.name);
        missing(&place, &serving, &format!("{object}: it is not installed; see 'generate webhooks'")).await;
        for (rules, said) in [
            ([("one", good), ("two", None)], "two.configmaps.core: the CA bundle is empty"),
            (
                [("two", Some(stranger.cert_pem())), ("one", good)],
                "two.configmaps.core: the CA bundle does not hold the issuer",
            ),
            (
                [("two", good), ("one", Some(ended.cert_pem()))],
                "one.configmaps.core: the CA bundle does not hold the issuer",
            ),
        ] {
            place.publish_each(port, &rules).await;
            let said = missing(&place, &serving, &format!("the CA to be published in {object}: {said}")).await;
            assert!(said.contains(&cure.replace("NS", &place.name)), "{said}");
        }
        // In any order, and with others beside it.
        let both = format!("{}\n{}", stranger.cert_pem(), owner.cert_pem());
        place.publish_each(port, &[("two", good), ("one", Some(&both))]).await;
        let configurations = place.configurations();
        let published = serving.bundle.wait_until_published(&configurations, |_| {});
        tokio::time::timeout(PATIENCE, published).await.unwrap();
        place.in_force().await;
    }
}
