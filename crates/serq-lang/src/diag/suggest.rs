//! "Did you mean": the one name that is close to what was written.

/// Longest word worth comparing.
const MAX_LEN: usize = 64;

/// The candidate closest to `word`, if it is close and no other is as close.
///
/// Close is a distance of at most a third of the word's length (and at least 1), counted in
/// insertions, deletions, replacements and swaps of neighbours.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().collect();
    if word.len() > MAX_LEN {
        return None;
    }
    let limit = (word.len() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    let mut unique = true;
    for candidate in candidates {
        let chars: Vec<char> = candidate.chars().take(MAX_LEN + 1).collect();
        if chars.len().abs_diff(word.len()) > limit || chars == word {
            continue;
        }
        let d = distance(&word, &chars);
        match best {
            Some((b, name)) if d > b || (d == b && name == candidate) => {}
            Some((b, _)) if d == b => unique = false,
            _ => (best, unique) = (Some((d, candidate)), true),
        }
    }
    best.filter(|&(d, name)| unique && d <= limit && d < name.chars().count()).map(|(_, name)| name)
}

/// Edit distance with swaps of neighbours (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn closest_names() {
        let check = |word: &str, names: &[&str], want: Option<&str>| {
            assert_eq!(closest(word, names.iter().copied()), want, "{word} among {names:?}");
        };
        check("lamda", &["lambda", "mu"], Some("lambda"));
        check("prefil", &["prefill", "decode"], Some("prefill"));
        check("kvp", &["kv", "kvq"], None); // two are as close
        check("kvp", &["kv", "kv"], Some("kv"));
        check("foo", &["lambda"], None);
        check("mu", &["mu"], None); // it is not the name that is wrong
        check("um", &["mu"], Some("mu"));
        check("x", &["y"], None); // every letter replaced
        check("", &["y"], None);
        check(&"a".repeat(1000), &["y"], None);
    }
}
