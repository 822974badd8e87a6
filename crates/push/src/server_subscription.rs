//! The channels that a client is subscribed to when it connects, as its token or the application's backend lists them; and
//! the reading of members that contain JSON.
//! In: members of an object. Out: each channel once, with the data for the client and the data that other clients see.
//! Never: returns JSON that contains line breaks or is nested too deeply.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::base64;

use crate::client::codec::Malformed;
use crate::publication::{in_one_line, is_too_deep};

/// A channel that a client is subscribed to when it connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerSubscription {
    /// The channel.
    pub channel: Box<str>,
    /// Data for the client: JSON; empty: none.
    pub data: Box<str>,
    /// Data about the client that other clients see in this channel only: JSON; empty: none.
    pub info: Box<str>,
}

/// An entry of `subs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SubscriptionOptions {
    data: Option<Box<RawValue>>,
    b64data: Option<String>,
    info: Option<Box<RawValue>>,
    b64info: Option<String>,
}

/// The entries of `subs`, by channel.
pub(crate) type Subs = BTreeMap<String, Option<SubscriptionOptions>>;

/// The channels of `channels` and of `subs`, which has the details.
///
/// # Errors
/// A member is no JSON, or nested too deeply.
pub(crate) fn collect(
    channels: &[String],
    subs: &Subs,
) -> Result<Vec<ServerSubscription>, Malformed> {
    let plain = channels.iter().filter(|name| !subs.contains_key(*name));
    let mut all: BTreeMap<&str, (Box<str>, Box<str>)> =
        plain.map(|name| (name.as_str(), Default::default())).collect();
    for (name, options) in subs {
        let details = match options {
            Some(of) => (
                json_of(of.data.as_deref(), of.b64data.as_deref())?.unwrap_or_default(),
                json_of(of.info.as_deref(), of.b64info.as_deref())?.unwrap_or_default(),
            ),
            None => Default::default(),
        };
        all.insert(name, details);
    }
    let subscription =
        |(name, (data, info)): (&str, _)| ServerSubscription { channel: name.into(), data, info };
    Ok(all.into_iter().map(subscription).collect())
}

/// The JSON of a member, in one line, or that of the member with the same name and the prefix `b64`; `None` if both are absent.
///
/// # Errors
/// It is no JSON, or nested too deeply.
pub(crate) fn json_of(
    plain: Option<&RawValue>,
    encoded: Option<&str>,
) -> Result<Option<Box<str>>, Malformed> {
    let in_line = |json: &RawValue| match is_too_deep(json.get()) {
        true => Err(Malformed),
        false => Ok(Some(in_one_line(json.get()))),
    };
    match (plain, encoded) {
        (Some(json), _) => in_line(json),
        (None, Some(encoded)) if !encoded.is_empty() => {
            let bytes = base64::decode(encoded.as_bytes()).ok_or(Malformed)?;
            in_line(serde_json::from_slice(&bytes).map_err(|_| Malformed)?)
        }
        (None, _) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(channels: &[&str], subs: &str) -> Result<Vec<ServerSubscription>, Malformed> {
        let channels: Vec<String> = channels.iter().map(|name| (*name).to_owned()).collect();
        collect(&channels, &serde_json::from_str(subs).expect("an object"))
    }

    #[test]
    fn each_channel_is_contained_once_with_its_details() {
        let found = collected(
            &["b", "a", "a", "c"],
            r#"{"b":{"data":{"x":
                1},"info":[2]},"d":{"b64data":"eyJhIjoxfQ==","override":{}},"e":null}"#,
        );
        let expected = [("a", "", ""), ("b", "{\"x\":                 1}", "[2]"), ("c", "", "")];
        let found = found.expect("JSON");
        for ((channel, data, info), one) in expected.into_iter().zip(&found) {
            let words = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!((&*one.channel, words(&one.data), &*one.info), (channel, words(data), info));
            assert!(!one.data.contains('\n'));
        }
        let rest: Vec<(&str, &str)> =
            found[3..].iter().map(|one| (&*one.channel, &*one.data)).collect();
        assert_eq!(rest, [("d", "{\"a\":1}"), ("e", "")]);
    }

    #[test]
    fn member_that_is_no_json_or_nested_too_deeply_is_malformed() {
        let deep = format!("{{\"a\":{{\"info\":{}1{}}}}}", "[".repeat(101), "]".repeat(101));
        for subs in ["{\"a\":{\"b64data\":\"/w==\"}}", "{\"a\":{\"b64info\":\"?\"}}", &deep] {
            assert_eq!(collected(&[], subs), Err(Malformed), "{subs}");
        }
    }
}
