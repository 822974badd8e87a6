//! Facts about a client that its socket does not show: its certificate, its TLS session, its real address.
//! In: PROXY headers of trusted proxies, facts of TLS sessions. Out: the client's address; PROXY headers for
//! servers; the upstream connection that is kept for one client.
//! Never: accepts a PROXY header from a peer that the listener does not name.
//! Limits: `proxy_protocol::BINARY_BYTES_MAX` bytes a header; one kept connection for each client,
//! `reuse.idle-max` for each server.
//! Invariant: an upstream connection that began with a PROXY header for a client, or that was authenticated as
//! a client (NTLM, Negotiate), serves only that client.
//! While idle, it is in its client's `kept`, `Upstream::owner` names that client, it is in no idle list, and
//! `WorkerPool::kept` counts it.

use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;

use tidegate_base::Id;
use tidegate_config::model::{Listener, ProxyVersion};
use tidegate_gate::forward::ClientCertificate;
use tidegate_gate::probe::encode_proxy_header;
use tidegate_gate::scheme::Scheme;
use tidegate_reactor::{Peer, Reactor, SockId};
use tidegate_secure::Refused;
use tidegate_wire::proxy_protocol::{
    self, Endpoints, Extension, Extensions, Header, Tls, Transport, encode_binary, encode_text,
};
use tidegate_wire::tls::{PeerIdentity, TlsSession, common_name_text, openssl_cipher_name};

use crate::action::lua::certificate::LuaChoice;
use crate::carrier::http1::client::Phase;
use crate::connection::Downstream;
use crate::requester::Requester;
use crate::worker::Worker;

/// Facts about a client. Most clients have none, and no memory is allocated for them.
#[derive(Default)]
pub(crate) struct ClientFacts {
    /// The client's verified certificate.
    certificate: Option<Certificate>,
    /// The address that the client connected to, from the PROXY header. Kept only if PROXY headers are sent.
    destination: Option<SocketAddr>,
    /// The PROXY header says that the client uses TLS with the proxy in front. A TLS session on this
    /// connection is then the proxy's own.
    secured_in_front: bool,
    /// The client's TLS session. Kept only if PROXY headers are sent, or a route uses its server name.
    session: Option<SessionFacts>,
    /// An idle upstream connection that began with a PROXY header for this client, or that its server
    /// authenticated as this client. Its owner is this client.
    kept: Option<SockId>,
    /// The handshake waits for the choice of its certificate.
    choice: Option<Id<LuaChoice>>,
}

impl ClientFacts {
    /// The idle upstream connection that is kept for the client.
    pub(crate) fn kept(&self) -> Option<SockId> {
        self.kept
    }

    /// The handshake that waits for the choice of its certificate.
    pub(crate) fn choice(&self) -> Option<Id<LuaChoice>> {
        self.choice
    }

    /// The server name that the client requested in its TLS handshake, with this process or the proxy in front.
    pub(crate) fn server_name(&self) -> Option<&[u8]> {
        self.session.as_ref()?.server_name.as_deref()
    }

    /// The client's verified certificate, as it is forwarded to servers.
    pub(crate) fn certificate(&self) -> Option<ClientCertificate<'_>> {
        Some(match self.certificate.as_ref()? {
            Certificate::Verified { subject, fingerprint } => {
                ClientCertificate::Verified { subject, fingerprint }
            }
            Certificate::VerifiedInFront { common_name } => {
                ClientCertificate::VerifiedInFront { common_name }
            }
        })
    }
}

/// A client's verified certificate, as text.
enum Certificate {
    Verified { subject: String, fingerprint: String },
    VerifiedInFront { common_name: String },
}

impl Certificate {
    fn verified(identity: &PeerIdentity) -> Self {
        let fingerprint = identity.fingerprint_hex();
        Self::Verified { subject: identity.subject.clone(), fingerprint }
    }

    /// The header must state both that the client presented a certificate and that it was verified. Some
    /// proxies leave the verification result at zero, which means success, if there was no certificate.
    fn verified_in_front(tls: &Tls<'_>) -> Option<Self> {
        let shown = tls.certificate_here || tls.certificate_in_session;
        let common_name = tls.common_name.filter(|_| shown && tls.verified)?;
        common_name_text(common_name).map(|common_name| Self::VerifiedInFront { common_name })
    }
}

