//! Stores that speak S3, through `object_store`: one conditional put for each object, never in parts (BUG-71), and no other way when the
//! store refuses the condition.
//!
//! Of the environment only names that begin with `AWS_` reach the client (B-071).

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig};

use super::bounded::{THREAD, of_fault};
use super::store::{ColdError, ColdStore, Listed, PutEnd};
use crate::connector::ConnectorExecutor;
use crate::{BusError, limits};

/// Characters of the client's words that are shown.
const WORDS_MAX: usize = 300;

/// See the module.
pub(crate) struct S3Store {
    client: Arc<AmazonS3>,
    /// Empty, or ends with `/`.
    prefix: String,
    executor: ConnectorExecutor,
}

impl S3Store {
    /// The store at `s3://bucket/prefix`, with what `environment` says of how to reach it. Nothing is sent.
    pub(crate) fn open(uri: &str, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, BusError> {
        let refused = |problem: &str| BusError::Config { problem: format!("retention.cold_uri {uri:?}: {problem}") };
        let rest = uri.strip_prefix("s3://").ok_or_else(|| refused("write s3://bucket/prefix"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['?', '#', '%', '\\']);
        if bucket.is_empty() || (!prefix.is_empty() && !prefix.split('/').all(is_plain)) {
            return Err(refused("write s3://bucket/prefix, without empty parts, `.`, `..`, `%`, `?` and `#`"));
        }
        install_provider();
        let millis = limits::CONNECTOR_OPERATION_MILLIS.default;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_client_options(ClientOptions::new().with_timeout(Duration::from_millis(millis)))
            .with_retry(RetryConfig { max_retries: 1, retry_timeout: Duration::from_millis(millis / 2), ..RetryConfig::default() });
        let settings = of_environment(environment)?;
        if !says_who_asks(&settings) {
            return Err(refused(NOBODY));
        }
        for (key, value) in settings {
            builder = builder.with_config(key, value);
        }
        let client = builder.build().map_err(|error| refused(&words(&error)))?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { client: Arc::new(client), prefix, executor: ConnectorExecutor::new(THREAD)? })
    }

    fn path(&self, object: &str, operation: &'static str) -> Result<Path, ColdError> {
        let parsed = Path::parse(format!("{}{object}", self.prefix));
        parsed.map_err(|error| ColdError::Failed { operation, object: object.to_owned(), reason: error.to_string() })
    }

    fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        object: &str,
        call: impl Future<Output = Result<T, object_store::Error>> + Send + 'static,
    ) -> Result<Result<T, object_store::Error>, ColdError> {
        self.executor.run(call).map_err(|fault| of_fault(fault, operation, object))
    }
}

/// What the environment says to the client, and nothing that is not meant for it.
fn of_environment(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Vec<(AmazonS3ConfigKey, String)>, BusError> {
    let mut found = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("AWS_")) else { continue };
        let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() else { continue };
        let wrong = |problem: &str| BusError::Config { problem: format!("{name} {problem}, or take it out of the environment") };
        let value = value.into_string().map_err(|_| wrong("is not UTF-8; set it to text"))?;
        if value.is_empty() {
            return Err(wrong("is set and empty; give it a value"));
        }
        found.push((key, value));
    }
    Ok(found)
}

/// What is wrong with an environment that says nothing of credentials.
const NOBODY: &str = "the environment does not say who asks: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a \
                      store that takes everybody, or AWS_METADATA_ENDPOINT=http://169.254.169.254 to have the credentials of the machine";

/// Whether there is anything to have credentials from. Else the client would ask the address at which clouds give out those of a machine, which
/// nobody told it to: anybody may answer there, and elsewhere nobody does.
fn says_who_asks(settings: &[(AmazonS3ConfigKey, String)]) -> bool {
    use AmazonS3ConfigKey as Key;
    let has = |wanted: Key| settings.iter().any(|(key, _)| *key == wanted);
    let is_on = |value: &str| matches!(&*value.to_ascii_lowercase(), "1" | "true" | "on" | "yes" | "y");
    has(Key::AccessKeyId)
        || has(Key::SecretAccessKey)
        || settings.iter().any(|(key, value)| *key == Key::SkipSignature && is_on(value))
        || (has(Key::WebIdentityTokenFile) && has(Key::RoleArn))
        || has(Key::ContainerCredentialsRelativeUri)
        || (has(Key::ContainerCredentialsFullUri) && has(Key::ContainerAuthorizationTokenFile))
        || has(Key::MetadataEndpoint)
}

/// As the bus does for its own connections (B-046): a provider that the application chose stays.
fn install_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been first at this moment, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn words(error: &object_store::Error) -> String {
    let line: Vec<_> = error.to_string().split_whitespace().map(str::to_owned).collect();
    line.join(" ").chars().take(WORDS_MAX).collect()
}

/// Whether the client or the store says that it does not implement what it was asked. A store does with status 501, as S3 answers a header whose
/// meaning it does not have: the client has no kind of error for that, and no other way to ask for the status than its words.
fn knows_no_condition(error: &object_store::Error) -> bool {
    if matches!(error, object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) {
        return true;
    }
    let text = error.to_string();
    text.contains("status code: 501") || text.contains("<Code>NotImplemented</Code>")
}

