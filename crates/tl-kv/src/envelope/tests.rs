use super::*;
use crate::cfg::KV_FORMAT_V1;
use crate::crc::CRC32C_RESIDUE;
use crate::hash::prompt_hashes;
use crate::pool::KvPool;

fn cfg(block_tokens: u32, n_layers: u32, n_kv_heads: u32, head_dim: u32) -> KvCfg {
    let (dtype, format) = (TL_F16, KV_FORMAT_V1);
    KvCfg { n_blocks: 8, block_tokens, n_layers, n_kv_heads, head_dim, dtype, format }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks_exact(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

const WORKED: &str = "544c4b5601000100010000000200000001000000010000000200000066937b02c1b01aa9\
    02000000003c004000420044003800bc000000341c540b4f";

const RANDOM_0: &str = "544c4b5601000100030000000200000001000000010000000200000043ad59fbb3576852\
    020000003742ccb80e231fa2e79270a63d651faf8b076dade93a448f02000000f30901a501e3e85ff8458a642c5b\
    890e000000000000000001000000f5ce09f10000000080bc03d000000000e015a754";

#[test]
fn worked_example() {
    let header = EnvHeader::v1(&cfg(2, 1, 1, 2), 1);
    assert_eq!((header.payload_bytes(), header.envelope_bytes()), (16, 60));
    let values = [0x3C00u16, 0x4000, 0x4200, 0x4400, 0x3800, 0xBC00, 0, 0x3400];
    let block = BlockRecord {
        hash: 0xA91A_B0C1_027B_9366,
        n_tokens: 2,
        payload: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let bytes = write_envelope(&header, std::slice::from_ref(&block));
    assert_eq!(bytes, unhex(WORKED));
    assert_eq!(bytes[56..], 0x4F0B_541Cu32.to_le_bytes());
    assert_eq!(crc32c(&bytes), CRC32C_RESIDUE);
    assert_eq!(read_envelope(&bytes, None), Ok((header, vec![block])));
}

#[test]
fn random_0_is_read_and_written_and_exported() {
    let golden = unhex(RANDOM_0);
    let shape = cfg(2, 1, 1, 2);
    let (header, records) = read_envelope(&golden, Some(&shape)).unwrap();
    assert_eq!(write_envelope(&header, &records), golden);
    let tokens = [49232, 34081, 5763, 48918, 5176];
    let hashes = prompt_hashes(&tokens, 2);
    assert_eq!([records[0].hash, records[1].hash], *hashes);
    assert_eq!([records[0].n_tokens, records[1].n_tokens, records[2].n_tokens], [2, 2, 1]);
    let mut pool = KvPool::new(shape).unwrap();
    let ids = pool.import(&golden).unwrap();
    assert_eq!(pool.export(&ids).unwrap(), golden);
}

/// A one-block envelope of the shape the pushes of the tests use, 172 bytes.
fn sample(header: EnvHeader, hash: u64, n_tokens: u32) -> Vec<u8> {
    write_envelope(&header, &[BlockRecord { hash, n_tokens, payload: vec![7; 128] }])
}

#[test]
fn reader_rules() {
    let shape = cfg(4, 2, 1, 4);
    let v1 = EnvHeader::v1(&shape, 1);
    assert_eq!(v1.envelope_bytes(), 172);
    #[track_caller]
    fn check(buf: &[u8], expect: &KvCfg, want: &str) {
        let got = match read_envelope(buf, Some(expect)) {
            Ok((_, records)) => format!("ok {}", records[0].hash),
            Err(EnvError::Format(text)) => format!("format {text}"),
            Err(EnvError::Version(text)) => format!("version {text}"),
            Err(EnvError::Shape(text)) => format!("shape {text}"),
        };
        assert!(got.starts_with(want), "wanted {want}, got {got}");
    }
    let good = sample(v1, 5, 4);
    check(&good, &shape, "ok 5");
    check(&good[..20], &shape, "format 20 bytes");
    check(&[], &shape, "format 0 bytes");
    let mut magic = good.clone();
    magic[0] = b'X';
    check(&magic, &shape, "format magic");
    let mut flipped = good.clone();
    flipped[40] ^= 0x04;
    check(&flipped, &shape, "format CRC mismatch");
    check(&good[..166], &shape, "format CRC mismatch and 166 bytes, the header says 172");
    check(&sample(EnvHeader { version: 2, dtype: 3, ..v1 }, 5, 4), &shape, "version");
    check(&sample(EnvHeader { version: 1, dtype: 3, ..v1 }, 5, 4), &shape, "version");
    check(&sample(EnvHeader { version: 2, dtype: 1, ..v1 }, 5, 4), &shape, "version");
    check(&good, &cfg(4, 2, 1, 8), "shape");
    check(&good, &cfg(4, 4, 1, 2), "shape");
    check(&sample(v1, 0, 0), &shape, "format record 0 has fill 0");
    check(&sample(v1, 0, 5), &shape, "format record 0 has fill 5");
    check(&sample(v1, 9, 3), &shape, "format record 0 has hash");
    check(&sample(v1, 0, 3), &shape, "ok 0");
    check(&sample(EnvHeader { n_blocks: 2, ..v1 }, 5, 4), &shape, "format 172 bytes");
    check(&sample(EnvHeader { n_blocks: 0, ..v1 }, 5, 4), &shape, "format 172 bytes");
}

/// Version 2 has other sizes, and is still told from damage.
#[test]
fn a_sound_v2_envelope_is_a_version() {
    let worked = "544c4b5602000300010000000200000001000000010000000200000066937b02c1b01aa9020000\
        006e767a7e76fe006e2549123c2549123bdd13892e";
    let zeros = "544c4b56020003000100000002000000010000000100000002000000000000000000000001000000\
        00000000000000000000803f0000803fb2e6ee50";
    for hex in [worked, zeros] {
        assert!(matches!(read_envelope(&unhex(hex), None), Err(EnvError::Version(_))));
    }
    let h = EnvHeader { version: 2, dtype: 3, ..EnvHeader::v1(&cfg(16, 1, 1, 64), 1) };
    assert_eq!(h.payload_bytes(), 2056);
    let payload = vec![1; 2056];
    let long = write_envelope(&h, &[BlockRecord { hash: 0, n_tokens: 16, payload }]);
    assert!(matches!(read_envelope(&long, None), Err(EnvError::Version(_))));
    let mut damaged = long;
    damaged[4] = 1;
    assert!(matches!(read_envelope(&damaged, None), Err(EnvError::Format(_))));
}

#[test]
fn impossible_dimensions_are_refused_without_allocating() {
    for dims in [[u32::MAX; 5], [1, u32::MAX, u32::MAX, 1, 1], [u32::MAX, 1, 1, 1, 1]] {
        let [n_blocks, block_tokens, n_layers, n_kv_heads, head_dim] = dims;
        let h = EnvHeader {
            version: 1,
            dtype: 1,
            n_blocks,
            block_tokens,
            n_layers,
            n_kv_heads,
            head_dim,
        };
        let bytes = write_envelope(&h, &[]);
        assert!(matches!(read_envelope(&bytes, None), Err(EnvError::Format(_))), "{dims:?}");
    }
    let h = EnvHeader::v1(&cfg(u32::MAX, u32::MAX, u32::MAX, u32::MAX), u32::MAX);
    assert_eq!((h.payload_bytes(), h.envelope_bytes()), (usize::MAX, usize::MAX));
}

#[test]
fn an_empty_envelope_has_no_records() {
    let bytes = write_envelope(&EnvHeader::v1(&cfg(2, 1, 1, 2), 0), &[]);
    let view = EnvelopeView::parse(&bytes, Some(&cfg(2, 1, 1, 2))).unwrap();
    assert!(view.is_empty() && view.record(0).is_none() && view.records().count() == 0);
}

#[test]
fn sizes_of_real_models() {
    let h = EnvHeader::v1(&cfg(16, 30, 3, 64), 1);
    assert_eq!((h.payload_bytes(), h.envelope_bytes()), (368_640, 368_684));
    assert_eq!(EnvHeader::v1(&cfg(16, 80, 8, 128), 1).payload_bytes(), 5_242_880);
}
