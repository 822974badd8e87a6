//! Push hubs: their settings, and the reader of `[push.NAME]`.
//! In: the root table of the file, its pools. Out: checked hubs.
//! Invariant: names of hubs and of the namespaces of a hub are unique; every key of the API is long enough to resist
//! guessing.

use tidegate_base::Span;

use crate::findings::Owner;
use crate::keys::{NAMESPACE, PUSH};
use crate::listeners::{refused, unknown_name};
use crate::lua::Apps;
use crate::model::PublicKeys;
use crate::pattern::{self, ValueError};
use crate::pools::Pools;
use crate::push_backend::{self, BackendEvent, PushBackend};
use crate::rates::parse_limit;
use crate::remote_keys::{self, Names};
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table, texts_of};

/// `[push.NAME]`: channels, and the permissions of their clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Name in routes and counters; unique.
    pub name: String,
    /// Keys of the server API; empty: the API refuses every request.
    pub api_keys: Vec<String>,
    /// The secret of tokens; empty: no token is valid.
    pub token_secret: String,
    /// The public keys of tokens, in place of the secret; `None`: there are none.
    pub token_keys: Option<PublicKeys>,
    /// The audiences of which a token must name one; empty: any.
    pub token_audience: Vec<String>,
    /// The issuer that a token must name; `None`: any.
    pub token_issuer: Option<String>,
    /// The difference of clocks that is tolerated in the times of tokens.
    pub token_leeway: Span,
    /// The cookie with the token of a client that subscribes by URL; `None`: only the query may contain the token.
    pub token_cookie: Option<String>,
    /// Whether clients of the client protocol may connect without a token.
    pub anonymous: bool,
    /// The application's backend; `None`: the hub has no backend.
    pub backend: Option<PushBackend>,
    /// The channels without a namespace.
    pub channels: Namespace,
    /// The channels of each namespace.
    pub namespaces: Vec<Namespace>,
    /// Maximum size of a message in bytes.
    pub message_bytes_max: usize,
    /// Maximum number of channels that a connection is subscribed to.
    pub channels_max: u32,
    /// Maximum length of a channel's name in bytes.
    pub channel_bytes_max: usize,
    /// How fast a connection may publish; `None`: without a limit.
    pub publish_rate: Option<PublishRate>,
    /// Maximum memory of all histories of the process in bytes.
    pub history_bytes_max: usize,
    /// Maximum size of the messages that wait for a client.
    pub queue_bytes_max: usize,
    /// Maximum number of messages that wait for a client.
    pub queue_messages_max: u32,
    /// The policy beyond these limits.
    pub slow: Slow,
    /// How long a connection lasts; `None`: without a limit.
    pub connection_age_max: Option<Span>,
    /// How often a stream of events contains a comment; `None`: never.
    pub heartbeat: Option<Span>,
    /// How long a browser waits before it opens a stream of events again.
    pub retry: Span,
    /// How long a long poll waits.
    pub poll_timeout: Span,
}

/// The channels of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The name before the colon; empty for the channels without a namespace.
    pub name: String,
    /// The clients that may subscribe.
    pub subscribe: Subscribe,
    /// The clients that may publish, in addition to the server API.
    pub publish: Permit,
    /// How many messages a channel keeps; 0: no history.
    pub history: u32,
    /// How long a message is kept.
    pub history_age: Span,
    /// The clients that may read the history, in addition to the server API.
    pub read_history: Permit,
    /// Whether the hub lists the clients of a channel.
    pub presence: bool,
    /// The clients that may read that list, in addition to the server API.
    pub read_presence: Permit,
    /// Whether clients receive a message when another client joins or leaves.
    pub join_leave: bool,
    /// Subscribers get only the newest of the messages within this time; `None`: subscribers get each message.
    pub conflate: Option<Span>,
    /// The events that are sent to the backend.
    pub backend_events: Vec<BackendEvent>,
    /// Which messages clients may get as patches.
    pub deltas: Deltas,
    /// Whether clients may filter messages by their tags.
    pub tag_filters: bool,
    /// Whether a client does not get its own publications.
    pub exclude_sender: bool,
    /// Whether users may subscribe to channels whose names list them.
    pub user_channels: bool,
    /// Whether a new subscriber gets the newest message at once.
    pub cache: bool,
    /// The event name of messages that have none of their own, in streams of events; `None`: these are unnamed.
    pub event: Option<String>,
}

/// `deltas` of a namespace: which messages are sent as patches of the previous message to clients that request patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deltas {
    /// No message.
    Off,
    /// Messages that were published with `delta`.
    Marked,
    /// Each message.
    All,
}

