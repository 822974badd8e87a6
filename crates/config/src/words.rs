//! Words of settings and what each of them means.
//! In: a word of the file. Out: its variant. The table of settings, the reader, the schema and the reference use the
//! same list.
//! Invariant: each word has exactly one variant. A word without a variant, and a variant without a word, do not
//! compile.

use crate::model::{
    AccessFilter, AccessFormat, BackendEvent, Balance, CheckMethod, ClientAuth, Compression,
    Deltas, Families, Keep, LuaLayer, MapKind, Permit, ProxyVersion, RateExcess, ReloadOn,
    SameSite, Slow, SteerByCpu, Subscribe, TextKind, TlsVersion, Unretriable,
};

/// A type whose values are written as words.
pub trait Keyword: Sized + 'static {
    /// Every word, in the order of messages.
    const WORDS: &'static [&'static str];

    /// The variant of a word; `None` if it is not a word of this type.
    fn from_word(word: &str) -> Option<Self>;

    /// The word of a variant; `None` for a variant that is written in another form, such as a table.
    fn word(&self) -> Option<&'static str>;
}

/// Implements `Keyword` from one list of pairs. `other` lists the variants that are not written as a word.
macro_rules! worded {
    ($type:ty { $($word:literal => $variant:ident),+ $(,)? } $(other $other:pat)?) => {
        impl Keyword for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn word(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($word),)+
                    $($other => None,)?
                }
            }
        }
    };
}

worded!(SteerByCpu { "auto" => Auto, "on" => On, "off" => Off });
worded!(Families { "both" => Both, "ipv4" => Ipv4, "ipv6" => Ipv6 });
worded!(LuaLayer { "lapps" => Lapps, "ngx" => Ngx });
worded!(ReloadOn { "signal" => Signal, "watch" => Watch });
worded!(TlsVersion { "1.2" => Tls12, "1.3" => Tls13 });
worded!(ClientAuth { "off" => Off, "optional" => Optional, "required" => Required });
worded!(CheckMethod { "GET" => Get, "HEAD" => Head, "OPTIONS" => Options });
worded!(ProxyVersion { "v1" => V1, "v2" => V2 });
worded!(Unretriable { "proven" => Proven, "always" => Always, "never" => Never });
worded!(Balance {
    "random" => Random,
    "round-robin" => RoundRobin,
    "least-connections" => LeastConnections,
} other Self::Hash(_));

/// The word that `tls` of a listener accepts.
pub(crate) enum TlsWord {
    /// The listener presents a certificate that is created at start.
    SelfSigned,
}

worded!(TlsWord { "self-signed" => SelfSigned });

/// `at-start` of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// The process does not start without an address of the server.
    Required,
    /// The server is down until it has an address.
    Optional,
}

worded!(AtStart { "required" => Required, "optional" => Optional });

/// The settings of a route that state what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKey {
    /// A fixed response.
    Respond,
    /// A redirect.
    Redirect,
    /// A response as described by the URL.
    Synthetic,
    /// A WebSocket that sends messages back.
    Echo,
    /// A push hub.
    Push,
    /// A Lua application.
    Lua,
    /// A pool.
    Proxy,
}

worded!(ActionKey {
    "respond" => Respond,
    "redirect" => Redirect,
    "synthetic" => Synthetic,
    "echo" => Echo,
    "push" => Push,
    "lua" => Lua,
    "proxy" => Proxy,
});

worded!(BackendEvent {
    "subscribe" => Subscribe,
    "publish" => Publish,
    "sub-refresh" => SubRefresh,
    "channel-empty" => ChannelEmpty,
} other Self::Connect | Self::Refresh | Self::Rpc | Self::Disconnect);
worded!(Deltas { "off" => Off, "marked" => Marked, "all" => All });
worded!(Subscribe { "token" => Token, "users" => Users, "anyone" => Anyone });
worded!(Permit {
    "api" => Api,
    "subscribers" => Subscribers,
    "users" => Users,
    "anyone" => Anyone,
});
worded!(Slow {
    "disconnect" => Disconnect,
    "drop-oldest" => DropOldest,
    "drop-newest" => DropNewest,
    "conflate" => Conflate,
});
worded!(Compression { "off" => Off, "shared" => Shared, "dedicated" => Dedicated });
worded!(SameSite { "strict" => Strict, "lax" => Lax, "none" => None });
worded!(RateExcess { "deny" => Deny, "tarpit" => Tarpit, "drop" => Drop });
worded!(MapKind {
    "exact" => Exact,
    "prefix" => Prefix,
    "suffix" => Suffix,
    "address" => Address,
    "regex" => Regex,
});
worded!(AccessFormat { "json" => Json, "http" => Http });
worded!(Keep { "trusted" => Trusted, "all" => All, "none" => None });
worded!(AccessFilter { "all" => All, "errors" => Errors });
worded!(TextKind {
    "equals" => Equals,
    "contains" => Contains,
    "prefix" => Prefix,
    "suffix" => Suffix,
    "regex" => Regex,
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{FIELD, ROUTE};

    fn every_word_comes_back<T: Keyword>() {
        for word in T::WORDS {
            assert_eq!(T::from_word(word).and_then(|variant| variant.word()), Some(*word));
        }
        assert!(T::from_word("").is_none());
    }

    #[test]
    fn every_word_means_the_variant_that_is_written_so() {
        every_word_comes_back::<SteerByCpu>();
        every_word_comes_back::<TlsVersion>();
        every_word_comes_back::<ClientAuth>();
        every_word_comes_back::<ProxyVersion>();
        every_word_comes_back::<Unretriable>();
        every_word_comes_back::<Families>();
        every_word_comes_back::<Balance>();
        every_word_comes_back::<TlsWord>();
        every_word_comes_back::<ActionKey>();
        every_word_comes_back::<TextKind>();
        every_word_comes_back::<Compression>();
        every_word_comes_back::<RateExcess>();
        every_word_comes_back::<SameSite>();
        every_word_comes_back::<BackendEvent>();
        every_word_comes_back::<Deltas>();
        every_word_comes_back::<Subscribe>();
        every_word_comes_back::<Permit>();
        every_word_comes_back::<Slow>();
        every_word_comes_back::<MapKind>();
        every_word_comes_back::<AccessFormat>();
        every_word_comes_back::<AccessFilter>();
    }

    #[test]
    fn every_action_is_a_setting_of_routes() {
        for word in ActionKey::WORDS {
            assert!(ROUTE.key(word).is_some(), "{word}");
        }
    }

    #[test]
    fn every_kind_of_field_test_is_a_setting() {
        for word in TextKind::WORDS {
            assert!(FIELD.key(word).is_some(), "{word}");
        }
    }
}
