//! `tl engine`: one engine from a configuration file.

use std::time::Instant;

use tl_api::config::{RuntimeConfig, Weights};
use tl_model::WeightKind;
use tl_serve::{Addresses, EngineSettings, start_engine};

use crate::cli::{PartArgs, UsageError};
use crate::cluster::{Addrs, announce};
use crate::{models, stopping};

pub(crate) async fn run(args: PartArgs) -> anyhow::Result<u8> {
    let config =
        RuntimeConfig::load(Some(&args.config)).map_err(|error| UsageError(error.to_string()))?;
    config.check_engine().map_err(|error| UsageError(error.to_string()))?;
    let settings = EngineSettings::of(&config).map_err(|error| UsageError(error.to_string()))?;

    let model_dir = config.engine.model_dir.unwrap_or_default().display().to_string();
    let weights = match config.engine.weights {
        Weights::F16 => WeightKind::F16,
        Weights::F32 => WeightKind::F32,
    };
    let started = Instant::now();
    let stopped = stopping::requested(args.watch_stdin);
    tokio::pin!(stopped);
    let loading = tokio::task::spawn_blocking(move || models::load(&model_dir, weights));
    // A model takes seconds to read; whoever stops us meanwhile need not wait for it.
    let loaded = tokio::select! {
        loaded = loading => loaded??,
        _ = &mut stopped => return Ok(0),
    };
    let instructions = tl_model::Isa::detect();
    if instructions.faulty().next().is_some() {
        tracing::warn!(%instructions, "this machine computes other bits than portable code");
    }
    tracing::info!(
        seconds = started.elapsed().as_secs_f64(),
        model = loaded.name,
        %instructions,
        "model loaded"
    );

    let engine = start_engine(settings, loaded).await?;
    if args.announce {
        announce(&addrs(engine.addresses()));
    }
    let reason = stopped.await;
    tracing::info!(?reason, "stopping");
    engine.shutdown().await;
    Ok(0)
}

fn addrs(bound: Addresses) -> Addrs {
    let Addresses { http, health, grpc, kv } = bound;
    Addrs {
        http: http.to_string(),
        health: health.to_string(),
        grpc: Some(grpc.to_string()),
        kv: kv.map(|kv| kv.to_string()),
        registry: None,
    }
}
