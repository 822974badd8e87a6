//! The Strict-Transport-Security value of a response (RFC 6797): the route's, else the listener's, else none.
//! In: a configuration. Out: for each listener and route, a small number that identifies the value.
//! Never: a value for a request that its client sent over plain HTTP (section 7.2).
//! Limits: one value for each listener and route that sets one.

use core::fmt::Write;

use tidegate_config::model::{Config, Hsts};

use crate::scheme::Scheme;

/// Identifies a value. 0 means that the field is not sent.
pub type PolicyId = u16;

/// All values of a configuration.
pub struct HstsPolicies {
    /// By `PolicyId`; the first one is empty.
    values: Vec<String>,
    /// By listener.
    listeners: Vec<PolicyId>,
    /// By route; `None` if the listener's value applies.
    routes: Vec<Option<PolicyId>>,
}

impl HstsPolicies {
    /// Encodes the values of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut values = vec![String::new()];
        let mut number = |hsts: &Hsts| {
            let value = value_of(hsts);
            let at = values.iter().position(|known| *known == value).unwrap_or_else(|| {
                values.push(value);
                values.len() - 1
            });
            // More different values than a `PolicyId` can number are not sent.
            PolicyId::try_from(at).unwrap_or(0)
        };
        let listeners = config
            .listeners
            .iter()
            .map(|listener| listener.hsts.as_ref().map_or(0, &mut number))
            .collect();
        let routes =
            config.routes.iter().map(|route| route.hsts.as_ref().map(&mut number)).collect();
        Self { values, listeners, routes }
    }

    /// The value for responses on this listener, unless a route sets another one.
    #[must_use]
    pub fn of_listener(&self, listener: usize, scheme: Scheme) -> PolicyId {
        match scheme {
            Scheme::Http => 0,
            Scheme::Https => self.listeners.get(listener).copied().unwrap_or(0),
        }
    }

    /// The value for responses of this route on this listener.
    #[must_use]
    pub fn of_route(&self, listener: usize, route: usize, scheme: Scheme) -> PolicyId {
        let own = self.routes.get(route).copied().flatten();
        match (scheme, own) {
            (Scheme::Http, _) => 0,
            (Scheme::Https, Some(own)) => own,
            (Scheme::Https, None) => self.of_listener(listener, scheme),
        }
    }

    /// The number of values, including the empty one.
    #[must_use]
    pub fn count(&self) -> PolicyId {
        PolicyId::try_from(self.values.len()).unwrap_or(PolicyId::MAX)
    }

    /// The text of the value. Empty if the field is not sent.
    #[must_use]
    pub fn value(&self, policy: PolicyId) -> &str {
        self.values.get(usize::from(policy)).map_or("", String::as_str)
    }
}

/// Encodes a value (RFC 6797 section 6.1). `preload` is required by the preload lists of browsers.
fn value_of(hsts: &Hsts) -> String {
    let mut value = String::new();
    // Writing to a String does not fail.
    let _ = write!(value, "max-age={}", hsts.max_age_seconds);
    if hsts.include_subdomains {
        value.push_str("; includeSubDomains");
    }
    if hsts.preload {
        value.push_str("; preload");
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_overrides_listener_and_plain_http_has_no_value() {
        let config = tidegate_config::parse(
            "[[listener]]\nbind = \"127.0.0.1:443\"\ntls = \"self-signed\"\nhsts = \"365d\"\n\
             [[listener]]\nbind = \"127.0.0.1:80\"\n\
             [[listener]]\nbind = \"127.0.0.1:444\"\ntls = \"self-signed\"\n\
             [[route]]\npath = \"/a\"\nhsts = \"0s\"\nrespond = {}\n\
             [[route]]\npath = \"/b\"\nrespond = {}\n\
             [[route]]\nhsts = { max-age = \"400d\", include-subdomains = true, preload = true }\n\
             respond = {}\n",
            "the test",
        )
        .unwrap_or_else(|errors| panic!("{errors}"));
        let policies = HstsPolicies::new(&config);
        let of = |listener, route| {
            policies.value(policies.of_route(listener, route, Scheme::Https)).to_owned()
        };
        assert_eq!(of(0, 0), "max-age=0");
        assert_eq!(of(0, 1), "max-age=31536000");
        assert_eq!(of(0, 2), "max-age=34560000; includeSubDomains; preload");
        assert_eq!(policies.value(policies.of_listener(0, Scheme::Https)), "max-age=31536000");
        assert_eq!(policies.of_listener(0, Scheme::Http), 0);
        for route in 0..3 {
            for listener in 0..3 {
                assert_eq!(policies.of_route(listener, route, Scheme::Http), 0, "plain HTTP");
            }
        }
        assert_eq!((of(2, 0).as_str(), of(2, 1).as_str()), ("max-age=0", ""));
        assert_eq!(policies.value(policies.of_listener(2, Scheme::Https)), "");
    }
}
