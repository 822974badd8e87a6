//! Negotiation of permessage-deflate (RFC 7692 sections 5 and 7.1), in tables.

use tidegate_wire::websocket::{DeflateParameters, DeflateSettings, Malformed, Role};

/// Both sides may do everything.
const FREE: DeflateSettings = DeflateSettings {
    keeps_context: true,
    peer_keeps_context: true,
    window_bits: 15,
    peer_window_bits: 15,
};

fn show(parameters: Result<Option<DeflateParameters>, Malformed>) -> String {
    match parameters {
        Ok(Some(p)) => {
            let side = |role, name: &str| {
                let keeps = if p.keeps_context(role) { "+" } else { "-" };
                format!("{name}{}{keeps}", p.window_bits(role))
            };
            format!("{} {}", side(Role::Server, "s"), side(Role::Client, "c"))
        }
        Ok(None) => "none".to_owned(),
        Err(Malformed) => "malformed".to_owned(),
    }
}

fn accept(settings: DeflateSettings, values: &[&str]) -> String {
    show(settings.accept(values.iter().map(|value| value.as_bytes())))
}

#[test]
fn server_accepts_the_first_acceptable_offer() {
    for (values, wanted) in [
        (&[][..], "none"),
        (&[""], "none"),
        (&["permessage-deflate"], "s15+ c15+"),
        (&["Permessage-Deflate"], "s15+ c15+"),
        (&["permessage-deflate; client_max_window_bits"], "s15+ c15+"),
        (&["permessage-deflate; client_max_window_bits=10"], "s15+ c10+"),
        (&["permessage-deflate;client_max_window_bits=\"10\""], "s15+ c10+"),
        (&["permessage-deflate; server_max_window_bits=10"], "s10+ c15+"),
        (&["permessage-deflate; server_max_window_bits=8"], "s8+ c15+"),
        (&["permessage-deflate; server_no_context_takeover"], "s15- c15+"),
        (&["permessage-deflate; client_no_context_takeover"], "s15+ c15-"),
        (&["x-unknown, permessage-deflate"], "s15+ c15+"),
        (&["x-unknown; a=b; c", "permessage-deflate"], "s15+ c15+"),
        (&[" , permessage-deflate ,, "], "s15+ c15+"),
        // An offer that is declined; the next one is used.
        (&["permessage-deflate; unknown"], "none"),
        (&["permessage-deflate; server_max_window_bits"], "none"),
        (&["permessage-deflate; server_max_window_bits=7"], "none"),
        (&["permessage-deflate; server_max_window_bits=16"], "none"),
        (&["permessage-deflate; server_max_window_bits=08"], "none"),
        (&["permessage-deflate; server_max_window_bits=1x"], "none"),
        (&["permessage-deflate; client_max_window_bits=0"], "none"),
        (&["permessage-deflate; client_max_window_bits=99"], "none"),
        (&["permessage-deflate; server_no_context_takeover=1"], "none"),
        (&["permessage-deflate; client_no_context_takeover=true"], "none"),
        (&["permessage-deflate; client_no_context_takeover; client_no_context_takeover"], "none"),
        (&["permessage-deflate; server_max_window_bits=9; server_max_window_bits=9"], "none"),
        (&["permessage-deflate; a, permessage-deflate; server_max_window_bits=12"], "s12+ c15+"),
        (&["permessage-deflate; server_max_window_bits=9, permessage-deflate"], "s9+ c15+"),
        // What breaks the grammar of RFC 6455 section 9.1.
        (&["permessage-deflate; "], "malformed"),
        (&["permessage-deflate;;a"], "malformed"),
        (&["permessage-deflate; a="], "malformed"),
        (&["permessage-deflate; a=\"b"], "malformed"),
        (&["permessage-deflate; a=\"\""], "malformed"),
        (&["permessage-deflate; a=\"b c\""], "malformed"),
        (&["permessage-deflate a"], "malformed"),
        (&["permessage-deflate; a b"], "malformed"),
        (&["; a"], "malformed"),
        (&["permessage-deflate", "="], "malformed"),
    ] {
        assert_eq!(accept(FREE, values), wanted, "{values:?}");
    }
}

#[test]
fn server_limits_what_it_accepts() {
    let tight = DeflateSettings {
        keeps_context: false,
        peer_keeps_context: false,
        window_bits: 11,
        peer_window_bits: 10,
    };
    for (value, wanted) in [
        ("permessage-deflate", "s11- c15-"),
        ("permessage-deflate; client_max_window_bits", "s11- c10-"),
        ("permessage-deflate; client_max_window_bits=9", "s11- c9-"),
        ("permessage-deflate; server_max_window_bits=9", "s9- c15-"),
        ("permessage-deflate; server_max_window_bits=15", "s11- c15-"),
    ] {
        assert_eq!(accept(tight, &[value]), wanted, "{value}");
    }
    let wild = DeflateSettings { window_bits: 0, peer_window_bits: 200, ..FREE };
    assert_eq!(accept(wild, &["permessage-deflate; client_max_window_bits"]), "s8+ c15+");
}

#[test]
fn client_checks_the_response_against_its_offer() {
    let tight = DeflateSettings {
        keeps_context: true,
        peer_keeps_context: false,
        window_bits: 12,
        peer_window_bits: 10,
    };
    for (offered, value, wanted) in [
        (Some(FREE), "", "none"),
        (None, "", "none"),
        (None, "permessage-deflate", "malformed"),
        (Some(FREE), "x-unknown", "malformed"),
        (Some(FREE), "permessage-deflate, permessage-deflate", "malformed"),
        (Some(FREE), "permessage-deflate", "s15+ c15+"),
        (Some(FREE), "permessage-deflate; client_no_context_takeover", "s15+ c15-"),
        (Some(FREE), "permessage-deflate; server_no_context_takeover", "s15- c15+"),
        (Some(FREE), "permessage-deflate; client_max_window_bits=9", "s15+ c9+"),
        (Some(FREE), "permessage-deflate; client_max_window_bits", "malformed"),
        (Some(FREE), "permessage-deflate; server_max_window_bits=9", "s9+ c15+"),
        (Some(FREE), "permessage-deflate; server_max_window_bits=16", "malformed"),
        (Some(FREE), "permessage-deflate; unknown", "malformed"),
        (
            Some(FREE),
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "malformed",
        ),
        (Some(tight), "permessage-deflate", "malformed"),
        (Some(tight), "permessage-deflate; server_no_context_takeover", "malformed"),
        (Some(tight), "permessage-deflate; server_max_window_bits=10", "malformed"),
        (
            Some(tight),
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=11",
            "malformed",
        ),
        (
            Some(tight),
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=9",
            "s9- c12+",
        ),
        (
            Some(tight),
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits=15",
            "s10- c12+",
        ),
    ] {
        let got = show(DeflateSettings::check_response(offered, [value.as_bytes()].into_iter()));
        assert_eq!(got, wanted, "{value}");
    }
}

#[test]
fn offers_state_the_settings() {
    let offer = |settings: DeflateSettings| {
        let mut value = String::new();
        settings.encode_offer(&mut value);
        value
    };
    assert_eq!(offer(FREE), "permessage-deflate; client_max_window_bits");
    assert_eq!(
        offer(DeflateSettings {
            peer_window_bits: 9,
            window_bits: 10,
            ..DeflateSettings::default()
        }),
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
         server_max_window_bits=9; client_max_window_bits=10"
    );
}