/// A client's TLS session, with this process or with the proxy in front.
#[derive(Default)]
struct SessionFacts {
    /// The negotiated application protocol.
    alpn: Option<Box<[u8]>>,
    /// The server name that the client requested.
    server_name: Option<Box<[u8]>>,
    /// The client presented a certificate on this connection.
    certificate_here: bool,
    /// The client presented a certificate when the session began, perhaps on an earlier connection.
    certificate_in_session: bool,
    /// The certificate was verified, by this process or by the proxy in front.
    verified: bool,
    /// The name of the TLS version.
    version: Option<Cow<'static, [u8]>>,
    /// The common name in the client's certificate.
    common_name: Option<Box<[u8]>>,
    /// The OpenSSL name of the cipher suite.
    cipher: Option<Cow<'static, [u8]>>,
    /// The algorithm that signed the certificate, from a PROXY header only.
    signature_algorithm: Option<Box<[u8]>>,
    /// The algorithm of the certificate's key, from a PROXY header only.
    key_algorithm: Option<Box<[u8]>>,
}

impl SessionFacts {
    fn of_session(session: &mut TlsSession, identity: Option<&PeerIdentity>) -> Option<Self> {
        let server_name = session.take_asked_name();
        let facts = session.facts()?;
        Some(Self {
            alpn: facts.alpn.map(Into::into),
            server_name: server_name.map(|name| name.into_boxed_bytes()),
            certificate_here: identity.is_some(),
            certificate_in_session: identity.is_some(),
            // A certificate that fails verification ends the handshake.
            verified: identity.is_some(),
            version: Some(facts.version.name().as_bytes().into()),
            common_name: identity.and_then(|known| known.common_name.clone()),
            cipher: Some(openssl_cipher_name(facts.cipher).as_bytes().into()),
            ..Self::default()
        })
    }

    /// The session described by a PROXY header: its TLS extension `tls` and its other `extensions`.
    fn of_header(tls: &Tls<'_>, extensions: Extensions<'_>) -> Self {
        let owned = |value: &[u8]| Cow::Owned(value.to_vec());
        let mut facts = Self {
            certificate_here: tls.certificate_here,
            certificate_in_session: tls.certificate_in_session,
            verified: tls.verified,
            version: tls.version.map(owned),
            common_name: tls.common_name.map(Into::into),
            cipher: tls.cipher.map(owned),
            signature_algorithm: tls.signature_algorithm.map(Into::into),
            key_algorithm: tls.key_algorithm.map(Into::into),
            ..Self::default()
        };
        for extension in extensions {
            match extension {
                Extension::Alpn(value) => facts.alpn = Some(value.into()),
                Extension::Authority(value) => facts.server_name = Some(value.into()),
                _ => {}
            }
        }
        facts
    }

    /// The PROXY header extensions that describe the session.
    fn extensions(&self) -> impl Iterator<Item = Extension<'_>> {
        let alpn = self.alpn.as_deref().map(Extension::Alpn);
        let name = self.server_name.as_deref().map(Extension::Authority);
        let tls = Extension::Tls(Tls {
            in_use: true,
            certificate_here: self.certificate_here,
            certificate_in_session: self.certificate_in_session,
            verified: self.verified,
            version: self.version.as_deref(),
            common_name: self.common_name.as_deref(),
            cipher: self.cipher.as_deref(),
            signature_algorithm: self.signature_algorithm.as_deref(),
            key_algorithm: self.key_algorithm.as_deref(),
        });
        [alpn, name, Some(tls)].into_iter().flatten()
    }
}

/// Whether a connection from `peer` begins with a PROXY header.
pub(crate) fn begins_with_header(listener: &Listener, peer: Peer) -> bool {
    let address = match peer {
        Peer::Tcp(address) => Some(address.ip()),
        Peer::Local => None,
    };
    listener.proxy_protocol.as_ref().is_some_and(|from| from.contains(address))
}

