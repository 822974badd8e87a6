//! Pools with settings of a protocol that they do not speak.
//! In: checked pools. Out: warnings.

use toml::de::DeTable;

use super::{place_of, vain};
use crate::model::Pool;
use crate::report::Notes;

/// Checks the settings of HTTP/2 of a pool.
pub(super) fn check(pool: &Pool, table: &DeTable<'_>, notes: &mut Notes) {
    if !table.contains_key("http2") || pool.may_speak_http2() {
        return;
    }
    let what = "`http2` has no effect: the pool speaks HTTP/1.1 only";
    let help = match &pool.tls {
        Some(_) => "add \"h2\" to `alpn` of `tls`, or remove `http2`",
        None => "add h2c = true, or tls = { alpn = [\"h2\", \"http/1.1\"] }, or remove `http2`",
    };
    notes.warn(vain(place_of(table, "http2"), what, help));
}
