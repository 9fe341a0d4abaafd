//! Rules that a type cannot say: ranges, what has no code, and who may listen where.

use figment::Figment;

use super::listen::Listen;
use super::problem::{ConfigError, Problem, source_of};
use super::sections::{
    Draft, EngineRole, EngineSection, GatewaySection, PrefixCache, Quant, Route, RuntimeConfig,
};

struct Checks<'a> {
    figment: Option<&'a Figment>,
    problems: Vec<Problem>,
}

impl Checks<'_> {
    fn fail(&mut self, key: &str, value: Option<String>, reason: &str, fix: &str) {
        let source = self.figment.map_or_else(|| "configuration".into(), |f| source_of(f, key));
        self.problems.push(Problem {
            source,
            key: key.into(),
            value,
            reason: reason.into(),
            fix: (!fix.is_empty()).then(|| fix.into()),
        });
    }

    fn range(&mut self, key: &str, value: u64, min: u64, max: u64) {
        if !(min..=max).contains(&value) {
            self.fail(key, Some(value.to_string()), &format!("must be {min} to {max}"), "");
        }
    }

    fn unset(&mut self, key: &str, is_set: bool, what: &str, fix: &str) {
        if is_set {
            self.fail(key, None, &format!("this version has no {what}"), fix);
        }
    }

    fn done(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.problems }) }
    }
}

/// Ten years: no timer of ours overflows below it.
const MAX_MS: u64 = 315_360_000_000;
const MAX_S: u64 = MAX_MS / 1000;

pub(super) fn shared(config: &RuntimeConfig, figment: &Figment) -> Result<(), ConfigError> {
    let mut checks = Checks { figment: Some(figment), problems: Vec::new() };
    engine_values(&config.engine, &mut checks);
    gateway_values(&config.gateway, &mut checks);
    if let Some(token) = &config.cluster.token {
        let text = token.expose();
        if text.len() < 16 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            let reason = "must be at least 16 printable ascii characters without spaces";
            let fix = "make one with: openssl rand -hex 24";
            checks.fail("cluster.token", Some("***".into()), reason, fix);
        }
    }
    let ratio = config.otel.trace_sample_ratio;
    if !(0.0..=1.0).contains(&ratio) {
        checks.fail("otel.trace_sample_ratio", Some(ratio.to_string()), "must be 0 to 1", "");
    }
    let otel = !config.otel.endpoint.is_empty();
    checks.unset("otel.endpoint", otel, "trace export", "remove the key; logs go to stderr");
    checks.done()
}

fn engine_values(engine: &EngineSection, checks: &mut Checks<'_>) {
    let max = u64::from(u32::MAX);
    let positive = [
        ("engine.kv_blocks", engine.kv_blocks, max),
        ("engine.block_size", engine.block_size, 1024),
        ("engine.max_batch_tokens", engine.max_batch_tokens, max),
        ("engine.max_seqs", engine.max_seqs, max),
        ("engine.queue_capacity", engine.queue_capacity, 1 << 20),
        ("engine.speculative.k", engine.speculative.k, 16),
    ];
    for (key, value, max) in positive {
        checks.range(key, value.into(), 1, max);
    }
    checks.range("engine.prefill_chunk", engine.prefill_chunk.into(), 0, max);
    checks.range("engine.kv_format", engine.kv_format.into(), 1, 2);
    checks.range("engine.threads", engine.threads.into(), 0, 4096);
    checks.range("engine.queue_deadline_ms", engine.queue_deadline_ms, 1, MAX_MS);
    checks.range("engine.handle_lease_ms", engine.handle_lease_ms, 1, MAX_MS);
    checks.range("engine.drain_deadline_s", engine.drain_deadline_s, 0, MAX_S);
    let radix = engine.prefix_cache == PrefixCache::Radix;
    let fix = "use \"hash\" (blocks are shared as soon as they are full) or \"none\"";
    checks.unset("engine.prefix_cache", radix, "radix cache", fix);
    let quant = engine.quant != Quant::None;
    let fix = "remove the key; engine.weights chooses f16 or f32";
    checks.unset("engine.quant", quant, "quantized arithmetic", fix);
    let draft = engine.speculative.draft != Draft::None;
    checks.unset("engine.speculative.draft", draft, "speculative decoding", "use \"none\"");
    checks.unset("engine.kv_format", engine.kv_format == 2, "kv format 2", "use 1");
    if engine.advertise_host.is_empty() {
        checks.fail("engine.advertise_host", None, "is empty", "name the host others reach");
    }
    let registry = &engine.gateway_registry;
    if !registry.is_empty() && registry.parse::<Listen>().is_err() {
        let reason = "must be host:port";
        checks.fail("engine.gateway_registry", Some(format!("{registry:?}")), reason, "");
    }
}

