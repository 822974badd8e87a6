//! The settings of the export of spans.
//! In: nothing. Out: the section `[traces]`, which `FILE` refers to.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Fields, Text};
use super::{Section, key};

/// `[traces]`.
pub static TRACES: Section = Section {
    path: "[traces]",
    about: "Sends spans of requests to an OpenTelemetry collector: one span for each request, and one for its last attempt \
             with a server. `trace` of [server] decides which traces are sampled. A separate thread sends the spans, so a slow \
             or unreachable collector delays no request: spans that the collector does not accept in time are lost and \
             counted.",
    keys: &[
        key(
            "endpoint",
            Text("\"http://HOST:PORT/PATH\" or \"https://HOST:PORT/PATH\""),
            Required,
            "The address at which the collector accepts traces by OTLP over HTTP, such as \"http://127.0.0.1:4318/v1/traces\". The \
             spans are sent in the binary format (application/x-protobuf).",
            "",
        ),
        key(
            "ca",
            Text("the path of a file"),
            Absent,
            "The file with the authorities (PEM) that verify a collector with https, in place of those of the system.",
            "",
        ),
        key(
            "headers",
            Fields(&Text("a value")),
            Absent,
            "Fields of each request to the collector, such as { authorization = \"Bearer ${OTLP_TOKEN}\" }.",
            "",
        ),
        key(
            "service",
            Text("a name"),
            Value("\"tidegate\""),
            "The name of the service that the spans belong to (`service.name`).",
            "It distinguishes the spans of Tidegate from those of the servers behind it.",
        ),
        key(
            "attributes",
            Fields(&Text("a value")),
            Absent,
            "Further attributes of the service, such as { \"deployment.environment.name\" = \"production\" }.",
            "",
        ),
    ],
    later: &[],
};
