//! The settings of sets of addresses.
//! In: nothing. Out: the section `[set.NAME]`.

use super::Preset::Required;
use super::Shape::{List, OneOf, Text};
use super::{Section, key};

/// `[set.NAME]`.
pub static SET: Section = Section {
    path: "[set.NAME]",
    about: "IP addresses, which the settings `client`, `allow` and `deny` of routes refer to as \"set:NAME\". `tidegate ctl \
            add set NAME NETWORK` and `del set` change a running process; a reload keeps such changes unless `addresses` or \
            the file have changed.",
    keys: &[key(
        "addresses",
        OneOf(&[
            Text("the path of a file"),
            List(&Text("\"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"")),
        ]),
        Required,
        "The addresses and ranges, or the path of a file with one of them in each line; `#` begins a comment. A \
         relative path starts from the folder of the configuration file. The file may have up to 1,000,000 addresses \
         and ranges, and is read at start and at each reload.",
        "",
    )],
    later: &[],
};
