//! The samples, what is wrong with broken ones, and the public files where they are at hand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serq_sim::content::Pool;

use super::{Format, Options, Workload, parse, read};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces").join(name)
}

fn workload(name: &str, options: &Options) -> Workload {
    read(&sample(name), options).unwrap_or_else(|e| panic!("{e}"))
}

/// Line, seconds, prompt tokens, output tokens, segments.
fn rows(workload: &Workload) -> Vec<(usize, f64, u64, u64, Vec<(u64, u64)>)> {
    let segments =
        |r: &super::Arrival| r.prompt.segments().iter().map(|s| (s.key, s.len)).collect();
    let requests = workload.requests.iter();
    requests.map(|r| (r.line, r.at, r.prompt.len(), r.output, segments(r))).collect()
}

const OWN: u64 = 1 << 63;

#[test]
fn azure() {
    let workload = workload("azure.csv", &Options::default());
    assert_eq!(
        rows(&workload),
        [
            (2, 0.0, 100, 5, vec![(OWN | 2, 100)]),
            (3, 0.25, 37, 12, vec![(OWN | 3, 37)]),
            (4, 1.000_000_1, 2048, 1, vec![(OWN | 4, 2048)]),
        ]
    );
    assert_eq!(workload.block, None);
}

#[test]
fn mooncake() {
    let workload = workload("mooncake.jsonl", &Options::default());
    assert_eq!(workload.block, Some(512));
    assert_eq!(
        rows(&workload),
        [
            (1, 0.0, 1100, 20, vec![(7, 512), (8, 512), (9, 76)]),
            (2, 0.0, 1536, 3, vec![(7, 512), (8, 512), (10, 512)]),
            (3, 2.5, 600, 41, vec![(7, 512), (11, 88)]),
        ]
    );
}

#[test]
fn only_full_blocks_have_ids_in_some_files() {
    let workload = workload("blocks16.jsonl", &Options::default());
    assert_eq!(workload.block, Some(16));
    let segments: Vec<_> = rows(&workload).into_iter().map(|row| row.4).collect();
    assert_eq!(
        segments,
        [
            vec![(1, 16), (2, 16), (OWN | 1, 8)],
            vec![(1, 16), (2, 16), (3, 16)],
            vec![(OWN | 3, 15)],
        ]
    );
    assert_eq!(workload.requests[1].at, 0.25025 - 0.0125);
}

#[test]
fn a_rate_scale_divides_the_gaps() {
    let fast = Options { rate_scale: Some(4.0), ..Options::default() };
    let fast = workload("mooncake.jsonl", &fast);
    let plain = workload("mooncake.jsonl", &Options::default());
    assert_eq!((plain.span(), fast.span()), (2.5, 0.625));
    for (a, b) in fast.requests.iter().zip(&plain.requests) {
        assert_eq!((&a.prompt, a.output, a.line), (&b.prompt, b.output, b.line));
    }
}

#[test]
fn lines_out_of_order_are_put_in_order() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2024-01-01 10:00:05,1,1\n2024-01-01 10:00:03,2,2\n2024-01-01 10:00:05,3,3\n";
    let workload = parse("t.csv", text, &Options::default()).expect("reads");
    let order: Vec<(usize, f64)> = workload.requests.iter().map(|r| (r.line, r.at)).collect();
    assert_eq!((order, workload.reordered), (vec![(3, 0.0), (2, 2.0), (4, 2.0)], 1));
}

#[track_caller]
fn refused(text: &str, options: &Options, message: &str) {
    let error = parse("t", text, options).expect_err("refused").to_string();
    assert_eq!(error, message);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let csv = |rows: &str| format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}");
    let plain = Options::default();
    let stamp = "2024-01-01 10:00:00";
    refused("", &plain, "t: an empty file");
    refused(&csv(""), &plain, "t: no request in it");
    refused(
        "a,b,c\n",
        &plain,
        "t, line 1: no column `TIMESTAMP`; the header must name TIMESTAMP, ContextTokens, GeneratedTokens",
    );
    refused(&csv(&format!("{stamp},1\n")), &plain, "t, line 2: 2 fields where the header has 3");
    refused(
        &csv(&format!("\n{stamp},1,x\n")),
        &plain,
        "t, line 3: `GeneratedTokens` is `x`, not a number of tokens",
    );
    refused(
        &csv(&format!("{stamp},0,1\n")),
        &plain,
        "t, line 2: `ContextTokens` is 0: a request has at least one token; leave it out",
    );
    refused(
        &csv(&format!("{stamp},99999999999,1\n")),
        &plain,
        "t, line 2: `ContextTokens` is 99999999999, more than 4294967296 tokens",
    );
    refused(
        &csv("noon,1,1\n"),
        &plain,
        "t, line 2: `noon` is not a time stamp like 2023-11-16 18:17:03.9799600",
    );

    let row = |n: u64, ids: &str| {
        format!(
            "{{\"timestamp\":0,\"input_length\":{n},\"output_length\":1,\"hash_ids\":[{ids}]}}\n"
        )
    };
    let good = row(1000, "1,2");
    refused(
        &format!("{good}{{\"timestamp\":0}}"),
        &plain,
        "t, line 2: missing field `input_length`, column 15",
    );
    refused(&format!("{good}\n{{x"), &plain, "t, line 3: key must be a string, column 2");
    refused(&good.replace(":0,", ":-1,"), &plain, "t, line 1: `timestamp` is -1");
    refused(
        &row(8, "9223372036854775808"),
        &plain,
        "t, line 1: the block id 9223372036854775808 is 2^63 or more",
    );
    refused(
        &format!("{good}{}", row(1000, "1,2,3")),
        &plain,
        "t, line 2: no block size explains the number of block ids up to here; give one",
    );
    refused(
        &row(1000, "5"),
        &plain,
        "t: blocks could have 512 or 1024 or 2048 or 4096 or 8192 or \
        16384 or 32768 or 65536 or 131072 or 262144 or 524288 tokens: give the size",
    );
    let sized = |block| Options { block: Some(block), ..Options::default() };
    refused(&good, &sized(0), "t: a block of 0 tokens: give at least 1");
    refused(
        &good,
        &sized(16),
        "t, line 1: 2 block ids for a prompt of 1000 tokens; blocks of 16 give another number",
    );
    let sized = parse("t", &row(1000, "5"), &sized(512)).expect("reads");
    assert_eq!(sized.requests[0].prompt.segments().len(), 2);

    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = Options { rate_scale: Some(scale), ..Options::default() };
        refused(&good, &options, &format!("t: a rate scale of {scale}: give a positive number"));
    }
    let azure = Options { format: Some(Format::Azure), ..Options::default() };
    assert!(parse("t", &good, &azure).is_err());
    let missing = read(Path::new("no/such"), &plain).expect_err("missing").to_string();
    assert!(missing.starts_with("no/such: "), "{missing}");
}

