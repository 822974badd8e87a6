//! The formats of metrics: OpenMetrics 1.0, the text format 0.0.4 of Prometheus, and its Protocol Buffers
//! (`io/prometheus/client/metrics.proto`), which alone have native histograms.
//! In: families of metrics, one after the other; their samples. Out: bytes.
//! Invariant: the samples of a family follow its description.

use std::fmt::Write as _;

use tidegate_base::histogram::{Durations, FIRST_BUCKET, SCHEMA};
use tidegate_push::protobuf::{
    put_all_signed, put_bytes, put_delimited, put_double, put_message, put_number, put_signed,
};

/// A format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Delimited messages of Protocol Buffers.
    Protobuf,
}

/// The formats that an Accept field may name, the preferred one of equal weight first.
const NAMED: [(&[u8], Format); 3] = [
    (b"application/vnd.google.protobuf", Format::Protobuf),
    (b"application/openmetrics-text", Format::OpenMetrics),
    (b"text/plain", Format::Prometheus),
];

impl Format {
    /// The format that an Accept field prefers (RFC 9110 section 12.5.1).
    pub(super) fn of_accept(accept: &[u8]) -> Self {
        let mut best = (0, Self::Prometheus);
        for (name, format) in NAMED.iter().rev() {
            for range in accept.split(|byte| *byte == b',') {
                let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
                let is_named = parts.next().is_some_and(|known| known.eq_ignore_ascii_case(name));
                let mut parameters = parts.map(parameter);
                let is_offered = parameters.clone().all(|(name, value)| format.has(name, value));
                let weight = parameters.find(|(name, _)| name.eq_ignore_ascii_case(b"q"));
                let weight = weight.map_or(1000, |(_, weight)| per_mille(weight));
                if is_named && is_offered && weight > 0 && weight >= best.0 {
                    best = (weight, *format);
                }
            }
        }
        best.1
    }

    /// Whether a parameter of a media range admits the format. Only the message and the encoding of Protocol Buffers are compared:
    /// a client that names another version of a text format can read this one, too.
    fn has(self, name: &[u8], value: &[u8]) -> bool {
        let own: &[u8] = match self {
            Self::Protobuf if name.eq_ignore_ascii_case(b"proto") => {
                b"io.prometheus.client.MetricFamily"
            }
            Self::Protobuf if name.eq_ignore_ascii_case(b"encoding") => b"delimited",
            Self::Protobuf | Self::OpenMetrics | Self::Prometheus => return true,
        };
        value.eq_ignore_ascii_case(own)
    }

    /// The content type.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// The name and the value of a parameter; the value may be quoted (RFC 9110 section 5.6.6).
fn parameter(part: &[u8]) -> (&[u8], &[u8]) {
    let mut halves = part.splitn(2, |byte| *byte == b'=');
    let (name, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    (name, unquoted.unwrap_or(value))
}

/// A weight such as `0.5` in thousandths; 0 if it is malformed.
fn per_mille(weight: &[u8]) -> u32 {
    let weight = core::str::from_utf8(weight).ok().and_then(|weight| weight.parse::<f32>().ok());
    weight.map_or(0, |weight| (weight.clamp(0.0, 1.0) * 1000.0) as u32)
}

/// The kind of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A value that grows. The name of its samples ends in `_total`.
    Counter,
    /// A value of the moment.
    Gauge,
    /// Durations, in seconds.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// The number of `MetricType`.
    const fn number(self) -> u64 {
        match self {
            Self::Counter => 0,
            Self::Gauge => 1,
            Self::Histogram => 4,
        }
    }
}

/// The labels of a sample.
#[derive(Clone, Default, Debug)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl Labels {
    /// One label.
    pub(super) fn of(name: &'static str, value: &str) -> Self {
        Self::default().with(name, value)
    }

    /// The same labels and a further one.
    pub(super) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut all = self.0.clone();
        all.push((name, value.to_owned()));
        Self(all)
    }
}

/// A value of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// A whole number, which text shows exactly.
    Whole(u64),
    /// Any number.
    Real(f64),
}

