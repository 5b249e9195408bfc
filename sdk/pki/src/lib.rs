//! Certificate authorities and leaves for webhook servers, and the checks on them. No IO, no clock.
