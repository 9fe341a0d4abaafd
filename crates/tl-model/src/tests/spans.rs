//! What a step refuses, and what happens to a span that is dropped on the way.

use tl_kernels::{Kernels, Threads};
use tl_kv::{KvPool, Slabs};

use crate::forward::{Span, Workspace};
use crate::{ForwardError, Model, RandomLlama, tiny};

fn model() -> Model {
    RandomLlama { max_positions: 64, ..RandomLlama::default() }.build(3).unwrap()
}

fn forward(
    model: &Model,
    ws: &mut Workspace,
    slabs: &Slabs,
    spans: &[Span<'_>],
    keep: &mut dyn FnMut(usize) -> bool,
) -> Result<(), ForwardError> {
    model.forward(ws, Kernels::detect(), &Threads::new(2), slabs, spans, keep)
}

#[test]
fn refusals_come_before_anything_is_written() {
    let model = model();
    let mut pool = KvPool::new(model.kv_cfg(8, 4)).unwrap();
    let table = pool.alloc(6).unwrap();
    let slabs = pool.slabs();
    let mut ws = Workspace::new();
    let good = Span { tokens: &[1, 2, 3], start: 0, table: &table[..1], logits: true };
    forward(&model, &mut ws, &slabs, &[good], &mut |_| true).unwrap();
    let before: Vec<Vec<u16>> =
        table.iter().map(|&b| slabs.read(b).unwrap().all().to_vec()).collect();
    assert!(ws.logits(0).is_some());

    let other = Span { tokens: &[9, 9], start: 3, table: &table, logits: true };
    let mut check = |bad: Span<'_>, expected: &str| {
        let error = forward(&model, &mut ws, &slabs, &[other, bad], &mut |_| true).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}, expected {expected}");
        assert!(ws.logits(0).is_none() && ws.logits(1).is_none(), "no logits of an earlier step");
        for (&block, before) in table.iter().zip(&before) {
            assert_eq!(slabs.read(block).unwrap().all(), before, "{expected}: block {block}");
        }
    };
    let free = [6u32];
    let far = [99u32];
    check(Span { tokens: &[], start: 0, table: &table, logits: true }, "span 1 has no tokens");
    check(Span { tokens: &[1, 264], start: 0, table: &table, logits: true }, "token 264");
    check(Span { tokens: &[1, 2], start: 63, table: &table, logits: true }, "position 64");
    check(Span { tokens: &[1], start: usize::MAX, table: &table, logits: true }, "position");
    check(Span { tokens: &[1], start: 4, table: &table[..1], logits: true }, "2 blocks are needed");
    check(Span { tokens: &[1], start: 0, table: &free, logits: true }, "block 6");
    check(Span { tokens: &[1], start: 0, table: &far, logits: true }, "block 99");
    // Two spans would write one block.
    check(Span { tokens: &[1], start: 1, table: &table[..1], logits: true }, "block");
}

#[test]
fn registered_blocks_are_read_and_never_written() {
    let model = model();
    let mut pool = KvPool::new(model.kv_cfg(8, 4)).unwrap();
    let table = pool.alloc(2).unwrap();
    let slabs = pool.slabs();
    let mut ws = Workspace::new();
    let first = Span { tokens: &[1, 2, 3, 4], start: 0, table: &table, logits: true };
    forward(&model, &mut ws, &slabs, &[first], &mut |_| true).unwrap();
    pool.set_fill(table[0], 4).unwrap();
    assert!(pool.register(table[0], 77).unwrap());
    let next = Span { tokens: &[5], start: 4, table: &table, logits: true };
    forward(&model, &mut ws, &slabs, &[next], &mut |_| true).unwrap();
    let error = forward(&model, &mut ws, &slabs, &[first], &mut |_| true).unwrap_err();
    assert!(matches!(error, ForwardError::Block { span: 0, .. }), "{error}");
}

#[test]
fn a_pool_of_another_shape_is_refused() {
    let model = model();
    let other = RandomLlama { n_layers: 2, ..RandomLlama::default() }.build(0).unwrap();
    let mut pool = KvPool::new(other.kv_cfg(2, 4)).unwrap();
    let table = pool.alloc(1).unwrap();
    let span = Span { tokens: &[1], start: 0, table: &table, logits: true };
    let error =
        forward(&model, &mut Workspace::new(), &pool.slabs(), &[span], &mut |_| true).unwrap_err();
    assert!(matches!(error, ForwardError::PoolShape { .. }), "{error}");
}

#[test]
fn dropped_spans_leave_and_the_others_do_not_notice() {
    let model = tiny(5).model;
    let prompts: [&[u32]; 4] = [&[10, 20, 30], &[7], &[1, 2, 3, 4, 5, 6, 7, 8, 9], &[200, 100]];
    let run = |keep: &mut dyn FnMut(usize) -> bool, asked: [bool; 4]| {
        let mut pool = KvPool::new(model.kv_cfg(16, 4)).unwrap();
        let tables: Vec<Vec<u32>> = (0..4).map(|_| pool.alloc(4).unwrap()).collect();
        let spans: Vec<Span<'_>> = prompts
            .iter()
            .zip(&tables)
            .zip(asked)
            .map(|((&tokens, table), logits)| Span { tokens, start: 0, table, logits })
            .collect();
        let mut ws = Workspace::new();
        forward(&model, &mut ws, &pool.slabs(), &spans, keep).unwrap();
        (0..4).map(|i| ws.logits(i).map(<[f32]>::to_vec)).collect::<Vec<_>>()
    };
    let all = run(&mut |_| true, [true; 4]);
    assert!(all.iter().all(Option::is_some));

    // Who is dropped, and at which question; the model has three layers, so each is asked twice.
    for dropped in 0..16u32 {
        for question in 0..2 {
            let mut asked = [0; 4];
            let mut keep = |i: usize| {
                asked[i] += 1;
                !(dropped >> i & 1 == 1 && asked[i] == question + 1)
            };
            let got = run(&mut keep, [true; 4]);
            for i in 0..4 {
                let gone = dropped >> i & 1 == 1;
                assert_eq!(got[i], all[i].clone().filter(|_| !gone), "span {i} of {dropped:04b}");
                let expected = if gone { question + 1 } else { 2 };
                assert!(asked[i] == expected || dropped == 15, "span {i} asked {} times", asked[i]);
            }
        }
    }

    let some = run(&mut |_| true, [false, true, false, true]);
    assert_eq!(some, [None, all[1].clone(), None, all[3].clone()]);
    assert!(run(&mut |_| true, [false; 4]).iter().all(Option::is_none));
}

#[test]
fn a_step_without_spans_is_nothing() {
    let model = model();
    let pool = KvPool::new(model.kv_cfg(1, 4)).unwrap();
    let mut ws = Workspace::new();
    forward(&model, &mut ws, &pool.slabs(), &[], &mut |_| true).unwrap();
    assert!(ws.logits(0).is_none());
}