impl Worker {
    /// Decodes the PROXY header at the start of a plain connection. Returns how many bytes were processed.
    pub(crate) fn handle_proxy_header<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) -> usize {
        match self.decode_proxy_header(sock, bytes) {
            Ok(None) => 0,
            Ok(Some(header_bytes)) => {
                if let Some(http1) = self.http1_client(sock) {
                    http1.phase = Phase::NEXT_HEAD;
                }
                header_bytes
            }
            Err(Refused) => {
                self.close_client(reactor, sock);
                bytes.len()
            }
        }
    }

    /// Decodes the PROXY header at the start of a connection, and records its contents. Returns `None` while
    /// the header is incomplete, which ends after `BINARY_BYTES_MAX` bytes at the latest.
    pub(crate) fn decode_proxy_header(
        &mut self,
        sock: SockId,
        bytes: &[u8],
    ) -> Result<Option<usize>, Refused> {
        match proxy_protocol::decode(bytes) {
            Ok(None) => Ok(None),
            Ok(Some((header, header_bytes))) => {
                self.apply_proxy_header(sock, &header);
                let Some(down) = self.conns.downstream(sock) else { return Err(Refused) };
                let (listener, peer) = (down.listener, down.peer());
                match self.admit_connection(listener, sock, peer) {
                    true => Ok(Some(header_bytes)),
                    false => Err(Refused),
                }
            }
            Err(_) => {
                self.accounts.counters.proxy_header_faults.add(1);
                Err(Refused)
            }
        }
    }

    /// Replaces the address and the TLS facts of the client of `sock` by those in `header`.
    fn apply_proxy_header(&mut self, sock: SockId, header: &Header<'_>) {
        self.accounts.counters.proxy_headers.add(1);
        let keeps_sessions = self.settings.newest().keeps_sessions;
        let Some(down) = self.conns.downstream(sock) else { return self.note_absent(sock) };
        match header.endpoints {
            // The addresses of the connection itself are the client's.
            Endpoints::Local | Endpoints::Unknown => {}
            Endpoints::Ip { source, destination, .. } => {
                down.set_peer(Peer::Tcp(canonical(source)));
                if keeps_sessions {
                    facts_of(down).destination = Some(destination);
                }
            }
            Endpoints::Unix { .. } => down.set_peer(Peer::Local),
        }
        let mut extensions = header.extensions;
        let tls_extension = extensions.find_map(|extension| match extension {
            Extension::Tls(tls) => Some(tls),
            _ => None,
        });
        // The sender may also forward the TLS facts of a client whose TLS session ends at this listener.
        let Some(tls) = tls_extension.filter(|tls| tls.in_use) else { return };
        down.scheme = Scheme::Https;
        let facts = facts_of(down);
        facts.secured_in_front = true;
        facts.certificate = Certificate::verified_in_front(&tls);
        facts.session = keeps_sessions.then(|| SessionFacts::of_header(&tls, header.extensions));
    }

    /// Records the client's certificate and, if PROXY headers are sent, its TLS session. Does nothing if the
    /// session belongs to a proxy in front, because the proxy's own certificate would pass for the client's.
    pub(crate) fn note_session(&mut self, sock: SockId, session: &mut TlsSession) {
        let keeps_sessions = self.settings.newest().keeps_sessions;
        self.note_server_session(sock, session);
        // Sessions with servers have no client.
        let Some(down) = self.conns.downstream(sock) else { return };
        if session.facts().is_some_and(|facts| facts.alpn == Some(b"h2"))
            && let Some(http1) = down.http1()
        {
            http1.phase = Phase::Http2;
        }
        if down.facts.as_deref().is_some_and(|facts| facts.secured_in_front) {
            return;
        }
        let identity = session.peer_identity();
        if let Some(identity) = &identity {
            facts_of(down).certificate = Some(Certificate::verified(identity));
        }
        if keeps_sessions {
            facts_of(down).session = SessionFacts::of_session(session, identity.as_ref());
        }
    }

    /// Sends a PROXY header for the client at `down` as the first bytes of the connection `up`.
    pub(crate) fn send_proxy_header<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: SockId,
        down: SockId,
        version: ProxyVersion,
    ) {
        let local = reactor.local_address(down);
        let mut header = self.buffers.take();
        match self.conns.downstream(down) {
            Some(client) => encode_header(&mut header, client, local, version),
            None if Requester::connection(down).as_own().is_some() => {
                encode_proxy_header(&mut header, version);
            }
            None => return self.note_bug(reactor, down),
        }
        reactor.send_bare(up, &header);
        self.buffers.put(header);
    }

    /// Takes the connection to that server that is kept for the client, if there is one. A kept connection to
    /// another server stays.
    pub(crate) fn take_kept(&mut self, down: SockId, pool: u16, server: usize) -> Option<SockId> {
        // Most clients have no kept connection.
        let kept = self.conns.downstream(down)?.facts.as_deref()?.kept?;
        let Some(up) = self.conns.upstream(kept) else {
            self.note_absent(down);
            return None;
        };
        if (up.pool, usize::from(up.server)) != (pool, server) {
            return None;
        }
        up.owner = SockId::NONE;
        self.pools[usize::from(pool)].kept[server] -= 1;
        facts_of(self.conns.downstream(down)?).kept = None;
        Some(kept)
    }

    /// Keeps an idle connection for the client that its PROXY header named, and closes the connection that
    /// was kept for that client before. Closes the connection itself if `reuse.idle-max` of that server are
    /// kept.
    pub(crate) fn keep_for_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: SockId,
        down: SockId,
    ) {
        let client = self.conns.downstream(down);
        if let Some(before) = client.and_then(|client| facts_of(client).kept.take()) {
            self.close_upstream(reactor, before);
        }
        let Some(conn) = self.conns.upstream(up) else { return self.note_bug(reactor, up) };
        let (pool, server) = (usize::from(conn.pool), usize::from(conn.server));
        let idle_max = self.settings.newest().config.pools[pool].reuse.idle_max;
        let kept = &mut self.pools[pool].kept[server];
        match self.conns.downstream(down) {
            Some(client) if *kept < idle_max => {
                facts_of(client).kept = Some(up);
                *kept += 1;
                match self.conns.upstream(up) {
                    Some(conn) => conn.owner = down,
                    None => self.note_bug(reactor, up),
                }
            }
            Some(_) => self.close_upstream(reactor, up),
            None => {
                self.note_bug(reactor, down);
                self.close_upstream(reactor, up);
            }
        }
    }

    /// Removes the kept connection from the facts of its owner.
    pub(crate) fn forget_kept(&mut self, owner: SockId) {
        match self.conns.downstream(owner).and_then(|down| down.facts.as_deref_mut()) {
            Some(facts) => facts.kept = None,
            None => self.note_absent(owner),
        }
    }

    /// Closes the connection that was kept for a client that disconnected, and cancels the choice of its certificate.
    pub(crate) fn release_kept<R: Reactor>(&mut self, reactor: &mut R, down: &mut Downstream) {
        let Some(facts) = down.facts.as_deref_mut() else { return };
        let (kept, choice) = (facts.kept.take(), facts.choice.take());
        if let Some(kept) = kept {
            self.close_upstream(reactor, kept);
        }
        if let Some(choice) = choice {
            self.cancel_choice(choice);
        }
    }

    /// Notes that the handshake of a client waits for the choice of its certificate, or no longer waits.
    pub(crate) fn note_choice_of(&mut self, sock: SockId, choice: Option<Id<LuaChoice>>) {
        if let Some(down) = self.conns.downstream(sock) {
            facts_of(down).choice = choice;
        }
    }
}