/// `subscribe` of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subscribe {
    /// Clients whose token names the channel.
    Token,
    /// Clients with a user.
    Users,
    /// Every client.
    Anyone,
}

/// The clients that may do something that the server API may always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// No client.
    Api,
    /// Subscribers of the channel.
    Subscribers,
    /// Clients with a user.
    Users,
    /// Every client.
    Anyone,
}

/// `publish-rate` of a hub: how many messages a connection may publish in a period, also at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishRate {
    /// The number of messages; at least 1.
    pub count: u32,
    /// The period.
    pub per: Span,
}

/// `slow` of a hub: what happens to a client that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Its connection is closed.
    Disconnect,
    /// It misses the oldest messages.
    DropOldest,
    /// It misses the newest messages.
    DropNewest,
    /// It misses messages that a newer one of the same channel follows.
    Conflate,
}

/// `push = "NAME"` or `push = { hub = "NAME", channel = "..." }` of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushRoute {
    /// Index of the hub.
    pub hub: usize,
    /// The channel that every request subscribes to; `None`: the path contains it.
    pub channel: Option<String>,
}

/// Why a pattern is refused.
const PATTERN: &str = "channel patterns are not supported";
const PATTERN_HELP: &str = "write the part of the channels' names before the colon: [push.NAME.namespace.news] is for \
    `news:` and any name after it";

/// Whether a name has the form of a channel pattern of other systems: with `*`, or Centrifugo's form `/a/:b`. A subscriber to
/// such a name expects all channels that match the pattern, which Tidegate does not support.
#[must_use]
pub fn is_channel_pattern(name: &str) -> bool {
    name.contains('*') || name.starts_with('/')
}

/// The shortest key or secret: 16 characters resist guessing.
const KEY_BYTES_MIN: usize = 16;

impl Namespace {
    /// Whether an event of the channels is sent to the backend.
    #[must_use]
    pub fn sends(&self, event: BackendEvent) -> bool {
        self.backend_events.contains(&event)
    }

    fn named(name: String) -> Self {
        Self {
            name,
            subscribe: Subscribe::Token,
            publish: Permit::Api,
            history: 0,
            history_age: Span::from_secs(300),
            read_history: Permit::Api,
            presence: false,
            read_presence: Permit::Api,
            join_leave: false,
            conflate: None,
            backend_events: Vec::new(),
            deltas: Deltas::Off,
            tag_filters: false,
            exclude_sender: false,
            user_channels: false,
            cache: false,
            event: None,
        }
    }
}

/// Maximum size in bytes of the name of an event.
pub const EVENT_NAME_BYTES_MAX: usize = 64;
/// Names of events that have a meaning in each stream: `lost` is the report that messages are lost, and `EventSource` itself
/// dispatches the others.
pub const RESERVED_EVENTS: [&str; 3] = ["lost", "open", "error"];

/// Whether messages may have this name in streams of events.
#[must_use]
pub fn is_event_name(name: &str) -> bool {
    let is_short = (1..=EVENT_NAME_BYTES_MAX).contains(&name.len());
    is_short && name.bytes().all(|byte| byte.is_ascii_graphic()) && !RESERVED_EVENTS.contains(&name)
}

impl Push {
    /// This hub with default keys, for comparisons: the keys of tokens and of the server API may change while the process
    /// serves, and other settings of a hub may not.
    #[must_use]
    pub fn without_keys(&self) -> Self {
        let Self { token_secret, token_keys, token_audience, token_issuer, token_leeway, .. } =
            Self::named(String::new());
        Self {
            api_keys: Vec::new(),
            token_secret,
            token_keys,
            token_audience,
            token_issuer,
            token_leeway,
            ..self.clone()
        }
    }

    fn named(name: String) -> Self {
        Self {
            name,
            api_keys: Vec::new(),
            token_secret: String::new(),
            token_keys: None,
            token_audience: Vec::new(),
            token_issuer: None,
            token_leeway: Span::from_secs(30),
            token_cookie: None,
            anonymous: false,
            backend: None,
            channels: Namespace::named(String::new()),
            namespaces: Vec::new(),
            message_bytes_max: 64 << 10,
            channels_max: 128,
            channel_bytes_max: 255,
            publish_rate: None,
            history_bytes_max: 256 << 20,
            queue_bytes_max: 1 << 20,
            queue_messages_max: 1000,
            slow: Slow::Disconnect,
            connection_age_max: None,
            heartbeat: Some(Span::from_secs(25)),
            retry: Span::from_secs(2),
            poll_timeout: Span::from_secs(25),
        }
    }
}

