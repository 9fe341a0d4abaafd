//! The vectors of `contracts/vectors`, which an independent program wrote.

use std::path::Path;

use serde_json::Value;
use tl_kv::{
    CRC32C_RESIDUE, EnvError, EnvHeader, KV_FORMAT_V1, KvCfg, KvPool, TL_F16, block_hash, crc32c,
    fnv1a64, prompt_hashes, read_envelope, write_envelope,
};

fn load(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contracts/vectors").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    let list = value[name].as_array().unwrap_or_else(|| panic!("no list {name}"));
    assert!(!list.is_empty(), "{name} is empty");
    list
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

fn bytes(value: &Value, name: &str) -> Vec<u8> {
    let hex = text(value, name);
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn u32s(value: &Value, name: &str) -> Vec<u32> {
    let list = value[name].as_array().unwrap_or_else(|| panic!("no list {name}"));
    list.iter().map(|v| u32::try_from(v.as_u64().unwrap()).unwrap()).collect()
}

/// 64-bit numbers stand as decimal text.
fn u64_of(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {value}"))
}

fn shape(value: &Value, n_blocks: u32) -> KvCfg {
    let dim = |name| u32::try_from(number(value, name)).unwrap();
    KvCfg {
        n_blocks,
        block_tokens: dim("B"),
        n_layers: dim("L"),
        n_kv_heads: dim("H"),
        head_dim: dim("D"),
        dtype: TL_F16,
        format: KV_FORMAT_V1,
    }
}

#[test]
fn checksums() {
    let file = load("crc32c.json");
    assert_eq!(number(&file, "residue"), u64::from(CRC32C_RESIDUE));
    for case in list(&file, "cases") {
        assert_eq!(u64::from(crc32c(&bytes(case, "hex"))), number(case, "crc32c"), "{case}");
    }
}

#[test]
fn hashes() {
    let file = load("hashes.json");
    for case in list(&file, "fnv1a64") {
        assert_eq!(fnv1a64(text(case, "text").as_bytes()), u64_of(&case["hash"]), "{case}");
    }
    for case in list(&file, "block_hash") {
        let got = block_hash(u64_of(&case["parent"]), &u32s(case, "tokens"));
        assert_eq!(got, u64_of(&case["hash"]), "{case}");
    }
    for case in list(&file, "prompt_hashes") {
        let b = number(case, "block_tokens") as usize;
        let want: Vec<u64> = case["hashes"].as_array().unwrap().iter().map(u64_of).collect();
        assert_eq!(prompt_hashes(&u32s(case, "tokens"), b), want, "{case}");
    }
}

#[test]
fn sizes() {
    for case in list(&load("kv.sizes.json"), "shapes") {
        let v1 = EnvHeader::v1(&shape(case, 1), 1);
        let v2 = EnvHeader { version: 2, dtype: 3, ..v1 };
        for (header, payload, envelope) in
            [(v1, "payload_v1", "envelope_v1"), (v2, "payload_v2", "envelope_v2")]
        {
            assert_eq!(header.payload_bytes() as u64, number(case, payload), "{case}");
            assert_eq!(header.envelope_bytes() as u64, number(case, envelope), "{case}");
        }
    }
}

#[test]
fn reader_rules() {
    let file = load("kv.reader.v1.json");
    let pool = shape(&file["pool"], 8);
    for case in list(&file, "cases") {
        let got = match read_envelope(&bytes(case, "hex"), Some(&pool)) {
            Ok(_) => "ok",
            Err(EnvError::Format(_)) => "format",
            Err(EnvError::Version(_)) => "version",
            Err(EnvError::Shape(_)) => "shape",
        };
        assert_eq!(got, text(case, "expect"), "{}", text(case, "name"));
    }
}

/// A pool filled by hand, value by value, exports the blob; reader, writer and a second pool
/// give it back.
fn check_wire_v1(name: &str, input: &Value, want: &[u8]) {
    let tokens = u32s(input, "tokens");
    let block_tokens = number(input, "B") as u32;
    let n_blocks = (tokens.len() as u32).div_ceil(block_tokens);
    let cfg = shape(input, n_blocks);
    let KvCfg { n_layers, n_kv_heads, head_dim, .. } = cfg;
    let mut pool = KvPool::new(cfg).unwrap();
    let ids = pool.alloc(n_blocks as usize).unwrap();
    // [position][layer][k | v][head][dim]
    let mut next = u32s(input, "values").into_iter().map(|v| v as u16);
    for position in 0..tokens.len() as u32 {
        let (id, slot) = (ids[(position / block_tokens) as usize], position % block_tokens);
        for slab in 0..n_layers * 2 {
            let mut open = pool.slab_mut(id, slab / 2, slab % 2 == 1).unwrap();
            for head in 0..n_kv_heads {
                for d in 0..head_dim {
                    let at = (head * block_tokens + slot) * head_dim + d;
                    open[at as usize] = next.next().unwrap();
                }
            }
        }
        pool.set_fill(id, slot + 1).unwrap();
    }
    assert_eq!(next.next(), None, "{name}: values left over");
    let hashes = prompt_hashes(&tokens, block_tokens as usize);
    for (&id, &hash) in ids.iter().zip(&hashes) {
        assert!(pool.register(id, hash).unwrap());
    }
    assert_eq!(pool.export(&ids).unwrap(), want, "{name}: export");

    let (header, records) = read_envelope(want, Some(&cfg)).unwrap();
    assert_eq!(header, EnvHeader::v1(&cfg, n_blocks));
    assert_eq!(write_envelope(&header, &records), want, "{name}: writer");
    let names: Vec<u64> = records.iter().map(|r| r.hash).filter(|&hash| hash != 0).collect();
    assert_eq!(names, hashes, "{name}: names");

    let mut second = KvPool::new(cfg).unwrap();
    let imported = second.import(want).unwrap();
    assert_eq!(second.export(&imported).unwrap(), want, "{name}: second pool");
}

#[test]
fn wire_v1() {
    let file = load("kv.wire.v1.json");
    let cases = list(&file, "cases");
    assert_eq!(cases.len(), 6);
    for case in cases {
        check_wire_v1(text(case, "name"), &case["input"], &bytes(&case["output"], "hex"));
    }
}

/// Version 2 is sound and not read here.
#[test]
fn wire_v2_is_a_version() {
    for case in list(&load("kv.wire.v2.json"), "cases") {
        let got = read_envelope(&bytes(&case["output"], "hex"), None);
        assert!(matches!(got, Err(EnvError::Version(_))), "{}: {got:?}", text(case, "name"));
    }
}

/// The blocks of one prompt as separate envelopes, as a push carries them.
#[test]
fn one_block_envelopes() {
    let file = load("kv.fake-prompt.json");
    let cfg = shape(&file, 4);
    let mut pool = KvPool::new(cfg).unwrap();
    let hashes = prompt_hashes(&u32s(&file, "prompt"), cfg.block_tokens as usize);
    for (i, block) in list(&file, "blocks").iter().enumerate() {
        let envelope = bytes(block, "hex");
        assert_eq!(crc32c(&envelope), CRC32C_RESIDUE);
        let ids = pool.import(&envelope).unwrap();
        assert_eq!(pool.hash_of(ids[0]), hashes.get(i).copied().unwrap_or(0));
        assert_eq!(pool.hash_of(ids[0]), u64_of(&block["hash"]));
        assert_eq!(u64::from(pool.fill(ids[0]).unwrap()), number(block, "fill"));
        assert_eq!(pool.export(&ids).unwrap(), envelope);
    }
}