fn facts_of(down: &mut Downstream) -> &mut ClientFacts {
    down.facts.get_or_insert_default()
}

/// Encodes the PROXY header for `client`, whose connection has the local address `local`.
fn encode_header(
    out: &mut Vec<u8>,
    client: &Downstream,
    local: Option<SocketAddr>,
    version: ProxyVersion,
) {
    let facts = client.facts.as_deref();
    let destination = facts.and_then(|facts| facts.destination).or(local);
    let endpoints = match (client.peer(), destination) {
        (Peer::Tcp(source), Some(destination)) => of_one_version(source, destination),
        (Peer::Tcp(_) | Peer::Local, _) => Endpoints::Unknown,
    };
    let session = facts.and_then(|facts| facts.session.as_ref());
    match (version, session) {
        (ProxyVersion::V1, _) => encode_text(out, &endpoints),
        (ProxyVersion::V2, None) => encode_binary(out, &endpoints, [], false),
        (ProxyVersion::V2, Some(session)) => {
            encode_binary(out, &endpoints, session.extensions(), false);
        }
    }
}

/// Both addresses as IPv4 if possible, otherwise both as IPv6: a header has one address family.
fn of_one_version(source: SocketAddr, destination: SocketAddr) -> Endpoints<'static> {
    let (source, destination) = (canonical(source), canonical(destination));
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    let (source, destination) = match source.is_ipv4() == destination.is_ipv4() {
        true => (source, destination),
        false => (mapped(source), mapped(destination)),
    };
    Endpoints::Ip { source, destination, transport: Transport::Stream }
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
