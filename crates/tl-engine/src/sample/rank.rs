//! The first few of many, in the order (value descending, id ascending).

/// One candidate. The natural order is the rank: the key falls as the value rises.
pub(super) type Ranked = (u64, u32);

/// A key that is smaller the larger `x` is. The two zeros have one key, since they
/// are equal; `x` is a number.
fn key(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 0 { !bits ^ (1 << 63) } else { bits }
}

/// Puts the `n` first ids by `value(logit)` into `out`, best first. Logits at minus
/// infinity never rank. `value` must not fall where the logit rises.
///
/// One pass over the logits with a bar that rises: candidates gather until there are
/// twice as many as wanted, then the better half stays. A full sort of the vocabulary
/// would cost more than the rest of the step.
pub(super) fn first_ranked(
    logits: &[f64],
    n: usize,
    value: impl Fn(f64) -> f64,
    out: &mut Vec<Ranked>,
) {
    out.clear();
    if n == 0 {
        return;
    }
    let full = n.saturating_mul(2).max(n.saturating_add(64));
    let mut bar = f64::NEG_INFINITY;
    for (id, &logit) in logits.iter().enumerate() {
        // A logit at the bar has no better value than the last one kept, and a higher
        // id.
        if logit <= bar {
            continue;
        }
        let x = value(logit);
        if x == f64::NEG_INFINITY {
            continue;
        }
        out.push((key(x), id as u32));
        if out.len() == full {
            let (_, &mut (_, last), _) = out.select_nth_unstable(n - 1);
            out.truncate(n);
            bar = logits[last as usize];
        }
    }
    if out.len() > n {
        out.select_nth_unstable(n - 1);
        out.truncate(n);
    }
    out.sort_unstable();
}
