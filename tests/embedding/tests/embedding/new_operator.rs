//! The project that `portcullis generate project` writes. Its own tests run with the features of the workspace (`sdk/project/tests`).

use portcullis_embedding::{cargo, repository};
use portcullis_project::Project;

#[tokio::test]
async fn a_new_operator_names_every_feature_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let project = Project::new("vineyard-operator", None, "vineyard.example.com".to_owned(), &repository("sdk"));
    let operator = folder.path().join("vineyard-operator");
    project.unwrap().write(&operator).unwrap();
    cargo(&operator, &["check", "--tests"]).await;
}
