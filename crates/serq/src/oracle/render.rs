//! Agreements as text.

use std::fmt::{self, Display, Write as _};

use super::compare::{Agreement, Count, Difference};
use super::run::{Event, Step};

/// One line for each trace and one for all, then the first difference of every trace that has one.
pub fn report(agreements: &[Agreement]) -> String {
    let mut text = String::new();
    let (mut requests, mut steps) = (Count::default(), Count::default());
    let width = agreements.iter().map(|a| a.name.chars().count()).max().unwrap_or(0).max(3);
    for a in agreements {
        requests += a.requests;
        steps += a.steps;
        let _ = writeln!(
            text,
            "{}",
            Line { name: &a.name, width, requests: a.requests, steps: a.steps }
        );
    }
    let _ = writeln!(text, "{}", Line { name: "all", width, requests, steps });
    for a in agreements.iter().filter(|a| !a.orders.is_empty()) {
        let orders: Vec<String> = a.orders.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "{}: under another order of simultaneous releases ({})",
            a.name,
            orders.join("; ")
        );
    }
    for a in agreements {
        if let Some(difference) = &a.first {
            let _ = write!(text, "\n{}: {difference}", a.name);
        }
    }
    text
}

struct Line<'a> {
    name: &'a str,
    width: usize,
    requests: Count,
    steps: Count,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { name, width, requests, steps } = self;
        write!(
            f,
            "{name:width$}  {} of {} requests agree, {} of {} steps agree",
            requests.agree, requests.of, steps.agree, steps.of
        )
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "first difference at tick {}, engine {}", self.tick, self.side)?;
        for (id, (recorded, actual)) in &self.events {
            writeln!(f, "  {id}: vLLM {}; here {}", Events(recorded), Events(actual))?;
        }
        for (side, (recorded, actual)) in &self.states {
            writeln!(f, "  {side} in vLLM: {}", State(recorded.as_ref()))?;
            writeln!(f, "  {side} here:    {}", State(actual.as_ref()))?;
        }
        Ok(())
    }
}

struct Events<'a>(&'a [Event]);

impl Display for Events<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, event) in self.0.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, event.what)?;
        }
        Ok(())
    }
}

struct State<'a>(Option<&'a Step>);

impl Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = self.0 else { return f.write_str("no step") };
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let (scheduled, after) = (number(step.free_scheduled), number(step.free));
        write!(f, "free {scheduled} then {after}; batch")?;
        for row in &step.batch {
            write!(f, " {}+{}@{}", row.id, row.tokens, row.before)?;
        }
        write!(f, "; running")?;
        step.running.iter().try_for_each(|id| write!(f, " {id}"))?;
        write!(f, "; waiting")?;
        step.waiting.iter().try_for_each(|id| write!(f, " {id}"))?;
        for (word, list) in [("holding", &step.holding), ("held", &step.held)] {
            if !list.is_empty() {
                write!(f, "; {word}")?;
                list.iter().try_for_each(|(id, blocks)| write!(f, " {id}:{blocks}"))?;
            }
        }
        if !step.leases.is_empty() {
            write!(f, "; leased until")?;
            step.leases.iter().try_for_each(|(id, until)| write!(f, " {id}:{until}"))?;
        }
        Ok(())
    }
}
