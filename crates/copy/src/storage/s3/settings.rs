//! Where a bucket is, and who asks for it: the environment and the profiles of AWS' own programs.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::Metadata;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use ftp::Failure;
use ftp::failure::Sentence;
use ftp::private_file;
use proto::s3::profiles::ProfileFile;
use rusty_s3::Credentials;
use smallfile::regular_file;
use url::Url;
use zeroize::Zeroizing;

use super::customer_key::CustomerKey;
use super::temporary_keys::{AssumedRoleSource, KeyOrigin, TemporaryKeySource};

/// Longest file of profiles, bytes.
const MAX_FILE: u64 = 1 << 20;
/// The region where a bucket is looked for, if none is named.
const FIRST_REGION: &str = "us-east-1";
/// The setting of a profile with the secret half of a key.
const SECRET_KEY: &str = "aws_secret_access_key";
/// The name of sessions with a role.
const SESSION: &str = "longhaul";
/// Most roles that are taken one with the other.
const MAX_ROLES: u32 = 5;
/// The user of a URL that asks for requests without a signature.
const ANONYMOUS: &str = "anonymous";

/// The variables of the environment, and the home directory.
pub(crate) struct S3Environment<'e> {
    /// A variable that is text and not empty.
    pub(crate) variable: &'e dyn Fn(&str) -> Option<String>,
    /// The user's home directory.
    pub(crate) home: Option<PathBuf>,
}

impl S3Environment<'static> {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        Self {
            variable: &|name| std::env::var(name).ok(),
            home: std::env::home_dir(),
        }
    }
}

impl S3Environment<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.trim().is_empty())
    }

    fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.get(name))
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| {
            ["1", "true", "yes"].contains(&value.to_ascii_lowercase().as_str())
        })
    }

    /// A file of profiles; none if it does not exist.
    fn profiles(&self, variable: &str, name: &str) -> Result<ProfileFile, Failure> {
        let named = self.get(variable).map(OsString::from).map(PathBuf::from);
        let Some(path) = named.or_else(|| Some(self.home.as_ref()?.join(".aws").join(name))) else {
            return Ok(ProfileFile::default());
        };
        Ok(read_profiles(&path)?.unwrap_or_default())
    }
}

/// The profiles in a file; `None` if it does not exist. One with keys is for its owner alone.
fn read_profiles(path: &Path) -> Result<Option<ProfileFile>, Failure> {
    let Some((text, meta)) = read_with_metadata(path)? else {
        return Ok(None);
    };
    let profiles = ProfileFile::parse(&text);
    match private_file::exposure_of_file(&meta, path) {
        Some(reason) if profiles.sets(SECRET_KEY) => Err(refused_file(path, reason)),
        _ => Ok(Some(profiles)),
    }
}

/// The text of a small file; `None` if it does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<Zeroizing<String>>, Failure> {
    Ok(read_with_metadata(path)?.map(|(text, _)| text))
}

/// The bytes of a file with a secret.
///
/// # Errors
/// `Refused`: it cannot be read, or others may read it.
pub(super) fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let Some((bytes, meta)) = read_bytes(path)? else {
        return Err(refused_file(path, "there is no such file"));
    };
    match private_file::exposure_of_file(&meta, path) {
        Some(reason) => Err(refused_file(path, reason)),
        None => Ok(bytes),
    }
}

fn read_with_metadata(path: &Path) -> Result<Option<(Zeroizing<String>, Metadata)>, Failure> {
    let Some((bytes, meta)) = read_bytes(path)? else {
        return Ok(None);
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Some((Zeroizing::new(text.to_owned()), meta))),
        Err(_) => Err(refused_file(path, "it is not UTF-8 text")),
    }
}

/// The bytes of a file, and its metadata.
type ReadFile = (Zeroizing<Vec<u8>>, Metadata);

/// A small file; `None` if it does not exist.
fn read_bytes(path: &Path) -> Result<Option<ReadFile>, Failure> {
    let (file, meta) = match regular_file::open(path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refused_file(path, e)),
    };
    let mut bytes = Zeroizing::new(Vec::new());
    let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|e| refused_file(path, e))?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(refused_file(path, "it is longer than 1 MiB")),
        false => Ok(Some((bytes, meta))),
    }
}

