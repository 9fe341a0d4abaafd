//! Engines that come, go, restart, and are not let in.

use serde_json::json;
use tl_api::config::Secret;

use crate::support::Cluster;

#[tokio::test]
async fn a_new_gateway_knows_everybody_after_their_next_beat() {
    let mut c = Cluster::start("p d").await;
    c.shutdown().await;
    let old = c.at;
    let again = Cluster::with("", |config| {
        config.gateway.registry_listen = old.registry.to_string().parse().unwrap();
    })
    .await;
    again.until("both are known", async |a| a.workers().await.len() == 2).await;
    assert_eq!(again.chat(json!({})).await.text(), "Hey");
}

#[tokio::test]
async fn a_restarted_engine_begins_anew() {
    let c = Cluster::start("p d").await;
    let room = async |c: &Cluster| c.worker("d").await["room"].clone();
    c.engine("d").status.lock().incarnation = 2;
    c.until("the new life is known", async |c| {
        c.worker("d").await["incarnation"] == "0000000000000002"
    })
    .await;
    assert_eq!(room(&c).await, 64);
    assert_eq!(c.chat(json!({})).await.text(), "Hey");
}

#[tokio::test]
async fn engines_that_differ_are_not_paired_and_the_page_says_so() {
    let c = Cluster::start("p d").await;
    c.engine("d").status.lock().block_size = 32;
    c.until("the change is known", async |c| c.worker("d").await["block_size"] == 32).await;
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "ey"), "decode serves alone");
    assert_eq!(c.world.count("p prefill"), 0);
    let page = c.http.get(c.url("/workers")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("block size 16 is not 32"), "{page}");
}

#[tokio::test]
async fn draining_engines_get_nothing_new() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").status.lock().draining = true;
    c.until("the drain is known", async |c| c.worker("d1").await["state"] == "draining").await;
    for _ in 0..3 {
        assert_eq!(c.chat(json!({})).await.text(), "Hey");
    }
    assert_eq!(c.world.count("d1 decode "), 0);
    c.engine("d2").status.lock().draining = true;
    c.until("both drain", async |c| c.worker("d2").await["state"] == "draining").await;
    assert_eq!(c.chat(json!({})).await.error(), "503 server_error/no_capacity");
}

#[tokio::test]
async fn the_registry_asks_for_the_clusters_token() {
    let token = "0123456789abcdef0123";
    let c = Cluster::with("", |config| config.cluster.token = Some(Secret::new(token))).await;
    let world = c.world.clone();
    let stranger = crate::support::Engine::start("d1", "decode", world.clone()).await;
    *stranger.token.lock() = Some("0123456789abcdef0124".into());
    let nobody = crate::support::Engine::start("d2", "decode", world.clone()).await;
    let friend = crate::support::Engine::start("d3", "decode", world).await;
    *friend.token.lock() = Some(token.into());
    for engine in [&stranger, &nobody, &friend] {
        engine.beat_to(c.at.registry);
    }
    c.until("the friend is known", async |c| c.worker("d3").await["role"] == "decode").await;
    let beats = |e: &crate::support::Engine| e.beats.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((beats(&stranger), beats(&nobody)), (0, 0));
    assert_eq!(c.workers().await.len(), 1);
}

#[tokio::test]
async fn an_engine_that_is_slow_to_say_what_it_holds_is_asked_again_and_serves_meanwhile() {
    let mut c = Cluster::start("p").await;
    let late = crate::support::Engine::start("d", "decode", c.world.clone()).await;
    late.fail_infos(3);
    late.beat_to(c.at.registry);
    c.engines.push(late);
    c.until("it is known", async |c| c.worker("d").await["role"] == "decode").await;
    assert_eq!(c.chat(json!({})).await.text(), "Hey");
    c.until("its context is known", async |c| c.worker("d").await["max_context"] == 512).await;
}
