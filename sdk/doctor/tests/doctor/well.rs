//! An installation that is well.

use crate::clinic::Clinic;
use crate::visits::{a_reader_learns_what_was_not_checked, people_get_colours_where_they_want_them};

/// A run sends no more requests than this, whatever the size of the cluster.
const REQUESTS: u64 = 50;

// D10
#[tokio::test]
async fn an_installation_that_is_well_gets_a_clean_bill() {
    let clinic = Clinic::open().await;
    let mark = clinic.cluster.audit().mark();
    let examined = clinic.examine(&["--in-namespace", &clinic.team]).await;
    let bad: Vec<_> = examined.findings.iter().filter(|found| matches!(&*found.verdict, "WARN" | "FAIL")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(examined.code, 0);
    assert!(examined.requests <= REQUESTS, "{} requests", examined.requests);

    // Reads only. The API server renews a Lease of its own meanwhile.
    let mut writes = clinic.cluster.audit().writes(mark).await;
    writes.retain(|event| event.user != "system:apiserver" && !format!("{event:?}").contains("reviews"));
    assert!(writes.is_empty(), "{writes:?}");

    people_get_colours_where_they_want_them(&clinic).await;
    a_reader_learns_what_was_not_checked(&clinic).await;
}