fn refused_file(path: &Path, reason: impl Display) -> Failure {
    Failure::refused(Sentence::about(path.display()).words(": ").words(reason))
}

/// How the objects of a bucket are reached.
#[derive(Debug, Clone)]
pub(crate) struct S3Settings {
    /// A server other than Amazon's.
    pub(crate) endpoint: Option<Url>,
    pub(crate) region: String,
    /// `None`: requests are not signed, unless `key_source` gives a key.
    pub(crate) credentials: Option<Credentials>,
    /// Who gives a key that expires.
    pub(crate) key_source: Option<TemporaryKeySource>,
    /// The name of the bucket is in the path of URLs, or in their host; `None`: by what kind of server it is.
    pub(crate) path_style: Option<bool>,
    /// Who asks pays for the requests.
    pub(crate) requester_pays: bool,
    /// Uploads have a checksum, which the server compares.
    pub(crate) sends_checksums: bool,
    /// Values of the headers `x-amz-server-side-encryption` and `x-amz-server-side-encryption-aws-kms-key-id` of uploads.
    pub(crate) encryption: Option<(String, Option<String>)>,
    /// The user's own key, with which objects are encrypted.
    pub(crate) customer_key: Option<CustomerKey>,
}

impl S3Settings {
    /// Reads the environment and the profiles. `profile` is that of the URL (`s3://PROFILE@bucket/`), which then comes before
    /// the environment.
    ///
    /// # Errors
    /// `Usage`: a profile that does not exist, half a key, an endpoint that is no URL. `Refused`: a file that cannot be used.
    pub(crate) fn load(
        profile: Option<&str>,
        environment: &S3Environment<'_>,
    ) -> Result<Self, Failure> {
        let is_anonymous = profile == Some(ANONYMOUS) || environment.is_true("AWS_NO_SIGN_REQUEST");
        let of_url = profile.filter(|name| *name != ANONYMOUS);
        let of_environment = environment.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
        let chosen = of_url.map(str::to_owned).or(of_environment);
        let profiles = Profiles {
            config: environment.profiles("AWS_CONFIG_FILE", "config")?,
            // Nobody needs the keys of requests without a signature.
            credentials: match is_anonymous {
                true => ProfileFile::default(),
                false => environment.profiles("AWS_SHARED_CREDENTIALS_FILE", "credentials")?,
            },
            name: chosen.clone().unwrap_or_else(|| "default".to_owned()),
        };
        if let Some(name) = chosen.filter(|_| !is_anonymous && !profiles.exist()) {
            return Err(Failure::usage(format!(
                "there is no profile {name:?} in ~/.aws/config and ~/.aws/credentials"
            )));
        }
        // A profile in the URL is meant for this bucket; the environment may be for another one.
        let choose = |own: Option<&str>, of_environment: Option<String>| {
            let own = own.map(str::to_owned);
            match of_url {
                Some(_) => own.or(of_environment),
                None => of_environment.or(own),
            }
        };
        let ignores_endpoints = environment.is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
        let endpoint = choose(
            profiles.get("endpoint_url"),
            environment.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
        );
        let endpoint = endpoint.filter(|_| !ignores_endpoints);
        let region = choose(
            profiles.get("region"),
            environment.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
        );
        let checksums = choose(
            profiles.get("request_checksum_calculation"),
            environment.get("AWS_REQUEST_CHECKSUM_CALCULATION"),
        );
        let payer = environment.get("AWS_REQUEST_PAYER");
        let region = region.unwrap_or_else(|| FIRST_REGION.to_owned());
        let origin = match is_anonymous {
            true => None,
            false => find_key(of_url.is_some(), environment, &profiles, &region, 0)?,
        };
        let (credentials, key_source) = match origin {
            None => (None, None),
            Some(KeyOrigin::Fixed(credentials)) => (Some(credentials), None),
            Some(KeyOrigin::Source(source)) => (None, Some(source)),
        };
        let endpoint = endpoint
            .map(|text| parse_url(&text, "the endpoint of S3 (AWS_ENDPOINT_URL, endpoint_url)"))
            .transpose()?;
        let key_file = choose(
            profiles.get("longhaul_sse_c_key"),
            environment.get("LONGHAUL_S3_SSE_C_KEY"),
        );
        let customer_key = customer_key(key_file, environment, endpoint.as_ref())?;
        Ok(Self {
            endpoint,
            customer_key,
            region,
            credentials,
            key_source,
            path_style: match profiles.get("s3.addressing_style") {
                Some("path") => Some(true),
                Some("virtual") => Some(false),
                _ => None,
            },
            requester_pays: payer.is_some_and(|payer| payer.eq_ignore_ascii_case("requester")),
            sends_checksums: !checksums
                .is_some_and(|when| when.eq_ignore_ascii_case("when_required")),
            encryption: environment.get("LONGHAUL_S3_SSE").map(|text| {
                let key = text.strip_prefix("aws:kms:").map(str::to_owned);
                match key {
                    Some(key) => ("aws:kms".to_owned(), Some(key)),
                    None => (text, None),
                }
            }),
        })
    }