/// Reads all hubs, in file order.
pub(crate) fn read(file: &Table<'_>, known: (&Pools, &Apps), notes: &mut Notes) -> Vec<Push> {
    let mut hubs = Vec::new();
    for (name, value) in file.open_fields("push", notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("push", &name, complaint));
        }
        if PUSH.key(&name.text).is_some() && value.get_ref().as_table().is_none() {
            let what = format!("[push] needs a name: `{}` is a setting of one hub", name.text);
            let note = Note::new(Kind::Missing, name.place, what);
            notes.error(note.help(
                "write [push.NAME], with a name of your choice, and push = \"NAME\" in a route",
            ));
            continue;
        }
        let mut hub = Push::named(name.text);
        if let Some(table) = Table::open(&PUSH, value, notes) {
            read_hub(&table, known, &mut hub, notes);
        }
        notes.places.assign(Owner::Push(hubs.len()));
        hubs.push(hub);
    }
    hubs
}

fn read_hub(table: &Table<'_>, known: (&Pools, &Apps), hub: &mut Push, notes: &mut Notes) {
    for key in table.texts("api-keys", notes) {
        hub.api_keys.extend(read_secret("an API key", key, notes));
    }
    if let Some(secret) = table.text("token-secret", notes) {
        hub.token_secret = read_secret("`token-secret`", secret, notes).unwrap_or_default();
    }
    read_token_keys(table, hub, notes);
    if let Some(cookie) = table.text("token-cookie", notes) {
        if pattern::is_token(&cookie.text) {
            hub.token_cookie = Some(cookie.text);
        } else {
            let complaint = ValueError {
                what: "not the name of a cookie".to_owned(),
                help: "write token-cookie = \"push-token\"".to_owned(),
            };
            notes.error(refused("token-cookie", &cookie, complaint));
        }
    }
    table.set_flag("anonymous", &mut hub.anonymous, notes);
    hub.backend = push_backend::read(table, known, notes);
    read_namespace(table, &mut hub.channels, notes);
    for (name, value) in table.open_fields("namespace", notes) {
        if name.text.contains(['*', '/']) {
            let complaint = ValueError { what: PATTERN.to_owned(), help: PATTERN_HELP.to_owned() };
            notes.error(refused("namespace", &name, complaint));
        } else if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("namespace", &name, complaint));
        }
        let mut namespace = Namespace::named(name.text);
        if let Some(table) = Table::open(&NAMESPACE, value, notes) {
            read_namespace(&table, &mut namespace, notes);
        }
        hub.namespaces.push(namespace);
    }
    push_backend::check(table, hub, notes);
    table.set_size("message-max", &mut hub.message_bytes_max, notes);
    table.set_number("channels-max", &mut hub.channels_max, notes);
    table.set_number("channel-length-max", &mut hub.channel_bytes_max, notes);
    if let Some(rate) = table.text("publish-rate", notes) {
        match parse_limit(&rate.text) {
            Ok((count, per)) => hub.publish_rate = Some(PublishRate { count, per }),
            Err(complaint) => notes.error(refused("publish-rate", &rate, complaint)),
        }
    }
    table.set_size("history-memory-max", &mut hub.history_bytes_max, notes);
    table.set_size("queue-max", &mut hub.queue_bytes_max, notes);
    table.set_number("queue-messages-max", &mut hub.queue_messages_max, notes);
    table.set_word("slow", &mut hub.slow, notes);
    table.set_timeout("connection-age-max", &mut hub.connection_age_max, notes);
    table.set_timeout("heartbeat", &mut hub.heartbeat, notes);
    table.set_duration("retry", &mut hub.retry, notes);
    table.set_duration("poll-timeout", &mut hub.poll_timeout, notes);
}

fn read_token_keys(table: &Table<'_>, hub: &mut Push, notes: &mut Notes) {
    let names = Names { keys: "token-keys", ca: "token-keys-ca" };
    hub.token_keys = remote_keys::read(names, table, notes);
    if table.value("token-keys").is_some() && table.value("token-secret").is_some() {
        let what = "a hub cannot have both `token-keys` and `token-secret`";
        let note = Note::new(Kind::Conflict, table.key_place("token-keys"), what);
        notes.error(note.help("remove `token-keys` or `token-secret`"));
    }
    if let Some(value) = table.value("token-audience") {
        let texts = texts_of("`token-audience`", value, notes);
        hub.token_audience = texts.into_iter().map(|text| text.text).collect();
    }
    hub.token_issuer = table.text("token-issuer", notes).map(|text| text.text);
    table.set_duration("token-leeway", &mut hub.token_leeway, notes);
}

