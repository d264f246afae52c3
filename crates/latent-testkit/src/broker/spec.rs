//! What a broker of the tests is: its users, its streams, its bounds, and the configuration file that says so.
//!
//! Every store is bounded, and in memory unless a stream says otherwise; the log is bounded; nothing but the loopback is listened on.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::Issued;
use super::admin::system_user;

/// The name that brokers of the tests are verified under, unless a test says otherwise.
pub const SERVER_NAME: &str = "broker.latent.test";
/// The inbox prefix that a publisher may subscribe below, and nothing else.
pub const PUBLISHER_INBOXES: &str = "_INBOX.LSF.>";

/// Memory that all streams of one broker may take.
const MEMORY_STORE_BYTES_MAX: u64 = 64 << 20;
/// One log file may grow to this; two are kept.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// A user of the broker with the subjects it may use. An empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
    /// The only subjects it may publish to.
    pub publish: Vec<String>,
    /// The only subjects it may subscribe to.
    pub subscribe: Vec<String>,
}

impl BrokerUser {
    /// The least authority that publishing needs: `subjects` to publish to, reply inboxes to subscribe to.
    pub fn publisher<S: Into<String>>(name: &str, password: &str, subjects: impl IntoIterator<Item = S>) -> Self {
        Self {
            name: name.into(),
            password: password.into(),
            publish: subjects.into_iter().map(Into::into).collect(),
            subscribe: vec![PUBLISHER_INBOXES.into()],
        }
    }

    /// The least authority that `nats-jetstream-pull-v1` needs: information about each (stream, consumer), pulls from it,
    /// settlements of its messages, and reply inboxes.
    pub fn trigger<'a>(name: &str, password: &str, consumers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let subjects = consumers.into_iter().flat_map(|(stream, consumer)| {
            [
                format!("$JS.API.CONSUMER.INFO.{stream}.{consumer}"),
                format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
                format!("$JS.ACK.{stream}.{consumer}.>"),
                format!("$JS.ACK._.*.{stream}.{consumer}.>"),
            ]
        });
        Self::publisher(name, password, subjects)
    }

    /// A user that may do everything in its account.
    pub fn unlimited(name: &str, password: &str) -> Self {
        let all = vec![">".to_owned()];
        Self { name: name.into(), password: password.into(), publish: all.clone(), subscribe: all }
    }
}

/// An account beside the one of [`BrokerAuth::Users`], with streams of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAccount {
    /// The name.
    pub name: String,
    /// Its users.
    pub users: Vec<BrokerUser>,
}

/// Who may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerAuth {
    /// Users with passwords and permissions; the provisioning path has a user of its own.
    Users(Vec<BrokerUser>),
    /// One token for everybody, without permissions: the broker knows no mixture of both.
    Token(String),
    /// Lines of the configuration file as they are, such as an `authorization` block. Nobody else may connect, so there is no
    /// administrator.
    Raw(String),
}

/// A stream, in memory unless it is [on disk](StreamSpec::on_disk). Messages beyond a bound are refused, never silently dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSpec {
    /// The name.
    pub name: String,
    /// The subjects that it keeps.
    pub subjects: Vec<String>,
    /// How long the broker knows a message id again.
    pub duplicate_window: Duration,
    /// Messages at most.
    pub max_msgs: i64,
    /// Bytes at most.
    pub max_bytes: i64,
    /// Bytes of one message at most.
    pub max_msg_size: i32,
    /// Keeps a message only while somebody is interested in it.
    pub by_interest: bool,
    /// Keeps a message until it is acknowledged.
    pub work_queue: bool,
    /// Kept in the broker's folder instead of in memory.
    pub on_disk: bool,
}

impl StreamSpec {
    /// A stream of 10,000 messages, 16 MiB, 1 MiB for each message, with a duplicate window of two minutes.
    pub fn new<S: Into<String>>(name: &str, subjects: impl IntoIterator<Item = S>) -> Self {
        Self {
            name: name.into(),
            subjects: subjects.into_iter().map(Into::into).collect(),
            duplicate_window: Duration::from_secs(120),
            max_msgs: 10_000,
            max_bytes: 16 << 20,
            max_msg_size: 1 << 20,
            by_interest: false,
            work_queue: false,
            on_disk: false,
        }
    }

    /// Keeping only what a consumer is interested in.
    #[must_use]
    pub const fn by_interest(mut self) -> Self {
        self.by_interest = true;
        self
    }

    /// Keeping only what is not acknowledged yet.
    #[must_use]
    pub const fn work_queue(mut self) -> Self {
        self.work_queue = true;
        self
    }

    /// With another duplicate window (the broker takes 100 ms at least).
    #[must_use]
    pub const fn duplicate_window(mut self, window: Duration) -> Self {
        self.duplicate_window = window;
        self
    }

