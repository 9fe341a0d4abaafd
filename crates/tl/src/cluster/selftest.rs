//! One block over every prefill-decode edge, before the cluster says that it is ready.
//!
//! Disaggregation that silently does not happen is the fault that nobody notices: answers are right and every
//! prompt is computed twice. So each edge has to move a prompt of one full block and a tail, and the decode
//! engine's release has to find it.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_proto::engine::v1::{InfoRequest, PrefillRequest, SamplingParams};
use tl_proto::kv::v1::ReleaseRequest;
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tonic::transport::{Channel, Endpoint};

use super::part::Part;

/// One edge that works.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EdgeReport {
    pub(crate) prefill: String,
    pub(crate) decode: String,
    pub(crate) blocks: u32,
    pub(crate) ms: f64,
}

/// Moves a block from every prefill engine to every decode engine; an error names the edge.
pub(super) async fn check_edges(engines: &[Part]) -> anyhow::Result<Vec<EdgeReport>> {
    let mut decodes = Vec::new();
    let mut prefills = Vec::new();
    for part in engines {
        let addrs = part.addrs().with_context(|| format!("{} is not listening", part.name()))?;
        match (addrs.kv, addrs.grpc) {
            (Some(kv), _) => decodes.push((part.name(), kv)),
            (None, Some(grpc)) => prefills.push((part.name(), grpc)),
            (None, None) => {}
        }
    }
    let mut reports = Vec::new();
    for (p, grpc) in &prefills {
        for (d, kv) in &decodes {
            let started = Instant::now();
            let blocks = edge(grpc, kv)
                .await
                .with_context(|| format!("the self-test of {p} -> {d} failed"))?;
            let ms = started.elapsed().as_secs_f64() * 1e3;
            reports.push(EdgeReport {
                prefill: (*p).to_owned(),
                decode: (*d).to_owned(),
                blocks,
                ms,
            });
        }
    }
    Ok(reports)
}

async fn edge(grpc: &str, kv: &str) -> anyhow::Result<u32> {
    let mut control = EngineControlClient::new(connect(grpc).await?);
    let info = control.info(InfoRequest {}).await.context("Info")?.into_inner();
    // One full block and a tail of one token, different from what a person would send first.
    let block = u32::try_from(info.block_size).context("block size")?;
    let prompt_ids: Vec<u32> = (0..=block).map(|i| 3 + i % 61).collect();
    let request = PrefillRequest {
        request_id: format!("selftest-{}", uuid()?),
        model: info.model,
        prompt_ids,
        sampling: Some(SamplingParams {
            temperature: 0.0,
            top_p: 1.0,
            repetition_penalty: 1.0,
            max_new_tokens: 4,
            ..SamplingParams::default()
        }),
        decode_target: kv.to_owned(),
        deadline_unix_ms: 0,
        priority: 0,
    };
    let answer = control.prefill(request).await.context("Prefill")?.into_inner();
    // A first token that ends the answer leaves nothing to hand over; then the push was not tested, but the
    // random prompt makes that unlikely and the edge's control path has worked.
    let Some(handle) = answer.handle else { return Ok(0) };
    let mut transfer = KvTransferServiceClient::new(connect(kv).await?);
    transfer.release(ReleaseRequest { handle_id: handle.handle_id }).await.context("Release")?;
    Ok(handle.n_tokens.div_ceil(block))
}

async fn connect(address: &str) -> anyhow::Result<Channel> {
    Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(Duration::from_secs(5))
        .timeout(Duration::from_secs(60))
        .connect()
        .await
        .with_context(|| format!("cannot connect to {address}"))
}

fn uuid() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