/// Checks a secret, which stays out of messages.
fn read_secret(subject: &str, secret: Located, notes: &mut Notes) -> Option<String> {
    let is_visible = secret.text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible && secret.text.len() >= KEY_BYTES_MIN {
        return Some(secret.text);
    }
    let what = format!("{subject} is too short or contains spaces");
    let allowed = format!("at least {KEY_BYTES_MIN} visible ASCII characters");
    let note = Note::new(Kind::Value, secret.place, what).allowed(allowed);
    notes.error(note.help("create one with: openssl rand -hex 16"));
    None
}

fn read_namespace(table: &Table<'_>, namespace: &mut Namespace, notes: &mut Notes) {
    table.set_word("subscribe", &mut namespace.subscribe, notes);
    table.set_word("publish", &mut namespace.publish, notes);
    table.set_number("history", &mut namespace.history, notes);
    table.set_duration("history-age", &mut namespace.history_age, notes);
    table.set_word("read-history", &mut namespace.read_history, notes);
    table.set_flag("presence", &mut namespace.presence, notes);
    table.set_word("read-presence", &mut namespace.read_presence, notes);
    table.set_flag("join-leave", &mut namespace.join_leave, notes);
    table.set_timeout("conflate", &mut namespace.conflate, notes);
    push_backend::read_events(table, namespace, notes);
    table.set_word("deltas", &mut namespace.deltas, notes);
    table.set_flag("tag-filters", &mut namespace.tag_filters, notes);
    table.set_flag("exclude-sender", &mut namespace.exclude_sender, notes);
    table.set_flag("user-channels", &mut namespace.user_channels, notes);
    table.set_flag("cache", &mut namespace.cache, notes);
    namespace.event = read_event_name(table, notes);
    if namespace.cache && namespace.history == 0 {
        let note = Note::new(
            Kind::Conflict,
            table.key_place("cache"),
            "`cache` has no effect without `history`",
        );
        notes.error(note.help("add history = 1"));
    }
    if let Some(value) = table.value("conflate").filter(|_| namespace.history > 0)
        && namespace.conflate.is_some()
    {
        let what = "`conflate` leaves messages out, so clients of a channel with `history` would notice missing offsets";
        let note = Note::new(Kind::Value, value.span(), what);
        notes.error(note.help("remove `conflate` or `history`"));
    }
}

/// Reads the name of the events of a namespace.
fn read_event_name(table: &Table<'_>, notes: &mut Notes) -> Option<String> {
    let Located { text, place } = table.text("event", notes)?;
    if is_event_name(&text) {
        return Some(text);
    }
    let (what, help) = match RESERVED_EVENTS.contains(&text.as_str()) {
        true => (
            format!("\"{text}\" is reserved: Tidegate sends events of this name itself"),
            "choose another name",
        ),
        false => {
            ("this is not the name of an event".to_owned(), "remove spaces, or shorten the name")
        }
    };
    let allowed = format!(
        "1 to {EVENT_NAME_BYTES_MAX} visible ASCII characters, except \"lost\", \"open\" and \"error\""
    );
    notes.error(Note::new(Kind::Value, place, what).allowed(allowed).help(help));
    None
}

/// Reads `push` of a route.
pub(crate) fn read_route(table: &Table<'_>, hubs: &[Push], notes: &mut Notes) -> Option<PushRoute> {
    if table.value("push")?.get_ref().as_table().is_none() {
        let hub = find(&table.text("push", notes)?, hubs, notes)?;
        return Some(PushRoute { hub, channel: None });
    }
    let table = table.open_table("push", notes)?;
    let channel = table.text("channel", notes);
    let hub = find(&table.text("hub", notes)?, hubs, notes)?;
    if let Some(channel) = &channel {
        let most = hubs.get(hub).map_or(0, |hub| hub.channel_bytes_max);
        let is_name = !channel.text.is_empty()
            && channel.text.len() <= most
            && channel.text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            let what = "`channel` is not the name of a channel";
            let allowed = format!("1 to {most} visible ASCII characters");
            notes.error(Note::new(Kind::Value, channel.place.clone(), what).allowed(allowed));
        } else if is_channel_pattern(&channel.text) {
            let note =
                Note::new(Kind::Value, channel.place.clone(), format!("`channel`: {PATTERN}"));
            notes.error(
                note.help("write the name of one channel, without `*` and not beginning with `/`"),
            );
        }
    }
    Some(PushRoute { hub, channel: channel.map(|channel| channel.text) })
}

/// The index of the hub with this name. Notes an error if no hub has this name.
fn find(name: &Located, hubs: &[Push], notes: &mut Notes) -> Option<usize> {
    let found = hubs.iter().position(|hub| hub.name == name.text);
    if found.is_none() {
        let known: Vec<&str> = hubs.iter().map(|hub| hub.name.as_str()).collect();
        notes.error(unknown_name("push hub", name, &known));
    }
    found
}
