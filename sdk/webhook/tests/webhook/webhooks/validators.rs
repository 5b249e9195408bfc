//! Validators and mutators: values whose methods are handlers.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::webhooks::{
    BoxError, Context, Mutate, Mutation, Mutator, OldObject, Operation, Routes, Validate, Validator, Verdict, Webhooks,
};
use serde_json::{Value, json};

use super::decisions::ask;
use crate::fixture::{Entity, EntitySpec, entity, review};

/// One rule for new objects.
struct Reserved(String);

impl Validator<Entity> for Reserved {
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    async fn create(&self, new: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        std::future::ready(()).await;
        Ok(if new.spec.username == self.0 { Verdict::deny("reserved").code(422) } else { Verdict::allow() })
    }
}

impl Mutator<Entity> for Reserved {
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    async fn create(&self, new: Entity, _: Context) -> Result<Mutation<Entity>, BoxError> {
        if new.spec.username == self.0 {
            return Ok(Verdict::deny("reserved").code(422).into());
        }
        Ok(Mutation::unchanged())
    }
}

/// Handlers of their own for each operation.
struct Names {
    reserved: String,
}

impl Validator<Entity> for Names {
    const OPERATIONS: &'static [Operation] = &[Operation::Update, Operation::Delete];

    async fn update(&self, old: OldObject<'_, Entity>, new: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        let same = old.decode()?.spec.username == new.spec.username;
        Ok(if same { Verdict::allow() } else { Verdict::deny("not another").code(422) })
    }

    async fn delete(&self, old: Arc<Entity>, cx: Context) -> Result<Verdict, BoxError> {
        if [&self.reserved, &cx.user.username].contains(&&old.spec.username) {
            return Ok(Verdict::deny("not oneself").code(409));
        }
        Ok(Verdict::allow())
    }
}

impl Mutator<Entity> for Names {
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    async fn create(&self, mut new: Entity, _: Context) -> Result<Mutation<Entity>, BoxError> {
        new.spec.username.clone_from(&self.reserved);
        Ok(Mutation::modified(new))
    }

    async fn update(
        &self,
        old: OldObject<'_, Entity>,
        mut new: Entity,
        _: Context,
    ) -> Result<Mutation<Entity>, BoxError> {
        if new.spec.username == self.reserved {
            new.spec.username.clone_from(&old.decode()?.spec.username);
        }
        Ok(Mutation::modified(new))
    }
}

fn named(username: &str) -> Value {
    entity(json!({"username": username}))
}

/// Its decision: the code of a denial, or the HTTP status of an error; 200 where it is allowed.
async fn code(routes: &Routes, path: &str, operation: &str, object: Value, old: Value) -> u64 {
    let (status, answer) = ask(routes, path, &review(operation, object, old)).await;
    answer["response"]["status"]["code"].as_u64().unwrap_or_else(|| status.as_u16().into())
}

#[tokio::test]
async fn one_rule_holds_for_creations_and_updates() {
    async fn validate(new: Arc<Entity>, cx: Context) -> Result<Verdict, BoxError> {
        Validator::create(&Reserved("root".to_owned()), new, cx).await
    }
    async fn mutate(new: Entity, cx: Context) -> Result<Mutation<Entity>, BoxError> {
        Mutator::create(&Reserved("root".to_owned()), new, cx).await
    }
    let rule = Arc::new(Reserved("root".to_owned()));
    let webhooks = Webhooks::new()
        .validate(Validate::<Entity>::new("function").on_create_or_update(validate))
        .validate(Validate::<Entity>::new("value").validator(rule.clone()))
        .mutate(Mutate::<Entity>::new("function").on_create_or_update(mutate))
        .mutate(Mutate::<Entity>::new("value").mutator(rule));
    let routes = webhooks.routes().unwrap();
    for manifest in webhooks.manifests().unwrap() {
        assert_eq!(manifest.rules[0].operations, [Operation::Create, Operation::Update]);
        for (name, expected) in [("jane", 200), ("root", 422)] {
            // The stored object does not decode, and an update repairs it.
            for (operation, old) in [("CREATE", Value::Null), ("UPDATE", entity(json!({"username": 7})))] {
                let code = code(&routes, &manifest.path, operation, named(name), old).await;
                assert_eq!(code, expected, "{operation} of {name} at {}", manifest.path);
            }
        }
    }
}

