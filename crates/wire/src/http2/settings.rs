//! The settings of one side (RFC 9113 section 6.5, RFC 8441, RFC 9218 section 2.1).
//! In: the payload of SETTINGS. Out: `Settings`, or a fault; entries to send.
//! Never: takes more time than a comparison per entry.
//! Limits: `SETTINGS_ENTRIES_MAX` entries in a frame.

use super::bounds::{FRAME_BYTES_MAX, SETTINGS_ENTRIES_MAX, WINDOW_INITIAL, WINDOW_MAX};
use super::connection::Role;
use super::fault::FaultKind;

/// Identifiers of settings.
pub(super) mod id {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(crate) const ENABLE_PUSH: u16 = 0x2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The settings that the peer has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The largest table that this side's encoder may use.
    pub header_table_bytes: u32,
    /// The streams that this side may have open at once; `None` if the peer has not stated a limit.
    pub streams_max: Option<u32>,
    /// The first window of each stream for DATA that this side sends.
    pub initial_window: u32,
    /// The largest payload of a frame that this side may send.
    pub frame_bytes_max: u32,
    /// The largest header list that the peer accepts, as it announced. Advisory.
    pub header_list_bytes_max: Option<u32>,
    /// The peer accepts extended CONNECT (RFC 8441).
    pub connect_protocol: bool,
    /// The peer does not use the priorities of RFC 7540; `None` before its first SETTINGS.
    pub no_rfc7540_priorities: Option<bool>,
}

impl Settings {
    /// The initial values.
    pub(super) const INITIAL: Self = Self {
        header_table_bytes: super::hpack::TABLE_BYTES_INITIAL,
        streams_max: None,
        initial_window: WINDOW_INITIAL,
        frame_bytes_max: FRAME_BYTES_MAX,
        header_list_bytes_max: None,
        connect_protocol: false,
        no_rfc7540_priorities: None,
    };

    /// Applies the payload of a SETTINGS frame, which `sender` has sent. Unknown settings are ignored. Returns the smallest
    /// `header_table_bytes` that was in force: the frame may contain several values, which apply one after the other (RFC 9113
    /// section 6.5.3).
    pub(super) fn apply(&mut self, payload: &[u8], sender: Role) -> Result<u32, FaultKind> {
        let (entries, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(FaultKind::FrameLengthInvalid);
        }
        if entries.len() > SETTINGS_ENTRIES_MAX {
            return Err(FaultKind::TooManySettings);
        }
        let mut no_rfc7540_priorities = None;
        let mut smallest_table = u32::MAX;
        for &[a, b, c, d, e, f] in entries {
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                id::NO_RFC7540_PRIORITIES => no_rfc7540_priorities = Some(as_bool(value)?),
                id => {
                    self.apply_entry(id, value, sender)?;
                    smallest_table = smallest_table.min(self.header_table_bytes);
                }
            }
        }
        // RFC 9218 section 2.1: the value must not change after the first SETTINGS.
        let stated = no_rfc7540_priorities.or(self.no_rfc7540_priorities).unwrap_or(false);
        if self.no_rfc7540_priorities.is_some_and(|before| before != stated) {
            return Err(FaultKind::SettingInvalid);
        }
        self.no_rfc7540_priorities = Some(stated);
        Ok(smallest_table.min(self.header_table_bytes))
    }

    fn apply_entry(&mut self, id: u16, value: u32, sender: Role) -> Result<(), FaultKind> {
        match id {
            id::HEADER_TABLE_SIZE => self.header_table_bytes = value,
            // RFC 9113 section 6.5.2: a server must not send 1.
            id::ENABLE_PUSH => {
                let enabled = as_bool(value)?;
                if enabled && sender == Role::Server {
                    return Err(FaultKind::SettingInvalid);
                }
            }
            id::MAX_CONCURRENT_STREAMS => self.streams_max = Some(value),
            id::INITIAL_WINDOW_SIZE => {
                if value > WINDOW_MAX {
                    return Err(FaultKind::InitialWindowInvalid);
                }
                self.initial_window = value;
            }
            id::MAX_FRAME_SIZE => {
                if !(FRAME_BYTES_MAX..1 << 24).contains(&value) {
                    return Err(FaultKind::SettingInvalid);
                }
                self.frame_bytes_max = value;
            }
            id::MAX_HEADER_LIST_SIZE => self.header_list_bytes_max = Some(value),
            // RFC 8441 section 3: the value must not change back to 0.
            id::ENABLE_CONNECT_PROTOCOL => {
                let enabled = as_bool(value)?;
                if self.connect_protocol && !enabled {
                    return Err(FaultKind::SettingInvalid);
                }
                self.connect_protocol = enabled;
            }
            _ => {}
        }
        Ok(())
    }
}

const fn as_bool(value: u32) -> Result<bool, FaultKind> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FaultKind::SettingInvalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(entries: &[(u16, u32)], sender: Role) -> Result<Settings, FaultKind> {
        let mut frame = Vec::new();
        crate::http2::frame::encode_settings(&mut frame, entries);
        let mut settings = Settings::INITIAL;
        settings.apply(&frame[9..], sender)?;
        Ok(settings)
    }

    #[test]
    fn values_are_checked_as_rfc_9113_requires() {
        use FaultKind::{InitialWindowInvalid, SettingInvalid, TooManySettings};
        for (entry, sender, wanted) in [
            ((1, u32::MAX), Role::Client, None),
            ((2, 0), Role::Server, None),
            ((2, 1), Role::Client, None),
            ((2, 1), Role::Server, Some(SettingInvalid)),
            ((2, 2), Role::Client, Some(SettingInvalid)),
            ((3, 0), Role::Client, None),
            ((4, WINDOW_MAX), Role::Client, None),
            ((4, WINDOW_MAX + 1), Role::Client, Some(InitialWindowInvalid)),
            ((5, 16_383), Role::Client, Some(SettingInvalid)),
            ((5, 16_384), Role::Client, None),
            ((5, (1 << 24) - 1), Role::Client, None),
            ((5, 1 << 24), Role::Client, Some(SettingInvalid)),
            ((6, 0), Role::Client, None),
            ((8, 1), Role::Server, None),
            ((8, 2), Role::Server, Some(SettingInvalid)),
            ((9, 1), Role::Client, None),
            ((9, 2), Role::Client, Some(SettingInvalid)),
            ((0x1a2a, 7), Role::Client, None),
        ] {
            assert_eq!(apply(&[entry], sender).err(), wanted, "{entry:?}");
        }
        let entries = [(3, 1); SETTINGS_ENTRIES_MAX + 1];
        assert!(apply(&entries[1..], Role::Client).is_ok());
        assert_eq!(apply(&entries, Role::Client).err(), Some(TooManySettings));
    }

    #[test]
    fn settings_that_must_not_change_are_rejected_when_they_change() {
        let mut settings = apply(&[(8, 1)], Role::Server).unwrap();
        assert_eq!(settings.apply(b"\0\x08\0\0\0\0", Role::Server), Err(FaultKind::SettingInvalid));
        let mut settings = apply(&[(3, 1)], Role::Client).unwrap();
        assert!(settings.apply(b"\0\x09\0\0\0\0", Role::Client).is_ok());
        assert_eq!(
            settings.apply(b"\0\x09\0\0\0\x01", Role::Client),
            Err(FaultKind::SettingInvalid)
        );
    }
}
