//! Dates of the calendar, in UTC.
//! In: seconds since 1970. Out: year, month, day, hour, minute and second. Never: reads a clock; knows leap seconds.

/// A second of the calendar, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Civil {
    /// The year.
    pub year: u64,
    /// The month, 1 to 12.
    pub month: u64,
    /// The day of the month, 1 to 31.
    pub day: u64,
    /// The hour, 0 to 23.
    pub hour: u64,
    /// The minute, 0 to 59.
    pub minute: u64,
    /// The second, 0 to 59.
    pub second: u64,
}

/// The names of the months in dates of logs.
pub const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Civil {
    /// The second `unix_seconds` after 1970-01-01T00:00:00Z. Years begin in March inside the calculation, so that
    /// the leap day is the last day of a year, and the months from March on follow a cycle of 153 days for 5 months.
    #[must_use]
    pub const fn of_unix(unix_seconds: u64) -> Self {
        const DAYS_BEFORE_1970: u64 = 719_468;
        const DAYS_OF_400_YEARS: u64 = 146_097;
        let second = unix_seconds % 86_400;
        let days = unix_seconds / 86_400 + DAYS_BEFORE_1970;
        let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Self {
            year: era * 400 + year + next,
            month,
            day,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// The name of the month.
    #[must_use]
    pub fn month_name(&self) -> &'static str {
        MONTHS[(self.month.clamp(1, 12) - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates_in_utc() {
        for (seconds, date) in [
            (0, (1970, 1, 1, 0, 0, 0)),
            (951_782_399, (2000, 2, 28, 23, 59, 59)),
            (951_782_400, (2000, 2, 29, 0, 0, 0)),
            (951_868_800, (2000, 3, 1, 0, 0, 0)),
            (1_735_689_599, (2024, 12, 31, 23, 59, 59)),
            (1_795_330_141, (2026, 11, 22, 6, 49, 1)),
            (4_107_542_400, (2100, 3, 1, 0, 0, 0)),
        ] {
            let (year, month, day, hour, minute, second) = date;
            let civil = Civil { year, month, day, hour, minute, second };
            assert_eq!(Civil::of_unix(seconds), civil);
        }
        assert_eq!(Civil::of_unix(0).month_name(), "Jan");
        assert_eq!(Civil::of_unix(1_735_689_599).month_name(), "Dec");
    }
}
