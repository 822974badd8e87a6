//! Checks of scripts that need no worker.
//! In: the configuration, the programs. Out: what is wrong with a script.
//! Never: changes dictionaries or queues that applications share.

use std::sync::Arc;

use tidegate_config::findings::Finding;
use tidegate_config::model::{BackendTarget, Config, Listener, Push, Route};
use tidegate_lua::{Dictionary, Handler, Queue, Vm};

use crate::apps::{Meter, Place, environment};
use crate::scripts::{Program, finding, read};

/// Loads every script once, as `tidegate check` does. Returns what is wrong.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let scripts = match read(config) {
        Ok(scripts) => scripts,
        Err(findings) => return findings,
    };
    let fails = |(index, app)| {
        let what = fault_of(config, index, scripts[index].as_ref()?)?;
        Some(finding(index, app, what))
    };
    config.lua.iter().enumerate().filter_map(fails).collect()
}

/// Loads a script on this thread, with separate dictionaries and queues: a script that is refused changes nothing. Returns what is wrong
/// with it.
pub(crate) fn fault_of(config: &Config, index: usize, program: &Arc<Program>) -> Option<String> {
    let app = &config.lua[index];
    let (bounds, mut facts, find) = environment(app, program, Meter::Time, Place::ONLY, 0);
    let empty = |(name, bytes): &(String, usize)| (name.clone(), Arc::new(Dictionary::new(*bytes)));
    facts.shared = app.shared.iter().map(empty).collect();
    let empty = |(name, bytes): &(String, usize)| (name.clone(), Arc::new(Queue::new(*bytes)));
    facts.queues = app.queues.iter().map(empty).collect();
    match Vm::load(&program.script, &bounds, facts, find) {
        Ok(mut vm) => lack(config, index, &mut vm).map(str::to_owned),
        Err(failure) => Some(failure.message),
    }
}

/// The handler that routes need and the script lacks.
pub(crate) fn lack(config: &Config, app: usize, vm: &mut Vm) -> Option<&'static str> {
    let hooks = |route: &Route| route.handling.hooks.as_ref().is_some_and(|hooks| hooks.app == app);
    let of_hooks = [
        Handler::Access,
        Handler::Balance,
        Handler::Response,
        Handler::Body,
        Handler::Frame,
        Handler::Log,
    ];
    if config.routes.iter().any(hooks) && !of_hooks.into_iter().any(|of| vm.has(of)) {
        let what = "has no handler for `hooks` of a route: on_access, on_balance, on_response, on_body, on_frame or on_log";
        return Some(what);
    }
    let name = &config.lua[app].name;
    let chooses = |listener: &Listener| {
        listener.tls.as_ref().is_some_and(|tls| tls.lua.as_ref() == Some(name))
    };
    if config.listeners.iter().any(chooses) && !vm.has(Handler::Certificate) {
        return Some("has no handler for `tls` of a listener: on_certificate");
    }
    let decides = |hub: &Push| {
        let target = hub.backend.as_ref().map(|backend| &backend.target);
        matches!(target, Some(BackendTarget::Lua(app)) if app == name)
    };
    let lacks = config.push.iter().any(decides) && !vm.has(Handler::Push);
    lacks.then_some("has no handler for `backend` of a push hub: on_push")
}
