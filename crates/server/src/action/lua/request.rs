//! Requests of Lua applications to servers (`tide.http.request`).
//! In: `Effect::Http` of a script. Out: an internal request, whose response goes to the VM (`carrier/internal_request.rs`).
//! Never: sends a request to a pool that the application does not list.
//! Limits: `requests-max` of the application for each VM; those of `carrier/internal_request.rs`.

use tidegate_gate::internal_request;
use tidegate_lua::{OperationId, Outbox, Outgoing};
use tidegate_reactor::Reactor;

use crate::carrier::internal_request::{AppCaller, Caller, InternalRequest, NO_MEMORY, tag_of};
use crate::worker::Worker;

impl Worker {
    /// Carries out `Effect::Http`.
    pub(super) fn send_lua_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        operation: OperationId,
        (request, outbox): (&Outgoing, &Outbox),
    ) {
        let life = self.lua.apps.life(app);
        if let Err(why) = self.begin_lua_request(reactor, (app, life), operation, (request, outbox))
        {
            self.accounts.counters.lua_refused_requests.add(1);
            self.lua.apps.complete_request(app, life, operation, Err(why));
        }
    }

    fn begin_lua_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (app, life): (usize, u32),
        operation: OperationId,
        (request, outbox): (&Outgoing, &Outbox),
    ) -> Result<(), &'static str> {
        let pool = self.pool_of_app(app, request.pool).ok_or("the pool has been removed")?;
        if self.stopping && self.conns.downstream_count() == 0 {
            return Err("the process is stopping");
        }
        let text = |range| core::str::from_utf8(outbox.get(range)).unwrap_or_default();
        let body = request.body.as_ref().map(|body| outbox.get(body));
        let parts = internal_request::InternalRequest {
            method: text(&request.method),
            target: text(&request.target),
            host: text(&request.host),
            fields: outbox.get(&request.fields),
            length: body.map(|body| body.len() as u64),
        };
        let caller = Caller::App(AppCaller { app: app as u16, life, operation });
        let body = body.unwrap_or_default().to_vec();
        let by = reactor.now().after(request.timeout);
        let own = InternalRequest::new(caller, body, request.body_bytes_max, by);
        let id = self.open_own(reactor, own).ok_or(NO_MEMORY)?;
        self.accounts.counters.lua_requests.add(1);
        let is_wanted =
            self.lua.apps.present(app).is_some_and(|vm| vm.note_begun(operation, tag_of(id)));
        match is_wanted {
            true => self.begin_own_exchange(reactor, id, &parts, pool),
            false => self.cancel_own(reactor, id),
        }
        Ok(())
    }

    /// The index of the pool at this place of the application's `pools`. The index may change with the configuration, the name
    /// does not.
    pub(super) fn pool_of_app(&self, app: usize, place: usize) -> Option<u16> {
        let name = self.lua.apps.settings(app)?.pools.get(place)?;
        self.pool_named(name)
    }

    /// The index of a pool.
    pub(in crate::action) fn pool_named(&self, name: &str) -> Option<u16> {
        let snapshot = self.settings.newest();
        let mut pools = snapshot.config.pools.iter().zip(0_u16..);
        let found = pools.find(|(pool, at)| pool.name == name && !snapshot.is_pool_gone(*at));
        found.map(|(_, at)| at)
    }
}