#[tokio::test]
async fn each_operation_calls_its_method() {
    let names = Arc::new(Names { reserved: "root".to_owned() });
    let webhooks = Webhooks::new()
        .validate(Validate::<Entity>::new("names").validator(names.clone()))
        .mutate(Mutate::<Entity>::new("names").mutator(names));
    let operations = |webhook: usize| webhooks.manifests().unwrap()[webhook].rules[0].operations.clone();
    assert_eq!(operations(0), [Operation::Update, Operation::Delete]);
    let routes = webhooks.routes().unwrap();

    let undecodable = || entity(json!({"username": 7}));
    for (operation, object, old, expected) in [
        ("CREATE", named("jane"), Value::Null, 500),
        ("UPDATE", named("jane"), named("jane"), 200),
        ("UPDATE", named("jane"), named("joe"), 422),
        ("UPDATE", named("jane"), undecodable(), 400),
        ("DELETE", Value::Null, named("root"), 409),
        ("DELETE", Value::Null, named("joe"), 200),
    ] {
        let shown = format!("{operation} of {object} and {old}");
        assert_eq!(code(&routes, "/validate/names", operation, object, old).await, expected, "{shown}");
    }
    let (_, answer) = ask(&routes, "/validate/names", &review("UPDATE", named("jane"), undecodable())).await;
    let status = &answer["response"]["status"];
    assert_eq!(status["details"]["causes"][0]["field"], "spec.username");
    assert!(
        status["message"].as_str().unwrap().starts_with("the stored object does not decode as Entity: spec.username")
    );
    for (operation, old, name) in [("CREATE", Value::Null, "root"), ("UPDATE", named("jane"), "jane")] {
        let object = if old.is_null() { named("joe") } else { named("root") };
        let (_, answer) = ask(&routes, "/mutate/names", &review(operation, object, old)).await;
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        assert!(String::from_utf8(patch).unwrap().contains(&format!(r#""value":"{name}""#)), "{operation}");
    }
}

/// Has a method for each operation, and does not name one of them.
struct Whole<const LEFT_OUT: usize>;

impl<const LEFT_OUT: usize> Validator<Entity> for Whole<LEFT_OUT> {
    const OPERATIONS: &'static [Operation] = match LEFT_OUT {
        0 => &[Operation::Update, Operation::Delete, Operation::Connect],
        1 => &[Operation::Create, Operation::Delete, Operation::Connect],
        2 => &[Operation::Create, Operation::Update, Operation::Connect],
        _ => &[Operation::Create, Operation::Update, Operation::Delete],
    };

    async fn create(&self, _: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        Ok(Verdict::allow())
    }

    async fn update(&self, _: OldObject<'_, Entity>, _: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        Ok(Verdict::allow())
    }

    async fn delete(&self, _: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        Ok(Verdict::allow())
    }

    async fn connect(&self, _: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        Ok(Verdict::allow())
    }
}

#[test]
fn a_method_of_an_operation_that_is_not_named_is_refused() {
    fn check<const LEFT_OUT: usize>() {
        let webhooks =
            Webhooks::new().validate(Validate::<Entity>::new("whole").validator(Arc::new(Whole::<LEFT_OUT>)));
        let operation = EACH[LEFT_OUT];
        let expected = format!(
            "OPERATIONS of webhook whole lacks {operation}, for which there is a method: add {operation}, or remove the method",
        );
        assert_eq!(webhooks.routes().unwrap_err().to_string(), expected);
    }
    check::<0>();
    check::<1>();
    check::<2>();
    check::<3>();
}

/// Has a method for CREATE, and names UPDATE alone.
struct Updates;

impl Validator<Entity> for Updates {
    const OPERATIONS: &'static [Operation] = &[Operation::Update];

    async fn create(&self, _: Arc<Entity>, _: Context) -> Result<Verdict, BoxError> {
        Ok(Verdict::deny("created").code(422))
    }
}

#[tokio::test]
async fn an_update_without_its_own_method_is_validated_by_create() {
    let webhooks = Webhooks::new().validate(Validate::<Entity>::new("updates").validator(Arc::new(Updates)));
    assert_eq!(webhooks.manifests().unwrap()[0].rules[0].operations, [Operation::Update]);
    let routes = webhooks.routes().unwrap();
    for (operation, object, old, expected) in
        [("CREATE", named("jane"), Value::Null, 500), ("UPDATE", named("jane"), named("jane"), 422)]
    {
        assert_eq!(code(&routes, "/validate/updates", operation, object, old).await, expected, "{operation}");
    }
    assert!(webhooks.explain(&named("jane")).await.is_empty(), "with webhooks off no update is evaluated");
}

/// Has no method for its operation.
struct Nothing<const OPERATION: usize>;

const EACH: [Operation; 4] = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

impl<const OPERATION: usize> Validator<Entity> for Nothing<OPERATION> {
    const OPERATIONS: &'static [Operation] = &[EACH[OPERATION]];
}

impl<const OPERATION: usize> Mutator<Entity> for Nothing<OPERATION> {
    const OPERATIONS: &'static [Operation] = &[EACH[OPERATION]];
}

#[test]
fn an_operation_without_its_method_is_refused_at_start() {
    fn check<const OPERATION: usize>() {
        let nothing = Arc::new(Nothing::<OPERATION>);
        let validate = Webhooks::new().validate(Validate::<Entity>::new("none").validator(nothing.clone()));
        let mutate = Webhooks::new().mutate(Mutate::<Entity>::new("none").mutator(nothing));
        for webhooks in [validate, mutate] {
            let operation = EACH[OPERATION];
            let expected = format!(
                "OPERATIONS of webhook none has {operation}, for which there is no method: \
                 write it, or leave {operation} out",
            );
            assert_eq!(webhooks.routes().unwrap_err().to_string(), expected);
        }
    }
    check::<0>();
    check::<1>();
    check::<2>();
    check::<3>();
}

#[test]
fn a_second_handler_of_an_operation_is_refused_at_start() {
    async fn allow(_: Arc<Entity>, _: Context) -> Verdict {
        Verdict::allow()
    }
    async fn keep(_: Entity, _: Context) -> Mutation<Entity> {
        Mutation::unchanged()
    }
    let rule = Arc::new(Reserved("root".to_owned()));
    let validate = || Validate::<Entity>::new("rule");
    let mutate = || Mutate::<Entity>::new("rule");
    let registrations = [
        Webhooks::new().validate(validate().on_create_or_update(allow).on_create(allow)),
        Webhooks::new().validate(validate().validator(rule.clone()).on_create(allow)),
        Webhooks::new().mutate(mutate().on_create(keep).on_create_or_update(keep)),
        Webhooks::new().mutate(mutate().on_create(keep).mutator(rule)),
    ];
    for webhooks in registrations {
        let expected = "webhook rule has two handlers for CREATE: \
                        keep one (on_create_or_update is for CREATE and UPDATE)";
        assert_eq!(webhooks.manifests().unwrap_err().to_string(), expected);
    }
}

/// D1: with webhooks off a controller asks the same value.
#[tokio::test]
async fn a_controller_calls_the_methods_of_a_validator() {
    let rule = Arc::new(Reserved("root".to_owned()));
    let spec = EntitySpec { username: "root".into(), replicas: 1, parts: Vec::new() };
    let stored = Arc::new(Entity::new("one", spec));
    let context = Context::from_stored(&*stored);
    assert!(context.dry_run, "nothing but the object may be looked at");
    assert_eq!(context.request_kind, None, "there is no request");
    let refused = |verdict: Verdict| verdict.denial().map(|denial| denial.message().to_owned());
    let created = Validator::create(&*rule, stored.clone(), context.clone()).await.unwrap();
    let updated = Validator::update(&*rule, OldObject::from(stored.clone()), stored, context).await.unwrap();
    assert_eq!([created, updated].map(refused), [Some("reserved".to_owned()), Some("reserved".to_owned())]);
}
