//! Times and sizes of other programs, in Tidegate's notation.
//! In: strings such as "30s", "5000" or "8m". Out: strings such as "30s" and "8MiB".

/// A time of HAProxy (milliseconds without a unit) or nginx (seconds without a unit) in milliseconds.
pub(crate) fn milliseconds(text: &str, default_unit: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = if unit.is_empty() { default_unit } else { unit };
    let factor: u64 = match unit {
        "us" => return Some(number / 1000),
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A duration of Tidegate.
pub(crate) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0 => "0s".to_owned(),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// A timeout, within the range that most timeouts of Tidegate have.
pub(crate) fn timeout(milliseconds: u64) -> String {
    duration(milliseconds.clamp(10, 86_400_000))
}

/// A size with the units k, m and g (of 1024) in bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// A size of Tidegate.
pub(crate) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// The text of an address with a port for `bind`: "80", "*:80", ":80", "[::]:80".
pub(crate) fn bind(text: &str) -> Option<String> {
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.strip_prefix("unix:")) {
        return Some(format!("unix:{path}"));
    }
    if text.starts_with('/') {
        return Some(format!("unix:{text}"));
    }
    if text.parse::<u16>().is_ok() {
        return Some(format!("0.0.0.0:{text}"));
    }
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    Some(match host {
        "" | "*" => format!("0.0.0.0:{port}"),
        "::" | "[::]" => format!("[::]:{port}"),
        "localhost" => format!("127.0.0.1:{port}"),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_addresses_are_translated() {
        let time = |text, unit| milliseconds(text, unit).map(duration);
        assert_eq!(time("5000", "ms").as_deref(), Some("5s"));
        assert_eq!(time("90", "s").as_deref(), Some("90s"));
        assert_eq!(time("2d", "s").as_deref(), Some("48h"));
        assert_eq!(time("1y", "s"), None);
        assert_eq!(bytes("8m").map(size).as_deref(), Some("8MiB"));
        assert_eq!(bytes("100000000000000000g"), None);
        for (text, expected) in [
            ("80", Some("0.0.0.0:80")),
            ("*:80", Some("0.0.0.0:80")),
            (":::80", Some("[::]:80")),
            ("[::1]:80", Some("[::1]:80")),
            ("2001:db8::1:443", Some("[2001:db8::1]:443")),
            ("unix@/run/x", Some("unix:/run/x")),
            ("localhost:1", Some("127.0.0.1:1")),
            (":8000-8010", None),
            ("name", None),
        ] {
            assert_eq!(bind(text).as_deref(), expected, "{text}");
        }
    }
}