    /// The headers of a request that makes an object: how it is encrypted.
    pub(super) fn encryption_headers(&self) -> Vec<(&'static str, String)> {
        let Some((algorithm, key)) = &self.encryption else {
            return Vec::new();
        };
        let key = key
            .clone()
            .map(|key| ("x-amz-server-side-encryption-aws-kms-key-id", key));
        let algorithm = ("x-amz-server-side-encryption", algorithm.clone());
        [algorithm].into_iter().chain(key).collect()
    }

    /// Whether a program is started for a key (`credential_process`).
    pub(crate) fn starts_programs(&self) -> bool {
        let source = self.key_source.as_ref();
        source.is_some_and(TemporaryKeySource::is_program)
    }

    /// Files and directories that are read each time when a key is renewed.
    pub(crate) fn files_of_keys(&self) -> Vec<PathBuf> {
        let source = self.key_source.as_ref();
        source.map(TemporaryKeySource::files).unwrap_or_default()
    }

    /// Whether the name of this bucket is in the path of URLs. Amazon's certificates do not cover names with dots.
    pub(crate) fn has_path_style(&self, bucket: &str) -> bool {
        let is_label = bucket
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        match self.path_style {
            Some(is_path) => is_path || !is_label,
            None => self.endpoint.is_some() || !is_label,
        }
    }
}

/// A profile in both files.
#[derive(Clone)]
struct Profiles {
    config: ProfileFile,
    credentials: ProfileFile,
    name: String,
}

impl Profiles {
    /// Another profile of the same files.
    fn named(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    fn exist(&self) -> bool {
        self.config.has(&self.name) || self.credentials.has(&self.name)
    }

    fn get(&self, setting: &str) -> Option<&str> {
        let of_credentials = self.credentials.get(&self.name, setting);
        of_credentials.or_else(|| self.config.get(&self.name, setting))
    }
}

fn parse_url(text: &str, name: &str) -> Result<Url, Failure> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // Without the text, which might have a password in it.
    url.ok_or_else(|| Failure::usage(format!("{name} is no http: or https: URL")))
}

/// The key for encryption in a file.
///
/// # Errors
/// `Usage`: it would be sent in the clear, or another kind of encryption is asked for, too. `Refused`: the file.
fn customer_key(
    file: Option<String>,
    environment: &S3Environment<'_>,
    endpoint: Option<&Url>,
) -> Result<Option<CustomerKey>, Failure> {
    let Some(file) = file else {
        return Ok(None);
    };
    if environment.get("LONGHAUL_S3_SSE").is_some() {
        return Err(Failure::usage(
            "objects are encrypted with LONGHAUL_S3_SSE or with a key of your own (LONGHAUL_S3_SSE_C_KEY), not with both",
        ));
    }
    let is_this_machine = |url: &Url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if endpoint.is_some_and(|url| url.scheme() == "http" && !is_this_machine(url)) {
        return Err(Failure::usage(
            "the key for encryption (LONGHAUL_S3_SSE_C_KEY) would be sent in the clear: use an endpoint with https:",
        ));
    }
    CustomerKey::from_file(Path::new(&file)).map(Some)
}

/// The first key, or the first that gives one, in the order of AWS' own programs. `None`: there is none. `depth`: how many
/// roles need it.
fn find_key(
    by_profile: bool,
    environment: &S3Environment<'_>,
    profiles: &Profiles,
    region: &str,
    depth: u32,
) -> Result<Option<KeyOrigin>, Failure> {
    if !by_profile && let Some(key) = environment_key(environment)? {
        return Ok(Some(KeyOrigin::Fixed(key)));
    }
    if let Some(source) = web_identity(by_profile, environment, profiles, region)? {
        return Ok(Some(KeyOrigin::Source(source)));
    }
    if let Some(role) = profiles.get("role_arn") {
        let source = assumed_role(role, environment, profiles, region, depth)?;
        return Ok(Some(KeyOrigin::Source(source)));
    }
    profile_key(by_profile, environment, profiles)
}

