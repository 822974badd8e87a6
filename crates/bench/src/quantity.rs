//! Quantities as operators write and read them: times, rates, large numbers.
//! In: text with a unit, or a number. Out: a value, or a sentence that says what may be written.

use core::time::Duration;

/// A time: `10s`, `500ms`, `2m`, `1h`, `50us`; a bare number is seconds.
///
/// # Errors
/// A sentence with the units that there are.
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

/// A rate: `20000/s`, `20k/s`, `600/m`; a bare number is a second's.
///
/// # Errors
/// A sentence with what may be written.
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
        return Err(format!("`{text}`: a rate lies above 0 and at most at 1000M/s"));
    }
    Ok(rate)
}

/// A number with three or four digits and a unit of thousand: `17.9k`, `294k`, `1.20M`.
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

/// A time of so many microseconds, in the unit that reads best.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
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
    fn rates_are_read_with_their_units() {
        for (text, rate) in [("20000/s", 2e4), ("20k/s", 2e4), ("600/m", 10.0), ("0.5", 0.5)] {
            assert!((parse_rate(text).unwrap() - rate).abs() < 1e-9, "{text}");
        }
        for text in ["", "0", "-1/s", "5/h", "k", "inf"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1.00k"), (17_943.0, "17.9k"), (2.5e9, "2.50G")]
        {
            assert_eq!(short(value), text);
        }
        assert_eq!((micros(12.34), micros(4567.0)), ("12.3 µs".to_owned(), "4.57 ms".to_owned()));
    }
}