    /// With another number of messages.
    #[must_use]
    pub const fn max_msgs(mut self, max: i64) -> Self {
        self.max_msgs = max;
        self
    }

    /// In files of the broker's folder, with room for this many bytes and any number of messages. For measurements; what tests store is
    /// small.
    #[must_use]
    pub const fn on_disk(mut self, max_bytes: i64) -> Self {
        self.on_disk = true;
        self.max_msgs = -1;
        self.max_bytes = max_bytes;
        self
    }

    /// With another size of one message.
    #[must_use]
    pub const fn max_msg_size(mut self, max: i32) -> Self {
        self.max_msg_size = max;
        self
    }
}

/// Everything that a broker is started with. `None` leaves the server's own default.
#[derive(Debug, Clone)]
pub struct BrokerSpec {
    /// The name in its certificate.
    pub server_name: String,
    /// Another certificate than a valid one of [`BrokerSpec::server_name`]: an expired one, one of another name or authority.
    pub certificate: Option<Issued>,
    /// Who may connect.
    pub auth: BrokerAuth,
    /// Further accounts. Not for a broker with a token.
    pub accounts: Vec<BrokerAccount>,
    /// Off: nothing answers on the subjects of JetStream but what a test puts there.
    pub jetstream: bool,
    /// Room on disk for streams that others than this specification make.
    pub disk_bytes_max: i64,
    /// Consumers that one account may have.
    pub consumers_max: Option<u32>,
    /// Streams that exist when the broker has started, also after a restart.
    pub streams: Vec<StreamSpec>,
    /// TLS before INFO. Off only to show that a broker without it is refused.
    pub handshake_first: bool,
    /// TLS before INFO in another way than always: `auto`, or how long the broker waits for it (such as `300ms`).
    pub handshake_first_within: Option<&'static str>,
    /// The largest message.
    pub max_payload: Option<u32>,
    /// The longest protocol line. The server's default of 4 KiB holds for CONNECT too, with its password.
    pub max_control_line: Option<u32>,
    /// How often the server sends PING.
    pub ping_interval: Option<Duration>,
    /// Unanswered PINGs before the server closes.
    pub ping_max: Option<u32>,
    /// How long a write to a client may take.
    pub write_deadline: Option<Duration>,
    /// Connections at most.
    pub max_connections: Option<u32>,
    /// Further lines of the configuration file.
    pub extra: String,
}

impl Default for BrokerSpec {
    fn default() -> Self {
        Self {
            server_name: SERVER_NAME.into(),
            certificate: None,
            auth: BrokerAuth::Users(Vec::new()),
            accounts: Vec::new(),
            jetstream: true,
            // 0 would leave it to the server.
            disk_bytes_max: 1,
            consumers_max: None,
            streams: Vec::new(),
            handshake_first: true,
            handshake_first_within: None,
            max_payload: None,
            max_control_line: None,
            ping_interval: None,
            ping_max: None,
            write_deadline: None,
            max_connections: None,
            extra: String::new(),
        }
    }
}

impl BrokerSpec {
    /// A broker with these users.
    pub fn with_users(users: impl IntoIterator<Item = BrokerUser>) -> Self {
        Self { auth: BrokerAuth::Users(users.into_iter().collect()), ..Self::default() }
    }

    /// A broker whose users are said by these lines of its configuration file.
    pub fn with_raw_users(lines: impl Into<String>) -> Self {
        Self { auth: BrokerAuth::Raw(lines.into()), ..Self::default() }
    }

    /// A broker that takes this token.
    pub fn with_token(token: &str) -> Self {
        Self { auth: BrokerAuth::Token(token.into()), ..Self::default() }
    }

    /// With room on disk for streams that others make.
    #[must_use]
    pub const fn disk(mut self, bytes_max: i64) -> Self {
        self.disk_bytes_max = bytes_max;
        self
    }

    /// With one more stream.
    #[must_use]
    pub fn stream(mut self, stream: StreamSpec) -> Self {
        self.streams.push(stream);
        self
    }
}

/// What the configuration needs beyond the specification.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    /// `None`: any free one.
    pub(super) port: Option<u16>,
    pub(super) admin: &'a BrokerUser,
}

pub(super) const CONFIG_FILE: &str = "broker.conf";
pub(super) const LOG_FILE: &str = "broker.log";
pub(super) const PID_FILE: &str = "broker.pid";
pub(super) const CERTIFICATE_FILE: &str = "certificate.pem";
pub(super) const KEY_FILE: &str = "key.pem";

