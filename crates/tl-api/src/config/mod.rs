//! `runtime.toml`: one file for every process of a deployment.
//!
//! Precedence: environment `TL_<SECTION>__<KEY>` over the file over the defaults. An unknown
//! key is an error except under `[ext]`. A key that the contract knows and this version has
//! no code for is refused by name, since a setting that silently does nothing is worse than
//! none. All problems are reported at once, each with source, key, value, reason and fix.
//!
//! Two defaults differ from the contract's: everything binds to loopback, and the prefix
//! cache is `hash` (there is no radix tree yet).

mod check;
mod listen;
mod problem;
mod sections;
mod source;

pub use check::{RouteProblem, route_problems};
pub use listen::Listen;
pub use problem::{ConfigError, Problem};
pub use sections::{
    ClusterSection, Draft, EngineRole, EngineSection, GatewaySection, OtelSection, PathsSection,
    PrefixCache, Quant, Route, RoutePolicy, RuntimeConfig, Secret, Speculative, Target, Weights,
};

use std::path::Path;

use figment::Figment;
use figment::providers::Serialized;

impl RuntimeConfig {
    /// Reads `path` (if any) and the process's environment.
    pub fn load(path: Option<&Path>) -> Result<RuntimeConfig, ConfigError> {
        let env = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        RuntimeConfig::load_with(path, env)
    }

    /// As [`RuntimeConfig::load`], with the environment as an argument.
    pub fn load_with(
        path: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<RuntimeConfig, ConfigError> {
        let file = match path {
            None => None,
            Some(path) => Some(source::File::read(path)?),
        };
        let defaults = Figment::from(Serialized::defaults(RuntimeConfig::default()));
        let env = source::Env::new(&defaults, env);
        let mut figment = defaults;
        if let Some(file) = file {
            figment = figment.merge(file);
        }
        figment = figment.merge(env);
        let config: RuntimeConfig =
            figment.extract().map_err(|error| problem::from_figment(&figment, error))?;
        check::shared(&config, &figment)?;
        Ok(config)
    }

    /// What only an engine needs; call it before starting one.
    pub fn check_engine(&self) -> Result<(), ConfigError> {
        check::engine(self)
    }

    /// What only a gateway needs; call it before starting one.
    pub fn check_gateway(&self) -> Result<(), ConfigError> {
        check::gateway(self)
    }
}

#[cfg(test)]
mod tests;
