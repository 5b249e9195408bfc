//! A converter to the spoke that returns the hub.

use k8s_openapi::api::autoscaling::{v1, v2};
use portcullis_webhook::conversion::Convert;

fn to_hub(_: v1::HorizontalPodAutoscaler) -> v2::HorizontalPodAutoscaler {
    Default::default()
}

fn from_hub(hub: v2::HorizontalPodAutoscaler) -> v2::HorizontalPodAutoscaler {
    hub
}

fn main() {
    let _ = Convert::<v2::HorizontalPodAutoscaler>::hub().spoke::<v1::HorizontalPodAutoscaler>(to_hub, from_hub);
}
