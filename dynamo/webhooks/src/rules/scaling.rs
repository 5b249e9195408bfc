//! The accounts that may change the replicas of a service that an adapter scales.

use super::RuleContext;

/// Name of the planner's ServiceAccount, in whatever namespace.
const PLANNER: &str = "planner-serviceaccount";

/// Whether it is the operator itself, or a planner. Dynamo 0.7 and 0.8 look at how the name of an account ends, which any
/// tenant can give to one of theirs; later versions, and this one, at all of it.
pub fn may_scale(user: &str, context: &RuleContext) -> bool {
    let parts: Vec<&str> = user.split(':').collect();
    let ["system", "serviceaccount", namespace, name] = parts[..] else { return false };
    !namespace.is_empty() && (name == PLANNER || context.principal.as_deref() == Some(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_operator_and_planners_may_scale() {
        let principal = "system:serviceaccount:dynamo-system:dynamo-dynamo-operator-controller-manager";
        let context = RuleContext { principal: Some(principal.to_owned()), ..RuleContext::default() };
        for (user, may) in [
            (principal, true),
            ("system:serviceaccount:team-a:planner-serviceaccount", true),
            ("system:serviceaccount:team-a:dynamo-dynamo-operator-controller-manager", false),
            ("system:serviceaccount:dynamo-system:dynamo-operator-controller-manager", false),
            ("system:serviceaccount:team-a:my-planner-serviceaccount", false),
            ("system:serviceaccount::planner-serviceaccount", false),
            ("system:serviceaccount:a:b:planner-serviceaccount", false),
            ("planner-serviceaccount", false),
            ("kubernetes-admin", false),
            ("", false),
        ] {
            assert_eq!(may_scale(user, &context), may, "{user}");
        }
        assert!(!may_scale(principal, &RuleContext::default()), "nobody said who the operator is");
    }
}