fn gateway_values(gateway: &GatewaySection, checks: &mut Checks<'_>) {
    checks.range("gateway.heartbeat_miss_limit", gateway.heartbeat_miss_limit.into(), 1, 1000);
    checks.range("gateway.drain_deadline_s", gateway.drain_deadline_s, 0, MAX_S);
    checks.range("gateway.max_attempts", gateway.max_attempts.into(), 1, 10);
    checks.range("gateway.admission_wait_ms", gateway.admission_wait_ms, 0, MAX_MS);
    checks.range("gateway.prefill_timeout_ms", gateway.prefill_timeout_ms, 1, MAX_MS);
    checks.range("gateway.first_byte_timeout_ms", gateway.first_byte_timeout_ms, 1, MAX_MS);
    checks.range("gateway.stall_timeout_ms", gateway.stall_timeout_ms, 1, MAX_MS);
    let factor = gateway.affinity_load_factor;
    if !(1.0..=1000.0).contains(&factor) {
        let value = Some(factor.to_string());
        checks.fail("gateway.affinity_load_factor", value, "must be 1 to 1000", "");
    }
    let announce = "engines announce themselves: set engine.gateway_registry there";
    let proxy = "put an authenticating proxy in front";
    let refused = [
        ("upstream", !gateway.upstream.is_empty(), "fixed upstream", announce),
        ("keys_file", !gateway.keys_file.is_empty(), "api keys", proxy),
        ("pepper_env", !gateway.pepper_env.is_empty(), "api keys", "remove it"),
        ("key_cache_ttl_s", gateway.key_cache_ttl_s != 0, "api keys", "remove it"),
        ("policy_file", !gateway.policy_file.is_empty(), "usage policies", "remove it"),
        ("usage_db", !gateway.usage_db.is_empty(), "usage ledger", "remove it"),
        ("cache_entries", gateway.cache_entries != 0, "answer cache", "remove it or use 0"),
        ("cache_ttl_s", gateway.cache_ttl_s != 0, "answer cache", "remove it or use 0"),
    ];
    for (key, is_set, what, fix) in refused {
        checks.unset(&format!("gateway.{key}"), is_set, what, fix);
    }
    for RouteProblem { model, reason, fix } in route_problems(&gateway.routes) {
        checks.fail("gateway.routes", Some(format!("(route of {model:?})")), &reason, fix);
    }
}

/// What is wrong with one route of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteProblem {
    pub model: String,
    pub reason: String,
    /// Empty where there is nothing to add.
    pub fix: &'static str,
}

/// Everything that is wrong with a table of routes.
pub fn route_problems(routes: &[Route]) -> Vec<RouteProblem> {
    let mut problems = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for route in routes {
        let mut fail = |reason: String, fix| {
            problems.push(RouteProblem { model: route.model.clone(), reason, fix });
        };
        if !route.backends.is_empty() || !route.cascade.is_empty() {
            let reason = "this version has no backends or cascade";
            fail(reason.into(), "use model, aliases, targets");
        }
        for name in std::iter::once(&route.model).chain(&route.aliases) {
            if name.is_empty() || !names.insert(name) {
                fail(format!("the name {name:?} is empty or used twice"), "");
            }
        }
    }
    problems
}

/// Ports over which peers are believed need the token as soon as others can reach them.
fn trusted_ports(config: &RuntimeConfig, ports: &[(&str, &Listen)], checks: &mut Checks<'_>) {
    for (key, listen) in ports {
        if !listen.is_loopback() && config.cluster.token.is_none() {
            checks.fail(
                key,
                Some(format!("\"{listen}\"")),
                "can be reached from other machines and no [cluster].token is set",
                "set cluster.token (or TL_CLUSTER__TOKEN) in every process, or listen on 127.0.0.1",
            );
        }
    }
}

pub(super) fn engine(config: &RuntimeConfig) -> Result<(), ConfigError> {
    let mut checks = Checks { figment: None, problems: Vec::new() };
    let engine = &config.engine;
    if engine.model_dir.is_none() {
        let fix = "set it to a gguf file or a model folder (or TL_ENGINE__MODEL_DIR)";
        checks.fail("engine.model_dir", None, "is required", fix);
    }
    let mut ports = vec![("engine.grpc_listen", &engine.grpc_listen)];
    if engine.role == EngineRole::Decode {
        ports.push(("engine.kv_listen", &engine.kv_listen));
    }
    trusted_ports(config, &ports, &mut checks);
    checks.done()
}

pub(super) fn gateway(config: &RuntimeConfig) -> Result<(), ConfigError> {
    let mut checks = Checks { figment: None, problems: Vec::new() };
    let ports = [("gateway.registry_listen", &config.gateway.registry_listen)];
    trusted_ports(config, &ports, &mut checks);
    checks.done()
}
