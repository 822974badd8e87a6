//! The action `proxy`: sends the request to a server and relays its response.
//! In: requests, and what happens to the connections to servers. Out: responses to clients.
//! Never: decides which server (`gate::balance`), whether to retry (`gate::retry`) or how a body is framed (`wire`).

pub(crate) mod dispatch;
pub(crate) mod exchange;
pub(crate) mod reuse;
pub(crate) mod shortage;
pub(crate) mod tunnel;