/// The key of a profile that is no role, or who gives it.
fn profile_key(
    by_profile: bool,
    environment: &S3Environment<'_>,
    profiles: &Profiles,
) -> Result<Option<KeyOrigin>, Failure> {
    if let Some(source) = single_sign_on(environment, profiles)? {
        return Ok(Some(KeyOrigin::Source(source)));
    }
    let get = |setting| profiles.get(setting).map(str::to_owned);
    let key = complete_key(
        SECRET_KEY,
        get("aws_access_key_id"),
        get(SECRET_KEY),
        get("aws_session_token"),
    )?;
    if let Some(key) = key {
        return Ok(Some(KeyOrigin::Fixed(key)));
    }
    if let Some(line) = get("credential_process") {
        return Ok(Some(KeyOrigin::Source(TemporaryKeySource::Process(line))));
    }
    match by_profile {
        true => Ok(None),
        false => Ok(machine(environment)?.map(KeyOrigin::Source)),
    }
}

fn environment_key(environment: &S3Environment<'_>) -> Result<Option<Credentials>, Failure> {
    complete_key(
        "AWS_SECRET_ACCESS_KEY",
        environment.get("AWS_ACCESS_KEY_ID"),
        environment.get("AWS_SECRET_ACCESS_KEY"),
        environment.get("AWS_SESSION_TOKEN"),
    )
}

/// The role of a profile, which the holder of another key takes.
fn assumed_role(
    role: &str,
    environment: &S3Environment<'_>,
    profiles: &Profiles,
    region: &str,
    depth: u32,
) -> Result<TemporaryKeySource, Failure> {
    let usage = |reason: &str| {
        Failure::usage(format!(
            "the profile {:?} is a role: {reason}",
            profiles.name
        ))
    };
    if profiles.get("mfa_serial").is_some() {
        return Err(usage(
            "it needs a code of a device (mfa_serial); make a key of it with `aws configure export-credentials --format env`",
        ));
    }
    let base = match (
        profiles.get("source_profile"),
        profiles.get("credential_source"),
    ) {
        // Its own key.
        (Some(name), _) if name == profiles.name => profile_key(true, environment, profiles)?,
        (Some(_), _) if depth >= MAX_ROLES => {
            return Err(usage(
                "its source_profile leads to too many others, or in a circle",
            ));
        }
        (Some(name), _) => {
            let other = profiles.named(name);
            if !other.exist() {
                return Err(usage(&format!("there is no source_profile {name:?}")));
            }
            find_key(true, environment, &other, region, depth + 1)?
        }
        (None, Some("Environment")) => environment_key(environment)?.map(KeyOrigin::Fixed),
        (None, Some("Ec2InstanceMetadata" | "EcsContainer")) => {
            machine(environment)?.map(KeyOrigin::Source)
        }
        (None, _) => return Err(usage("it names no source_profile")),
    };
    let Some(base) = base else {
        return Err(usage("there is no key with which to take it"));
    };
    let seconds = profiles.get("duration_seconds").map(str::parse).transpose();
    Ok(TemporaryKeySource::AssumedRole(AssumedRoleSource {
        service: token_service(environment, region)?,
        region: region.to_owned(),
        role: role.to_owned(),
        session: profiles
            .get("role_session_name")
            .unwrap_or(SESSION)
            .to_owned(),
        external_id: profiles.get("external_id").map(str::to_owned),
        seconds: seconds.map_err(|_| usage("duration_seconds is no number"))?,
        base: Box::new(base),
    }))
}

/// The service STS of a region.
fn token_service(environment: &S3Environment<'_>, region: &str) -> Result<Url, Failure> {
    let service = environment
        .get("AWS_ENDPOINT_URL_STS")
        .unwrap_or_else(|| format!("https://sts.{region}.{}", domain_of(region)));
    parse_url(&service, "AWS_ENDPOINT_URL_STS")
}

