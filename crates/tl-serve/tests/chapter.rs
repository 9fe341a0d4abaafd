//! The hand-off as its contract tests it: bytes, refusals, freeing, the same tokens,
//! and the heartbeat.

#[allow(unreachable_pub, reason = "shared by several test targets")]
mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use support::{
    Decode, Prefill, chunks_of, colocated, loopback, request, resume, sampled_request, stats,
    tokens, used,
};
use tl_engine::heartbeat::{
    BeatState, GrpcRegistry, Heartbeat, Load, Registry, WorkerIdentity, beat_once, worker_status,
};
use tl_engine::kv_transfer::{
    BlockRecord, EnvError, EnvHeader, GrpcTransport, KvReceiver, KvTransport, TransferError,
    block_hash, build_chunks, crc32c, fnv1a64, lock, prompt_hashes, read_envelope, resume_rng,
    spawn_router, transfer, write_envelope,
};
use tl_engine::sample::{PURPOSE_SAMPLE, stream};
use tl_kv::{KvCfg, KvPool, TL_F16};
use tl_proto::control::v1::worker_registry_server::{WorkerRegistry, WorkerRegistryServer};
use tl_proto::control::v1::{HeartbeatAck, WorkerStatus};
use tl_proto::engine::v1::{CancelRequest, DrainRequest, InfoRequest};
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tl_proto::kv::v1::{KvAck, KvChunk, ReleaseRequest};
use tl_testkit::{Baseline, DEADLINE, FaultProxy, Faults, eventually, fake};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Response, Status};

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

#[test]
fn has_blocks_takes_no_reference() {
    let pool = fake::pool(16);
    let prompt = tokens(1..=9);
    drop(fake::prefill(&pool, &prompt).expect("room"));
    let before = stats(&pool);
    assert_eq!((before.used, before.cached), (0, 2));
    let receiver = KvReceiver::new(pool.clone());
    let hashes = prompt_hashes(&prompt, 4);
    let asked = [hashes[0], 12345, hashes[1]];
    assert_eq!(receiver.has_blocks(&asked, 1).expect("format 1"), [true, false, true]);
    assert_eq!(stats(&pool), before);
    let refused = receiver.has_blocks(&asked, 2).expect_err("format 2");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(stats(&pool), before);
}

