//! The natives of decisions, about events of push hubs, servers and certificates, and of the console.
//! In: decisions, texts. Out: effects, choices, texts.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::{CertificateChoice, Id};

use super::call::Call;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"begin_event", begin_event),
    (c"decide", decide),
    (c"choose_server", choose_server),
    (c"choose_certificate", choose_certificate),
    (c"mark_failed", mark_failed),
    (c"show", show),
];

natives! {
    /// (index, generation, place): the handler gets the event at this place of a list.
    fn begin_event(call) {
        let id = Id::new(call.id(1), call.id(2));
        call.host().begin_event(id, call.id(3) as usize);
        0
    }

    /// (index, generation, decision) -> true; nil and an error: decides about an event.
    fn decide(call) {
        let Some(decision) = call.bytes(3) else { return call.fail("the decision must be a string") };
        let id = Id::new(call.id(1), call.id(2));
        call.done(call.host().decide(id, decision))
    }

    /// (index, generation, number of a server) -> true; nil and an error.
    fn choose_server(call) {
        let Some(number) = call.number(3) else { return call.fail("the server must be a number") };
        let id = Id::new(call.id(1), call.id(2));
        call.outcome(call.host().choose_server(id, number))
    }

    /// (index, generation, choice) -> true; nil and an error. The choice is a name, the number of a certificate, false to refuse the
    /// handshake, or nil.
    fn choose_certificate(call) {
        let choice = match (call.bytes(3), call.number(3)) {
            (Some(name), _) => {
                CertificateChoice::Named(String::from_utf8_lossy(name).into_owned().into())
            }
            (None, Some(number)) if number >= 1.0 && number.fract() == 0.0 => {
                CertificateChoice::Index(number as usize - 1)
            }
            (None, Some(number)) => {
                return call.fail(&format!("the listener has no certificate {number}"));
            }
            (None, None) if call.value(3).is_some() => CertificateChoice::Refused,
            (None, None) => CertificateChoice::Requested,
        };
        let id = Id::new(call.id(1), call.id(2));
        call.outcome(call.host().choose_certificate(id, choice))
    }

    /// (index, generation) -> true; nil and an error: the response counts as a failure of its server.
    fn mark_failed(call) {
        let id = Id::new(call.id(1), call.id(2));
        call.done(call.host().changeable_reply(id).map(|reply| reply.is_failed = true))
    }

    /// (text): what the code of the console has returned.
    fn show(call) {
        let text = call.bytes(1).unwrap_or_default();
        call.host().show(text);
        0
    }
}
