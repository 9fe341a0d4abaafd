//! The tables there are.

use serq_sim::Report;

use super::{Column, Row, Table, Traffic};

const NONE: f64 = f64::NAN;

/// All of them, in the order in which they are run.
pub const ALL: [&Table; 5] = [&DECIDER, &NICS_DECIDER, &NICS_LEASE, &BATCHING, &BATCHING_SLOW];

fn mean_of(reports: &[Report], value: impl Fn(&Report) -> f64) -> f64 {
    reports.iter().map(value).sum::<f64>() / reports.len() as f64
}

fn median_of(reports: &[Report], value: impl Fn(&Report) -> f64) -> f64 {
    let mut values: Vec<f64> = reports.iter().map(value).filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => NONE,
        n if n % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

/// Mean of an observed quantity; not a number if the program has none or nobody observed it.
fn observed(report: &Report, name: &str) -> f64 {
    report.observes.iter().find(|o| o.name == name && o.count > 0).map_or(NONE, |o| o.mean)
}

fn total(report: &Report, name: &str) -> f64 {
    report.observes.iter().find(|o| o.name == name).map_or(NONE, |o| o.mean * o.count as f64)
}

/// Mean over the members of the prefillers' pool.
fn prefillers(report: &Report, value: impl Fn(&serq_sim::PoolReport) -> f64) -> f64 {
    let pools: Vec<f64> =
        report.pools.iter().filter(|p| p.name == "P.kv" || p.name == "kvP").map(value).collect();
    pools.iter().sum::<f64>() / pools.len() as f64
}

const REMOTE: Column = Column {
    name: "remote %",
    of: |r| 100.0 * median_of(r, |r| observed(r, "remote")),
    within: Some(0.05),
    ordered: false,
};

const TTFT: Column = Column {
    name: "TTFT ms",
    of: |r| 1e3 * median_of(r, |r| observed(r, "ttft")),
    within: Some(0.05),
    ordered: false,
};

const RESPONSE: Column = Column {
    name: "response ms",
    of: |r| 1e3 * median_of(r, |r| observed(r, "response")),
    within: Some(0.05),
    ordered: false,
};

/// When to prefill remotely, on the deployment with one link per decoder.
pub static DECIDER: Table = Table {
    name: "llmd_pd",
    title: "When is a prompt worth sending to a prefiller",
    about: "`llmd_pd.sq`, medians of seeds 1 to 20. The references are one run of 2,000 s of another simulator with \
            other random numbers, so what is asked for is their order: one run of ours is off its mean by 6 and 7 ms where all is remote, and by 17 and 25 ms where nothing is (95%).",
    program: ("llmd_pd.sq", include_str!("../../../../examples/llmd_pd.sq")),
    traffic: Traffic::Own,
    seeds: 20,
    horizon: 2000.0,
    warmup: 200.0,
    columns: &[
        Column { within: Some(0.1), ..REMOTE },
        Column { within: None, ordered: true, ..TTFT },
        Column { within: None, ordered: true, ..RESPONSE },
    ],
    rows: &[
        Row { label: "always", sets: &["thr=1"], reference: &[100.0, 46.6, 90.6] },
        Row { label: "from 512 tokens", sets: &["thr=512"], reference: &[65.0, 40.6, 84.4] },
        Row { label: "from 2,048 tokens", sets: &["thr=2048"], reference: &[30.0, 39.6, 83.7] },
        Row { label: "never", sets: &["thr=inf"], reference: &[0.0, 66.0, 120.1] },
    ],
};

const NICS: (&str, &str) =
    ("llmd_pd_nics.sq", include_str!("../../../../examples/llmd_pd_nics.sq"));

const NICS_ABOUT: &str = "`llmd_pd_nics.sq`, medians of seeds 1 to 20 over 10,000 s, against the medians of another \
     simulator over as many seeds of its own; 5% is asked for.";

/// When to prefill remotely, with two network cards.
pub static NICS_DECIDER: Table = Table {
    name: "llmd_pd_nics",
    title: "When is a prompt worth sending, with a card at both ends",
    about: NICS_ABOUT,
    program: NICS,
    traffic: Traffic::Own,
    seeds: 20,
    horizon: 10_000.0,
    warmup: 1000.0,
    columns: &[REMOTE, TTFT, RESPONSE],
    rows: &[
        Row { label: "always", sets: &["thr=1"], reference: &[100.0, 29.5, 72.1] },
        Row { label: "from 512 tokens", sets: &["thr=512"], reference: &[59.0, 28.7, 71.3] },
        Row { label: "from 2,048 tokens", sets: &["thr=2048"], reference: &[22.0, 29.0, 71.8] },
        Row { label: "never", sets: &["thr=inf"], reference: &[0.0, 29.4, 73.8] },
    ],
};

/// What a hand-off holds on the prefillers, by the decoders' memory and the load.
pub static NICS_LEASE: Table = Table {
    name: "llmd_pd_nics_lease",
    title: "How long prefillers keep what decoders have not read",
    about: NICS_ABOUT,
    program: NICS,
    traffic: Traffic::Own,
    seeds: 20,
    horizon: 10_000.0,
    warmup: 1000.0,
    columns: &[
        REMOTE,
        Column {
            name: "lease ms",
            of: |r| 1e3 * median_of(r, |r| observed(r, "lease")),
            within: Some(0.05),
            ordered: false,
        },
        Column {
            name: "tokens held by a prefiller",
            of: |r| median_of(r, |r| prefillers(r, |p| p.mean_used)),
            within: Some(0.05),
            ordered: false,
        },
        TTFT,
    ],
    rows: &[
        Row { label: "160,000 tokens, 0.6/s", sets: &[], reference: &[59.0, 13.0, 435.0, 28.7] },
        Row {
            label: "32,000 tokens, 0.6/s",
            sets: &["blocks_d=2000"],
            reference: &[86.0, 33.0, 944.0, 49.1],
        },
        Row {
            label: "17,600 tokens, 0.6/s",
            sets: &["blocks_d=1100"],
            reference: &[92.0, 37.0, 1079.0, 54.7],
        },
        Row {
            label: "160,000 tokens, 1.2/s",
            sets: &["lambda=1.2"],
            reference: &[72.0, 25.0, 1650.0, 47.8],
        },
        Row {
            label: "32,000 tokens, 1.2/s",
            sets: &["lambda=1.2", "blocks_d=2000"],
            reference: &[93.0, 42.0, 2728.0, 70.7],
        },
        Row {
            label: "17,600 tokens, 1.2/s",
            sets: &["lambda=1.2", "blocks_d=1100"],
            reference: &[96.0, 49.0, 3046.0, 78.4],
        },
    ],
};

const BATCHING_ABOUT: &str = "`pd_batching.sq`, means over five runs of 300 s, the first 30 not measured, against another simulator's; \
     2% is asked for (4% for the first token). Prompts have 2,000 tokens each, and requests come at the very times at which they came \
     there: at 70 requests per second the mean of five runs is off the mean of many by 5% to 10%. Only lengths of answers are drawn by \
     each for itself. Time per token is weighted by tokens.";

const BATCHING_COLUMNS: &[Column] = &[
    Column {
        name: "TTFT ms",
        of: |r| 1e3 * mean_of(r, |r| observed(r, "ttft")),
        within: Some(0.04),
        ordered: false,
    },
    Column {
        name: "TPOT ms",
        of: |r| {
            let sum = |name| r.iter().map(|r| total(r, name)).sum::<f64>();
            1e3 * sum("decode_time") / sum("decoded")
        },
        within: Some(0.02),
        ordered: false,
    },
    Column {
        name: "response ms",
        of: |r| 1e3 * mean_of(r, |r| observed(r, "response")),
        within: Some(0.02),
        ordered: false,
    },
];

const BATCHING_PROGRAM: (&str, &str) =
    ("pd_batching.sq", include_str!("../../../../examples/pd_batching.sq"));

/// Colocated against split, an iteration at least 0.2 ms.
pub static BATCHING: Table = Table {
    name: "pd_batching",
    title: "What a prefill between decodes costs",
    about: BATCHING_ABOUT,
    program: BATCHING_PROGRAM,
    traffic: Traffic::Chacha,
    seeds: 5,
    horizon: 300.0,
    warmup: 30.0,
    columns: BATCHING_COLUMNS,
    rows: &[
        Row {
            label: "20/s, colocated",
            sets: &["lambda=20", "split=0"],
            reference: &[40.4, 0.220, 85.0],
        },
        Row { label: "20/s, split", sets: &["lambda=20"], reference: &[41.2, 0.208, 83.4] },
        Row {
            label: "40/s, colocated",
            sets: &["lambda=40", "split=0"],
            reference: &[43.2, 0.305, 104.5],
        },
        Row { label: "40/s, split", sets: &["lambda=40"], reference: &[46.0, 0.211, 88.6] },
        Row {
            label: "60/s, colocated",
            sets: &["lambda=60", "split=0"],
            reference: &[49.9, 0.545, 159.7],
        },
        Row { label: "60/s, split", sets: &["lambda=60"], reference: &[65.1, 0.215, 108.4] },
        Row {
            label: "70/s, colocated",
            sets: &["lambda=70", "split=0"],
            reference: &[56.2, 0.844, 226.3],
        },
        Row { label: "70/s, split", sets: &["lambda=70"], reference: &[124.6, 0.216, 168.2] },
    ],
};

/// The same with iterations of at least 10 ms.
pub static BATCHING_SLOW: Table = Table {
    name: "pd_batching_10ms",
    title: "The same with iterations of at least 10 ms",
    about: BATCHING_ABOUT,
    program: BATCHING_PROGRAM,
    traffic: Traffic::Chacha,
    seeds: 5,
    horizon: 300.0,
    warmup: 30.0,
    columns: BATCHING_COLUMNS,
    rows: &[
        Row {
            label: "40/s, colocated",
            sets: &["lambda=40", "split=0", "omega=0.01"],
            reference: &[53.8, 16.77, 3436.0],
        },
        Row {
            label: "40/s, split",
            sets: &["lambda=40", "omega=0.01"],
            reference: &[71.5, 10.37, 2163.0],
        },
        Row {
            label: "60/s, colocated",
            sets: &["lambda=60", "split=0", "omega=0.01"],
            reference: &[63.2, 25.66, 5232.0],
        },
        Row {
            label: "60/s, split",
            sets: &["lambda=60", "omega=0.01"],
            reference: &[91.0, 10.57, 2220.0],
        },
        Row {
            label: "70/s, colocated",
            sets: &["lambda=70", "split=0", "omega=0.01"],
            reference: &[72.1, 34.79, 7074.0],
        },
        Row {
            label: "70/s, split",
            sets: &["lambda=70", "omega=0.01"],
            reference: &[150.8, 10.67, 2300.0],
        },
    ],
};