fn web_identity(
    by_profile: bool,
    environment: &S3Environment<'_>,
    profiles: &Profiles,
    region: &str,
) -> Result<Option<TemporaryKeySource>, Failure> {
    let get = |setting: &str, variable: &str| {
        let of_environment = environment.get(variable).filter(|_| !by_profile);
        of_environment.or_else(|| profiles.get(setting).map(str::to_owned))
    };
    let file = get("web_identity_token_file", "AWS_WEB_IDENTITY_TOKEN_FILE");
    let (Some(file), Some(role)) = (file, get("role_arn", "AWS_ROLE_ARN")) else {
        return Ok(None);
    };
    Ok(Some(TemporaryKeySource::WebIdentity {
        service: token_service(environment, region)?,
        token_file: file.into(),
        role,
        session: get("role_session_name", "AWS_ROLE_SESSION_NAME")
            .unwrap_or_else(|| SESSION.to_owned()),
    }))
}

/// The domain of a region's services.
pub(super) fn domain_of(region: &str) -> &'static str {
    match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    }
}

fn single_sign_on(
    environment: &S3Environment<'_>,
    profiles: &Profiles,
) -> Result<Option<TemporaryKeySource>, Failure> {
    let (Some(account), Some(role)) = (
        profiles.get("sso_account_id"),
        profiles.get("sso_role_name"),
    ) else {
        return Ok(None);
    };
    let session = profiles.get("sso_session");
    // Sections of logins stand beside those of profiles.
    let section = session.map(|name| format!("sso-session {name}"));
    let get = |setting| match &section {
        Some(section) => profiles.config.get(section, setting),
        None => profiles.get(setting),
    };
    let (Some(region), Some(start)) = (get("sso_region"), get("sso_start_url")) else {
        return Err(Failure::usage(format!(
            "the profile {:?} lacks sso_region or sso_start_url",
            profiles.name
        )));
    };
    let portal = environment
        .get("AWS_ENDPOINT_URL_SSO")
        .unwrap_or_else(|| format!("https://portal.sso.{region}.{}", domain_of(region)));
    Ok(Some(TemporaryKeySource::SingleSignOn {
        portal: parse_url(&portal, "AWS_ENDPOINT_URL_SSO")?,
        cache: environment
            .home
            .clone()
            .unwrap_or_default()
            .join(".aws/sso/cache"),
        login: session.unwrap_or(start).to_owned(),
        account: account.to_owned(),
        role: role.to_owned(),
    }))
}

/// The service that gives a key to this container or virtual machine.
fn machine(environment: &S3Environment<'_>) -> Result<Option<TemporaryKeySource>, Failure> {
    let relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let relative = relative.map(|path| format!("http://169.254.170.2{path}"));
    if let Some(address) = relative.or(environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        return Ok(Some(TemporaryKeySource::Container {
            address: parse_url(&address, "AWS_CONTAINER_CREDENTIALS_FULL_URI")?,
            token: environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
            token_file: environment
                .get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                .map(PathBuf::from),
        }));
    }
    if environment.is_true("AWS_EC2_METADATA_DISABLED") {
        return Ok(None);
    }
    let named = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    // Elsewhere nobody answers at that address, and the wait would delay each command.
    let is_amazon = || {
        let vendor = std::fs::read_to_string("/sys/class/dmi/id/sys_vendor");
        vendor.is_ok_and(|vendor| vendor.trim() == "Amazon EC2")
    };
    match named.or_else(|| is_amazon().then(|| "http://169.254.169.254".to_owned())) {
        None => Ok(None),
        Some(address) => Ok(Some(TemporaryKeySource::Instance(parse_url(
            &address,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        )?))),
    }
}

