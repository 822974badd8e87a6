//! Tidegate between programs of other people: clients, servers and proxies, as a user would start them.
//! In: the binary, the peers that `scripts/install-peers.sh` installs. Out: agreement on bytes, counts and statuses.
//! Never: a fixed port, an asserted duration, a process left behind, a skipped case: a missing peer fails by name.

mod careless_servers;
mod client_certificates;
mod documents;
mod gate;
mod load;
mod nginx_origin;
mod origins;
mod process;
mod proxies;
mod proxy_headers;
mod proxy_protocol;
mod python_origin;
mod requests;
mod restart;
mod streaming;
mod tls_in_front;
mod tls_proxies;
mod websocket;
