//! Quantities as operators write and read them: times, rates, source addresses, large numbers.
//! In: text with a unit, or a number. Out: a value, or an error with the allowed forms.

use crate::plan::SOURCES_MAX;
use core::net::IpAddr;
use core::time::Duration;

/// Parses a time: `10s`, `500ms`, `2m`, `1h`, `50us`; a number without a unit is in seconds.
///
/// # Errors
/// A message that lists the allowed units.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit_from = text.find(|char: char| char.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_from);
    let seconds_per_unit = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!("unknown unit `{unit}`; write 10s, 500ms, 50us, 2m or 1h"));
        }
    };
    let seconds =
        number
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|number| (0.0..=1e9).contains(number))
            .ok_or_else(|| format!("`{text}` is not a time; write 10s, 500ms, 50us, 2m or 1h"))?;
    Ok(Duration::from_secs_f64((seconds * seconds_per_unit).min(1e9)))
}

/// Parses a rate: `20000/s`, `20k/s`, `600/m`; a number without a unit is per second.
///
/// # Errors
/// A message with the allowed forms.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a rate; write 20000/s, 20k/s or 600/m");
    let (number, per_seconds) = match text.split_once('/') {
        None | Some((_, "s")) => (text.split('/').next().unwrap_or(text), 1.0),
        Some((number, "m")) => (number, 60.0),
        Some(_) => return Err(wrong()),
    };
    let (digits, factor) = match number.as_bytes().last() {
        Some(b'k' | b'K') => (&number[..number.len() - 1], 1e3),
        Some(b'M') => (&number[..number.len() - 1], 1e6),
        _ => (number, 1.0),
    };
    let rate = digits.trim().parse::<f64>().map_err(|_| wrong())? * factor / per_seconds;
    if !(rate > 0.0 && rate <= 1e9) {
        return Err(format!("rate `{text}` is out of range; allowed: above 0, up to 1000M/s"));
    }
    Ok(rate)
}

/// Parses a share: `5%` or `0.05`.
///
/// # Errors
/// A message with the allowed forms.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    let share = digits.trim().parse::<f64>().ok().map(|share| share * factor);
    share
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("`{text}` is not a share; write 5% or 0.05, up to 100%"))
}

/// Local addresses, in the order in which connections use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(pub Vec<IpAddr>);

/// Parses `ADDR`, `ADDR-ADDR` (both ends included), and comma-separated lists of these.
///
/// # Errors
/// A message that names the wrong part.
pub fn parse_sources(text: &str) -> Result<Sources, String> {
    let mut sources = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let address = |text: &str| {
            text.trim().parse::<IpAddr>().map_err(|_| {
                format!("`{text}` is not an IP address; write 127.0.0.2 or 127.0.0.2-127.0.0.9")
            })
        };
        match (address(first)?, address(last)?) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                let range = u32::from(first)..=u32::from(last);
                sources.extend(range.take(SOURCES_MAX + 1).map(|bits| IpAddr::V4(bits.into())));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                let range = u128::from(first)..=u128::from(last);
                sources.extend(range.take(SOURCES_MAX + 1).map(|bits| IpAddr::V6(bits.into())));
            }
            _ => {
                return Err(format!(
                    "range `{part}` is not in ascending order; write LOWEST-HIGHEST"
                ));
            }
        }
        if sources.len() > SOURCES_MAX {
            return Err(format!("more than {SOURCES_MAX} source addresses; give fewer"));
        }
    }
    Ok(Sources(sources))
}

/// Writes a number with up to three significant digits and a suffix for thousands: `17.9k`, `294k`, `1.20M`.
#[must_use]
pub fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 && scaled.fract().abs() < 1e-9 || scaled >= 99.95 {
        0
    } else if scaled >= 9.995 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{}", units[unit])
}

/// Writes a time given in microseconds, in µs, ms or s.
#[must_use]
pub fn micros(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1e6 => (value / 1e6, "s"),
        value if value >= 1e3 => (value / 1e3, "ms"),
        value => (value, "µs"),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$} {unit}")
}

/// Writes a count with its noun: `1 thread`, `2 threads`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_with_their_units() {
        for (text, millis) in
            [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1500), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "nan", "1e99"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_parsed_with_their_units() {
        for (text, rate) in [("20000/s", 2e4), ("20k/s", 2e4), ("600/m", 10.0), ("0.5", 0.5)] {
            assert!((parse_rate(text).unwrap() - rate).abs() < 1e-9, "{text}");
        }
        for text in ["", "0", "-1/s", "5/h", "k", "inf"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_shortened() {
        for (value, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1.00k"), (17_943.0, "17.9k"), (2.5e9, "2.50G")]
        {
            assert_eq!(short(value), text);
        }
        assert_eq!((micros(12.34), micros(4567.0)), ("12.3 µs".to_owned(), "4.57 ms".to_owned()));
    }

    #[test]
    fn sources_are_single_addresses_and_ranges() {
        let sources = parse_sources("127.0.0.2-127.0.0.4,::1,10.0.0.1").unwrap();
        let texts: Vec<String> = sources.0.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["127.0.0.2", "127.0.0.3", "127.0.0.4", "::1", "10.0.0.1"]);
        for bad in ["", "eth0", "127.0.0.9-127.0.0.2", "127.0.0.1-::1", "0.0.0.0-255.255.255.255"] {
            assert!(parse_sources(bad).is_err(), "{bad}");
        }
    }
}