#[test]
fn push_accepts_dedups_and_refuses() {
    let (p, d) = (fake::pool(32), fake::pool(32));
    let receiver = KvReceiver::new(d.clone());
    let prompt = tokens(10..=18);
    let seq = fake::prefill(&p, &prompt).expect("room");
    let hashes = seq.hashes.clone();
    let build = |id: &str, present: &[bool]| {
        build_chunks(&p, id, seq.held.ids(), &hashes, present).expect("blocks in hand")
    };
    let accept = |chunks: Vec<KvChunk>| receiver.accept_all(chunks.into_iter().map(Ok));
    let ack = |id: &str, blocks_received, blocks_deduped| KvAck {
        handle_id: id.into(),
        blocks_received,
        blocks_deduped,
    };

    let chunks = build("h1", &[]);
    assert!(chunks.iter().all(|c| c.crc32c == 0x4867_4BC7 && c.payload.len() == 172));
    assert_eq!(accept(chunks).expect("a sound push"), ack("h1", 3, 0));
    assert_eq!((used(&d), receiver.pending()), (3, 1));
    let ids = receiver.claim("h1").expect("it waits");
    assert_eq!((ids.len(), receiver.pending()), (3, 0));
    assert_eq!(receiver.claim("h1"), None, "claimed once");
    fake::check_contents(&d, &ids, &prompt).expect("the same cache");
    ids.iter().for_each(|&id| lock(&d).release(id).expect("mine"));
    assert_eq!((stats(&d).used, stats(&d).cached), (0, 2));

    let deduped = build("h2", &[true, true]);
    assert!(deduped[..2].iter().all(|c| c.payload.is_empty() && c.crc32c == 0));
    assert_eq!(accept(deduped.clone()).expect("both cached"), ack("h2", 1, 2));
    assert_eq!(used(&d), 3);
    receiver.release("h2");
    assert_eq!((used(&d), receiver.pending()), (0, 0));

    let refuse = |name: &str, chunks: Vec<Result<KvChunk, Status>>, code: Code| {
        let before = stats(&d);
        let refused = receiver.accept_all(chunks).expect_err(name);
        assert_eq!(refused.code(), code, "{name}: {}", refused.message());
        assert_eq!(stats(&d), before, "{name}");
        assert_eq!(receiver.pending(), 0, "{name}");
    };
    let full = build("h3", &[]);
    let changed = |at: usize, change: &dyn Fn(&mut KvChunk)| {
        let mut chunks = full.clone();
        change(&mut chunks[at]);
        chunks.into_iter().map(Ok).collect::<Vec<_>>()
    };
    let flip = |c: &mut KvChunk| {
        let mut bytes = c.payload.to_vec();
        bytes[40] ^= 1;
        c.payload = bytes.into();
    };
    refuse("a flipped bit", changed(2, &flip), Code::DataLoss);
    refuse("another format", changed(1, &|c| c.kv_format = 2), Code::FailedPrecondition);
    let gone = |c: &mut KvChunk| {
        (c.payload, c.block_hash, c.crc32c) = (Vec::new().into(), 0xDEAD, 0);
    };
    refuse("a block that is gone", changed(1, &gone), Code::NotFound);
    let two = full[..2].iter().cloned().map(Ok).collect();
    refuse("two of three chunks", two, Code::InvalidArgument);
    refuse("no chunk", Vec::new(), Code::InvalidArgument);
    refuse("a broken crc field", changed(1, &|c| c.crc32c ^= 1), Code::DataLoss);
    refuse("another handle", changed(1, &|c| c.handle_id = "h4".into()), Code::InvalidArgument);
    refuse("another total", changed(1, &|c| c.n_blocks_total = 4), Code::InvalidArgument);
    refuse("out of order", changed(1, &|c| c.block_index = 2), Code::InvalidArgument);
    refuse("another name", changed(1, &|c| c.block_hash ^= 1), Code::DataLoss);
    refuse("a partial block with a name", changed(2, &|c| c.block_hash = 9), Code::DataLoss);
    let broken = Err(Status::unavailable("the stream broke"));
    let cut = full[..2].iter().cloned().map(Ok).chain([broken]).collect();
    refuse("a broken stream", cut, Code::Unavailable);

    let unregistered = fake::prefill_unregistered(&p, &tokens(50..=53)).expect("room");
    let hash = prompt_hashes(&tokens(50..=53), 4);
    let ids = unregistered.held.ids();
    let chunks = build_chunks(&p, "h3", ids, &hash, &[false]).expect("blocks in hand");
    let (_, records) = read_envelope(&chunks[0].payload, None).expect("a sound envelope");
    assert_eq!((records[0].hash, chunks[0].block_hash), (0, hash[0]));
    assert_eq!(accept(chunks).expect("named by its chunk"), ack("h3", 1, 0));
    receiver.release("h3");
    assert_eq!(receiver.has_blocks(&hash, 1).expect("format 1"), [true]);
    assert_eq!(used(&d), 0);
}

#[tokio::test]
async fn release_frees_the_handle() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let prompt = tokens(0..=9);
    p.run(request("abort-me", &prompt, &d.target())).await.expect("both engines are up");
    assert_eq!((used(&d.pool), d.receiver.pending()), (3, 1));
    let mut client = KvTransferServiceClient::connect(format!("http://{}", d.target()))
        .await
        .expect("the server listens");
    for handle_id in ["abort-me", "abort-me", "never-was"] {
        let release = ReleaseRequest { handle_id: handle_id.into() };
        client.release(release).await.expect("release is always fine");
    }
    assert_eq!((used(&d.pool), d.receiver.pending()), (0, 0));
    assert_eq!(used(&p.pool), 0);
    assert!(d.receiver.claim("abort-me").is_none());
}

