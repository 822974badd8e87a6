//! Request bodies that a script reads while they arrive (`on_upload`).
//! In: pieces of request bodies. Out: calls of `on_upload`; how much of a body the script takes now.
//! Never: reads faster than the script does; asks for a body (100) before the handler has had the chance to refuse it.
//! Limits: those of `tidegate_lua` for bytes that wait for a script; `limits.body` of the listener, but not `body-max`.
//! Invariant: once the response has begun, the rest of the body is discarded by the carrier, and nothing waits for it.

use tidegate_base::Id;
use tidegate_lua::{Handler, Vm};
use tidegate_reactor::Reactor;

use crate::action::lua::ScriptedRequest;
use crate::requester::Requester;
use crate::worker::Worker;

/// The body of a request of `on_upload`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upload {
    /// The client waits for 100 (RFC 9110 section 10.1.1) before it sends the body.
    pub(super) awaits_continue: bool,
    /// The body is complete, or the script does not get the rest.
    pub(super) is_over: bool,
}

/// Whether a VM reads the body of a request in pieces. Without a body, `on_request` is preferred.
pub(super) fn is_streamed(vm: &Vm, has_body: bool) -> bool {
    vm.has(Handler::Upload) && (has_body || !vm.has(Handler::Request))
}

impl Worker {
    /// Lets the VM read the body of a request in pieces.
    pub(super) fn begin_upload(&mut self, id: Id<ScriptedRequest>, has_body: bool) {
        self.in_vm(id, |vm, handle| {
            vm.begin_upload(handle);
            if !has_body {
                vm.end_body(handle);
            }
        });
    }

    /// The handler waits: it may wait for the body.
    pub(super) fn request_upload<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        to: Requester,
    ) {
        let upload = self.lua.requests.find_mut(id).and_then(ScriptedRequest::upload_mut);
        if upload.is_some_and(|upload| core::mem::take(&mut upload.awaits_continue)) {
            self.send_continue(reactor, to);
        }
    }

    /// Hands a piece of a body to the VM.
    pub(super) fn feed_upload(&mut self, id: Id<ScriptedRequest>, data: &[u8], is_end: bool) {
        let upload = self.lua.requests.find_mut(id).and_then(ScriptedRequest::upload_mut);
        let Some(upload) = upload.filter(|upload| !upload.is_over) else { return };
        upload.awaits_continue = false;
        upload.is_over = is_end;
        self.in_vm(id, |vm, handle| {
            vm.feed_body(handle, data);
            if is_end {
                vm.end_body(handle);
            }
        });
    }

    /// How many bytes of a body the script takes now. After 0, `Effect::BodyRoom` requests more.
    pub(super) fn upload_room(&mut self, id: Id<ScriptedRequest>) -> usize {
        let upload = self.lua.requests.find(id).and_then(ScriptedRequest::upload);
        match upload {
            Some(upload) if !upload.is_over => self.in_vm(id, Vm::body_room).unwrap_or(usize::MAX),
            Some(_) | None => usize::MAX,
        }
    }

    /// Whether the client has to send more of a body now.
    pub(super) fn awaits_upload(&self, id: Id<ScriptedRequest>) -> bool {
        self.needs_upload(id)
            && self.lua.requests.find(id).is_some_and(|request| {
                let vm = self.lua.apps.peek(request.app());
                vm.is_some_and(|vm| vm.has_body_room(request.handle()))
            })
    }

    /// Whether the script may still read more of a body.
    pub(super) fn needs_upload(&self, id: Id<ScriptedRequest>) -> bool {
        let upload = self.lua.requests.find(id).and_then(ScriptedRequest::upload);
        upload.is_some_and(|upload| !upload.is_over)
    }

    /// The response begins: the script does not get the rest of the body.
    pub(super) fn end_upload(&mut self, id: Id<ScriptedRequest>) {
        if let Some(upload) = self.lua.requests.find_mut(id).and_then(ScriptedRequest::upload_mut) {
            upload.is_over = true;
        }
    }
}
