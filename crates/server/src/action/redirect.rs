//! The action `redirect`, and the redirect of plain requests to https.
//! In: a request and the configured target. Out: its response. Never: lasts longer than the call.

use tidegate_config::model::{HttpsRedirect, Redirect};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::answer::Answer;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Redirects the request, which was sent by `scheme`, to the target of its route.
    pub(super) fn redirect<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        redirect: &Redirect,
        (scheme, values): (Scheme, Option<&Values<'_>>),
    ) {
        self.answer(reactor, to, &Answer::Redirect { redirect, head, scheme, values }, false);
    }

    /// Redirects a plain request to the same URL by https.
    pub(super) fn redirect_to_https<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        redirect: HttpsRedirect,
    ) {
        self.answer(reactor, to, &Answer::HttpsRedirect { redirect, head }, false);
    }
}
