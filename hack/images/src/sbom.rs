//! Completes an SBOM of `cargo cyclonedx` for an image, and removes what does not belong there.

use serde_json::{Value, json};

/// Takes the folder of the sources out of the SBOM's references, and adds the components that are no crate of the binary, by their
/// [package URLs](https://github.com/package-url/purl-spec).
///
/// Nothing but the folder differs between two machines: `cargo cyclonedx` leaves out the serial number, and takes the time from
/// `SOURCE_DATE_EPOCH`.
pub fn complete_sbom(text: &str, folder: &str, added: &[String]) -> Result<String, String> {
    let text = text.replace(&format!("path+file://{folder}/"), "path+file:///portcullis/");
    let mut sbom: Value = serde_json::from_str(&text).map_err(|error| format!("the SBOM is no JSON: {error}"))?;
    let components = sbom["components"].as_array_mut().ok_or_else(|| "the SBOM has no list 'components'".to_owned())?;
    for purl in added {
        let package = purl.strip_prefix("pkg:").and_then(|purl| purl.rsplit('/').next());
        let (name, version) = package
            .and_then(|package| package.split_once('@'))
            .ok_or_else(|| format!("'{purl}' is not pkg:TYPE/NAME@VERSION"))?;
        components.push(json!({
            "type": "library", "bom-ref": purl, "name": name, "version": version, "scope": "required", "purl": purl,
        }));
    }
    if sbom.to_string().contains(folder) {
        return Err(format!("the SBOM still names {folder}"));
    }
    serde_json::to_string_pretty(&sbom).map(|text| text + "\n").map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::complete_sbom;

    fn sbom(folder: &str) -> String {
        let reference = format!("path+file://{folder}/mcp/runner#mcp-runner@0.1.0");
        json!({ "metadata": { "component": { "bom-ref": reference } }, "components": [], "dependencies": [{ "ref": reference }] })
            .to_string()
    }

    #[test]
    fn sboms_made_in_two_folders_are_the_same() {
        let made = ["/home/a/portcullis", "/b"].map(|folder| complete_sbom(&sbom(folder), folder, &[]).unwrap());
        assert_eq!(made[0], made[1]);
        assert!(made[0].contains("path+file:///portcullis/mcp/runner#mcp-runner@0.1.0"), "{}", made[0]);
        let elsewhere = complete_sbom(&sbom("/home/a").replace("path+", ""), "/home/a", &[]).unwrap_err();
        assert!(elsewhere.contains("still names /home/a"), "{elsewhere}");
    }

    #[test]
    fn what_no_crate_brings_is_a_component() {
        let libc = "pkg:deb/debian/libc6-dev@2.36-9+deb12u14".to_owned();
        let made: Value =
            serde_json::from_str(&complete_sbom(&sbom("/b"), "/b", std::slice::from_ref(&libc)).unwrap()).unwrap();
        let wanted = json!({
            "type": "library", "bom-ref": libc, "name": "libc6-dev", "version": "2.36-9+deb12u14", "scope": "required", "purl": libc,
        });
        assert_eq!(made["components"], json!([wanted]));
        assert!(complete_sbom(&sbom("/b"), "/b", &["glibc".to_owned()]).is_err());
    }
}
