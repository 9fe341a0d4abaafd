use super::tables::ALL;
use super::*;

#[test]
fn every_table_runs_and_fits_its_columns() {
    let less = Less { seeds: Some(1), horizon: Some(20.0) };
    for table in ALL {
        assert!(table.rows.iter().all(|row| row.reference.len() == table.columns.len()));
        let heard = AtomicUsize::new(0);
        let done = |finished: usize, all: usize| {
            assert!(finished <= all);
            heard.fetch_add(1, Ordering::Relaxed);
        };
        let figures = run(table, less, &done).unwrap_or_else(|e| panic!("{}: {e}", table.name));
        assert_eq!(heard.load(Ordering::Relaxed), table.rows.len());
        assert_eq!(columns(&figures).len(), table.columns.len() + 1);
        for (shown, row) in rows(&figures).iter().zip(table.rows) {
            assert_eq!((shown[0].as_str(), shown.len()), (row.label, table.columns.len() + 1));
        }
        assert_eq!(to_json(&figures)["rows"].as_array().map(Vec::len), Some(table.rows.len()));
    }
    let mut names: Vec<&str> = ALL.iter().map(|table| table.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
}

static SMALL: Table = Table {
    name: "small",
    title: "Small",
    about: "A table made for this.",
    program: ("small.sq", ""),
    traffic: Traffic::Own,
    seeds: 1,
    horizon: 1.0,
    warmup: 0.0,
    columns: &[
        Column { name: "a", of: |_| 0.0, within: Some(0.05), ordered: true },
        Column { name: "b", of: |_| 0.0, within: None, ordered: false },
    ],
    rows: &[
        Row { label: "one", sets: &[], reference: &[100.0, f64::NAN] },
        Row { label: "two", sets: &[], reference: &[103.0, 7.0] },
        Row { label: "three", sets: &[], reference: &[0.0, 7.0] },
    ],
};

#[test]
fn what_is_too_far_off_or_in_another_order_is_named() {
    let check = |cells: [f64; 3], expect: &[Miss]| {
        let cells = cells.iter().map(|a| vec![*a, 1.0]).collect();
        assert_eq!(Figures { table: &SMALL, cells }.misses(), expect);
    };
    let far = |row| Miss::Far { row, column: 0 };
    let order = |first, second| Miss::Order { column: 0, first, second };
    check([100.0, 103.0, 0.0], &[]);
    check([104.9, 105.0, 0.04], &[]);
    check([105.1, 108.0, 0.0], &[far(0)]);
    check([104.0, 110.0, 0.0], &[far(1)]);
    check([104.0, 103.0, 0.06], &[far(2), order(0, 1)]);
    check([f64::NAN, 103.0, 0.0], &[far(0), order(0, 1), order(2, 0)]);
    let figures =
        Figures { table: &SMALL, cells: vec![vec![106.0, 1.0], vec![103.0, 7.0], vec![0.0, 9.0]] };
    assert_eq!(columns(&figures), ["small.sq", "a", "b"]);
    let expect = [
        ["one", "106.0 (100.0, +6.0%)", "1.000"],
        ["two", "103.0 (103.0, +0.0%)", "7.000 (7.000, +0.0%)"],
        ["three", "0 (0)", "9.000 (7.000, +28.6%)"],
    ];
    assert_eq!(rows(&figures), expect);
    let expect = ["one, a: +6.0% off, 5.0% asked for", "a should be smaller for one than for two"];
    assert_eq!(misses(&figures), expect);
}

#[test]
fn a_program_that_does_not_link_says_so() {
    static BROKEN: Table = Table {
        program: ("small.sq", "pool kv { cap 1; }\n"),
        rows: &[Row { label: "one", sets: &["no=1"], reference: &[1.0, 1.0] }],
        ..Table {
            name: "broken",
            title: "",
            about: "",
            program: ("", ""),
            traffic: Traffic::Own,
            seeds: 1,
            horizon: 1.0,
            warmup: 0.0,
            columns: &[],
            rows: &[],
        }
    };
    let error = run(&BROKEN, Less::default(), &|_, _| {}).unwrap_err().to_string();
    assert!(error.starts_with("one: the program does not link\nerror["), "{error}");
}