#[test]
fn other_fields_other_columns_and_line_ends_do_no_harm() {
    let text =
        "\u{feff}id,GeneratedTokens,TIMESTAMP,ContextTokens\r\n7,3,2024-01-01 10:00:00Z,5\r\n";
    let workload = parse("t", text, &Options::default()).expect("reads");
    assert_eq!(rows(&workload), [(2, 0.0, 5, 3, vec![(OWN | 2, 5)])]);
    let text = "{\"timestamp\":5,\"input_length\":9,\"output_length\":1,\"model\":\"m\"}";
    let workload = parse("t", text, &Options::default()).expect("reads");
    assert_eq!(rows(&workload), [(1, 0.0, 9, 1, vec![(OWN | 1, 9)])]);
}

/// Share of prompt tokens found when requests come one by one and nothing is ever reused: for a file in
/// which only full blocks have ids.
fn tokens_found(workload: &Workload) -> (u64, u64) {
    let block = workload.block.expect("blocks");
    let blocks: u64 = workload.requests.iter().map(|r| r.prompt.len() / u64::from(block) + 1).sum();
    let mut pool = Pool::new(blocks, block, true).expect("pool");
    let (mut found, mut all) = (0, 0);
    for request in &workload.requests {
        let hit = pool.hit(&request.prompt, request.prompt.len());
        found += hit.tokens();
        all += request.prompt.len();
        let mut holder = pool.open(hit, request.prompt.len()).expect("room");
        pool.register(&mut holder, &request.prompt, request.prompt.len());
        pool.close(holder);
    }
    (found, all)
}

/// Share of block ids that continue a prompt some earlier request began with.
fn ids_found(workload: &Workload) -> f64 {
    let mut seen = BTreeSet::new();
    let (mut found, mut all) = (0_u32, 0_u32);
    for request in &workload.requests {
        let ids: Vec<u64> =
            request.prompt.segments().iter().map(|s| s.key).filter(|k| k & OWN == 0).collect();
        found += ids.iter().take_while(|id| seen.contains(*id)).count() as u32;
        all += ids.len() as u32;
        seen.extend(ids);
    }
    f64::from(found) / f64::from(all)
}

/// Sizes and sharing of the public files are as published; `SERQ_TRACES` names the folder they are in.
#[test]
fn public_traces_are_what_is_said_of_them() {
    let Some(folder) = std::env::var_os("SERQ_TRACES").map(PathBuf::from) else {
        println!("skipped: SERQ_TRACES names no folder with the public traces");
        return;
    };
    let file = |name: &str| {
        read(&folder.join(name), &Options::default()).unwrap_or_else(|e| panic!("{e}"))
    };
    let shape = |w: &Workload| {
        let tokens: u64 = w.requests.iter().map(|r| r.prompt.len()).sum();
        (w.requests.len(), w.span().round() as u64, tokens / w.requests.len() as u64)
    };
    assert_eq!(shape(&file("AzureLLMInferenceTrace_code.csv")), (8819, 3436, 2047));
    assert_eq!(shape(&file("AzureLLMInferenceTrace_conv.csv")), (19_366, 3502, 1154));
    let conversation = file("mooncake_conversation_trace.jsonl");
    assert_eq!(shape(&conversation), (12_031, 3537, 12_035));
    assert_eq!(conversation.block, Some(512));
    assert!((ids_found(&conversation) - 0.366).abs() < 0.0005);
    let synthetic = file("mooncake_synthetic_trace.jsonl");
    assert!((ids_found(&synthetic) - 0.640).abs() < 0.0005);
    let sharegpt = file("llmservingsim_sharegpt_llama31_8b_300_sps10.b16.jsonl");
    assert_eq!((sharegpt.requests.len(), sharegpt.block), (300, Some(16)));
    assert_eq!(tokens_found(&sharegpt), (19_520, 257_239));
}
