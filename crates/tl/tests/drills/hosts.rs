//! Ports that other machines can reach, and the token that they then ask for.

use std::process::{Command, Stdio};

use serde_json::Value;
use tl_proto::engine::v1::InfoRequest;
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_proto::kv::v1::HasBlocksRequest;
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tonic::{Code, Request};

use super::client::{body, complete};
use super::parts::{Drill, Part, Shape};

const TOKEN: &str = "0123456789abcdef-drill";
const OPEN: &str = "0.0.0.0:0";

/// Starts a part that must refuse its configuration; what it says.
fn refused(kind: &str, config: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("runtime.toml");
    std::fs::write(&path, config).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_tl"))
        .args([kind, "--config"])
        .arg(path)
        .env_remove("TL_CLUSTER__TOKEN")
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{config}: {said}");
    said
}

#[test]
fn a_trusted_port_off_loopback_without_a_token_is_refused_at_start() {
    let check = |kind: &str, section: &str, key: &str, listen: &str| {
        let said = refused(kind, &format!("[{kind}]\n{section}\n{key} = \"{listen}\"\n"));
        assert!(said.contains(&format!("{kind}.{key}")), "{said}");
        assert!(said.contains("cluster.token") && said.contains("127.0.0.1"), "{said}");
    };
    for listen in [":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        check("gateway", "", "registry_listen", listen);
        check("engine", "model_dir = \"tiny\"", "grpc_listen", listen);
        check("engine", "model_dir = \"tiny\"\nrole = \"decode\"", "kv_listen", listen);
    }
    // A token that is no secret is none.
    let said =
        refused("gateway", "[gateway]\nlisten = \"127.0.0.1:0\"\n[cluster]\ntoken = \"short\"\n");
    assert!(said.contains("cluster.token") && !said.contains("short"), "{said}");
}

fn open_shape() -> Shape {
    let mut shape =
        Shape::new(1, 1).gateway("registry_listen", OPEN).env("TL_CLUSTER__TOKEN", TOKEN);
    for key in ["http_listen", "grpc_listen", "kv_listen"] {
        shape = shape.engine(key, OPEN);
    }
    shape
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_token_everywhere_requests_cross_and_strangers_are_told_no() {
    let drill = Drill::start(open_shape()).await;
    let streamed = complete(&drill, &body("over ports that all can reach", 12, 3)).await;
    assert!(streamed.prefill.is_some(), "prefill and decode apart");
    let sent = "tl_kv_transfer_blocks_total{outcome=\"sent\"}";
    assert!(drill.metric(&drill.prefill[0], sent).await.is_some_and(|n| n > 0.0));

    let control = format!("http://{}", drill.prefill[0].addr("grpc"));
    let kv = format!("http://{}", drill.decode[0].addr("kv"));
    for (token, expect) in [
        (None, Code::Unauthenticated),
        (Some("0123456789abcdef-dril1"), Code::Unauthenticated),
        (Some(TOKEN), Code::Ok),
    ] {
        let code = |result: Result<(), tonic::Status>| result.err().map_or(Code::Ok, |s| s.code());
        let mut info = Request::new(InfoRequest {});
        let mut has = Request::new(HasBlocksRequest { block_hashes: vec![1], kv_format: 1 });
        if let Some(token) = token {
            info.metadata_mut().insert("tl-cluster-token", token.parse().unwrap());
            has.metadata_mut().insert("tl-cluster-token", token.parse().unwrap());
        }
        let mut client = EngineControlClient::connect(control.clone()).await.unwrap();
        assert_eq!(code(client.info(info).await.map(drop)), expect, "control, {token:?}");
        let mut client = KvTransferServiceClient::connect(kv.clone()).await.unwrap();
        assert_eq!(code(client.has_blocks(has).await.map(drop)), expect, "kv, {token:?}");
    }
    drill.until_baseline().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_the_token_does_not_join() {
    let drill = Drill::start(open_shape()).await;
    let dir = tempfile::tempdir().expect("a folder");
    let engine = |name: &str, token: Option<&str>| {
        let text = format!(
            "role = \"decode\"\nmodel_dir = \"tiny\"\nkv_blocks = 64\nthreads = 1\n\
             http_listen = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\n\
             grpc_listen = \"127.0.0.1:0\"\nkv_listen = \"127.0.0.1:0\"\n\
             gateway_registry = \"{}\"\n",
            drill.gateway.addr("registry")
        );
        let env: Vec<(String, String)> =
            token.map(|t| ("TL_CLUSTER__TOKEN".to_owned(), t.to_owned())).into_iter().collect();
        Part::start(dir.path(), name, "engine", text.parse().expect("toml"), &env)
    };
    let nobody = engine("nobody", None);
    let stranger = engine("stranger", Some("0123456789abcdef-other"));
    for part in [&nobody, &stranger] {
        drill
            .until(&format!("{} is told why", part.name), async || {
                part.log().contains("cluster token missing or wrong")
            })
            .await;
    }
    let workers = drill.workers().await;
    assert_eq!(workers.len(), 2, "{}", Value::from(workers));
    let _friend = engine("friend", Some(TOKEN));
    drill.until_workers(3).await;
}
