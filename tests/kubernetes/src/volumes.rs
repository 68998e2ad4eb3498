//! A pod's volumes as folders of this machine, in the shape that a kubelet gives them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::Value;

use crate::api::Api;

/// Where a pod's volumes come from, and lie.
pub(crate) struct Volumes<'a> {
    pub api: &'a Api,
    pub namespace: &'a str,
    /// On disk.
    pub folder: &'a Path,
    /// In memory.
    pub memory: &'a Path,
    /// `fsGroup`.
    pub group: Option<u32>,
}

/// The folder of a volume, and whether nobody may write there.
pub(crate) struct Volume {
    pub folder: PathBuf,
    pub read_only: bool,
}

impl Volumes<'_> {
    /// Makes one, if it is not there: a container that is started again finds what the one before it left.
    ///
    /// # Errors
    /// Where what it names is not there yet, or the kubelet knows no such volume.
    pub fn make(&self, volume: &Value) -> Result<Volume, String> {
        let name = volume["name"].as_str().unwrap_or_default();
        let on_disk = self.folder.join(name);
        if let Some(empty) = volume.get("emptyDir") {
            let folder = match empty["medium"].as_str() {
                Some("Memory") => self.memory.join(name),
                _ => on_disk,
            };
            return self.shared(folder);
        }
        if let Some(secret) = volume.get("secret") {
            let of = secret["secretName"].as_str().unwrap_or_default();
            return self.files(on_disk, "secrets", of, secret);
        }
        if let Some(map) = volume.get("configMap") {
            let of = map["name"].as_str().unwrap_or_default();
            return self.files(on_disk, "configmaps", of, map);
        }
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            return self.claimed(claim);
        }
        Err(format!("the tests' kubelet knows no volume as {volume}"))
    }

    fn shared(&self, folder: PathBuf) -> Result<Volume, String> {
        if !folder.exists() {
            fs::create_dir_all(&folder).unwrap();
            self.give(&folder, 0o2777);
        }
        Ok(Volume {
            folder,
            read_only: false,
        })
    }

    /// A volume of the cluster that was bound to the claim. Its folder is given to the pod's group, as volumes of a CSI
    /// driver are.
    fn claimed(&self, claim: &str) -> Result<Volume, String> {
        let path = format!(
            "/api/v1/namespaces/{}/persistentvolumeclaims/{claim}",
            self.namespace
        );
        let claim = self.api.get(&path).map_err(|e| e.to_string())?;
        let volume = claim["spec"]["volumeName"].as_str();
        let volume = volume.ok_or_else(|| format!("{path} is not bound"))?;
        let path = format!("/api/v1/persistentvolumes/{volume}");
        let volume = self.api.get(&path).map_err(|e| e.to_string())?;
        let folder = volume["spec"]["hostPath"]["path"].as_str();
        let folder = PathBuf::from(folder.ok_or_else(|| format!("{path} has no hostPath"))?);
        fs::create_dir_all(&folder).unwrap();
        self.give(&folder, 0o2775);
        Ok(Volume {
            folder,
            read_only: false,
        })
    }

    /// Keys of an object as files, behind two links so that all of them can be exchanged at once.
    fn files(
        &self,
        folder: PathBuf,
        kind: &str,
        name: &str,
        volume: &Value,
    ) -> Result<Volume, String> {
        let volume_of = |folder| Volume {
            folder,
            read_only: true,
        };
        if folder.exists() {
            return Ok(volume_of(folder));
        }
        let path = format!("/api/v1/namespaces/{}/{kind}/{name}", self.namespace);
        let object = self.api.get(&path).map_err(|e| e.to_string())?;
        let data = object["data"].as_object().cloned().unwrap_or_default();
        let mut wanted: Vec<(String, String)> =
            data.keys().map(|key| (key.clone(), key.clone())).collect();
        if let Some(items) = volume["items"].as_array() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let pair = |item: &Value| (text(&item["key"]), text(&item["path"]));
            wanted = items.iter().map(pair).collect();
        }
        let mode = volume["defaultMode"].as_u64().unwrap_or(0o644);
        let mode = u32::try_from(mode).unwrap();
        let mut files = Vec::new();
        for (key, at) in wanted {
            let value = data.get(&key).and_then(Value::as_str);
            let value = value.ok_or_else(|| format!("{path} has no {key}"))?;
            let bytes = match kind {
                "secrets" => BASE64.decode(value).unwrap(),
                _ => value.as_bytes().to_vec(),
            };
            files.push((at, bytes));
        }
        fs::create_dir_all(folder.join("..first")).unwrap();
        symlink("..first", folder.join("..data")).unwrap();
        for (at, bytes) in files {
            let file = folder.join("..first").join(&at);
            fs::write(&file, bytes).unwrap();
            // With a group for its files a kubelet lets that group read them.
            let readable = self.group.map_or(0, |_| 0o440);
            self.give(&file, mode | readable);
            symlink(format!("..data/{at}"), folder.join(&at)).unwrap();
        }
        self.give(&folder.join("..first"), 0o2755);
        self.give(&folder, 0o2777);
        Ok(volume_of(folder))
    }

    fn give(&self, path: &Path, mode: u32) {
        if let Some(group) = self.group {
            chown(path, None, Some(group)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}