/// The configuration file.
pub(super) fn configuration(spec: &BrokerSpec, place: &Place<'_>) -> String {
    let folder = place.folder.display();
    let port = place.port.map_or_else(|| "-1".to_owned(), |port| port.to_string());
    let handshake_first = spec.handshake_first_within.map_or_else(|| spec.handshake_first.to_string(), quoted);
    let on_disk = spec.streams.iter().filter(|stream| stream.on_disk).map(|stream| stream.max_bytes);
    let mut text = format!(
        "host: \"127.0.0.1\"\nport: {port}\nhttp: \"127.0.0.1:-1\"\nports_file_dir: \"{folder}\"\npid_file: \"{folder}/{PID_FILE}\"\n\
         log_file: \"{folder}/{LOG_FILE}\"\nlogfile_size_limit: {LOG_BYTES_MAX}\nlogfile_max_num: 2\n\
         tls {{ cert_file: \"{folder}/{CERTIFICATE_FILE}\", key_file: \"{folder}/{KEY_FILE}\", handshake_first: {handshake_first} }}\n",
    );
    if spec.jetstream {
        let disk = on_disk.fold(spec.disk_bytes_max, i64::saturating_add);
        let _ = writeln!(
            text,
            "jetstream {{ store_dir: \"{folder}/jetstream\", max_memory_store: {MEMORY_STORE_BYTES_MAX}, max_file_store: {disk} }}"
        );
    }
    let millis = |duration: Duration| format!("\"{}ms\"", duration.as_millis());
    let settings = [
        ("max_payload", spec.max_payload.map(|bytes| bytes.to_string())),
        ("max_control_line", spec.max_control_line.map(|bytes| bytes.to_string())),
        ("ping_interval", spec.ping_interval.map(millis)),
        ("ping_max", spec.ping_max.map(|count| count.to_string())),
        ("write_deadline", spec.write_deadline.map(millis)),
        ("max_connections", spec.max_connections.map(|count| count.to_string())),
    ];
    for (name, value) in settings.iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value))) {
        let _ = writeln!(text, "{name}: {value}");
    }
    text.push_str(&auth(spec, place.admin));
    text.push_str(&spec.extra);
    text.push('\n');
    text
}

fn auth(spec: &BrokerSpec, admin: &BrokerUser) -> String {
    match &spec.auth {
        BrokerAuth::Token(token) => format!("authorization {{ token: {} }}\n", quoted(token)),
        BrokerAuth::Raw(lines) => format!("{lines}\n"),
        BrokerAuth::Users(users) => {
            let jetstream = match spec.consumers_max {
                _ if !spec.jetstream => String::new(),
                None => "    jetstream: enabled\n".to_owned(),
                Some(max) => format!("    jetstream: {{ max_consumers: {max} }}\n"),
            };
            let own: Vec<_> = users.iter().chain([admin]).collect();
            let further = spec.accounts.iter().map(|of| account(&of.name, &jetstream, &of.users.iter().collect::<Vec<_>>()));
            let accounts: String = [account("TESTS", &jetstream, &own)].into_iter().chain(further).collect();
            let system = account("SYSTEM", "", &[&system_user()]);
            format!("accounts {{\n{accounts}{system}}}\nsystem_account: SYSTEM\n")
        }
    }
}

fn account(name: &str, jetstream: &str, users: &[&BrokerUser]) -> String {
    let users: String = users.iter().map(|user| format!("      {}\n", user_entry(user))).collect();
    format!("  {name}: {{\n{jetstream}    users: [\n{users}    ]\n  }}\n")
}

fn user_entry(user: &BrokerUser) -> String {
    let list = |subjects: &[String]| {
        // An empty list of allowed subjects would allow all of them.
        let none = (subjects.is_empty()).then(|| "deny: [\">\"]".to_owned());
        none.unwrap_or_else(|| format!("allow: [{}]", subjects.iter().map(|subject| quoted(subject)).collect::<Vec<_>>().join(", ")))
    };
    format!(
        "{{ user: {}, password: {}, permissions: {{ publish: {{ {} }}, subscribe: {{ {} }} }} }}",
        quoted(&user.name),
        quoted(&user.password),
        list(&user.publish),
        list(&user.subscribe)
    )
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_gets_its_subjects_and_its_inboxes_and_nothing_else() {
        let user = BrokerUser::publisher("shop", "pa\"ss", ["orders.new", "orders.paid"]);
        let expected = "{ user: \"shop\", password: \"pa\\\"ss\", permissions: { publish: { allow: [\"orders.new\", \"orders.paid\"] }, \
                        subscribe: { allow: [\"_INBOX.LSF.>\"] } } }";
        assert_eq!(user_entry(&user), expected);
    }

    #[test]
    fn a_user_without_subjects_may_publish_nothing() {
        let user = BrokerUser::publisher("nobody", "x", [""; 0]);
        assert!(user_entry(&user).contains("publish: { deny: [\">\"] }"));
    }
}
