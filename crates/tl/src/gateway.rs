//! `tl gateway`: the front door from a configuration file.

use tl_api::config::RuntimeConfig;

use crate::cli::{PartArgs, UsageError};
use crate::cluster::{Addrs, announce};
use crate::stopping;

pub(crate) async fn run(args: PartArgs) -> anyhow::Result<u8> {
    let config =
        RuntimeConfig::load(Some(&args.config)).map_err(|error| UsageError(error.to_string()))?;
    config.check_gateway().map_err(|error| UsageError(error.to_string()))?;
    let gateway = tl_gateway::start_gateway(&config).await?;
    if args.announce {
        let bound = gateway.addresses();
        announce(&Addrs {
            http: bound.http.to_string(),
            health: bound.health.to_string(),
            grpc: None,
            kv: None,
            registry: Some(bound.registry.to_string()),
        });
    }
    let reason = stopping::requested(args.watch_stdin).await;
    tracing::info!(?reason, "stopping");
    gateway.shutdown().await;
    Ok(0)
}
