use proptest::prelude::*;

use super::{CTable, Grid, Outside};

fn table(axes: usize, points: &[&[f64]], outside: Outside) -> CTable {
    CTable {
        name: "t".to_owned(),
        axes: (0..axes).map(|k| format!("x{k}")).collect(),
        points: points.iter().map(|p| p.to_vec()).collect(),
        outside,
    }
}

fn read(t: &CTable, at: &[f64]) -> Option<f64> {
    assert_eq!(t.fault(), None);
    Grid::new(t).value(at).ok()
}

const LINE: [&[f64]; 3] = [&[1.0, 10.0], &[3.0, 30.0], &[4.0, 20.0]];

#[test]
fn one_axis_inside_and_outside() {
    let cases = [
        (1.0, [Some(10.0); 3]),
        (2.0, [Some(20.0); 3]),
        (3.0, [Some(30.0); 3]),
        (3.25, [Some(27.5); 3]),
        (4.0, [Some(20.0); 3]),
        (0.0, [Some(0.0), Some(10.0), None]),
        (5.0, [Some(10.0), Some(20.0), None]),
        (f64::INFINITY, [None; 3]),
        (f64::NAN, [None; 3]),
    ];
    for (x, expected) in cases {
        for (outside, expected) in Outside::ALL.into_iter().zip(expected) {
            assert_eq!(read(&table(1, &LINE, outside), &[x]), expected, "{x} {outside:?}");
        }
    }
}

#[test]
fn a_grid_is_read_multilinearly() {
    let grid: [&[f64]; 4] =
        [&[0.0, 0.0, 0.0], &[0.0, 2.0, 4.0], &[1.0, 0.0, 10.0], &[1.0, 2.0, 30.0]];
    let t = table(2, &grid, Outside::Extend);
    assert_eq!(read(&t, &[0.5, 1.0]), Some(11.0));
    assert_eq!(read(&t, &[2.0, 1.0]), Some(38.0));
    assert_eq!(read(&t, &[0.5, 4.0]), Some(29.0));
}

/// A line with fewer points is read with those it has: `x0 = 0` has one point, and `x0 = 2` no
/// middle.
#[test]
fn holes_are_bridged_along_their_line() {
    let ragged: [&[f64]; 6] = [
        &[0.0, 0.0, 5.0],
        &[1.0, 0.0, 1.0],
        &[1.0, 1.0, 2.0],
        &[1.0, 2.0, 3.0],
        &[2.0, 0.0, 10.0],
        &[2.0, 2.0, 30.0],
    ];
    let t = table(2, &ragged, Outside::Extend);
    assert_eq!(read(&t, &[0.0, 9.0]), Some(5.0));
    assert_eq!(read(&t, &[0.5, 1.0]), Some(3.5));
    assert_eq!(read(&t, &[2.0, 1.0]), Some(20.0));
    assert_eq!(read(&t, &[1.5, 1.0]), Some(11.0));
    // Refusal is about what was measured on an axis at all, not on one line.
    assert_eq!(read(&table(2, &ragged, Outside::Refuse), &[0.0, 2.0]), Some(5.0));
    assert_eq!(read(&table(2, &ragged, Outside::Refuse), &[0.0, 2.5]), None);
}

#[test]
fn faults_are_named() {
    let check = |t: CTable, words: &str| {
        let fault = t.fault().unwrap_or_default();
        assert!(fault.contains(words), "{fault}");
    };
    check(table(0, &[&[1.0]], Outside::Extend), "0 axes");
    check(table(7, &[], Outside::Extend), "7 axes");
    check(table(1, &[], Outside::Extend), "0 points");
    check(table(1, &[&[1.0]], Outside::Extend), "point 0 has not 1");
    check(table(1, &[&[1.0, f64::NAN]], Outside::Extend), "not finite");
    check(table(1, &[&[1.0, 2.0], &[1.0, 3.0]], Outside::Extend), "point 1 does not");
    check(table(1, &[&[2.0, 2.0], &[1.0, 3.0]], Outside::Extend), "point 1 does not");
}

/// A random table of three axes, a grid with some points missing.
fn tables() -> impl Strategy<Value = CTable> {
    let axis = || proptest::collection::btree_set(0u32..1000, 1..5);
    (axis(), axis(), axis(), proptest::collection::vec((any::<bool>(), -1e3..1e3), 64)).prop_map(
        |(a, b, c, values)| {
            let mut values = values.into_iter();
            let mut points = Vec::new();
            for x in &a {
                for y in &b {
                    for z in &c {
                        let (keep, value) = values.next().unwrap_or((true, 0.0));
                        if keep || points.is_empty() {
                            points.push(vec![f64::from(*x), f64::from(*y), f64::from(*z), value]);
                        }
                    }
                }
            }
            CTable {
                name: "t".into(),
                axes: vec!["a".into(), "b".into(), "c".into()],
                points,
                outside: Outside::Extend,
            }
        },
    )
}

proptest! {
    #[test]
    fn exact_at_points(t in tables()) {
        prop_assert_eq!(t.fault(), None);
        for outside in Outside::ALL {
            let grid = Grid::new(&CTable { outside, ..t.clone() });
            for p in &t.points {
                prop_assert_eq!(grid.value(&p[..3]).map(f64::to_bits), Ok(p[3].to_bits()));
            }
        }
    }

    #[test]
    fn clamped_values_stay_within_the_measured(t in tables(), at in [-10.0..1100.0, -10.0..1100.0, -10.0..1100.0]) {
        let grid = Grid::new(&CTable { outside: Outside::Clamp, ..t.clone() });
        let all: Vec<f64> = t.points.iter().map(|p| p[3]).collect();
        let value = grid.value(&at).unwrap_or(f64::NAN);
        let (low, high) = all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        prop_assert!((low..=high).contains(&value), "{} in {}..{}", value, low, high);
        // The same place gives the same bits.
        prop_assert_eq!(value.to_bits(), Grid::new(&CTable { outside: Outside::Clamp, ..t }).value(&at).unwrap_or(0.0).to_bits());
    }

    #[test]
    fn monotone_between_ascending_points(
        keys in proptest::collection::btree_set(0u32..1000, 2..9),
        steps in proptest::collection::vec(0.0..1e3, 9),
        at in proptest::collection::vec(0.0..1000.0, 2..20),
    ) {
        let mut sum = 0.0;
        let points = keys.iter().zip(&steps).map(|(k, s)| { sum += s; vec![f64::from(*k), sum] }).collect();
        let t = CTable { points, ..table(1, &[], Outside::Clamp) };
        let grid = Grid::new(&t);
        let mut at = at;
        at.sort_by(f64::total_cmp);
        let values: Vec<f64> = at.iter().map(|x| grid.value(&[*x]).unwrap_or(f64::NAN)).collect();
        prop_assert!(values.windows(2).all(|w| w[0] <= w[1]), "{:?}", values);
    }
}
