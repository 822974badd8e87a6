//! The settings of authentication.
//! In: nothing. Out: the section `[route.auth]` and its table `jwt`.

use super::Preset::{Absent, Value};
use super::Shape::{Duration, Fields, List, OneOf, Table, Text};
use super::{Section, key};

/// `auth = { ... }` of a route.
pub static AUTH: Section = Section {
    path: "[route.auth]",
    about: "Serves only users with a password (`basic`: Basic authentication, RFC 7617) or requests with a token \
             (`jwt`); use it over https. Passwords are verified by separate threads, and correct ones are remembered \
             for five minutes. If more than 64 passwords wait to be verified, or more than 8 from one client address (of \
             IPv6, the first 64 bits), further requests get a 503 response; limit wrong passwords by `rate`, which is \
             checked first. To hide whether a user exists, every wrong password is hashed once with each cost that \
             occurs in the file (with the eight highest, if there are more).",
    keys: &[
        key(
            "basic",
            Text("the path of a file"),
            Absent,
            "The file with the users, as `htpasswd -B` writes it: name:hash in each line. A name has no whitespace at its \
             ends, no control character and no path segment `.` or `..`. Hashes of bcrypt, argon2 and SHA-crypt ($5$, $6$) are \
             accepted: bcrypt with a cost of 4 to 16, SHA-crypt with 1000 to 2000000 rounds, argon2 with up to 256 MiB \
             (m=262144), t=16 and p=16. bcrypt reads 72 bytes of a password; longer ones are refused. The file is read at \
             start and at each reload.",
            "",
        ),
        key(
            "jwt",
            Table(&JWT),
            Absent,
            "Serves only requests with a valid JSON Web Token. It is used in place of `basic`.",
            "",
        ),
        key(
            "ask",
            Text("the name of a [pool.NAME]"),
            Absent,
            "Lets a server of this pool decide about each request, in place of `basic`. The server gets a GET \
             request (for HEAD requests, a HEAD request) for `path` with the fields of the client's request, without its body \
             and without the fields of conditional and range requests, but with X-Forwarded-Method, X-Forwarded-Uri, \
             X-Forwarded-Host, X-Forwarded-Proto and X-Forwarded-For. With a status of 200 to 299, the request is forwarded to \
             its own server, or the action of the route begins; any other response goes to the client as it is, such as 401 or a \
             redirect to a login page. If no server of the pool responds, the request is not served, and the client gets an error \
             response. The settings of the pool apply, such as `timeouts`.",
            "",
        ),
        key(
            "path",
            Text("a path, optionally with a query, such as \"/verify\""),
            Absent,
            "The path of the request to the server of `ask`, optionally with a query. Required with `ask`.",
            "",
        ),
        key(
            "host",
            Text("\"keep\", or a host such as \"auth.internal\""),
            Absent,
            "The Host field of the request to the server of `ask`. Without it, or with \"keep\", the Host field of the client's request.",
            "",
        ),
        key(
            "copy",
            OneOf(&[Text("\"x-user\""), List(&Text("\"x-user\""))]),
            Absent,
            "Fields of the response that are copied into the request. Fields of these names that the client sent are removed.",
            "",
        ),
        key(
            "realm",
            Text("printable ASCII without quotes and backslashes, such as \"Team area\""),
            Value("\"Restricted\""),
            "The realm: the name of the protected area, which clients may show to the user.",
            "Some clients require a realm.",
        ),
    ],
    later: &[],
};

/// `jwt = { ... }` of `auth`.
pub static JWT: Section = Section {
    path: "[route.auth.jwt]",
    about: "Only requests with a valid JSON Web Token (RFC 7519) are served; use it over https. A request without one \
             gets a 401 response, as RFC 6750 describes. The keys decide which algorithms are accepted: RS256 to \
             RS512 and PS256 to PS512 for RSA, ES256, ES384 and ES512 for elliptic curves, EdDSA for Ed25519, HS256 \
             to HS512 for a secret. `none` is never accepted. A valid token is remembered until it expires (each \
             worker remembers up to 4096). Values of the route's edits may contain its claims: `{claim:NAME}`, and `{user}` for `sub`.",
    keys: &[
        key(
            "keys",
            Text("the path of a file, or \"https://id.example/jwks.json\""),
            Absent,
            "The file with public keys in PEM, or with a set of keys in JSON (JWKS, RFC 7517). A token with `kid` is verified \
             with the key that has this id, a token without `kid` with up to four keys. The file is read at start and at each \
             reload. A set at an https address is fetched by a separate thread: at start, and again after the max-age of its \
             Cache-Control (1 minute to 24 hours; without it, 10 minutes) and when a token names an unknown key, at most every \
             10 seconds. If a set cannot be fetched, the previous keys stay in force. Until the first set has been fetched, \
             requests get a 503 response with Retry-After. Redirects are not followed, a set has up to 256 KiB and 64 keys, \
             and http is allowed only for localhost and loopback addresses.",
            "",
        ),
        key(
            "ca",
            Text("the path of a file"),
            Absent,
            "The file with the authorities (PEM) that verify the server of an address in `keys`, in place of those of the \
             system. It is read at start and at each reload.",
            "",
        ),
        key(
            "secret-file",
            Text("the path of a file"),
            Absent,
            "The file with the secret of HS256, HS384 and HS512, in place of `keys`. The secret must have at least 32 bytes; \
             whitespace around the secret does not count.",
            "",
        ),
        key(
            "audience",
            OneOf(&[Text("\"app\""), List(&Text("\"app\""))]),
            Absent,
            "The audience that a token must name (`aud`), or several audiences, one of which it must name. Without this setting, \
             tokens that were issued for other services are accepted, too.",
            "",
        ),
        key(
            "issuer",
            Text("a string, such as \"https://id.example\""),
            Absent,
            "The issuer that a token must name (`iss`).",
            "",
        ),
        key(
            "claims",
            Fields(&Text("a string, such as \"admin\"")),
            Absent,
            "Values that claims must have, by name. If a claim is a list, the list must contain the value; `scope` counts as a \
             list of words. A dot selects a member of an object: \"realm_access.roles\". A token that lacks one of these \
             claims gets a 403 response.",
            "",
        ),
        key(
            "leeway",
            Duration(0, 300_000),
            Value("\"30s\""),
            "How far the clocks of the issuer and of this machine may differ, for the times in tokens (`exp`, `nbf`).",
            "Clocks of machines differ by seconds, and a token should be valid as soon as it is issued.",
        ),
        key(
            "cookie",
            Text("the name of a cookie, such as \"session\""),
            Absent,
            "The cookie from which the token is read if no Authorization field contains a token. A request with two different \
             tokens gets a 400 response, because the server might read the other one: delete the cookie when its token ends. \
             Browsers send cookies with requests of other sites, too: set `SameSite` when you create the cookie.",
            "",
        ),
    ],
    later: &[],
};
