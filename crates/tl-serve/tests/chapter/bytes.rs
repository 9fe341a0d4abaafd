//! The bytes two engines agree on, and the generator they share.

use tl_engine::kv_transfer::{
    BlockRecord, EnvError, EnvHeader, block_hash, crc32c, fnv1a64, prompt_hashes, read_envelope,
    resume_rng, write_envelope,
};
use tl_engine::sample::{PURPOSE_SAMPLE, stream};
use tl_kv::{KvCfg, KvPool, TL_F16};
use tl_testkit::fake;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn hand_example_envelope() {
    assert_eq!(fnv1a64(b"a"), 0xAF63_DC4C_8601_EC8C);
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(block_hash(0, &[1, 2]), 0xA91A_B0C1_027B_9366);
    assert_eq!(prompt_hashes(&[1, 2, 3, 4, 5], 2), [0xA91A_B0C1_027B_9366, 0x03DF_8295_7160_5C60]);

    let cfg = KvCfg {
        n_blocks: 4,
        block_tokens: 2,
        n_layers: 1,
        n_kv_heads: 1,
        head_dim: 2,
        dtype: TL_F16,
        format: 1,
    };
    let header = EnvHeader::v1(&cfg, 1);
    assert_eq!(header.payload_bytes(), 16);
    assert_eq!(header.envelope_bytes(), 60);
    let f16 = [0x3C00u16, 0x4000, 0x4200, 0x4400, 0x3800, 0xBC00, 0x0000, 0x3400];
    let record = BlockRecord {
        hash: 0xA91A_B0C1_027B_9366,
        n_tokens: 2,
        payload: f16.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    let bytes = write_envelope(&header, std::slice::from_ref(&record));
    assert_eq!(
        hex(&bytes),
        "544c4b56010001000100000002000000010000000100000002000000\
         66937b02c1b01aa902000000003c004000420044003800bc000000341c540b4f"
    );
    let (read, records) = read_envelope(&bytes, Some(&cfg)).expect("its own bytes");
    assert_eq!((read, records), (header, vec![record]));
}

#[test]
fn envelope_reader_rules() {
    let cfg = fake::cfg(8);
    let header = EnvHeader::v1(&cfg, 1);
    let written = |hash, n_tokens| {
        let payload = vec![7; fake::PAYLOAD_BYTES];
        write_envelope(&header, &[BlockRecord { hash, n_tokens, payload }])
    };
    let good = written(5, 4);
    let (_, records) = read_envelope(&good, Some(&cfg)).expect("a full block with a hash");
    assert_eq!((records[0].hash, records[0].n_tokens), (5, 4));
    assert_eq!(records[0].payload, vec![7; fake::PAYLOAD_BYTES]);

    #[track_caller]
    fn refused(bytes: &[u8], cfg: &KvCfg, kind: &str) -> String {
        match read_envelope(bytes, Some(cfg)).expect_err("a broken rule") {
            EnvError::Format(why) if kind == "format" => why,
            EnvError::Version(why) if kind == "version" => why,
            EnvError::Shape(why) if kind == "shape" => why,
            other => panic!("{other:?}, expected {kind}"),
        }
    }
    refused(&good[..20], &cfg, "format");
    let mut magic = good.clone();
    magic[0] = b'X';
    refused(&magic, &cfg, "format");
    let mut flipped = good.clone();
    flipped[40] ^= 0x04;
    assert!(refused(&flipped, &cfg, "format").contains("CRC"));
    refused(&good[..good.len() - 6], &cfg, "format");
    let v2 = EnvHeader { version: 2, dtype: 3, ..header };
    let payload = vec![7; fake::PAYLOAD_BYTES];
    let v2 = write_envelope(&v2, &[BlockRecord { hash: 5, n_tokens: 4, payload }]);
    refused(&v2, &cfg, "version");
    refused(&good, &KvCfg { head_dim: 8, ..cfg }, "shape");
    refused(&written(0, 0), &cfg, "format");
    refused(&written(0, 5), &cfg, "format");
    refused(&written(9, 3), &cfg, "format");
    let (_, records) = read_envelope(&written(0, 3), Some(&cfg)).expect("a partial tail");
    assert_eq!((records[0].hash, records[0].n_tokens), (0, 3));
}

#[test]
fn rust_writer_matches_the_golden_blobs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/vectors/kv.wire.v1.json");
    let text = std::fs::read_to_string(path).expect("the golden vectors");
    let golden: serde_json::Value = serde_json::from_str(&text).expect("json");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 6);
    for case in cases {
        let dim = |name: &str| case["input"][name].as_u64().expect("a dimension") as u32;
        let numbers = |name: &str| -> Vec<u32> {
            let list = case["input"][name].as_array().expect("numbers");
            list.iter().map(|n| n.as_u64().expect("a number") as u32).collect()
        };
        let (prompt, values) = (numbers("tokens"), numbers("values"));
        let b = dim("B") as usize;
        let cfg = KvCfg {
            n_blocks: 16,
            block_tokens: dim("B"),
            n_layers: dim("L"),
            n_kv_heads: dim("H"),
            head_dim: dim("D"),
            dtype: TL_F16,
            format: 1,
        };
        let (h, d) = (cfg.n_kv_heads as usize, cfg.head_dim as usize);
        let hashes = prompt_hashes(&prompt, b);

        let mut pool = KvPool::new(cfg).expect("a valid shape");
        let ids = pool.alloc(prompt.len().div_ceil(b)).expect("room");
        let mut values = values.into_iter().map(|v| v as u16);
        for pos in 0..prompt.len() {
            for layer in 0..cfg.n_layers {
                for is_v in [false, true] {
                    let mut slab = pool.slab_mut(ids[pos / b], layer, is_v).expect("my block");
                    for head in 0..h {
                        for dim in 0..d {
                            slab[(head * b + pos % b) * d + dim] =
                                values.next().expect("a value for each place");
                        }
                    }
                }
            }
        }
        let mut records = Vec::new();
        for (i, tokens) in prompt.chunks(b).enumerate() {
            pool.set_fill(ids[i], tokens.len() as u32).expect("within the block");
            let hash = hashes.get(i).copied().unwrap_or(0);
            if hash != 0 {
                assert!(pool.register(ids[i], hash).expect("a full block"));
            }
            let mut payload = Vec::new();
            for layer in 0..cfg.n_layers {
                for is_v in [false, true] {
                    let slab = pool.slab(ids[i], layer, is_v).expect("my block");
                    for (place, x) in slab.iter().enumerate() {
                        let filled = place / d % b < tokens.len();
                        payload.extend(if filled { *x } else { 0 }.to_le_bytes());
                    }
                }
            }
            records.push(BlockRecord { hash, n_tokens: tokens.len() as u32, payload });
        }
        let want = case["output"]["hex"].as_str().expect("hex");
        let header = EnvHeader::v1(&cfg, ids.len() as u32);
        let bytes = write_envelope(&header, &records);
        assert_eq!(hex(&bytes), want, "{}", case["name"]);
        assert_eq!(hex(&pool.export(&ids).expect("used blocks")), want, "{}", case["name"]);
        assert_eq!(read_envelope(&bytes, Some(&cfg)).expect("golden"), (header, records));
    }
}

#[test]
fn resume_rng_hands_off_the_draws() {
    let mut rng = stream(77, PURPOSE_SAMPLE);
    for draws in 0..3 {
        assert_eq!(resume_rng(77, draws), rng, "after {draws} draws");
        rng.uniform_f64();
    }
}
