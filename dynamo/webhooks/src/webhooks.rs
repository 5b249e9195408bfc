//! Registers a validating webhook for each kind, under Dynamo's names and at Dynamo's paths.
//!
//! The API server evaluates the rules of the CRDs first, and asks no validating webhook about what these refuse. So the
//! warnings on changes of immutable fields, which Dynamo's webhooks give with their refusal, come from mutating webhooks,
//! which are asked before that and change nothing.

use std::sync::Arc;
use std::time::Duration;

use portcullis::webhooks::{
    BoxError, Context, FailurePolicy, Mutate, Mutation, Mutator, OldObject, Operation, ReinvocationPolicy, Validate,
    Validator, Verdict, Webhooks,
};

use crate::kinds::{
    DynamoComponentDeployment, DynamoGraphDeployment, DynamoGraphDeploymentRequest, DynamoKind, DynamoModel,
};
use crate::rules::{Findings, RuleContext, Rules};

/// The webhooks of all kinds, in the order in which Dynamo's configuration has them.
pub fn webhooks(context: RuleContext) -> Webhooks {
    let context = Arc::new(context);
    Webhooks::new()
        .validate(validate::<DynamoComponentDeployment>(&context))
        .validate(validate::<DynamoGraphDeployment>(&context))
        .validate(validate::<DynamoModel>(&context))
        .validate(validate::<DynamoGraphDeploymentRequest>(&context))
        .mutate(warn::<DynamoComponentDeployment>(&context))
        .mutate(warn::<DynamoGraphDeployment>(&context))
        .mutate(warn::<DynamoModel>(&context))
}

fn validate<K: DynamoKind + Rules>(context: &Arc<RuleContext>) -> Validate<K> {
    let kind = K::lower_case();
    Validate::<K>::new(kind.clone())
        .full_name(format!("v{kind}.kb.io"))
        .path(format!("/validate-nvidia-com-v1alpha1-{kind}"))
        .validator(context.clone())
}

/// Dynamo got a mutating webhook for graphs later, under this name and at this path.
fn warn<K: DynamoKind + Rules>(context: &Arc<RuleContext>) -> Mutate<K> {
    let kind = K::lower_case();
    Mutate::<K>::new(kind.clone())
        .full_name(format!("m{kind}.kb.io"))
        .path(format!("/mutate-nvidia-com-v1alpha1-{kind}"))
        .reinvocation_policy(ReinvocationPolicy::Never)
        .failure_policy(FailurePolicy::Ignore)
        .timeout(Duration::from_secs(2))
        .mutator(context.clone())
}

impl<K: DynamoKind + Rules> Validator<K> for RuleContext {
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    async fn create(&self, new: Arc<K>, _: Context) -> Result<Verdict, BoxError> {
        Ok(verdict(new.check(self)))
    }

    async fn update(&self, old: OldObject<'_, K>, new: Arc<K>, cx: Context) -> Result<Verdict, BoxError> {
        Ok(verdict(new.check_update(&*old.decode()?, &cx.user.username, self)))
    }
}

impl<K: DynamoKind + Rules> Mutator<K> for RuleContext {
    const OPERATIONS: &'static [Operation] = &[Operation::Update];

    async fn update(&self, old: OldObject<'_, K>, new: K, cx: Context) -> Result<Mutation<K>, BoxError> {
        let warnings = new.check_change(&*old.decode()?, &cx.user.username, self).warnings;
        Ok(warnings.into_iter().fold(Mutation::unchanged(), Mutation::warn))
    }
}

/// A plain error of a Go handler is a 403.
fn verdict(findings: Findings) -> Verdict {
    let verdict = findings.error.map_or_else(Verdict::allow, |error| Verdict::deny(error).code(403));
    findings.warnings.into_iter().fold(verdict, Verdict::warn)
}
