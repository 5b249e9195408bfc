//! Issues of other SDKs' users, by the numbers of the book's list. The tables of damages have rows for more of them.

use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use portcullis_pki::Certificate;
use portcullis_pki::rotation::Anchor;
use portcullis_testing::wait_until;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::damage::serve;
use crate::fixture::{PATIENCE, Place};

// Issue 2: the leaf was published, and not its CA.
#[tokio::test]
async fn what_is_published_is_the_ca_and_not_the_leaf() {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let stored = place.stored().await.unwrap();
    let bundle = place.bundles().await.remove(0).1.unwrap();
    let published = Certificate::from_pem(bundle.as_bytes()).unwrap();
    let leaf = Certificate::from_pem(stored.cert_pem.as_bytes()).unwrap();
    assert!(published.is_ca && published.fingerprint != leaf.fingerprint);
    let now = jiff::Timestamp::now();
    assert!(Anchor::read(bundle.as_bytes(), now)[0].verifies(stored.cert_pem.as_bytes(), now));
    // Issue 3: it was encoded twice.
    assert!(bundle.starts_with("-----BEGIN CERTIFICATE-----"), "{bundle}");
    serving.stop.cancel();
}

// Issue 17: a pair that is deleted and then created, which watchers of files miss.
#[tokio::test]
async fn a_secret_that_is_deleted_and_created_again_is_served() {
    let place = Place::new().await;
    let serving = serve(&place).await;
    let mut secret = place.read(&place.secret()).await.unwrap();
    let secrets: Api<_> = Api::namespaced(place.admin.clone(), &place.name);
    for _ in 0..3 {
        secrets.delete(&secret.name_any(), &DeleteParams::default()).await.unwrap();
        // The replica may be faster than this create.
        secret.metadata.resource_version = None;
        _ = secrets.create(&PostParams::default(), &secret).await;
        let served = || async {
            let stored = place.stored().await?;
            let leaf = CertificateDer::from_pem_slice(stored.cert_pem.as_bytes()).ok()?;
            (serving.leaf(&place).await? == leaf.to_vec()).then_some(())
        };
        wait_until("the stored pair to be served", PATIENCE, served).await;
    }
    serving.stop.cancel();
}
