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
    hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).expect("two hex digits")).collect()
}

#[test]
fn a_chunk_with_two_fields() {
    let chunk = kv::v1::KvChunk { handle_id: "h".into(), block_index: 2, ..Default::default() };
    check(&chunk, "0a 01 68 18 02");
}

#[test]
fn a_whole_chunk() {
    let chunk = kv::v1::KvChunk {
        handle_id: "h".into(),
        block_hash: 1,
        block_index: 2,
        n_blocks_total: 3,
        kv_format: 1,
        payload: Bytes::from_static(&[0xAB, 0xCD]),
        crc32c: 300,
    };
    check(&chunk, "0a 01 68 10 01 18 02 20 03 28 01 32 02 ab cd 38 ac 02");
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
    let bytes = bytes_of("0a 01 68 18 02 98 06 07");
    assert_eq!(kv::v1::KvChunk::decode(bytes.as_slice()).expect("decodes"), known);
}

#[test]
fn numbers_of_the_response_extensions() {
    let response = engine::v1::PrefillResponse {
        first_text: "a".into(),
        finish_reason: "stop".into(),
        first_top_logprobs: vec![engine::v1::TopLogprob { id: 7, logprob: -0.5 }],
        first_logprob_f64: -1.0,
        ..Default::default()
    };
    check(
        &response,
        "a2 06 01 61 aa 06 04 73 74 6f 70 b2 06 0b 08 07 11 00 00 00 00 00 00 e0 bf \
         b9 06 00 00 00 00 00 00 f0 bf",
    );
}

#[test]
fn numbers_of_the_worker_extensions() {
    let status = control::v1::WorkerStatus {
        incarnation: 0x0102_0304_0506_0708,
        model_fingerprint: 9,
        block_size: 16,
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        kv_formats_read: vec![1, 2],
        ..Default::default()
    };
    check(
        &status,
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
