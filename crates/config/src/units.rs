//! Parses and writes durations and sizes as strings with units.
//! In: text such as "250ms" or "64KiB". Out: a `Span` or a number of bytes, or `None`.
//! Never: accepts a number without a unit, a fraction or a sign.

use tidegate_base::Span;

/// Units of durations, as listed in messages.
pub(crate) const DURATION_UNITS: &str = "ms, s, m, h or d";
const DAY_MS: u64 = 24 * 3_600_000;

/// Units of sizes, as listed in messages.
pub(crate) const SIZE_UNITS: &str = "B, KiB, MiB or GiB";

/// Parses "250ms", "2s", "5m", "1h", "365d".
pub(crate) fn parse_duration(text: &str) -> Option<Span> {
    let (amount, unit) = split(text)?;
    let ms = match unit {
        "ms" => amount,
        "s" => amount.checked_mul(1_000)?,
        "m" => amount.checked_mul(60_000)?,
        "h" => amount.checked_mul(3_600_000)?,
        "d" => amount.checked_mul(DAY_MS)?,
        _ => return None,
    };
    Some(Span::from_millis(ms))
}

/// Parses "512B", "64KiB", "1MiB", "2GiB" into bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (amount, unit) = split(text)?;
    match unit {
        "B" => Some(amount),
        "KiB" => amount.checked_mul(1 << 10),
        "MiB" => amount.checked_mul(1 << 20),
        "GiB" => amount.checked_mul(1 << 30),
        _ => None,
    }
}

/// Writes a duration in the syntax of the file, in the largest unit that divides it.
pub(crate) fn write_duration(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        // One day is written as 24h, because timeouts are usually given in hours.
        ms if ms > DAY_MS && ms.is_multiple_of(DAY_MS) => format!("{}d", ms / DAY_MS),
        ms if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        ms if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        ms if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// Writes a size in the syntax of the file, in the largest unit that divides it.
pub(crate) fn write_size(bytes: u64) -> String {
    match bytes {
        0 => "0B".to_owned(),
        n if n.is_multiple_of(1 << 30) => format!("{}GiB", n >> 30),
        n if n.is_multiple_of(1 << 20) => format!("{}MiB", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{}KiB", n >> 10),
        n => format!("{n}B"),
    }
}

/// The duration that a user who wrote `text` most likely meant, in the syntax of the file.
pub(crate) fn suggest_duration(text: &str) -> Option<String> {
    let (amount, unit) = split(text.trim())?;
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "sec" | "secs" | "second" | "seconds" => "s",
        "msec" | "millis" | "milliseconds" => "ms",
        "min" | "mins" | "minute" | "minutes" => "m",
        "hr" | "hour" | "hours" => "h",
        "day" | "days" => "d",
        _ => return None,
    };
    Some(format!("{amount}{unit}"))
}

/// The size that a user who wrote `text` most likely meant, in the syntax of the file.
pub(crate) fn suggest_size(text: &str) -> Option<String> {
    let (amount, unit) = split(text.trim())?;
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        _ => return None,
    };
    Some(format!("{amount}{unit}"))
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (amount, unit) = text.split_at_checked(digits)?;
    Some((amount.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_units_are_accepted() {
        assert_eq!(parse_duration("250ms"), Some(Span::from_millis(250)));
        assert_eq!(parse_duration("1h"), Some(Span::from_secs(3600)));
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("16384B"), Some(16_384));
        for text in
            ["", "5", "s", "5 s", "1.5s", "-1s", "+1s", "1S", "1sec", "99999999999999999999s"]
        {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        for text in ["", "5", "KiB", "1kb", "1k", "99999999999999GiB"] {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
    }

    #[test]
    fn written_values_parse_back() {
        for ms in [0, 1, 250, 1_000, 90_000, 3_600_000, DAY_MS, 365 * DAY_MS] {
            assert_eq!(parse_duration(&write_duration(ms)), Some(Span::from_millis(ms)));
        }
        for bytes in [0, 1, 1_000, 1 << 10, 3 << 20, 1 << 30] {
            assert_eq!(parse_size(&write_size(bytes)), Some(bytes));
        }
        assert_eq!(suggest_duration("30 seconds").as_deref(), Some("30s"));
        assert_eq!(suggest_size("64k").as_deref(), Some("64KiB"));
    }
}
