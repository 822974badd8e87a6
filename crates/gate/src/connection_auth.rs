//! Authentication of connections: schemes (NTLM, Negotiate, Kerberos) with which a server authenticates the
//! connection instead of the request, against RFC 9110 section 3.3. RFC 4559 describes Negotiate.
//! In: heads of requests and responses. Out: whether the connection to the server belongs to one client.
//! Never: looks into credentials.
//! Invariant: every scheme name in a field counts, wherever it is: a false positive only prevents the sharing
//! of a connection, but a missed scheme could let one client act as another.

use tidegate_wire::message::{FieldName, Fields, RequestHead, ResponseHead};

const SCHEMES: [&[u8]; 3] = [b"ntlm", b"negotiate", b"kerberos"];

/// Whether the request has credentials that authenticate the connection which carries it.
#[must_use]
pub fn request_authenticates(head: &RequestHead<'_>) -> bool {
    head.has(FieldName::Authorization) && names_scheme(head.fields(), FieldName::Authorization)
}

/// Whether the response requests credentials that authenticate the connection which carries them.
#[must_use]
pub fn response_authenticates(head: &ResponseHead<'_>) -> bool {
    match head.status {
        401 => names_scheme(head.fields(), FieldName::WwwAuthenticate),
        407 => names_scheme(head.fields(), FieldName::ProxyAuthenticate),
        _ => false,
    }
}

/// Whether a word of such a field is the name of a scheme. A field may list several challenges, whose
/// parameters are separated by commas too.
fn names_scheme(fields: Fields<'_>, id: FieldName) -> bool {
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b',' | b';');
    fields
        .filter(|field| field.id == id)
        .flat_map(|field| field.value.split(is_end))
        .any(|word| SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)))
}
