use super::*;

fn load(text: &str, env: &[(&str, &str)]) -> Result<RuntimeConfig, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runtime.toml");
    std::fs::write(&path, text).unwrap();
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    RuntimeConfig::load_with(Some(&path), env)
}

/// The only problem of a configuration, its source reduced to what is stable.
fn problem(text: &str, env: &[(&str, &str)]) -> String {
    let error = load(text, env).expect_err(text);
    assert_eq!(error.problems.len(), 1, "{error}");
    let shown = error.to_string();
    let at = shown.find("runtime.toml").or_else(|| shown.find("environment")).unwrap_or(0);
    shown[at..].to_owned()
}

#[test]
fn environment_over_file_over_defaults() {
    let file = "[engine]\nkv_blocks = 64\nmax_seqs = 3\n[gateway]\ndebug = true\n";
    let env = [
        ("TL_ENGINE__KV_BLOCKS", "128"),
        ("TL_GATEWAY__AFFINITY_LOAD_FACTOR", "2"),
        ("TL_CLUSTER__TOKEN", "12345678901234567890"),
        ("TL_ENGINE__MODEL_ID", "7"),
        ("TL_ENGINE__ROLE", "decode"),
        ("TL_ENGINE__SPECULATIVE__K", "2"),
        ("TL_GATEWAY_PEPPER", "somebody else's"),
        ("PATH", "/bin"),
    ];
    let config = load(file, &env).unwrap();
    assert_eq!(config.engine.kv_blocks, 128);
    assert_eq!(config.engine.max_seqs, 3);
    assert_eq!(config.engine.block_size, 16);
    assert_eq!(config.engine.model_id.as_deref(), Some("7"));
    assert_eq!(config.engine.role, EngineRole::Decode);
    assert_eq!(config.engine.speculative.k, 2);
    assert!(config.gateway.debug);
    assert_eq!(config.gateway.affinity_load_factor, 2.0);
    assert_eq!(config.cluster.token.unwrap().expose(), "12345678901234567890");
}

#[test]
fn defaults_load_and_bind_to_loopback() {
    let config = RuntimeConfig::load_with(None, []).unwrap();
    assert_eq!(config, RuntimeConfig::default());
    let engine = &config.engine;
    let gateway = &config.gateway;
    for listen in [
        &engine.http_listen,
        &engine.health_listen,
        &engine.grpc_listen,
        &engine.kv_listen,
        &gateway.listen,
        &gateway.health_listen,
        &gateway.registry_listen,
    ] {
        assert!(listen.is_loopback(), "{listen}");
    }
    config.check_gateway().unwrap();
}

#[test]
fn ext_is_free_and_nothing_else_is() {
    assert!(load("[ext]\nanything = [1, 2]\n[ext.deeper]\nx = 1\n", &[]).is_ok());
    assert_eq!(
        problem("[engine]\nkv_block = 3\n", &[]),
        "runtime.toml: engine.kv_block = 3: there is no such key; did you mean kv_blocks?"
    );
    assert!(problem("[motor]\nx = 1\n", &[]).contains("motor = a table: there is no such key"));
    assert_eq!(
        problem("", &[("TL_ENGINE__KV_BLOCK", "3")]),
        "environment variable TL_ENGINE__KV_BLOCK: engine.kv_block = \"3\": there is no such key; did you mean kv_blocks?"
    );
}

#[test]
fn errors_say_file_key_value_reason_and_fix() {
    let check = |text: &str, expect: &str| assert_eq!(problem(text, &[]), expect);
    check(
        "[engine]\nkv_blocks = \"many\"",
        "runtime.toml: engine.kv_blocks = \"many\": must be u32",
    );
    check("[engine]\nkv_blocks = 0", "runtime.toml: engine.kv_blocks = 0: must be 1 to 4294967295");
    check(
        "[engine]\nrole = \"both\"",
        "runtime.toml: engine.role = \"both\": not an allowed value; use one of: unified, prefill, decode",
    );
    check(
        "[engine]\nhttp_listen = \"8000\"",
        "runtime.toml: engine.http_listen = \"8000\": \"8000\" is no listen address; write host:port, 127.0.0.1:8080 or :8080",
    );
    check(
        "[engine]\nprefix_cache = \"radix\"",
        "runtime.toml: engine.prefix_cache: this version has no radix cache; use \"hash\" (blocks are shared as soon as they are full) or \"none\"",
    );
    check(
        "[gateway]\naffinity_load_factor = 0.5",
        "runtime.toml: gateway.affinity_load_factor = 0.5: must be 1 to 1000",
    );
    assert_eq!(
        problem("", &[("TL_ENGINE__MAX_SEQS", "x")]),
        "environment variable TL_ENGINE__MAX_SEQS: engine.max_seqs = \"x\": must be u32"
    );
    assert!(problem("[engine\n", &[]).starts_with("runtime.toml: is not valid toml: "));
    let missing = RuntimeConfig::load_with(Some(Path::new("/nowhere/runtime.toml")), []);
    assert!(missing.unwrap_err().to_string().starts_with("/nowhere/runtime.toml: cannot be read"));
}

