//! A table of figures, for people.

/// A title, columns, rows, and what has to be said about them.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
}

impl Sheet {
    /// Columns under each other: the first to the left, numbers to the right.
    pub(super) fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.columns).chain(&self.rows).collect();
        let width = |k: usize| {
            lines.iter().filter_map(|l| l.get(k)).map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let mut text = format!("{}\n", self.title);
        for line in &lines {
            let cells = line.iter().enumerate().map(|(k, cell)| match k {
                0 => format!("{cell:<0$}", width(0)),
                _ => format!("{cell:>0$}", width(k)),
            });
            let cells: Vec<String> = cells.collect();
            text.push_str(&format!("  {}\n", cells.join("  ").trim_end()));
        }
        self.notes.iter().for_each(|n| text.push_str(&format!("  {n}\n")));
        text
    }

    pub(super) fn markdown(&self) -> String {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<&str> =
            (0..self.columns.len()).map(|k| if k == 0 { "---" } else { "---:" }).collect();
        let mut text =
            format!("**{}**\n\n{}|{}|\n", self.title, row(&self.columns), rule.join("|"));
        self.rows.iter().for_each(|r| text.push_str(&row(r)));
        self.notes.iter().for_each(|n| text.push_str(&format!("\n{n}\n")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Sheet;

    fn sheet() -> Sheet {
        let cells = |c: [&str; 2]| c.map(str::to_owned).to_vec();
        Sheet {
            title: "Two".into(),
            columns: cells(["", "ms"]),
            rows: vec![cells(["mean", "1.5"]), cells(["P99", "10.25"])],
            notes: vec!["Said once.".into()],
        }
    }

    #[test]
    fn columns_stand_under_each_other() {
        let text = "Two\n           ms\n  mean    1.5\n  P99   10.25\n  Said once.\n";
        assert_eq!(sheet().text(), text);
    }

    #[test]
    fn markdown_is_a_table() {
        let text =
            "**Two**\n\n|  | ms |\n|---|---:|\n| mean | 1.5 |\n| P99 | 10.25 |\n\nSaid once.\n";
        assert_eq!(sheet().markdown(), text);
    }
}