impl From<u64> for Figure {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// Metrics in one of the formats.
#[derive(Debug)]
pub(super) struct Exposition {
    format: Format,
    /// The text, or the complete messages.
    out: Vec<u8>,
    /// The fields of the family that is being written; empty in text.
    family: Vec<u8>,
    /// The name of the family, without `_total`.
    name: String,
    kind: Kind,
}

impl Exposition {
    pub(super) fn new(format: Format) -> Self {
        let (out, family, name) = (Vec::new(), Vec::new(), String::new());
        Self { format, out, family, name, kind: Kind::Gauge }
    }

    /// Begins a family.
    pub(super) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        self.end_family();
        (self.name, self.kind) = (name.to_owned(), kind);
        // OpenMetrics names the family of a counter without the suffix of its samples.
        let suffix = match (self.format, kind) {
            (Format::Prometheus | Format::Protobuf, Kind::Counter) => "_total",
            (_, Kind::Counter | Kind::Gauge | Kind::Histogram) => "",
        };
        match self.format {
            Format::Prometheus | Format::OpenMetrics => {
                let kind = kind.name();
                let text = format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
                self.out.extend_from_slice(text.as_bytes());
            }
            Format::Protobuf => {
                put_bytes(&mut self.family, 1, format!("{name}{suffix}").as_bytes());
                put_bytes(&mut self.family, 2, help.as_bytes());
                put_number(&mut self.family, 3, kind.number());
            }
        }
    }

    /// Adds a sample of a counter or gauge to the family.
    pub(super) fn sample(&mut self, labels: &Labels, value: impl Into<Figure>) {
        let value = value.into();
        let (suffix, field) = match self.kind {
            Kind::Counter => ("_total", 3),
            Kind::Gauge => ("", 2),
            Kind::Histogram => return debug_assert!(false, "a histogram has no single value"),
        };
        if self.format != Format::Protobuf {
            return self.write_line(suffix, labels, value);
        }
        let real = match value {
            Figure::Whole(value) => value as f64,
            Figure::Real(value) => value,
        };
        put_message(&mut self.family, 4, |out| {
            encode_labels(out, labels);
            put_message(out, field, |out| put_double(out, 1, real));
        });
    }

    /// Adds a histogram to the family.
    pub(super) fn histogram(&mut self, labels: &Labels, durations: &Durations) {
        if self.format == Format::Protobuf {
            return put_message(&mut self.family, 4, |out| {
                encode_labels(out, labels);
                put_message(out, 7, |out| encode_histogram(out, durations));
            });
        }
        for (bound, count) in durations.cumulative() {
            let labels = labels.with("le", &bound.to_string());
            self.write_line("_bucket", &labels, count.into());
        }
        let count = durations.count();
        self.write_line("_bucket", &labels.with("le", "+Inf"), count.into());
        self.write_line("_count", labels, count.into());
        self.write_line("_sum", labels, seconds_of(durations).into());
    }

    /// Ends the metrics, and returns them.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.end_family();
        if self.format == Format::OpenMetrics {
            self.out.extend_from_slice(b"# EOF\n");
        }
        self.out
    }

    fn end_family(&mut self) {
        if !self.family.is_empty() {
            put_delimited(&mut self.out, |out| out.append(&mut self.family));
        }
    }

    fn write_line(&mut self, suffix: &str, Labels(labels): &Labels, value: Figure) {
        let mut line = format!("{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if at == 0 { '{' } else { ',' };
            // Writing to a String cannot fail.
            let _ = write!(line, "{before}{name}=\"{value}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = match value {
            Figure::Whole(value) => writeln!(line, "{end} {value}"),
            Figure::Real(value) => writeln!(line, "{end} {value}"),
        };
        self.out.extend_from_slice(line.as_bytes());
    }
}

fn seconds_of(durations: &Durations) -> f64 {
    durations.sum() as f64 / 1e6
}

fn encode_labels(out: &mut Vec<u8>, Labels(labels): &Labels) {
    for (name, value) in labels {
        put_message(out, 1, |out| {
            put_bytes(out, 1, name.as_bytes());
            put_bytes(out, 2, value.as_bytes());
        });
    }
}

