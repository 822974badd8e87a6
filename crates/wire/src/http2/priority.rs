//! The priority of a response (RFC 9218). Priorities by RFC 7540 are ignored.
//! In: the value of a Priority field or of PRIORITY_UPDATE. Out: urgency and whether to send incrementally.
//! Never: fails; malformed or unknown parameters leave the defaults (RFC 9218 section 4).
//! Limits: `PRIORITY_BYTES_MAX` bytes of a value.

use super::bounds::PRIORITY_BYTES_MAX;

/// The priority of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    /// 0 (most urgent) to 7.
    pub urgency: u8,
    /// The client can use the response in parts, so responses of the same urgency share the connection.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// The priority that a value states: a dictionary of RFC 8941, of which only the members `u` and `i`
    /// count. A member that occurs twice has its last value.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        if value.len() > PRIORITY_BYTES_MAX {
            return priority;
        }
        for member in value.split(|&byte| byte == b',') {
            // Parameters of a member have no meaning here.
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_malformed_members_ignored() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i", 3, true),
            ("i=?1", 3, true),
            ("i, i=?0", 3, false),
            ("u=5;x=1,i;q", 5, true),
            (" u=1 ,  i=?1 ", 1, true),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=1.0", 3, false),
            ("u=\"1\"", 3, false),
            ("u=1, u=6", 6, false),
            ("U=1", 3, false),
            ("x, y=(1 2), u=2", 2, false),
        ] {
            let wanted = Priority { urgency, incremental };
            assert_eq!(Priority::parse(value.as_bytes()), wanted, "{value}");
        }
        let long = [b"u=1,".as_slice(), &[b'x'; PRIORITY_BYTES_MAX]].concat();
        assert_eq!(Priority::parse(&long), Priority::default());
    }
}
