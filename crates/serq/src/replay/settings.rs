//! What the run's own description says of the engine's settings.

use std::path::Path;

use serde_json::Value;

/// Where a setting is in the file, and what the program calls it. The first that is there counts.
const SETTINGS: [(&str, &[&str]); 6] = [
    ("C.budget", &["/engine_kwargs/max_num_batched_tokens"]),
    ("C.seqs", &["/engine_kwargs/max_num_seqs"]),
    ("C.blocks", &["/kv_cache/num_gpu_blocks"]),
    ("C.bs", &["/kv_cache/block_size"]),
    ("C.caching", &["/kv_cache/enable_prefix_caching"]),
    ("C.async", &["/resolved_config/scheduler_config/async_scheduling"]),
];

/// Settings as overrides, `name=value`, of the constants that a program has. What the file does not say
/// stays as the program has it.
pub fn read(path: &Path, constants: &[String]) -> Result<Vec<String>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
    let meta: Value = serde_json::from_str(&text).map_err(|e| format!("{name}: {e}"))?;
    Ok(of(&meta, constants))
}

pub(super) fn of(meta: &Value, constants: &[String]) -> Vec<String> {
    let value = |paths: &[&str]| {
        paths.iter().find_map(|path| match meta.pointer(path)? {
            Value::Bool(on) => Some(u8::from(*on).to_string()),
            Value::Number(n) => Some(n.to_string()),
            _ => None,
        })
    };
    SETTINGS
        .into_iter()
        .filter(|(name, _)| constants.iter().any(|c| c == name))
        .filter_map(|(name, paths)| Some(format!("{name}={}", value(paths)?)))
        .collect()
}
