//! The head of a server's response, which `on_response` may change before the client gets it.
//! In: the status and the fields of the response; changes by the script. Out: the changes.
//! Never: lets a script change how the message is framed.
//! Limits: those of `Overrides`.

use tidegate_base::Moment;
use tidegate_wire::message::{Overrides, ResponseHead};

use crate::exchange::check_reply_field;

/// Fields that describe the bytes of the content, or offer parts of it (RFC 9110 section 14.3, RFC 9530).
const CONTENT_FIELDS: [&str; 5] =
    ["accept-ranges", "content-digest", "content-md5", "digest", "repr-digest"];

/// The head of a response; see the module header.
#[derive(Debug)]
pub struct ReplyHead {
    /// The status of the server.
    received: u16,
    /// The fields of the server: `name: value` and a line feed each.
    fields: Vec<u8>,
    /// The status that the client gets.
    pub status: u16,
    /// The fields that the client gets in place of received ones.
    pub changes: Overrides,
    /// The script wants the body unchanged: `on_body` does not run.
    pub keeps_body: bool,
    /// The script counts the response as a failure of its server.
    pub is_failed: bool,
    /// When `on_response` is stopped at the latest.
    pub(crate) decide_by: Moment,
}

impl ReplyHead {
    /// The head of a response.
    #[must_use]
    pub fn new(head: &ResponseHead<'_>) -> Self {
        let mut fields = Vec::new();
        for field in head.fields() {
            fields.extend_from_slice(field.name.as_bytes());
            fields.extend_from_slice(b": ");
            fields.extend_from_slice(field.value);
            fields.push(b'\n');
        }
        let (status, changes) = (head.status, Overrides::default());
        let (keeps_body, is_failed, decide_by) = (false, false, Moment::NEVER);
        Self { received: status, fields, status, changes, keeps_body, is_failed, decide_by }
    }

    /// Whether the head that the client gets differs from the head that the server sent.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.status != self.received || !self.changes.is_empty()
    }

    /// The names and values of the fields after the changes. Names are in any case.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let received = crate::exchange::fields_of(&self.fields);
        received.filter(|(name, _)| !self.changes.drops(name)).chain(self.changes.written())
    }

    /// Whether a response without content describes content that `on_body` changes: a response to HEAD, or with 304 (RFC 9110
    /// sections 8.6 and 15.4.5). `on_body` does not run for content that is known to be empty.
    #[must_use]
    pub fn describes_changed_body(&self, is_head: bool, length: Option<u64>) -> bool {
        match self.received {
            304 => true,
            204 | 205 => false,
            _ => is_head && length != Some(0),
        }
    }

    /// Corrects the fields that no longer describe the body after a script has changed it: an ETag becomes a weak one (RFC 9110
    /// section 8.8.1), and fields that describe the bytes of the content are removed.
    ///
    /// # Errors
    /// There are too many changed fields.
    pub fn describe_changed_body(&mut self) -> Result<(), &'static str> {
        for name in CONTENT_FIELDS {
            if self.fields().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                self.changes.remove(name)?;
            }
        }
        let tag = self.fields().find(|(name, _)| name.eq_ignore_ascii_case("etag"));
        let tag = tag.map(|(_, value)| value).filter(|value| value.starts_with(b"\""));
        if let Some(weak) = tag.map(|value| [b"W/", value].concat()) {
            self.changes.remove("etag")?;
            self.changes.add("etag", &weak)?;
        }
        Ok(())
    }

    /// Sets the status. A status without content (204, 205, 304) can neither be set nor be replaced, because the content of
    /// the response is framed according to its status.
    pub(crate) fn set_status(&mut self, status: u32) -> Result<(), &'static str> {
        let has_no_content = |status: u32| matches!(status, 204 | 205 | 304);
        match status {
            200..=599 if u32::from(self.received) == status => {}
            200..=599 if has_no_content(status) || has_no_content(self.received.into()) => {
                return Err("the status cannot change whether the response has content");
            }
            200..=599 => {}
            _ => return Err("the status must be 200 to 599"),
        }
        self.status = status as u16;
        Ok(())
    }

    /// Removes the fields of this name, or adds a field.
    pub(crate) fn change_field(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        check_reply_field(name, value)?;
        let name = core::str::from_utf8(name).map_err(|_| "the name must be ASCII")?;
        match value {
            None => self.changes.remove(name)?,
            Some(value) => self.changes.add(name, value.trim_ascii())?,
        }
        Ok(())
    }
}
