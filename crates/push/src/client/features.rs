//! The optional features of a subscription: deltas, or a filter.
//! In: the features that the client requests; the publications for it. Out: the features that it gets; the publications that its
//! filter admits, and their form. Never: grants a feature that the namespace does not allow.
//! Limits: those of `filter.rs`; `FILTERS_BYTES_MAX` for the filters of a connection.
//! Invariant: a subscription with a filter has no deltas.

use std::sync::Arc;

use tidegate_config::model::Deltas;

use crate::client::command::Subscribe;
use crate::client::{Connection, Context};
use crate::filter::Filter;
use crate::mail::Subscribed;
use crate::publication::{Form, Publication};
use crate::settings::Error;
use crate::stream::Recovered;

/// The patch format that clients may request.
pub(super) const FOSSIL: &str = "fossil";

/// Maximum memory that the filters of a connection take.
pub const FILTERS_BYTES_MAX: usize = 32 * 1024;

/// The optional features of a subscription.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    /// The serial number (`Lineage::serial`) of the last message that the client was sent since it subscribed, of which the
    /// next message may be a patch; 0 if it was sent no message. `None`: no patches.
    pub(super) newest: Option<u64>,
    /// The messages that the client gets; `None`: all of them.
    pub(super) filter: Option<Filter>,
}

impl Features {
    /// The memory of the filter.
    pub(super) fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::cost_bytes)
    }
}

impl Connection {
    /// What the client gets of a publication: the newest of it and the older ones with it that the client has not published, and that its
    /// filter, if it has one, admits.
    #[must_use]
    pub fn chosen<'p>(&self, publication: &'p Arc<Publication>) -> Option<&'p Arc<Publication>> {
        if publication.audience.is_none() {
            return Some(publication);
        }
        let subscription = self.subscriptions.get(&publication.channel);
        let features = subscription.and_then(|known| known.features.as_ref());
        let filter = features.and_then(|features| features.filter.as_ref());
        let name = self.name.text();
        publication.chosen(|one| {
            *one.sender() != *name
                && filter.is_none_or(|filter| filter.admits(one.tags_of_audience()))
        })
    }

    /// The form in which the client is sent a publication now.
    pub fn choose_form(&mut self, publication: &Publication) -> Form {
        let plain = self.codec.form();
        let Some(lineage) = &publication.lineage else { return plain };
        let subscription = self.subscriptions.get_mut(&publication.channel);
        let features = subscription.and_then(|known| known.features.as_mut());
        let Some(newest) = features.and_then(|features| features.newest.as_mut()) else {
            return plain;
        };
        let before = core::mem::replace(newest, lineage.serial());
        lineage.form(self.codec, &publication.data, before)
    }
}

/// The features of a subscription that the client requests and the namespace allows.
///
/// # Errors
/// The namespace does not allow a filter, or the filter is malformed or too large.
pub(super) fn features<K>(
    context: &Context<'_, K>,
    subscribe: &Subscribe,
) -> Result<Option<Box<Features>>, Error> {
    let namespace = context.hub_settings()?.channel(&subscribe.channel)?;
    if let Some(stated) = &subscribe.filter {
        // Without the filter the client would get messages that it does not expect.
        if !namespace.tag_filters {
            return Err(Error::BadRequest);
        }
        let filter = Filter::new(stated).map_err(|_| Error::BadRequest)?;
        // A message that is left out breaks the chain of patches, so a filter excludes them, as in Centrifugo.
        return Ok(Some(Box::new(Features { newest: None, filter: Some(filter) })));
    }
    let has_deltas = subscribe.delta == FOSSIL && namespace.deltas != Deltas::Off;
    Ok(has_deltas.then(|| Box::new(Features { newest: Some(0), filter: None })))
}

/// The recovered publications that the client's filter admits. If it admits none, the client continues after the newest
/// publication.
pub(super) fn filtered(filter: &Filter, reply: &Subscribed) -> Subscribed {
    let admits = |one: &&Arc<Publication>| filter.admits(one.tags_of_audience());
    let recovered = reply.recovered.as_ref().map(|recovered| Recovered {
        publications: recovered.publications.iter().filter(admits).cloned().collect(),
        ..*recovered
    });
    Subscribed { position: reply.position, recovered }
}
