//! Texts of Kubernetes: times, variables in arguments, fields of a pod.

use chrono::{SecondsFormat, Utc};
use serde_json::Value;

/// Now, as a status has it.
pub(crate) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Now, as a lease has it.
pub(crate) fn now_exactly() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A text with each `$(NAME)` of these variables filled in; of others it is left as it is.
pub(crate) fn filled(text: &str, env: &[(String, String)]) -> String {
    let fill =
        |text: String, (name, value): &(String, String)| text.replace(&format!("$({name})"), value);
    env.iter().fold(text.to_owned(), fill)
}

/// A field of a pod, as `fieldRef` names it.
///
/// # Errors
/// Where the kubelet knows no such field.
pub(crate) fn field(pod: &Value, address: &str, path: &str) -> Result<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |map: &str| {
        let key = path.strip_prefix(&format!("metadata.{map}['"))?;
        Some(text(&pod["metadata"][map][key.strip_suffix("']")?]))
    };
    match path {
        "metadata.name" => Ok(text(&pod["metadata"]["name"])),
        "metadata.namespace" => Ok(text(&pod["metadata"]["namespace"])),
        "metadata.uid" => Ok(text(&pod["metadata"]["uid"])),
        "spec.nodeName" => Ok(text(&pod["spec"]["nodeName"])),
        "status.podIP" => Ok(address.to_owned()),
        _ => of("annotations")
            .or_else(|| of("labels"))
            .ok_or_else(|| format!("the tests' kubelet knows no field {path} of a pod")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_filled_in_and_unknown_ones_left() {
        let env = [("A".to_owned(), "1".to_owned())];
        assert_eq!(filled("--a=$(A):$(B)", &env), "--a=1:$(B)");
    }

    #[test]
    fn a_field_of_a_pod_is_found_by_its_path() {
        let pod = json!({"metadata": {"name": "a", "annotations": {"x/y": "7"}}});
        assert_eq!(field(&pod, "10.0.0.1", "metadata.name"), Ok("a".to_owned()));
        assert_eq!(
            field(&pod, "10.0.0.1", "status.podIP"),
            Ok("10.0.0.1".to_owned())
        );
        assert_eq!(
            field(&pod, "", "metadata.annotations['x/y']"),
            Ok("7".to_owned())
        );
        assert!(field(&pod, "", "spec.serviceAccountName").is_err());
    }
}