#[tokio::test]
async fn disaggregated_equals_colocated() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let sampling = [(0.0, 0), (0.9, 11), (1.3, 1 << 40)];
    let cases: [(Vec<u32>, [&str; 3], [f32; 3]); 3] = [
        (
            tokens(1..=8),
            [
                "3 0 0 17 30 17 21 2 28 24 8 31",
                "29 28 13 23 15 30 15 26 25 24 8 7",
                "29 15 3 16 5 17 15 5 16 31 21 18",
            ],
            [-2.305_737_257, -2.537_737_369_5, -2.537_737_369_5],
        ),
        (
            tokens(3..=13),
            [
                "20 27 22 24 27 7 21 19 12 9 27 21",
                "31 21 18 28 20 29 9 27 22 23 5 3",
                "31 14 1 15 1 12 22 3 19 24 27 18",
            ],
            [-2.283_957_958_2, -2.783_957_958_2, -2.783_957_958_2],
        ),
        (
            vec![5, 5, 5, 9, 2],
            [
                "5 17 1 29 3 5 12 12 10 2 13 23",
                "31 29 7 20 18 31 18 26 25 25 3 5",
                "31 22 8 17 4 7 22 10 19 29 28 22",
            ],
            [-2.519_262_075_4, -2.811_261_892_3, -2.811_261_892_3],
        ),
    ];
    for (prompt, answers, logprobs) in &cases {
        for (i, &(temperature, seed)) in sampling.iter().enumerate() {
            let want: Vec<u32> =
                answers[i].split(' ').map(|t| t.parse().expect("a token")).collect();
            assert_eq!(colocated(prompt, temperature, seed, 12), want, "one engine");

            let id = format!("r-{}-{i}", prompt.len());
            let sent = sampled_request(&id, prompt, &d.target(), temperature, seed);
            let answer = p.run(sent).await.expect("both engines are up");
            let handle = answer.handle.clone().expect("a handle");
            assert_eq!(handle.handle_id, id);
            assert_eq!(handle.decode_target, d.target());
            assert_eq!((handle.first_token, answer.first_token), (want[0], want[0]));
            assert_eq!(
                (handle.n_tokens, handle.prompt_tokens),
                (prompt.len() as u32, prompt.len() as u32)
            );
            assert_eq!(handle.kv_format, 1);
            assert_eq!(handle.rng_draws_consumed, u32::from(temperature > 0.0));
            assert_eq!(handle.block_hashes, prompt_hashes(prompt, 4));
            assert_eq!(answer.prompt_tokens, prompt.len() as i32);
            assert_eq!(answer.first_logprob, logprobs[i]);
            assert_eq!(answer.first_logprob_f64 as f32, logprobs[i]);

            let claimed = d.receiver.claim_held(&id).expect("it waits");
            assert_eq!(claimed.n_tokens, prompt.len());
            let tokens = resume(claimed, &answer, temperature, seed, 12);
            assert_eq!(tokens, want, "two engines");
        }
    }
    assert_eq!((used(&p.pool), used(&d.pool)), (0, 0));
}

#[tokio::test]
async fn bytes_moved_are_missing_blocks_plus_tail() {
    let (p, d) = (fake::pool(64), Decode::start());
    let shared = tokens(100..=111);
    let seeded: Vec<u32> = shared.iter().copied().chain([7, 8]).collect();
    drop(fake::prefill(&d.pool, &seeded).expect("room"));
    let transport = GrpcTransport { timeout: Duration::from_secs(5) };

    // The envelope is 28 + 12 + 128 + 4 bytes.
    let cases: [(&str, Vec<u32>, usize, usize, usize); 3] = [
        ("17 tokens, 3 blocks cached", (100..=116).collect(), 2, 3, 344),
        ("13 tokens, 3 blocks cached", (100..=112).collect(), 1, 3, 172),
        ("8 tokens, all cached", (100..=107).collect(), 0, 2, 0),
    ];
    for (name, prompt, sent, deduped, bytes) in cases {
        let seq = fake::prefill(&p, &prompt).expect("room");
        let moved = transfer(&transport, &d.target(), &p, name, seq.held.ids(), &seq.hashes)
            .await
            .expect(name);
        assert_eq!(moved.chunks, prompt.len().div_ceil(4), "{name}");
        assert_eq!((moved.sent, moved.deduped), (sent, deduped), "{name}");
        assert_eq!(moved.payload_bytes, bytes, "{name}");
        let claimed = d.receiver.claim_held(name).expect("it waits");
        fake::check_contents(&d.pool, claimed.held.ids(), &prompt).expect(name);
    }
    assert_eq!((used(&p), used(&d.pool)), (0, 0));
    let counters = d.receiver.counters();
    assert_eq!((counters.blocks_received, counters.blocks_deduped), (3, 8));
    assert_eq!(counters.bytes_received, 516);
}

