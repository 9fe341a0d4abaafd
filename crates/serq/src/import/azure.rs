//! Azure's inference traces: a CSV with a header, one request a line, wall-clock time stamps.

use serq_sim::content::{Chain, Segment};

use super::lines::{numbered, some, tokens};
use super::{Arrival, Workload, Wrong, own_key};

const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

pub(super) fn parse(text: &str) -> Result<Workload, Wrong> {
    let mut lines = numbered(text);
    let Some((number, header)) = lines.next() else {
        return Err((None, "an empty file".to_owned()));
    };
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let place = |name: &str| {
        names.iter().position(|n| n.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let what = format!("no column `{name}`; the header must name {}", COLUMNS.join(", "));
            (Some(number), what)
        })
    };
    let [time, prompt, output] = COLUMNS;
    let at = [place(time)?, place(prompt)?, place(output)?];
    let mut rows = Vec::new();
    for (line, text) in lines {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() != names.len() {
            let what = format!("{} fields where the header has {}", fields.len(), names.len());
            return Err((Some(line), what));
        }
        let count = |column: usize| {
            let (name, field) = (COLUMNS[column], fields[at[column]]);
            let value = field.parse().map_err(|_| {
                (Some(line), format!("`{name}` is `{field}`, not a number of tokens"))
            })?;
            tokens(line, name, value)
        };
        let stamp = fields[at[0]];
        let at = ticks(stamp).ok_or_else(|| {
            let what = format!("`{stamp}` is not a time stamp like 2023-11-16 18:17:03.9799600");
            (Some(line), what)
        })?;
        rows.push((line, at, count(1)?, count(2)?));
    }
    // Differences of whole numbers, so that no digit of a time stamp is lost.
    let first = rows.iter().map(|row| row.1).min().unwrap_or(0);
    let request = |(line, at, prompt, output): (usize, i64, u64, u64)| Arrival {
        at: (at - first) as f64 / TICKS as f64,
        prompt: Chain::new([Segment { key: own_key(line), len: prompt }]),
        output,
        line,
    };
    let requests = some(rows.into_iter().map(request).collect())?;
    Ok(Workload { requests, block: None, reordered: 0 })
}

/// Time stamps count units of 100 ns.
const TICKS: i64 = 10_000_000;

/// `YYYY-MM-DD hh:mm:ss`, then optionally a fraction of a second (digits beyond the seventh are
/// dropped), then optionally `Z` or an offset `+hh:mm`. Units of 100 ns since 1970.
fn ticks(stamp: &str) -> Option<i64> {
    let (date, time) = stamp.split_once([' ', 'T'])?;
    let mut date = date.split('-');
    let mut next = |low: i64, high: i64| number(date.next()?, low, high);
    let (year, month, day) = (next(1970, 9999)?, next(1, 12)?, next(1, 31)?);
    if date.next().is_some() {
        return None;
    }
    let (time, offset) = match time.find(['Z', '+', '-']) {
        Some(at) => (&time[..at], minutes(&time[at..])?),
        None => (time, 0),
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.split(':');
    let mut next = |high: i64| number(clock.next()?, 0, high);
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    if clock.next().is_some() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("0000000".chars()).take(7).collect();
    let fraction = number(&digits, 0, TICKS - 1)?;
    let minutes = (days(year, month, day) * 24 + hour) * 60 + minute - offset;
    Some((minutes * 60 + second) * TICKS + fraction)
}

fn number(text: &str, low: i64, high: i64) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value: i64 = digits.then(|| text.parse().ok()).flatten()?;
    (low..=high).contains(&value).then_some(value)
}

/// `Z`, or `+hh:mm` and the like.
fn minutes(offset: &str) -> Option<i64> {
    if offset == "Z" {
        return Some(0);
    }
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = offset[1..].split_once(':')?;
    Some(sign * (number(hours, 0, 23)? * 60 + number(minutes, 0, 59)?))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that a leap
/// day is a year's last; 146 097 days are 400 years.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    // Months from March on have 31, 30, 31, 30, 31 days and again: 153 in five.
    365 * year + leaps + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
#[test]
fn time_stamps_are_counted_from_1970() {
    let day = 86_400 * TICKS;
    for (stamp, expected) in [
        ("1970-01-01 00:00:00", Some(0)),
        ("1970-01-02T00:00:00.0000001Z", Some(day + 1)),
        ("2000-03-01 00:00:00", Some(11_017 * day)),
        ("2024-02-29 12:00:00+01:00", Some(19_782 * day + 11 * 3600 * TICKS)),
        ("2023-11-16 18:17:03.97996", Some(19_677 * day + (65_823 * TICKS + 9_799_600))),
        ("2023-11-16 18:17:03.123456789", Some(19_677 * day + (65_823 * TICKS + 1_234_567))),
        ("2023-11-16", None),
        ("2023-13-16 18:17:03", None),
        ("2023-11-16 18:17", None),
        ("2023-11-16 18:17:03.x", None),
        ("2023-11-16 18:17:03+1", None),
        ("2023-11-16 18:17:03-", None),
        ("", None),
    ] {
        assert_eq!(ticks(stamp), expected, "{stamp}");
    }
}