fn complete_key(
    name_of_secret: &str,
    key: Option<String>,
    secret: Option<String>,
    token: Option<String>,
) -> Result<Option<Credentials>, Failure> {
    match (key, secret, token) {
        (None, None, _) => Ok(None),
        (Some(key), Some(secret), None) => Ok(Some(Credentials::new(key, secret))),
        (Some(key), Some(secret), Some(token)) => {
            Ok(Some(Credentials::new_with_token(key, secret, token)))
        }
        _ => Err(Failure::usage(format!(
            "a key for S3 has two halves: an access key and {name_of_secret}; one of them is missing"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use ftp::FailureKind;

    /// Settings by these variables, and by these files in a home directory.
    fn load(
        profile: Option<&str>,
        variables: &[(&str, &str)],
        config: &str,
        keys: &str,
    ) -> Result<S3Settings, Failure> {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".aws");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("config"), config).unwrap();
        let secret = directory.join("credentials");
        std::fs::write(&secret, keys).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let environment = S3Environment {
            variable: &get,
            home: Some(home.path().to_owned()),
        };
        S3Settings::load(profile, &environment)
    }

    const KEYS: &str = "[default]\naws_access_key_id = D\naws_secret_access_key = d\n\
        [lab]\naws_access_key_id = L\naws_secret_access_key = l\naws_session_token = t\n";
    const CONFIG: &str =
        "[default]\nregion = eu-west-1\n[profile lab]\nendpoint_url = http://lab:9000/\n";

    fn key(settings: &S3Settings) -> Option<&str> {
        settings.credentials.as_ref().map(Credentials::key)
    }

    #[test]
    fn the_environment_comes_before_the_profile_and_the_profile_of_a_url_before_both() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "e"),
            ("AWS_REGION", "r"),
        ];
        let settings = load(None, &variables, CONFIG, KEYS).unwrap();
        assert_eq!((key(&settings), settings.region.as_str()), (Some("E"), "r"));
        let settings = load(None, &[], CONFIG, KEYS).unwrap();
        assert_eq!(
            (key(&settings), settings.region.as_str()),
            (Some("D"), "eu-west-1")
        );
        let settings = load(Some("lab"), &variables, CONFIG, KEYS).unwrap();
        assert_eq!(key(&settings), Some("L"));
        assert_eq!(settings.credentials.unwrap().token(), Some("t"));
        assert_eq!(settings.endpoint.unwrap().as_str(), "http://lab:9000/");
        let settings = load(None, &[("AWS_PROFILE", "lab")], CONFIG, KEYS).unwrap();
        assert_eq!(key(&settings), Some("L"));
    }

    #[test]
    fn without_a_key_requests_are_not_signed() {
        assert_eq!(key(&load(None, &[], "", "").unwrap()), None);
        assert_eq!(
            key(&load(Some("anonymous"), &[], CONFIG, KEYS).unwrap()),
            None
        );
        assert_eq!(
            key(&load(None, &[("AWS_NO_SIGN_REQUEST", "YES")], CONFIG, KEYS).unwrap()),
            None
        );
    }

    #[test]
    fn keys_that_expire_have_a_source() {
        let source = |variables: &[(&str, &str)], config: &str| {
            let settings = load(None, variables, config, "").unwrap();
            assert!(settings.credentials.is_none());
            settings.key_source
        };
        let variables = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"),
            ("AWS_ROLE_ARN", "arn:r"),
        ];
        let Some(TemporaryKeySource::WebIdentity {
            service,
            role,
            session,
            ..
        }) = source(&variables, "")
        else {
            panic!("no source");
        };
        assert_eq!(service.as_str(), "https://sts.us-east-1.amazonaws.com/");
        assert_eq!((role.as_str(), session.as_str()), ("arn:r", "longhaul"));
        let config = "[default]\nsso_session = work\nsso_account_id = 1\nsso_role_name = reader\n\
            [sso-session work]\nsso_region = eu-west-1\nsso_start_url = https://d-1.awsapps.com/start\n";
        let Some(TemporaryKeySource::SingleSignOn { portal, login, .. }) = source(&[], config)
        else {
            panic!("no source");
        };
        assert_eq!(
            portal.as_str(),
            "https://portal.sso.eu-west-1.amazonaws.com/"
        );
        assert_eq!(login, "work");
        let config = "[default]\ncredential_process = give-key --fast\n";
        let process = TemporaryKeySource::Process("give-key --fast".to_owned());
        assert_eq!(source(&[], config), Some(process));
        let container = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/key")];
        let Some(TemporaryKeySource::Container { address, .. }) = source(&container, "") else {
            panic!("no source");
        };
        assert_eq!(address.as_str(), "http://169.254.170.2/v2/key");
        let disabled = [
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://h"),
        ];
        assert_eq!(source(&disabled, ""), None);
    }

    #[test]
    fn a_role_is_taken_with_the_key_of_its_source_profile() {
        let config = "[profile r]\nrole_arn = arn:r\nsource_profile = chained\nexternal_id = e\nduration_seconds = 900\n\
            [profile chained]\nrole_arn = arn:c\nsource_profile = lab\n\
            [profile own]\nrole_arn = arn:o\nsource_profile = own\n\
            [profile circle]\nrole_arn = arn:1\nsource_profile = back\n\
            [profile back]\nrole_arn = arn:2\nsource_profile = circle\n\
            [profile lost]\nrole_arn = arn:l\nsource_profile = nobody\n\
            [profile alone]\nrole_arn = arn:a\n\
            [profile env]\nrole_arn = arn:e\ncredential_source = Environment\n\
            [profile device]\nrole_arn = arn:d\nsource_profile = lab\nmfa_serial = arn:m\n";
        let variables = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "e")];
        let keys = format!("{KEYS}[own]\naws_access_key_id = O\naws_secret_access_key = o\n");
        let role = |name| {
            let settings = load(Some(name), &variables, config, &keys)?;
            match settings.key_source {
                Some(TemporaryKeySource::AssumedRole(source)) => Ok(source),
                other => panic!("{other:?}"),
            }
        };
        let base_key = |source: &AssumedRoleSource| match &*source.base {
            KeyOrigin::Fixed(key) => key.key().to_owned(),
            KeyOrigin::Source(other) => panic!("{other:?}"),
        };
        let first = role("r").unwrap();
        assert_eq!((first.role.as_str(), first.seconds), ("arn:r", Some(900)));
        assert_eq!(first.external_id.as_deref(), Some("e"));
        let KeyOrigin::Source(TemporaryKeySource::AssumedRole(second)) = &*first.base else {
            panic!("{first:?}");
        };
        assert_eq!(
            (second.role.as_str(), base_key(second).as_str()),
            ("arn:c", "L")
        );
        assert_eq!(base_key(&role("own").unwrap()), "O");
        assert_eq!(base_key(&role("env").unwrap()), "E");
        for wrong in ["circle", "lost", "alone", "device"] {
            let failure: Failure = role(wrong).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let half = [("AWS_ACCESS_KEY_ID", "E")];
        for (profile, variables) in [
            (None, &half[..]),
            (Some("other"), &[]),
            (None, &[("AWS_ENDPOINT_URL", "lab:9000")]),
        ] {
            let failure = load(profile, variables, CONFIG, KEYS).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
        }
    }

    #[test]
    fn a_key_for_encryption_is_not_sent_in_the_clear() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("key");
        std::fs::write(&path, [7; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = ("LONGHAUL_S3_SSE_C_KEY", path.to_str().unwrap());
        for (others, is_taken) in [
            (&[][..], true),
            (&[("AWS_ENDPOINT_URL", "https://h")], true),
            (&[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")], true),
            (&[("AWS_ENDPOINT_URL", "http://h")], false),
            (&[("LONGHAUL_S3_SSE", "AES256")], false),
        ] {
            let loaded = load(None, &[&[file], others].concat(), "", "");
            assert_eq!(
                loaded.is_ok_and(|settings| settings.customer_key.is_some()),
                is_taken,
                "{others:?}"
            );
        }
    }

    #[test]
    fn keys_that_others_may_read_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys");
        std::fs::write(&path, KEYS).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let failure = read_profiles(&path).unwrap_err();
        assert!(
            failure.to_string().contains("others may read it"),
            "{failure}"
        );
        std::fs::write(&path, CONFIG).unwrap();
        assert!(read_profiles(&path).unwrap().is_some());
    }

    #[test]
    fn a_server_of_its_own_has_the_bucket_in_the_path() {
        let amazon = load(None, &[], "", "").unwrap();
        assert!(!amazon.has_path_style("bucket-1"));
        assert!(amazon.has_path_style("my.bucket") && amazon.has_path_style("Old_Bucket"));
        let own = load(None, &[("AWS_ENDPOINT_URL_S3", "http://h:9000")], "", "").unwrap();
        assert!(own.has_path_style("bucket-1"));
        let config = "[default]\ns3 =\n  addressing_style = virtual\n";
        let virtual_host = load(None, &[("AWS_ENDPOINT_URL", "https://h")], config, "").unwrap();
        assert!(!virtual_host.has_path_style("bucket-1"));
    }
}
