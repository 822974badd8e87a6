//! `on_certificate` of the applications that listeners name in `lua` of their `tls`: the certificate of a connection.
//! In: handshakes whose ClientHello is complete. Out: the choice of the script, for the TLS layer.
//! Never: lets a handshake fail because its hook fails: the requested name then selects the certificate.
//! Limits: `CHOICE_SPAN` for a hook that waits, or half of the handshake's timeout if that is shorter; those of
//! `tidegate_lua`. Callbacks run in their share of a turn.
//! Invariant: each handshake that a VM keeps has an entry in `LuaState::choices`, and the reverse. The client of an entry names
//! it in its facts.

use tidegate_base::{CertificateChoice, Id, Span};
use tidegate_lua::{CallbackEnd, Handler, TlsHelloId, TlsHelloParts};
use tidegate_reactor::{Reactor, SockId};
use tidegate_secure::Hello;

use crate::worker::Worker;

/// How long a hook may take to choose.
const CHOICE_SPAN: Span = Span::from_secs(3);

/// A handshake that waits for the choice of its certificate.
#[derive(Debug)]
pub(crate) struct LuaChoice {
    /// The index of the application.
    app: u16,
    /// The VM's id of the handshake.
    handle: TlsHelloId,
    /// The connection.
    sock: SockId,
}

impl LuaChoice {
    /// Notes that a reload has changed the index of an application.
    pub(super) fn rename_app(&mut self, from: usize, to: usize) {
        if usize::from(self.app) == from {
            self.app = to as u16;
        }
    }

    /// The connection.
    pub(crate) fn sock(&self) -> SockId {
        self.sock
    }
}

impl Worker {
    /// Lets the application of the listener choose the certificate of a connection.
    pub(crate) fn begin_certificate_choice<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        hello: &Hello<'_>,
    ) {
        let Some(opened) = self.open_choice(reactor, sock, hello) else {
            return reactor.choose_certificate(sock, CertificateChoice::Requested);
        };
        let Some(id) = opened else {
            self.accounts.counters.lua_certificate_failures.add(1);
            return reactor.choose_certificate(sock, CertificateChoice::Requested);
        };
        match self.lua.share.is_used_up() {
            true => self.lua.put_off_choices.push_back(id),
            false => self.ask_for_certificate(reactor, id),
        }
    }

    /// Hands a handshake to the VM. `None`: the listener has no hook; `Some(None)`: the hook cannot run.
    fn open_choice<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        hello: &Hello<'_>,
    ) -> Option<Option<Id<LuaChoice>>> {
        let (now, seconds) = (reactor.now(), reactor.unix_seconds());
        let down = self.conns.downstream(sock)?;
        let (listener, peer) = (usize::from(down.listener), down.peer());
        let listener = self.settings.newest().config.listeners.get(listener)?;
        let tls = listener.tls.as_ref()?;
        let name = tls.lua.as_deref()?;
        let span = CHOICE_SPAN.min(tls.handshake_timeout / 2);
        let parts = TlsHelloParts {
            name: hello.name.unwrap_or_default().to_owned(),
            listener: listener.name.clone(),
            client: peer.ip().map_or_else(String::new, |address| address.to_string()),
            certificates: hello.certificates.clone(),
        };
        let Some(app) = self.lua.apps.named(name) else { return Some(None) };
        let vm = self.lua.apps.vm(app, now, seconds);
        let Some(vm) = vm.filter(|vm| vm.has(Handler::Certificate)) else { return Some(None) };
        let entry = LuaChoice { app: app as u16, handle: Id::NONE, sock };
        let Ok(id) = self.lua.choices.insert(entry) else { return Some(None) };
        let handle = vm.open_hello(tag_of(id), now.after(span), parts);
        let (Some(handle), Some(entry)) = (handle, self.lua.choices.get_mut(id)) else {
            self.lua.choices.remove(id);
            return Some(None);
        };
        entry.handle = handle;
        self.note_choice_of(sock, Some(id));
        Some(Some(id))
    }

    /// Runs `on_certificate`.
    fn ask_for_certificate<R: Reactor>(&mut self, reactor: &mut R, id: Id<LuaChoice>) {
        let Some(choice) = self.lua.choices.get(id) else { return };
        let (app, handle) = (usize::from(choice.app), choice.handle);
        let verdict = self.call_app(reactor, app, "on_certificate", None, |vm| vm.hello(handle));
        self.note_choice_turn(reactor, tag_of(id), verdict.as_ref());
    }

    /// Begins the callbacks that had to wait for a later turn.
    pub(super) fn resume_put_off_choices<R: Reactor>(&mut self, reactor: &mut R) {
        while !self.lua.share.is_used_up()
            && let Some(id) = self.lua.put_off_choices.pop_front()
        {
            self.ask_for_certificate(reactor, id);
        }
    }

    /// `on_certificate` has ended or waits. If it has chosen, `take_lua_choice` has taken the choice.
    pub(super) fn note_choice_turn<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        verdict: Option<&CallbackEnd>,
    ) {
        if verdict != Some(&CallbackEnd::Waiting) {
            self.fail_choice(reactor, id_of(tag));
        }
    }

    /// Carries out `Effect::ChooseCertificate`.
    pub(super) fn take_lua_choice<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        chosen: &CertificateChoice,
    ) {
        let Some(choice) = self.lua.choices.remove(id_of(tag)) else { return };
        self.note_choice_of(choice.sock, None);
        let is_chosen = *chosen != CertificateChoice::Requested;
        self.accounts.counters.lua_certificates.add(u64::from(is_chosen));
        reactor.choose_certificate(choice.sock, chosen.clone());
    }

    /// The hook of a handshake has chosen nothing: the requested name selects the certificate.
    fn fail_choice<R: Reactor>(&mut self, reactor: &mut R, id: Id<LuaChoice>) {
        let Some(sock) = self.close_choice(id) else { return };
        self.note_choice_of(sock, None);
        self.accounts.counters.lua_certificate_failures.add(1);
        reactor.choose_certificate(sock, CertificateChoice::Requested);
    }

    /// The VM of an application is gone: its handshakes continue without it.
    pub(super) fn fail_choices_of<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        let of_app = |(id, choice): (Id<LuaChoice>, &LuaChoice)| {
            (usize::from(choice.app) == app).then_some(id)
        };
        let choices: Vec<_> = self.lua.choices.iter().filter_map(of_app).collect();
        for id in choices {
            self.fail_choice(reactor, id);
        }
    }

    /// The client of a handshake has left.
    pub(crate) fn cancel_choice(&mut self, id: Id<LuaChoice>) {
        self.close_choice(id);
    }

    /// Forgets a handshake. Returns its connection.
    fn close_choice(&mut self, id: Id<LuaChoice>) -> Option<SockId> {
        let choice = self.lua.choices.remove(id)?;
        if let Some(vm) = self.lua.apps.present(usize::from(choice.app)) {
            vm.close_hello(choice.handle);
        }
        Some(choice.sock)
    }
}

/// The tag by which a VM addresses a handshake.
fn tag_of(id: Id<LuaChoice>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The handshake that a VM addresses by this tag.
fn id_of(tag: u64) -> Id<LuaChoice> {
    Id::new(tag as u32, (tag >> 32) as u32)
}
