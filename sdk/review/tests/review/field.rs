//! Paths of fields, and what can be wrong with one.

use portcullis_review::Field;

#[test]
fn paths_are_written_as_kubernetes_writes_them() {
    let spec = Field::new("spec");
    let name = spec.field("containers").index(1).field("env").key("A.b/c").field("value");
    assert_eq!(name.to_string(), "spec.containers[1].env[A.b/c].value");
    assert_eq!(Field::new("").field("spec"), spec);
}

#[test]
fn each_problem_has_the_reason_that_kubernetes_gives_it() {
    let field = Field::new("spec.a");
    let cases = [
        (field.invalid("is odd"), "FieldValueInvalid", "is odd"),
        (field.required("is needed"), "FieldValueRequired", "is needed"),
        (field.forbidden("is not yours"), "FieldValueForbidden", "is not yours"),
        (field.duplicate(7), "FieldValueDuplicate", "duplicate value: \"7\""),
        (
            field.not_supported("x", ["a"]),
            "FieldValueNotSupported",
            "unsupported value: \"x\": supported values: \"a\"",
        ),
    ];
    for (cause, reason, message) in cases {
        assert_eq!((cause.field(), cause.reason(), cause.message()), ("spec.a", reason, message));
    }
}
