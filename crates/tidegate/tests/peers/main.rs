//! Tidegate with third-party clients, servers and proxies, started as a user would start them.
//! In: the binary, the programs that `scripts/install-peers.sh` installs. Out: equal bytes, counts and statuses.
//! Never: uses a fixed port, asserts a duration, leaves a process running or skips a test. A missing program fails the
//! test, and the failure names it.

mod access_log;
mod admin;
mod admin_parts;
mod admin_sessions;
mod autobahn;
mod careless_servers;
mod chosen_certificates;
mod client_certificates;
mod convert;
mod cookbook;
mod datagrams;
mod dictionaries;
mod documents;
mod files;
mod gate;
mod grpc;
mod health;
mod http2;
mod http2_clients;
mod http2_servers;
mod keys;
mod live_edits;
mod load;
mod log;
mod named_servers;
mod names;
mod nginx_origin;
mod operators;
mod origins;
mod overload;
mod passwords;
mod process;
mod proxies;
mod proxy_headers;
mod proxy_protocol;
mod push_clients;
mod python_origin;
mod requests;
mod restart;
mod server_names;
mod server_templates;
mod set_certificates;
mod streaming;
mod tcp;
mod tls_in_front;
mod tls_proxies;
mod traces;
mod upgrade;
mod websocket;