/// The fields of `Histogram`: the buckets with their bounds, and the same as a native histogram. Its zero bucket is the first
/// bucket.
fn encode_histogram(out: &mut Vec<u8>, durations: &Durations) {
    put_number(out, 1, durations.count());
    put_double(out, 2, seconds_of(durations));
    for (bound, count) in durations.cumulative() {
        put_message(out, 3, |out| {
            put_number(out, 1, count);
            put_double(out, 2, bound);
        });
    }
    let counts = durations.parts().0;
    let Some((zero_count, counts)) = counts.split_first() else { return };
    put_signed(out, 5, SCHEMA.into());
    put_double(out, 6, durations.cumulative().next().map_or(0.0, |(bound, _)| bound));
    put_number(out, 7, *zero_count);
    // The span of the buckets between the first and the last one with a duration.
    let Some(first) = counts.iter().position(|count| *count > 0) else { return };
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(first);
    put_message(out, 12, |out| {
        put_signed(out, 1, i64::from(FIRST_BUCKET) + 1 + first as i64);
        put_number(out, 2, (last - first + 1) as u64);
    });
    let mut deltas = Vec::new();
    let mut before = 0;
    for count in &counts[first..=last] {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        before = count;
    }
    put_all_signed(out, 13, &deltas);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Span;
    use tidegate_base::histogram::Histogram;

    #[test]
    fn format_is_the_one_that_the_client_prefers() {
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
            encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let usual = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, expected) in [
            (native, Format::Protobuf),
            (usual, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("text/plain, application/openmetrics-text;q=0.9", Format::Prometheus),
            ("application/vnd.google.protobuf;q=0", Format::Prometheus),
            ("application/vnd.google.protobuf;encoding=\"delimited\"", Format::Protobuf),
            ("application/vnd.google.protobuf;encoding=compact-text", Format::Prometheus),
            ("application/vnd.google.protobuf;proto=a.B;q=1,text/plain;q=0.5", Format::Prometheus),
            ("text/plain;Q=0.1,application/openmetrics-text;q=0.2", Format::OpenMetrics),
            ("application/openmetrics-text; version=2.0.0", Format::OpenMetrics),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
            (";;q=x,,", Format::Prometheus),
        ] {
            assert_eq!(Format::of_accept(accept.as_bytes()), expected, "{accept}");
        }
    }

    #[test]
    fn text_formats_differ_in_the_names_of_counters() {
        let written = |format| {
            let mut metrics = Exposition::new(format);
            metrics.begin("a", Kind::Counter, "Help.");
            metrics.sample(&Labels::of("l", "x\"y\\z\n").with("m", ""), 7);
            metrics.begin("b_seconds", Kind::Gauge, "Help.");
            metrics.sample(&Labels::default(), 0.5);
            String::from_utf8(metrics.end()).expect("text")
        };
        let sample = "a_total{l=\"x\\\"y\\\\z\\n\",m=\"\"} 7\n";
        let gauge = "# HELP b_seconds Help.\n# TYPE b_seconds gauge\nb_seconds 0.5\n";
        let old = format!("# HELP a_total Help.\n# TYPE a_total counter\n{sample}{gauge}");
        let open = format!("# HELP a Help.\n# TYPE a counter\n{sample}{gauge}# EOF\n");
        assert_eq!(written(Format::Prometheus), old);
        assert_eq!(written(Format::OpenMetrics), open);
    }

    #[test]
    fn native_histogram_has_the_buckets_of_its_schema() {
        let histogram = Histogram::default();
        // 2^-14 s is the bound of the zero bucket. With two buckets for each doubling, bucket 0 ends at 1 s, and bucket 1 at 1.414 s.
        for micros in [1, 61, 999_999, 1_000_001, 1_400_000, 1_500_000] {
            histogram.note(Span::from_micros(micros));
        }
        let mut durations = Durations::default();
        durations.add(&histogram);
        let mut out = Vec::new();
        encode_histogram(&mut out, &durations);
        let mut expected = Vec::new();
        put_signed(&mut expected, 5, 1);
        put_double(&mut expected, 6, 1.0 / 16_384.0);
        put_number(&mut expected, 7, 2);
        put_message(&mut expected, 12, |out| {
            put_signed(out, 1, 0);
            put_number(out, 2, 3);
        });
        put_all_signed(&mut expected, 13, &[1, 1, -1]);
        let text = |bytes: &[u8]| format!("{bytes:x?}");
        assert!(out.ends_with(&expected), "{}\n{}", text(&out), text(&expected));
    }
}
