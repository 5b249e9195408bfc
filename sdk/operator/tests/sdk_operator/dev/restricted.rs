//! Sessions without controllers beside namespace-restricted operators.

use portcullis_testing::Grant;

use super::election::Place;
use super::failures::on_configurations;
use super::fixture::{controllers_alone, entities, judged, start};
use super::process::{Dev, ENTITIES};

// D7
#[tokio::test]
async fn the_webhooks_of_a_session_leave_the_namespaces_of_restricted_operators_to_them() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    let others = place.cluster.namespace("others").await;
    let (in_team, in_others) = (entities(place.cluster, &place.team), entities(place.cluster, &others));
    place.hand_over().await;
    let mut restricted = place.installed(&["--restrict-to-namespace", &place.team]);
    restricted.says("leading: this replica runs the controllers").await;

    let both = ["--only-namespace", &place.team, "--only-namespace", &others];
    let mut session = start(place.cluster, ENTITIES, "apart", &both);
    session.open().await;
    session.says("those of restricted operators are left to them; --restrict-to-namespace NS serves one").await;
    judged(&in_others, true).await;
    judged(&in_team, false).await;
    session.says("skipping validation - namespace has namespace-restricted operator").await;

    // In its place, and where one may not look.
    let in_place = ["--restrict-to-namespace", &place.team];
    let rules = [on_configurations(&["list", "get", "create", "delete"])];
    let user = place.cluster.user_with("eve", &[Grant::ClusterRules(&rules)]).await;
    let in_its_place = || start(place.cluster, ENTITIES, "inplace", &in_place);
    let blind = || Dev::start(ENTITIES, &user.kubeconfig, "blind", &["--only-namespace", &place.team]);
    for other in [&in_its_place as &dyn Fn() -> Dev, &blind] {
        let mut other = other();
        other.open().await;
        judged(&in_team, true).await;
        other.end("-TERM").await;
        judged(&in_team, false).await;
    }

    // When the restricted one is gone, somebody has to.
    restricted.end("-TERM").await;
    judged(&in_team, true).await;
    judged(&in_others, true).await;
    session.end("-TERM").await;
}
