//! The settings of authentication.
//! In: nothing. Out: the section `[route.auth]`.

use super::Preset::{Required, Value};
use super::Shape::Text;
use super::{Section, key};

/// `auth = { ... }` of a route.
pub static AUTH: Section = Section {
    path: "[route.auth]",
    about: "Only users with a password are served (Basic authentication, RFC 7617); use it over https. Passwords are \
             verified by threads of their own, and right ones are remembered for five minutes. If more than 64 passwords \
             wait, or more than 8 of one client's address (of IPv6, its first 64 bits), requests get a 503 response; \
             limit wrong ones by `rate`, which comes first. A wrong password takes the time of one hash of each cost \
             in the file, for every user.",
    keys: &[
        key(
            "basic",
            Text("the path of a file"),
            Required,
            "The file with the users, as `htpasswd -B` writes it: name:hash in each line. Hashes of bcrypt, argon2 and \
             SHA-crypt ($5$, $6$) are accepted: bcrypt with a cost of 4 to 16, SHA-crypt with 1000 to 2000000 \
             rounds, argon2 with up to 256 MiB (m=262144), t=16 and p=16. The file is read at start and at each reload.",
            "",
        ),
        key(
            "realm",
            Text("\"Team area\""),
            Value("\"Restricted\""),
            "The name of the area, which clients may show to the user.",
            "Some clients require one.",
        ),
    ],
    later: &[("jwt", "write `basic`"), ("ask", "write `basic`")],
};
