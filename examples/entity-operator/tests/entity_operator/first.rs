//! A first test, whole: the webhooks of the operator, asked in this process.

use entity_operator::v3::{Entity, EntitySpec};
use entity_operator::webhooks;
use portcullis_testing::admission::Reviews;

#[tokio::test]
async fn the_name_forbidden_is_refused() {
    let reviews = Reviews::new(&webhooks()).unwrap();
    let entity = |username: &str| Entity::new("ada", EntitySpec { username: username.into(), ..EntitySpec::default() });

    let answer = reviews.create(&entity("forbidden")).validate("username").await;
    answer.assert_denied(422, "name may not be 'forbidden'.");

    let answer = reviews.update(&entity("ada"), &entity("forbidden")).validate("username").await;
    answer.assert_denied(400, "name may not be 'forbidden'.");

    reviews.create(&entity("ada")).validate("username").await.assert_allowed();
}
