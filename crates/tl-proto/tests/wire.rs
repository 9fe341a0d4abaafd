//! The bytes that other implementations of the contract see.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use tl_proto::{control, engine, kv};

/// `message` encodes to exactly `hex`, and `hex` decodes to `message`.
#[track_caller]
fn check<M: Message + Default + PartialEq + Debug>(message: &M, hex: &str) {
    let want = bytes_of(hex);
    assert_eq!(message.encode_to_vec(), want, "encoding of {message:?}");
    assert_eq!(&M::decode(want.as_slice()).expect("decodes"), message, "decoding of {hex}");
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ascii");
        u8::from_str_radix(pair, 16).expect("two hex digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// The golden file, written by an encoder that knows nothing of prost.
fn golden() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/vectors/wire.json");
    let text = std::fs::read_to_string(path).expect("the golden file");
    serde_json::from_str(&text).expect("JSON")
}

/// The messages of the golden file, in its order.
#[test]
fn golden_messages() {
    let file = golden();
    let messages = file["messages"].as_array().expect("a list");
    let mut cases = messages.iter().map(|case| {
        let text = |key: &str| case[key].as_str().expect("text").to_owned();
        (text("message"), text("hex"))
    });
    let mut next = |name: &str| {
        let (message, hex) = cases.next().expect("one more message");
        assert_eq!(message, name);
        hex
    };
    let chunk = kv::v1::KvChunk { handle_id: "h".into(), block_index: 2, ..Default::default() };
    check(&chunk, &next("tl.kv.v1.KvChunk"));
    check(&whole_chunk(), &next("tl.kv.v1.KvChunk"));
    let ack = kv::v1::KvAck { blocks_received: 300, ..Default::default() };
    check(&ack, &next("tl.kv.v1.KvAck"));
    let asked = kv::v1::HasBlocksRequest { block_hashes: vec![1, 300], kv_format: 1 };
    check(&asked, &next("tl.kv.v1.HasBlocksRequest"));
    let told = kv::v1::HasBlocksResponse { present: vec![true, false, true] };
    check(&told, &next("tl.kv.v1.HasBlocksResponse"));
    let sampling = engine::v1::SamplingParams {
        temperature: 0.5,
        top_p: 1.0,
        top_k: 8,
        repetition_penalty: 1.0,
        seed: 1 << 40,
        max_new_tokens: 12,
        stop: vec!["END".into()],
        logprobs: 5,
        ..Default::default()
    };
    let prefill = engine::v1::PrefillRequest {
        prompt_ids: vec![5, 300],
        decode_target: "127.0.0.1:1".into(),
        sampling: Some(sampling),
        ..Default::default()
    };
    check(&prefill, &next("tl.engine.v1.PrefillRequest"));
    check(&first_token(), &next("tl.engine.v1.PrefillResponse"));
    check(&worker(), &next("tl.control.v1.WorkerStatus"));
    assert!(cases.next().is_none(), "a golden message is not checked");
}

#[test]
fn a_chunk_with_two_fields() {
    let chunk = kv::v1::KvChunk { handle_id: "h".into(), block_index: 2, ..Default::default() };
    check(&chunk, "0a 01 68 18 02");
}

fn whole_chunk() -> kv::v1::KvChunk {
    kv::v1::KvChunk {
        handle_id: "h".into(),
        block_hash: 1,
        block_index: 2,
        n_blocks_total: 3,
        kv_format: 1,
        payload: Bytes::from_static(&[0xAB, 0xCD]),
        crc32c: 300,
    }
}

fn first_token() -> engine::v1::PrefillResponse {
    engine::v1::PrefillResponse {
        first_text: "a".into(),
        finish_reason: "stop".into(),
        first_top_logprobs: vec![engine::v1::TopLogprob {
            id: 7,
            logprob: -0.5,
            token_bytes: "é".into(),
        }],
        first_logprob_f64: -1.0,
        first_token_bytes: "a".into(),
        kv_blocks_sent: 2,
        kv_blocks_deduped: 1,
        kv_payload_bytes: 344,
        ..Default::default()
    }
}

fn worker() -> control::v1::WorkerStatus {
    control::v1::WorkerStatus {
        incarnation: 0x0102_0304_0506_0708,
        model_fingerprint: 9,
        block_size: 16,
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        kv_formats_read: vec![1, 2],
        ..Default::default()
    }
}

#[test]
fn a_whole_chunk() {
    check(&whole_chunk(), "0a 01 68 10 01 18 02 20 03 28 01 32 02 ab cd 38 ac 02");
}

#[test]
fn zero_is_not_written() {
    check(&kv::v1::KvChunk::default(), "");
    check(&engine::v1::SamplingParams::default(), "");
}

#[test]
fn three_hundred_takes_two_bytes() {
    check(&kv::v1::KvAck { blocks_received: 300, ..Default::default() }, "10 ac 02");
}

#[test]
fn repeated_scalars_are_packed() {
    let request = kv::v1::HasBlocksRequest { block_hashes: vec![1, 300], kv_format: 1 };
    check(&request, "0a 03 01 ac 02 10 01");
    check(&kv::v1::HasBlocksResponse { present: vec![true, false, true] }, "0a 03 01 00 01");
    let prompt = engine::v1::PrefillRequest { prompt_ids: vec![5, 300], ..Default::default() };
    check(&prompt, "1a 03 05 ac 02");
}

#[test]
fn an_unknown_field_is_skipped() {
    let known = kv::v1::KvChunk { handle_id: "h".into(), block_index: 2, ..Default::default() };
    let file = golden();
    let recorded = file["unknown_field"]["hex"].as_str().expect("text");
    for hex in ["0a 01 68 18 02 98 06 07", recorded] {
        let bytes = bytes_of(hex);
        assert_eq!(kv::v1::KvChunk::decode(bytes.as_slice()).expect("decodes"), known);
    }
}

#[test]
fn numbers_of_the_response_extensions() {
    check(
        &first_token(),
        "a2 06 01 61 aa 06 04 73 74 6f 70 \
         b2 06 0f 08 07 11 00 00 00 00 00 00 e0 bf 1a 02 c3 a9 b9 06 00 00 00 00 00 00 f0 bf \
         c2 06 01 61 c8 06 02 d0 06 01 d8 06 d8 02",
    );
}

#[test]
fn numbers_of_the_worker_extensions() {
    check(
        &worker(),
        "a1 06 08 07 06 05 04 03 02 01 a9 06 09 00 00 00 00 00 00 00 \
         b0 06 10 b8 06 1e c0 06 03 c8 06 40 d2 06 02 01 02",
    );
    let info = engine::v1::InfoResponse {
        incarnation: 0x0102_0304_0506_0708,
        model_fingerprint: 9,
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        ..Default::default()
    };
    check(
        &info,
        "a1 06 08 07 06 05 04 03 02 01 a9 06 09 00 00 00 00 00 00 00 b8 06 1e c0 06 03 c8 06 40",
    );
}

#[test]
fn service_names_are_the_contracts() {
    use tonic::server::NamedService;
    fn name<S: NamedService>() -> &'static str {
        S::NAME
    }
    type Kv = kv::v1::kv_transfer_service_server::KvTransferServiceServer<()>;
    type Engine = engine::v1::engine_control_server::EngineControlServer<()>;
    type Registry = control::v1::worker_registry_server::WorkerRegistryServer<()>;
    assert_eq!(name::<Kv>(), "tl.kv.v1.KvTransferService");
    assert_eq!(name::<Engine>(), "tl.engine.v1.EngineControl");
    assert_eq!(name::<Registry>(), "tl.control.v1.WorkerRegistry");
}

#[test]
fn a_payload_is_not_copied_out_of_its_buffer() {
    let chunk = kv::v1::KvChunk { payload: Bytes::from(vec![7; 4096]), ..Default::default() };
    let wire = Bytes::from(chunk.encode_to_vec());
    let range = wire.as_ptr() as usize..wire.as_ptr() as usize + wire.len();
    let decoded = kv::v1::KvChunk::decode(wire.clone()).expect("decodes");
    assert!(range.contains(&(decoded.payload.as_ptr() as usize)));
}

#[test]
fn incarnations_as_metadata() {
    for n in [0, 1, 0x0123_4567_89AB_CDEF, u64::MAX] {
        assert_eq!(tl_proto::parse_incarnation(&tl_proto::incarnation_value(n)), n);
    }
    assert_eq!(tl_proto::incarnation_value(255), "00000000000000ff");
    let foreign =
        ["", "ff", "00000000000000FF", "+0000000000000ff", "00000000000000ff0", "é00000000000000"];
    for bad in foreign {
        assert_eq!(tl_proto::parse_incarnation(bad), 0, "{bad:?}");
    }
}
