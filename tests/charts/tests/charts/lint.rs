//! P5: helm finds nothing to say of the charts, and what they say of themselves is true.

use portcullis_charts::{CRDS, DYNAMO, Helm, OPERATOR, chart};
use serde_json::Value;

#[test]
fn charts_pass_helm_lint_and_have_the_operators_version() {
    for name in [OPERATOR, CRDS, DYNAMO] {
        let said = Helm::new().run(&["lint", "--strict", &chart(name).display().to_string()]).unwrap();
        assert!(said.contains("0 chart(s) failed"), "{said}");
        assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
        let text = std::fs::read_to_string(chart(name).join("Chart.yaml")).unwrap();
        let chart: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!([&chart["version"], &chart["appVersion"]], [env!("CARGO_PKG_VERSION"); 2], "{name}");
    }
}
