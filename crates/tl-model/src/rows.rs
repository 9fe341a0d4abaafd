//! Row-wise work on several threads, without sharing a mutable slice.

use std::array;
use std::mem;
use std::sync::{Mutex, PoisonError};

use tl_kernels::Threads;

/// Most parts that one pass is cut into.
const PARTS: usize = 64;
/// Elements below which one thread is faster than two.
const WORTH_SHARING: usize = 1 << 14;

/// Calls `f(i, rows)` for each row `i < m` of all `bufs`, given as data and row length.
pub(crate) fn each_row<const B: usize>(
    threads: &Threads,
    m: usize,
    bufs: [(&mut [f32], usize); B],
    f: impl Fn(usize, [&mut [f32]; B]) + Sync,
) {
    let total = m * bufs.iter().map(|b| b.1).sum::<usize>();
    let parts = if total < WORTH_SHARING { 1 } else { threads.count() * 4 };
    // The parts lie on the stack and each is locked once, by the thread that takes it.
    let parts = parts.clamp(1, PARTS);
    let per = m.div_ceil(parts).max(1);
    let widths = bufs.each_ref().map(|b| b.1);
    let run = |first: usize, n: usize, bufs: &mut [&mut [f32]; B]| {
        for r in 0..n {
            let mut width = widths.iter();
            let rows = bufs.each_mut().map(|buf| {
                let w = width.next().copied().unwrap_or(0);
                &mut buf[r * w..][..w]
            });
            f(first + r, rows);
        }
    };
    let mut rest = bufs;
    if parts == 1 {
        return run(0, m, &mut rest.map(|b| b.0));
    }
    let rows_of = |p: usize| per.min(m.saturating_sub(p * per));
    let slices: [Mutex<[&mut [f32]; B]>; PARTS] = array::from_fn(|p| {
        let n = rows_of(p);
        Mutex::new(rest.each_mut().map(|(buf, w)| {
            let (head, tail) = mem::take(buf).split_at_mut(n * *w);
            *buf = tail;
            head
        }))
    });
    threads.run(m.div_ceil(per), |p| {
        let mut bufs = slices[p].lock().unwrap_or_else(PoisonError::into_inner);
        run(p * per, rows_of(p), &mut bufs);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_once() {
        let threads = Threads::new(3);
        for (m, wa, wb) in [(0, 3, 2), (1, 5, 4), (7, 4000, 1), (300, 64, 100), (1000, 33, 0)] {
            let (mut a, mut b) = (vec![0.0; m * wa], vec![0.0; m * wb]);
            each_row(&threads, m, [(&mut a, wa), (&mut b, wb)], |i, [a, b]| {
                assert_eq!((a.len(), b.len()), (wa, wb));
                a.iter_mut().chain(b).for_each(|v| *v += 1.0 + i as f32);
            });
            for (data, w) in [(&a, wa), (&b, wb)] {
                for (j, v) in data.iter().enumerate() {
                    assert_eq!(*v, 1.0 + (j / w) as f32, "m {m}, element {j} of rows of {w}");
                }
            }
        }
    }
}
