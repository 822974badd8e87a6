//! Decisions of applications in tests: about events of push hubs, about servers, and about certificates.
//! In: orders of the test. Out: calls of `on_push`, `on_balance` and `on_certificate`; what they have decided.

use serde_json::{Value, json};
use tidegate_base::{CertificateChoice, Span};
use tidegate_lua::{BalanceParts, CallbackEnd, Handler, HubEventParts, OperationId, TlsHelloParts};
use tidegate_wire::tls::CertificateFacts;

use super::stage::{NO_TAG, Stage};

/// How long `on_push` may take, as with the default of `timeout`.
const EVENT_SPAN: Span = Span::from_secs(1);
/// How long `on_certificate` may take.
const CHOICE_SPAN: Span = Span::from_secs(3);

impl Stage {
    /// Hands an event to `on_push`.
    pub(super) fn decide(
        &mut self,
        operation: OperationId,
        arguments: &Value,
        data: &[u8],
    ) -> Result<(), String> {
        if !self.vm.has(Handler::Push) {
            return Err("the application has no on_push".to_owned());
        }
        let tag = self.take_tag();
        let event = self.vm.open_event(tag, self.now.after(EVENT_SPAN)).ok_or("too many events")?;
        self.events.insert(tag, (event, operation));
        let text = |name: &str| arguments[name].as_str().unwrap_or_default();
        let (hub, kind, fields) = (text("hub"), text("kind"), text("fields").as_bytes());
        let parts = HubEventParts { hub, kind, fields, body: data, first: 1 };
        let verdict = self.vm.hub_event(event, &parts);
        self.note_event(tag, &verdict);
        Ok(())
    }

    /// `on_push` has ended or waits.
    pub(super) fn note_event(&mut self, tag: u64, verdict: &CallbackEnd) {
        let failure = self.note_failure("on_push", verdict);
        self.carry_out();
        if let Some(failure) = failure
            && let Some((_, operation)) = self.events.remove(&tag)
        {
            self.complete(operation, &json!({ "failure": failure.message }), b"");
        }
    }

    /// Lets `on_certificate` choose one of the certificates that the test describes.
    pub(super) fn choose_certificate(
        &mut self,
        operation: OperationId,
        arguments: &Value,
    ) -> Result<(), String> {
        if !self.vm.has(Handler::Certificate) {
            return Err("the application has no on_certificate".to_owned());
        }
        let names_of = |names: &Value| {
            let names = names.as_array().into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let certificates = arguments["certificates"].as_array().into_iter().flatten();
        let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let parts = TlsHelloParts {
            name: text("name"),
            listener: text("listener"),
            client: text("client"),
            certificates: certificates
                .map(|names| CertificateFacts { names: names_of(names), not_after: None })
                .collect(),
        };
        let tag = self.take_tag();
        let by = self.now.after(CHOICE_SPAN);
        let hello = self.vm.open_hello(tag, by, parts).ok_or("too many handshakes wait")?;
        self.hellos.insert(tag, operation);
        let verdict = self.vm.hello(hello);
        self.note_hello(tag, &verdict);
        Ok(())
    }

    /// `on_certificate` has ended or waits.
    pub(super) fn note_hello(&mut self, tag: u64, verdict: &CallbackEnd) {
        let failure = self.note_failure("on_certificate", verdict);
        self.carry_out();
        if let Some(failure) = failure
            && let Some(operation) = self.hellos.remove(&tag)
        {
            self.complete(operation, &json!({ "failure": failure.message }), b"");
        }
    }

    /// `on_certificate` has chosen.
    pub(super) fn note_certificate(&mut self, tag: u64, choice: &CertificateChoice) {
        let Some(operation) = self.hellos.remove(&tag) else { return };
        let choice = match choice {
            CertificateChoice::Requested => json!({}),
            CertificateChoice::Named(name) => json!({ "choice": name }),
            CertificateChoice::Index(at) => json!({ "choice": at + 1 }),
            CertificateChoice::Refused => json!({ "choice": false }),
        };
        self.complete(operation, &choice, b"");
    }

    /// Lets `on_balance` choose one of the servers that the test describes.
    pub(super) fn balance(
        &mut self,
        operation: OperationId,
        arguments: &Value,
    ) -> Result<(), String> {
        if !self.vm.has(Handler::Balance) {
            return Err("the application has no on_balance".to_owned());
        }
        let exchange = self.open(arguments, b"", NO_TAG, false)?;
        let text = |name: &str| arguments[name].as_str().unwrap_or_default();
        let number = arguments["number"].as_u64().and_then(|number| u32::try_from(number).ok());
        let parts = BalanceParts {
            pool: text("pool"),
            number: number.unwrap_or(1),
            servers: text("servers").as_bytes(),
            count: text("servers").lines().count(),
        };
        let verdict = self.vm.balance(exchange, &parts);
        let choice = self.vm.take_choice(exchange).map(|at| at + 1);
        let failure = self.note_failure("on_balance", &verdict).map(|failure| failure.message);
        self.carry_out();
        self.vm.close_request(exchange);
        self.complete(operation, &json!({ "server": choice, "failure": failure }), b"");
        Ok(())
    }
}