#[test]
fn what_has_no_code_is_refused_by_name() {
    let check = |section: &str, line: &str, name: &str| {
        let text = problem(&format!("[{section}]\n{line}\n"), &[]);
        assert!(text.contains(&format!("{section}.{name}")), "{text}");
        assert!(text.contains("this version has no"), "{text}");
    };
    check("engine", "kv_format = 2", "kv_format");
    check("engine", "quant = \"int8\"", "quant");
    check("engine", "speculative = { draft = \"ngram\" }", "speculative.draft");
    check("gateway", "keys_file = \"keys\"", "keys_file");
    check("gateway", "policy_file = \"p\"", "policy_file");
    check("gateway", "usage_db = \"u\"", "usage_db");
    check("gateway", "cache_entries = 4096", "cache_entries");
    check("gateway", "upstream = \"x:1\"", "upstream");
    check("otel", "endpoint = \"http://x\"", "endpoint");
    let route = "routes = [{ model = \"m\", backends = [{ served_model = \"a\", weight = 1.0 }] }]";
    assert!(problem(&format!("[gateway]\n{route}"), &[]).contains("no backends or cascade"));
    let twice = "routes = [{ model = \"m\", aliases = [\"m\"] }]";
    assert!(problem(&format!("[gateway]\n{twice}"), &[]).contains("used twice"));
}

#[test]
fn all_problems_come_at_once() {
    let error = load("[engine]\nkv_blocks = 0\nmax_seqs = 0\n[gateway]\nmax_attempts = 0\n", &[]);
    let keys: Vec<String> = error.unwrap_err().problems.into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["engine.kv_blocks", "engine.max_seqs", "gateway.max_attempts"]);
}

#[test]
fn off_loopback_needs_the_token() {
    let token = "[cluster]\ntoken = \"0123456789abcdef\"\n";
    let check = |text: &str, engine: &[&str], gateway: &[&str]| {
        let config = load(&format!("[engine]\nmodel_dir = \"m\"\n{text}"), &[]).unwrap();
        let keys = |r: Result<(), ConfigError>| -> Vec<String> {
            r.err().into_iter().flat_map(|e| e.problems).map(|p| p.key).collect()
        };
        assert_eq!(keys(config.check_engine()), engine, "{text}");
        assert_eq!(keys(config.check_gateway()), gateway, "{text}");
    };
    check("", &[], &[]);
    check("grpc_listen = \":1\"\n", &["engine.grpc_listen"], &[]);
    check("kv_listen = \":1\"\n", &[], &[]);
    check("role = \"decode\"\nkv_listen = \"0.0.0.0:1\"\n", &["engine.kv_listen"], &[]);
    check("http_listen = \":1\"\n", &[], &[]);
    check("[gateway]\nregistry_listen = \"[::]:1\"\n", &[], &["gateway.registry_listen"]);
    check(&format!("grpc_listen = \":1\"\n{token}"), &[], &[]);
    let bare = RuntimeConfig::default().check_engine().unwrap_err();
    assert_eq!(bare.problems[0].key, "engine.model_dir");
}

#[test]
fn tokens_are_checked_and_never_shown() {
    let short = problem("[cluster]\ntoken = \"short-and-secret\"\n[engine]\nx = 1", &[]);
    assert!(!short.contains("secret"), "{short}");
    let short = problem("[cluster]\ntoken = \"tooshort\"", &[]);
    assert!(short.contains("cluster.token = ***") && !short.contains("tooshort"), "{short}");
    let numeric = problem("[cluster]\ntoken = 1234567890123456789", &[]);
    assert!(!numeric.contains("1234567890123456789"), "{numeric}");
    let secret = Secret::new("0123456789abcdef");
    assert_eq!(format!("{secret:?}"), "***");
    assert!(secret.matches(b"0123456789abcdef"));
    assert!(!secret.matches(b"0123456789abcdeX"));
    assert!(!secret.matches(b"0123456789abcde"));
    assert!(!secret.matches(b""));
}

#[test]
fn listen_addresses() {
    let check = |text: &str, bind: &str, loopback: bool| {
        let listen: Listen = text.parse().unwrap();
        assert_eq!((listen.bind_address().as_str(), listen.is_loopback()), (bind, loopback));
        assert_eq!(listen.to_string().parse::<Listen>().unwrap(), listen);
    };
    check(":8080", "0.0.0.0:8080", false);
    check("127.0.0.1:0", "127.0.0.1:0", true);
    check("127.5.0.1:9", "127.5.0.1:9", true);
    check("localhost:1", "localhost:1", true);
    check("[::1]:1", "[::1]:1", true);
    check("[::]:1", "[::]:1", false);
    check("engine-0:50051", "engine-0:50051", false);
    for text in [
        "",
        "8080",
        "host",
        "host:",
        "host:x",
        "host:99999",
        "::1:1",
        "[x]:1",
        "http://a:1",
        "a b:1",
    ] {
        assert!(text.parse::<Listen>().is_err(), "{text}");
    }
}
