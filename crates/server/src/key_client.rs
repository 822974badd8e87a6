//! Fetches a set of public keys (RFC 7517) over https, on the thread that calls it.
//! In: an address of the configuration. Out: the content, and how long it may be used; or why there is none.
//! Never: runs on a worker; follows a redirect; connects to another machine without TLS.
//! Limits: those of `cold_client.rs`; `CONTENT_BYTES_MAX` of the content.

use std::time::Duration;

use tidegate_config::model::RemoteAddress;
use tidegate_wire::http1::encode_field;
use tidegate_wire::jwt::CONTENT_BYTES_MAX;

use crate::cold_client::{self, Response};

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The content.
    pub(crate) content: Vec<u8>,
    /// How long it may be used, as the server announces it (RFC 9111 section 5.2.2).
    pub(crate) usable: Option<Duration>,
}

/// Fetches the content of an address.
///
/// # Errors
/// Why it could not be fetched.
pub(crate) fn fetch(remote: &RemoteAddress) -> Result<Fetched, String> {
    let mut request = cold_client::begin_request(remote, "GET");
    encode_field(&mut request, "Accept", b"application/jwk-set+json, application/json");
    request.extend_from_slice(b"\r\n");
    accept(cold_client::exchange(remote, &request, true, CONTENT_BYTES_MAX)?)
}

/// The keys in a response.
fn accept(response: Response) -> Result<Fetched, String> {
    match response.status {
        200 => {
            let usable = usable_span(&response);
            Ok(Fetched { content: response.content, usable })
        }
        status @ 300..=399 => Err(format!("the status is {status}: redirects are not followed")),
        status => Err(format!("the status is {status}")),
    }
}

/// How long a response may be used: max-age, less its Age; nothing if it must not be stored.
fn usable_span(response: &Response) -> Option<Duration> {
    let mut usable = None;
    let directives = response.values("cache-control").flat_map(|value| value.split(','));
    for directive in directives.map(str::trim) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return Some(Duration::ZERO);
        }
        if name.eq_ignore_ascii_case("max-age") {
            usable = value.trim_matches('"').parse().ok().map(Duration::from_secs);
        }
    }
    let age = response.values("age").next().and_then(|age| age.trim().parse().ok()).unwrap_or(0);
    usable.map(|usable: Duration| usable.saturating_sub(Duration::from_secs(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, fields: &[(&str, &str)]) -> Response {
        let own = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Response { status, fields: own.collect(), content: b"{}".to_vec() }
    }

    #[test]
    fn only_a_success_has_keys() {
        assert_eq!(
            accept(response(200, &[("cache-control", "max-age=60"), ("age", "10")])),
            Ok(Fetched { content: b"{}".to_vec(), usable: Some(Duration::from_secs(50)) })
        );
        for (status, why) in [
            (302, "the status is 302: redirects are not followed"),
            (404, "the status is 404"),
            (204, "the status is 204"),
        ] {
            assert_eq!(accept(response(status, &[])), Err(why.to_owned()));
        }
    }

    #[test]
    fn cache_control_states_how_long_keys_may_be_used() {
        for (fields, expected) in [
            (&[("x-a", "b")][..], None),
            (&[("cache-control", "private")], None),
            (&[("cache-control", "max-age=\"5\"")], Some(5)),
            (&[("cache-control", "max-age=5, no-cache")], Some(0)),
            (&[("cache-control", "No-Store")], Some(0)),
            (&[("cache-control", "max-age=x")], None),
            (&[("cache-control", "max-age=5"), ("age", "7")], Some(0)),
        ] {
            let usable = usable_span(&response(200, fields));
            assert_eq!(usable, expected.map(Duration::from_secs), "{fields:?}");
        }
    }
}