#[tokio::test]
async fn transfer_reset_frees_both_sides() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let faults = Faults { cut_after: Some(1200), ..Faults::default() };
    let proxy = FaultProxy::start(d.server.addr, faults).await.expect("a relay");
    let prompt = tokens(0..=63);
    let failed = p.run(request("cut", &prompt, &proxy.target())).await.expect_err("it is cut");
    let expected = [Code::Unavailable, Code::Internal, Code::Unknown, Code::Cancelled];
    assert!(expected.contains(&failed.code()), "{failed}");
    assert_eq!(used(&p.pool), 0, "before the answer");
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
    assert_eq!(d.receiver.pending(), 0);

    let answer = p.run(request("after", &prompt, &d.target())).await.expect("a direct way");
    let claimed = d.receiver.claim_held("after").expect("it waits");
    fake::check_contents(&d.pool, claimed.held.ids(), &prompt).expect("the same cache");
    assert_eq!(resume(claimed, &answer, 0.0, 0, 4), colocated(&prompt, 0.0, 0, 4));
    assert_eq!((used(&p.pool), used(&d.pool)), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_push_frees_decode_blocks() {
    let (p, d) = (fake::pool(32), Decode::with(32, tl_engine::kv_transfer::HandleCfg::default()));
    let chunks = chunks_of(&p, "left", &tokens(0..=39), &[]);
    assert_eq!(chunks.len(), 10);
    let client = KvTransferServiceClient::connect(format!("http://{}", d.target()))
        .await
        .expect("the server listens");
    let push = tokio::spawn({
        let mut client = client.clone();
        async move {
            let half = tokio_stream::iter(chunks.into_iter().take(5));
            client.push_kv(half.chain(tokio_stream::pending())).await
        }
    });
    assert!(eventually(DEADLINE, || used(&d.pool) == 5).await);
    push.abort();
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
    assert_eq!(d.receiver.pending(), 0);
}

/// Says that everything is there, and counts the pushes.
struct Liar {
    receiver: Arc<KvReceiver>,
    pushes: AtomicUsize,
}

#[tonic::async_trait]
impl KvTransport for Liar {
    async fn has_blocks(&self, _: &str, h: &[u64], _: u32) -> Result<Vec<bool>, TransferError> {
        Ok(vec![true; h.len()])
    }

    async fn push(&self, _: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        self.pushes.fetch_add(1, Ordering::SeqCst);
        Ok(self.receiver.accept_all(chunks.into_iter().map(Ok))?)
    }
}

#[tokio::test]
async fn evicted_block_is_resent() {
    let (p, d) = (fake::pool(32), fake::pool(32));
    let liar = Liar { receiver: Arc::new(KvReceiver::new(d.clone())), pushes: AtomicUsize::new(0) };
    let prompt = tokens(0..=8);
    let seq = fake::prefill(&p, &prompt).expect("room");
    let moved = transfer(&liar, "nowhere:1", &p, "again", seq.held.ids(), &seq.hashes)
        .await
        .expect("the second push carries everything");
    assert_eq!(liar.pushes.load(Ordering::SeqCst), 2);
    assert_eq!((moved.chunks, moved.sent, moved.deduped), (3, 3, 0));
    let ids = liar.receiver.claim("again").expect("it waits");
    assert_eq!(ids.len(), 3);
    fake::check_contents(&d, &ids, &prompt).expect("the same cache");
    assert_eq!(used(&d), 3, "the first push left nothing");
}

#[tokio::test]
async fn prefill_rpc_validation_and_info() {
    let d = Decode::start();
    let transport = Arc::new(GrpcTransport { timeout: Duration::from_secs(5) });
    let decode = Prefill::with(&["decode"], transport, None).await;
    let sound = request("r", &tokens(1..=8), &d.target());
    let refused = decode.run(sound.clone()).await.expect_err("it does not prefill");
    assert_eq!(refused.code(), Code::FailedPrecondition);

    let p = Prefill::start().await;
    let mut cases: HashMap<&str, _> = HashMap::new();
    let mut changed = |name, change: &dyn Fn(&mut tl_proto::engine::v1::PrefillRequest)| {
        let mut request = sound.clone();
        change(&mut request);
        cases.insert(name, request);
    };
    changed("empty prompt", &|r| r.prompt_ids.clear());
    changed("empty target", &|r| r.decode_target.clear());
    changed("temperature -1", &|r| r.sampling.as_mut().expect("set").temperature = -1.0);
    changed("no new tokens", &|r| r.sampling.as_mut().expect("set").max_new_tokens = 0);
    for (name, request) in cases {
        let refused = p.run(request).await.expect_err(name);
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}: {refused}");
        assert_eq!(used(&p.pool), 0, "{name}");
    }
    let mut past = sound.clone();
    past.deadline_unix_ms = 1;
    let refused = p.run(past).await.expect_err("long ago");
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert_eq!((stats(&p.pool).cached, used(&d.pool)), (0, 0), "nothing was computed or sent");

    let mut client = p.client.clone();
    let info = client.info(InfoRequest {}).await.expect("info").into_inner();
    assert_eq!(info.roles, ["prefill"]);
    assert_eq!((info.kv_format, info.kv_formats_read, info.block_size), (1, vec![1], 4));
    for (id, known) in [("known", true), ("other", false)] {
        let cancel = CancelRequest { request_id: id.into() };
        assert_eq!(client.cancel(cancel).await.expect("cancel").into_inner().found, known);
    }
    let drained = client.drain(DrainRequest { deadline_ms: 3000 }).await.expect("drain");
    assert_eq!(drained.into_inner().aborted, 3);
}

