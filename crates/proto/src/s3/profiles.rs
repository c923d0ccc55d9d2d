//! The files in which users of AWS keep profiles: `~/.aws/config` and `~/.aws/credentials`.

use std::collections::BTreeMap;

/// The profiles of one file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProfileFile {
    profiles: BTreeMap<String, BTreeMap<String, String>>,
}

/// Without values, which may be secrets.
impl std::fmt::Debug for ProfileFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.profiles.keys()).finish()
    }
}

impl ProfileFile {
    /// Parses a file. Lines that are neither a section nor a setting are passed over, as AWS' own programs do.
    ///
    /// A section is `[NAME]`, or `[profile NAME]` in the file `config`, where others have another word before their names. An indented line continues the setting above it:
    /// these are settings of a group (`s3 =`), which have the name `group.setting`.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let (mut section, mut group) = (None::<String>, None::<String>);
        for line in text.lines() {
            let is_indented = line.starts_with([' ', '\t']);
            let content = line.trim();
            if content.is_empty() || content.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = content.strip_prefix('[') {
                let name = name.split(']').next().unwrap_or_default().trim();
                let name = name.strip_prefix("profile ").unwrap_or(name).trim();
                file.profiles.entry(name.to_owned()).or_default();
                (section, group) = (Some(name.to_owned()), None);
                continue;
            }
            let (Some(section), Some((name, value))) = (&section, content.split_once('=')) else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let full_name = match &group {
                Some(group) if is_indented => format!("{group}.{name}"),
                _ => {
                    group = value.is_empty().then(|| name.to_owned());
                    name.to_owned()
                }
            };
            if let Some(profile) = file.profiles.get_mut(section) {
                profile.insert(full_name, value.to_owned());
            }
        }
        file
    }

    /// Whether there is a profile of this name.
    pub fn has(&self, profile: &str) -> bool {
        self.profiles.contains_key(profile)
    }

    /// Whether any profile has a setting.
    pub fn sets(&self, setting: &str) -> bool {
        self.profiles
            .values()
            .any(|profile| profile.contains_key(setting))
    }

    /// A setting of a profile; `None` if it is missing or empty.
    pub fn get(&self, profile: &str, setting: &str) -> Option<&str> {
        let value = self.profiles.get(profile)?.get(setting)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# mine\n[default]\nregion = eu-west-1\n\n[profile lab]\nregion=us-east-2\n\
        endpoint_url = http://lab:9000\ns3 =\n  addressing_style = virtual\noutput = json\nrubbish\n";

    #[test]
    fn settings_belong_to_the_profile_above_them() {
        let file = ProfileFile::parse(CONFIG);
        assert_eq!(file.get("default", "region"), Some("eu-west-1"));
        assert_eq!(file.get("lab", "region"), Some("us-east-2"));
        assert_eq!(file.get("lab", "endpoint_url"), Some("http://lab:9000"));
        assert_eq!(file.get("lab", "s3.addressing_style"), Some("virtual"));
        assert_eq!(file.get("lab", "output"), Some("json"));
        assert_eq!((file.get("lab", "s3"), file.has("other")), (None, false));
    }

    #[test]
    fn secrets_are_not_shown() {
        let file = ProfileFile::parse("[a]\naws_secret_access_key = hush\n");
        assert_eq!(file.get("a", "aws_secret_access_key"), Some("hush"));
        assert!(file.sets("aws_secret_access_key") && !file.sets("region"));
        assert_eq!(format!("{file:?}"), "{\"a\"}");
    }
}