fn failed(operation: &'static str, object: &str, error: &object_store::Error) -> ColdError {
    ColdError::Failed { operation, object: object.to_owned(), reason: words(error) }
}

impl ColdStore for S3Store {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let (client, location) = (Arc::clone(&self.client), self.path(path, "put")?);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.run("put", path, async move { client.put_opts(&location, PutPayload::from_bytes(bytes), options).await })?;
        match put {
            Ok(_) => Ok(PutEnd::Created),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(PutEnd::Exists),
            Err(error) if knows_no_condition(&error) => Err(ColdError::Unconditional { object: path.to_owned(), reason: words(&error) }),
            Err(error) => Err(failed("put", path, &error)),
        }
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        let (client, location) = (Arc::clone(&self.client), self.path(path, "get")?);
        let got = self.run("get", path, async move {
            let found = client.get(&location).await?;
            if found.meta.size > bytes_max {
                return Ok(Err(found.meta.size));
            }
            found.bytes().await.map(Ok)
        })?;
        match got {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(bytes)) => Err(ColdError::TooLarge { object: path.to_owned(), bytes, bytes_max }),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("get", path, &error)),
        }
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        // The client asks for whole folders; what the rest of the prefix says is looked at here.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = self.path(folder, "list")?;
        let offset = if after.is_empty() { None } else { Some(self.path(after, "list")?) };
        let (client, own, wanted, behind) = (Arc::clone(&self.client), self.prefix.clone(), prefix.to_owned(), after.to_owned());
        let listed = self.run("list", prefix, async move {
            let mut found = match offset {
                Some(offset) => client.list_with_offset(Some(&folder), &offset),
                None => client.list(Some(&folder)),
            };
            let mut out = Vec::new();
            while out.len() < count_max
                && let Some(meta) = found.next().await
            {
                let meta = meta?;
                let location = meta.location.to_string();
                let Some(path) = location.strip_prefix(&own) else { continue };
                if path.starts_with(&wanted) && *path > *behind {
                    out.push(Listed::object(path.to_owned(), meta.size));
                }
            }
            Ok(out)
        })?;
        listed.map_err(|error| failed("list", prefix, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Vec<(AmazonS3ConfigKey, String)>, BusError> {
        of_environment(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    /// B-071.
    #[test]
    fn only_names_that_begin_with_aws_reach_the_client() {
        let ignored = ["ENDPOINT", "REGION", "TIMEOUT", "TOKEN", "PROXY_URL", "aws_region", "XAWS_REGION", "AWS", "AWS_NO_SUCH_KEY"];
        assert_eq!(read(&ignored.map(|name| (name, "x"))).unwrap().len(), 0);
        let known = read(&[("AWS_REGION", "eu"), ("AWS_ENDPOINT", "http://x"), ("AWS_ALLOW_HTTP", "true")]).unwrap();
        assert_eq!(known.len(), 3);
    }

    /// D-19.
    #[test]
    fn what_is_set_and_empty_is_an_error_and_never_unset() {
        use std::os::unix::ffi::OsStringExt as _;
        assert!(matches!(read(&[("AWS_REGION", "")]), Err(BusError::Config { problem }) if problem.contains("AWS_REGION")));
        let no_text =
            of_environment([("AWS_SECRET_ACCESS_KEY".into(), OsString::from_vec(b"secret\xff".to_vec()))]).unwrap_err().to_string();
        assert!(no_text.contains("not UTF-8") && !no_text.contains("secret\u{fffd}"), "{no_text}");
        assert!(of_environment([("PATH".into(), OsString::from_vec(vec![0xff]))]).unwrap().is_empty(), "others are not looked at");
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    fn open(uri: &str, variables: &[(&str, &str)]) -> Result<S3Store, BusError> {
        S3Store::open(uri, variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn no_machine_is_asked_for_credentials_unless_somebody_said_so() {
        let who: [&[(&str, &str)]; 5] = [
            &KEYS,
            &[("AWS_SKIP_SIGNATURE", "true")],
            &[("AWS_METADATA_ENDPOINT", "http://169.254.169.254")],
            &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "r")],
            &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")],
        ];
        for variables in who {
            assert!(open("s3://b", variables).is_ok(), "{variables:?}");
        }
        let nobody: [&[(&str, &str)]; 4] =
            [&[], &[("AWS_REGION", "eu")], &[("AWS_SKIP_SIGNATURE", "false")], &[("AWS_ROLE_ARN", "r"), ("HOME", "/")]];
        for variables in nobody {
            let refused = open("s3://b", variables).map(drop).unwrap_err().to_string();
            assert!(
                refused.contains("s3://b") && refused.contains("AWS_ACCESS_KEY_ID") && refused.contains("AWS_SKIP_SIGNATURE"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_uri_names_a_bucket_and_a_prefix_of_whole_parts() {
        for uri in ["s3://", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/x?y", "s3://b/a%20b", "http://b/x"] {
            let refused = open(uri, &KEYS).map(drop).unwrap_err();
            assert!(matches!(refused, BusError::Config { .. }), "{uri}");
        }
        for (uri, prefix) in [("s3://b", ""), ("s3://b/", ""), ("s3://b/x/y/", "x/y/"), ("s3://b/x", "x/")] {
            assert_eq!(open(uri, &KEYS).unwrap().prefix, prefix, "{uri}");
        }
    }
}
