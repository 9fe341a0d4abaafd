//! `tl up`: a whole cluster, from one line.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::cli::{UpArgs, UsageError};
use crate::cluster::{Cluster, ClusterSpec, EdgeReport, PartEvent};
use crate::models;
use crate::stopping;
use crate::ui::{self, Colour, paint};

/// How long running requests may go on after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: UpArgs) -> anyhow::Result<u8> {
    check_port(&args.host, args.port)?;
    let model = models::resolve(&args.cluster.model).await?;
    let spec = ClusterSpec {
        topology: args.cluster.topology,
        model,
        host: args.host.clone(),
        port: args.port,
        kv_blocks: args.cluster.kv_blocks,
        threads: args.cluster.threads,
        reference: false,
    };
    let started = Instant::now();
    let (events, receiver) = mpsc::unbounded_channel();
    let shown = tokio::spawn(show(receiver, args.json, args.quiet));

    let (cluster, edges) = tokio::select! {
        started = Cluster::start(&spec, events) => started?,
        _ = stopping::requested(false) => return Ok(1),
    };
    let model = cluster.served_model().await?;
    announce(&args, &cluster, &edges, &model, started.elapsed())?;

    stopping::requested(false).await;
    ui::note("draining; Ctrl-C again stops at once");
    let stopped = tokio::select! {
        () = cluster.stop(DRAIN) => true,
        _ = stopping::requested(false) => false,
    };
    shown.abort();
    Ok(u8::from(!stopped))
}

/// A taken port is told before a model is read.
fn check_port(host: &str, port: u16) -> anyhow::Result<()> {
    match TcpListener::bind((host, port)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(UsageError(format!(
            "port {port} on {host} is taken: choose another with --port, or --port 0 for a free one"
        ))
        .into()),
        Err(error) => Err(UsageError(format!("cannot listen on {host}:{port}: {error}")).into()),
    }
}

fn announce(
    args: &UpArgs,
    cluster: &Cluster,
    edges: &[EdgeReport],
    model: &str,
    took: Duration,
) -> anyhow::Result<()> {
    let gateway = cluster.gateway_addrs()?;
    let parts = cluster.parts();
    if args.json {
        let parts: Vec<_> = parts
            .iter()
            .map(|(name, addrs, pid)| {
                let mut part = serde_json::to_value(addrs)?;
                part["name"] = name.as_str().into();
                part["pid"] = (*pid).into();
                part["metrics"] = format!("http://{}/metrics", addrs.health).into();
                Ok::<_, serde_json::Error>(part)
            })
            .collect::<Result<_, _>>()?;
        let ready = serde_json::json!({
            "event": "ready",
            "gateway": format!("http://{}", gateway.http),
            "base_url": format!("http://{}/v1", gateway.http),
            "topology": args.cluster.topology.to_string(),
            "model": model,
            "seconds": (took.as_secs_f64() * 1e3).round() / 1e3,
            "parts": parts,
            "edges": edges,
            "logs": cluster.dir().display().to_string(),
        });
        ui::out(&ready.to_string());
        return Ok(());
    }
    let mut text =
        format!("\n{} in {:.1} s\n\n", paint("ready", Colour::Green), took.as_secs_f64());
    for (name, addrs, _) in &parts {
        let mut line = format!(
            "  {name:<11} http://{:<21} metrics http://{}/metrics",
            addrs.http, addrs.health
        );
        for (what, address) in
            [("control", &addrs.grpc), ("kv", &addrs.kv), ("registry", &addrs.registry)]
        {
            if let Some(address) = address {
                line.push_str(&format!("  {what} {address}"));
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    for edge in edges {
        text.push_str(&format!(
            "  self-test   {} -> {}: {} blocks in {:.0} ms\n",
            edge.prefill, edge.decode, edge.blocks, edge.ms
        ));
    }
    text.push_str(&format!(
        "  logs        {}\n  workers     http://{}/workers\n\n",
        cluster.dir().display(),
        gateway.http
    ));
    text.push_str(&format!(
        "try it:\n\n  curl http://{}/v1/chat/completions -H 'content-type: application/json' \\\n    -d '{{\"model\": \"{model}\", \"messages\": \
         [{{\"role\": \"user\", \"content\": \"Why is the sky blue? Answer in two sentences.\"}}], \"stream\": true}}'\n",
        gateway.http
    ));
    ui::out(&text);
    Ok(())
}

/// Shows the parts' logs and deaths, until the command ends.
async fn show(mut events: mpsc::UnboundedReceiver<PartEvent>, json: bool, quiet: bool) {
    while let Some(event) = events.recv().await {
        match event {
            PartEvent::Log { part, index, line } => {
                if !quiet {
                    ui::note(&format!(
                        "{} {line}",
                        paint(&format!("{part:>10} |"), Colour::Part(index))
                    ));
                }
            }
            PartEvent::Died { part, index, why, tail, log } => {
                if json {
                    ui::out(
                        &serde_json::json!({"event": "died", "part": part, "why": why}).to_string(),
                    );
                }
                let label = paint(&format!("{part:>10} |"), Colour::Part(index));
                ui::note(&format!(
                    "{label} {} {why}; its last lines (all of them in {}):",
                    paint("died:", Colour::Red),
                    log.display()
                ));
                for line in tail {
                    ui::note(&format!("{label}   {}", paint(&line, Colour::Dim)));
                }
            }
            PartEvent::Restarted { part, index, pid } => {
                if json {
                    ui::out(
                        &serde_json::json!({"event": "restarted", "part": part, "pid": pid})
                            .to_string(),
                    );
                }
                let label = paint(&format!("{part:>10} |"), Colour::Part(index));
                ui::note(&format!("{label} started again on the same addresses"));
            }
        }
    }
}

/// The same pump for commands that show logs only when something goes wrong.
pub(crate) async fn show_deaths(events: mpsc::UnboundedReceiver<PartEvent>) {
    show(events, false, true).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_an_error_with_a_hint() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let text = check_port("127.0.0.1", port).unwrap_err().to_string();
        assert!(text.contains("is taken") && text.contains("--port 0"), "{text}");
        check_port("127.0.0.1", 0).unwrap();
    }
}
