//! Kubernetes admission review codec: envelope first, verdicts, patches by diff, limits. No IO.
