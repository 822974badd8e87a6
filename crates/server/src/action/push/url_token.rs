//! The tokens of clients that subscribe by URL: in the query, or in a cookie.
//! In: requests that name a channel. Out: subscriptions of clients whose tokens permit them; refusals.
//! Never: verifies more signatures by public keys in a turn than their share allows.
//! Limits: `TOKENS_SPAN_MAX`; `WAIT_MAX`. Invariant: a request that waits has no subscription.

use std::sync::Arc;

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::parameters::{decoded, find_cookie, find_parameter};
use tidegate_push::settings::{Client, Error, HubSettings};
use tidegate_push::token::{Claims, Refusal};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{OwnedHead, RequestHead};

use crate::action::Running;
use crate::action::push::{Kind, PushSession, TOKEN_PARAMETER};
use crate::requester::Requester;
use crate::worker::Worker;

/// How long a request may wait until its token is verified.
const WAIT_MAX: Span = Span::from_secs(10);

/// A request whose token is verified in a later turn.
pub(super) struct Unverified {
    head: OwnedHead,
    /// Index of the route.
    route: usize,
    channel: Box<str>,
}

/// Whether a client by URL may subscribe.
enum Permission {
    /// It may, until this moment.
    Until(Moment),
    /// It may not.
    Refused(Error),
    /// Its token is refused.
    Untrusted(Refusal),
    /// Its token must wait for its turn.
    Later,
}

impl Worker {
    /// Whether the client of a request may subscribe to `channel`, and until when. Returns `None` if the request was answered,
    /// or waits until its token is verified.
    pub(super) fn permit_by_url<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
        (channel, can_wait): (&str, bool),
    ) -> Option<Moment> {
        let hubs = Arc::clone(&self.push.settings);
        let Some(settings) = hubs.get(hub) else {
            self.note_absent(to.sock);
            self.answer_error(reactor, to, 500, "this hub does not exist", false);
            return None;
        };
        match self.judge_by_url(reactor, (settings, hub), head, channel, can_wait) {
            Permission::Until(end) => return Some(end),
            Permission::Later => {
                self.put_off_subscription(reactor, to, head, (route, hub), channel)
            }
            Permission::Refused(error) => {
                self.accounts.counters.push_refusals.add(1);
                self.refuse_subscription(reactor, to, hub, error);
            }
            Permission::Untrusted(refusal) => {
                self.accounts.counters.push_refusals.add(1);
                let text = match refusal {
                    Refusal::Invalid => "the token is not valid for this hub",
                    Refusal::Expired => "the token has expired",
                    Refusal::Unavailable => {
                        let (retry, text) =
                            (settings.push.retry, "the token keys are being fetched");
                        self.answer_later(reactor, to, retry, text, false);
                        return None;
                    }
                };
                self.answer_error(reactor, to, 401, text, false);
            }
        }
        None
    }

    fn judge_by_url<R: Reactor>(
        &mut self,
        reactor: &R,
        (settings, hub): (&HubSettings, u16),
        head: &RequestHead<'_>,
        channel: &str,
        can_wait: bool,
    ) -> Permission {
        let error = match settings.may_subscribe(channel, Client { user: "" }) {
            Ok(_) => return Permission::Until(Moment::NEVER),
            Err(error) => error,
        };
        let Some(token) = stated_token(head, settings).filter(|_| error == Error::PermissionDenied)
        else {
            return Permission::Refused(error);
        };
        let is_slow = settings.keys.is_slow();
        if is_slow && can_wait && self.push.tokens.is_used_up() {
            return Permission::Later;
        }
        let began = is_slow.then(|| reactor.read_clock());
        let unix_seconds = reactor.unix_seconds();
        let verified = self.push.verifier.verify((&self.push.settings, hub), &token, unix_seconds);
        if let Some(began) = began {
            self.push.tokens.note_call(reactor.read_clock().since(began));
            self.accounts.counters.tokens_verified.add(1);
        }
        let claims = match verified {
            Ok(claims) => claims,
            Err(refusal) => return Permission::Untrusted(refusal),
        };
        // `expire_at` replaces `exp`, which is verified with the signature.
        let leeway = settings.push.token_leeway.as_secs();
        if claims.ends_at().is_some_and(|end| end.saturating_add(leeway) <= unix_seconds) {
            return Permission::Untrusted(Refusal::Expired);
        }
        match settings.may_subscribe_by(channel, &claims) {
            Ok(_) => Permission::Until(end_of(&claims, settings, (reactor.now(), unix_seconds))),
            Err(error) => Permission::Refused(error),
        }
    }

    /// Lets a request wait until its token is verified.
    fn put_off_subscription<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
        channel: &str,
    ) {
        let mut kept = OwnedHead::default();
        kept.keep(head);
        let waiting = Unverified { head: kept, route, channel: channel.into() };
        let kind = Kind::Unverified(Box::new(waiting));
        let Some(id) = self.insert_session(reactor, to, hub, kind) else { return };
        self.accounts.counters.tokens_put_off.add(1);
        self.push.tokens.put_off(to.sock, id);
        self.set_action_deadline(reactor, to, reactor.now().after(WAIT_MAX));
    }

    /// Continues a request whose token has waited for its turn.
    pub(super) fn resume_subscription<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(PushSession { requester: to, hub, kind, .. }) = self.push.sessions.remove(id)
        else {
            return;
        };
        let Kind::Unverified(waiting) = kind else { return self.note_bug(reactor, to.sock) };
        self.set_running(to, Running::None);
        self.set_action_deadline(reactor, to, Moment::NEVER);
        let Unverified { head, route, channel } = *waiting;
        self.subscribe_by_url(reactor, to, &head.lend(), (route, hub), (&channel, false));
        // The bytes after the head.
        self.resume_request(to);
    }

    /// A request has waited for its turn for too long, or the process stops.
    pub(super) fn unverified_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, retry) = (session.requester, self.retry_of(session.hub));
        self.forget_session(id);
        self.answer_later(reactor, to, retry, "too many tokens wait for verification", true);
    }
}

/// The token that a request carries: in the query, or in the cookie of the hub.
fn stated_token(head: &RequestHead<'_>, settings: &HubSettings) -> Option<String> {
    let of_query = || {
        let value = find_parameter(head.query?, TOKEN_PARAMETER)?;
        String::from_utf8(decoded(value).collect()).ok()
    };
    let of_cookie = || {
        let value = find_cookie(head, settings.push.token_cookie.as_deref()?)?;
        Some(core::str::from_utf8(value).ok()?.to_owned())
    };
    of_query().or_else(of_cookie)
}

/// When the permission of a token ends. `now`: the moment, and the same in seconds since 1970.
fn end_of(claims: &Claims, settings: &HubSettings, (now, unix_seconds): (Moment, u64)) -> Moment {
    claims.ends_at().map_or(Moment::NEVER, |end| {
        let end = end.saturating_add(settings.push.token_leeway.as_secs());
        now.after(Span::from_secs(end.saturating_sub(unix_seconds)))
    })
}
