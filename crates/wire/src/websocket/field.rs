//! The lists in the fields of the handshake (RFC 6455 sections 4.3 and 9.1, RFC 9110 section 5.6).
//! In: field values. Out: tokens, and the parameters of extensions.
//! Never: skips text that does not follow the grammar, except empty list elements.
//! Invariant: every call makes progress or ends the list.

/// A field value does not follow its grammar, or states something that was not offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// A parameter of an extension: its name and its value, without quotes.
pub(super) type Parameter<'v> = (&'v [u8], Option<&'v [u8]>);

/// Reads the list of one field value.
#[derive(Debug)]
pub(super) struct Cursor<'v> {
    rest: &'v [u8],
}

impl<'v> Cursor<'v> {
    pub(super) const fn new(value: &'v [u8]) -> Self {
        Self { rest: value }
    }

    /// The name of the next list element. Its parameters, if any, must be read before the next call.
    pub(super) fn next_element(&mut self) -> Result<Option<&'v [u8]>, Malformed> {
        loop {
            self.skip_blanks();
            match self.rest {
                [] => return Ok(None),
                [b',', rest @ ..] => self.rest = rest,
                _ => break,
            }
        }
        let name = self.token()?;
        self.skip_blanks();
        match self.rest {
            [] | [b',' | b';', ..] => Ok(Some(name)),
            _ => Err(Malformed),
        }
    }

    /// The next parameter of the current element.
    pub(super) fn next_parameter(&mut self) -> Result<Option<Parameter<'v>>, Malformed> {
        self.skip_blanks();
        let [b';', rest @ ..] = self.rest else { return Ok(None) };
        self.rest = rest;
        self.skip_blanks();
        let name = self.token()?;
        self.skip_blanks();
        let mut value = None;
        if let [b'=', rest @ ..] = self.rest {
            self.rest = rest;
            self.skip_blanks();
            value = Some(self.value()?);
            self.skip_blanks();
        }
        match self.rest {
            [] | [b',' | b';', ..] => Ok(Some((name, value))),
            _ => Err(Malformed),
        }
    }

    /// A token, or a quoted string whose content is a token.
    fn value(&mut self) -> Result<&'v [u8], Malformed> {
        let [b'"', rest @ ..] = self.rest else { return self.token() };
        self.rest = rest;
        let value = self.token()?;
        let [b'"', rest @ ..] = self.rest else { return Err(Malformed) };
        self.rest = rest;
        Ok(value)
    }

    fn token(&mut self) -> Result<&'v [u8], Malformed> {
        let is_end = |&byte: &u8| !is_token_char(byte);
        let end = self.rest.iter().position(is_end).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        if token.is_empty() { Err(Malformed) } else { Ok(token) }
    }

    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

/// Whether the byte may be part of a token (RFC 9110 section 5.6.2).
pub(super) const fn is_token_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Whether the comma-separated list `value` contains `token`; case is ignored.
pub(super) fn lists_token(value: &[u8], token: &str) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|element| element.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}