fn identity(role: &str) -> WorkerIdentity {
    WorkerIdentity {
        worker_id: "w1".into(),
        http_address: "127.0.0.1:8000".into(),
        grpc_address: "127.0.0.1:50051".into(),
        kv_address: "127.0.0.1:50052".into(),
        role: role.into(),
        model: "fake".into(),
        ..WorkerIdentity::default()
    }
}

#[test]
fn worker_status_fields() {
    let load = Load {
        queue_depth: 3,
        running: 2,
        kv_free_blocks: 10,
        kv_total_blocks: 64,
        draining: true,
    };
    for (role, kv) in [("decode", "127.0.0.1:50052"), ("prefill", ""), ("unified", "")] {
        let s = worker_status(&identity(role), &load);
        assert_eq!(s.kv_address, kv, "{role}");
        assert_eq!((s.worker_id.as_str(), s.role.as_str(), s.model.as_str()), ("w1", role, "fake"));
        assert_eq!(s.http_address, "127.0.0.1:8000");
        assert_eq!(s.grpc_address, "127.0.0.1:50051");
        assert_eq!(s.kv_format, 1);
        assert_eq!((s.queue_depth, s.running), (3, 2));
        assert_eq!((s.kv_free_blocks, s.kv_total_blocks, s.draining), (10, 64, true));
    }
}

/// A registry that does what the test says next.
#[derive(Default)]
struct Scripted {
    next: Mutex<Vec<Option<Result<HeartbeatAck, String>>>>,
}

#[tonic::async_trait]
impl Registry for Scripted {
    async fn heartbeat(&self, _: WorkerStatus) -> Result<HeartbeatAck, String> {
        let next = self.next.lock().remove(0);
        match next {
            Some(answer) => answer,
            None => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Err("the hang ended".into())
            }
        }
    }
}

