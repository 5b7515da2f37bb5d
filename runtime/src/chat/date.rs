//! `strftime_now` of templates.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The variable with the seconds since 1970 that are told.
pub(super) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The time by `SOURCE_DATE_EPOCH` (seconds since 1970), else the clock, in UTC: results do not depend on the
/// machine's zone.
pub(super) fn now(format: &str) -> Result<String, Error> {
    let fixed = std::env::var(EPOCH).ok().and_then(|s| s.parse().ok());
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs())
    };
    write(format, fixed.unwrap_or_else(clock))
}

/// Calendar date of a day counted from 1970-01-01, in the proleptic Gregorian calendar (H. Hinnant,
/// `civil_from_days`; years begin in March).
fn date(day: u64) -> (u64, u64, u64) {
    let z = day + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year + era * 400 + late, month, day)
}

/// The formats that templates use. `seconds` count from 1970.
fn write(format: &str, seconds: u64) -> Result<String, Error> {
    // Four-digit years; also keeps the arithmetic in range.
    let seconds = seconds.min(253_402_300_799);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let weekday = DAYS[((days + 4) % 7) as usize];
    let name = MONTHS[(month - 1) as usize];
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut field = chars.next();
        let bare = field == Some('-');
        if bare {
            field = chars.next();
        }
        let two = |n: u64| if bare { n.to_string() } else { format!("{n:02}") };
        let text = match field {
            Some('Y') => year.to_string(),
            Some('y') => two(year % 100),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('B') => name.to_owned(),
            Some('b' | 'h') => name[..3].to_owned(),
            Some('A') => weekday.to_owned(),
            Some('a') => weekday[..3].to_owned(),
            Some('H') => two(hour),
            Some('I') => two(half),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let field = other.map_or(String::new(), String::from);
                let message = format!("`strftime_now`: field `%{field}` is not known");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        };
        out.push_str(&text);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| write("%Y-%m-%d %a %H:%M:%S", seconds).unwrap();
        assert_eq!(at(0), "1970-01-01 Thu 00:00:00");
        assert_eq!(at(951_782_400), "2000-02-29 Tue 00:00:00");
        assert_eq!(at(1_735_689_599), "2024-12-31 Tue 23:59:59");
        assert_eq!(at(4_107_542_400), "2100-03-01 Mon 00:00:00");
        assert_eq!(at(u64::MAX), "9999-12-31 Fri 23:59:59");
        let text = write("%d %b %Y, %A %-d %B %y %I %p %%", 1_722_470_400 + 46_800).unwrap();
        assert_eq!(text, "01 Aug 2024, Thursday 1 August 24 01 PM %");
        assert!(write("%Q", 0).is_err());
        assert!(write("%", 0).is_err());
    }
}