#[tokio::test]
async fn beat_once_counts_failures_and_drain() {
    let ok = |drain, route_epoch| Some(Ok(HeartbeatAck { drain, route_epoch }));
    let failure = || Some(Err("down".to_owned()));
    let registry = Scripted::default();
    *registry.next.lock() =
        vec![ok(false, 5), failure(), failure(), None, ok(true, 6), ok(false, 7)];
    let st = BeatState::default();
    let timeout = Duration::from_millis(100);
    let counts = |st: &BeatState| {
        let [sent, failed] = [&st.sent, &st.failed].map(|n| n.load(Ordering::SeqCst));
        (sent, failed, st.consecutive_failures.load(Ordering::SeqCst))
    };
    assert!(beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    assert_eq!(counts(&st), (1, 0, 0));
    for _ in 0..2 {
        assert!(!beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    }
    assert_eq!(counts(&st), (3, 2, 2));
    let start = Instant::now();
    assert!(!beat_once(&registry, WorkerStatus::default(), timeout, &st).await, "it hangs");
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(counts(&st), (4, 3, 3));
    assert!(!st.drain_requested());
    assert!(beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    assert_eq!(counts(&st), (5, 3, 0));
    assert!(st.drain_requested());
    assert!(beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    assert!(st.drain_requested(), "a later answer does not call it off");
    assert_eq!(st.route_epoch.load(Ordering::SeqCst), 7);
}

/// Keeps the loads it is told.
#[derive(Default)]
struct Seen {
    loads: Mutex<Vec<i32>>,
}

#[tonic::async_trait]
impl Registry for Seen {
    async fn heartbeat(&self, s: WorkerStatus) -> Result<HeartbeatAck, String> {
        self.loads.lock().push(s.queue_depth);
        Ok(HeartbeatAck::default())
    }
}

#[tokio::test]
async fn heartbeat_beats_on_schedule() {
    let seen = Arc::new(Seen::default());
    let reads = Arc::new(AtomicI32::new(0));
    let load = Arc::new(move || Load {
        queue_depth: reads.fetch_add(1, Ordering::SeqCst),
        ..Load::default()
    });
    let heartbeat = Heartbeat::spawn(
        seen.clone(),
        identity("decode"),
        load,
        Duration::from_millis(20),
        Duration::from_secs(1),
    )
    .expect("a thread");
    assert!(eventually(DEADLINE, || seen.loads.lock().len() >= 4).await);
    let state = heartbeat.state().clone();
    let stopping = Instant::now();
    heartbeat.stop();
    assert!(stopping.elapsed() < Duration::from_secs(1));
    let after = seen.loads.lock().clone();
    assert!(after.windows(2).all(|pair| pair[0] < pair[1]), "a fresh load each time: {after:?}");
    let more = eventually(Duration::from_millis(80), || seen.loads.lock().len() > after.len());
    assert!(!more.await, "stopped means no more beats");
    assert_eq!(state.sent.load(Ordering::SeqCst) as usize, after.len());
}

/// A gateway's registry that counts.
#[derive(Default)]
struct Counting {
    epoch: AtomicU64,
    last: Arc<Mutex<Option<WorkerStatus>>>,
}

#[tonic::async_trait]
impl WorkerRegistry for Counting {
    async fn heartbeat(
        &self,
        request: Request<WorkerStatus>,
    ) -> Result<Response<HeartbeatAck>, Status> {
        *self.last.lock() = Some(request.into_inner());
        let route_epoch = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Response::new(HeartbeatAck { drain: false, route_epoch }))
    }
}

#[tokio::test]
async fn grpc_registry_roundtrip() {
    let counting = Counting::default();
    let last = counting.last.clone();
    let router =
        tonic::transport::Server::builder().add_service(WorkerRegistryServer::new(counting));
    let server = spawn_router(loopback(), router).expect("a server");
    let registry =
        GrpcRegistry { target: server.addr.to_string(), timeout: Duration::from_secs(5) };
    let status = worker_status(&identity("decode"), &Load::default());
    for epoch in 1..=2 {
        let ack = registry.heartbeat(status.clone()).await.expect("the registry is up");
        assert_eq!((ack.route_epoch, ack.drain), (epoch, false));
        assert_eq!(last.lock().as_ref(), Some(&status));
    }
    server.shutdown().await;

    let dead = loopback().local_addr().expect("an address");
    let unreachable =
        GrpcRegistry { target: dead.to_string(), timeout: Duration::from_millis(500) };
    let start = Instant::now();
    unreachable.heartbeat(status).await.expect_err("nobody listens there");
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_finished_first_token_moves_nothing() {
    let d = Decode::start();
    let transport = Arc::new(GrpcTransport { timeout: Duration::from_secs(5) });
    let finish = Some(tl_serve::control::FirstFinish::Length);
    let p = Prefill::with(&["prefill"], transport, finish).await;
    let baseline = Baseline::of(&[("P", &p.pool), ("D", &d.pool)]);
    let answer = p.run(request("done", &tokens(1..=8), &d.target())).await.expect("it ran");
    assert_eq!((answer.finish_reason.as_str(), answer.first_token), ("length", 3));
    assert_eq!(answer.handle, None);
    assert_eq!(d.receiver.pending(), 0);
    baseline.assert_restored();
}
