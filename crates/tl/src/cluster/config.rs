//! The configuration file of each part, as a person would write it.

use toml::{Table, Value};

use super::addrs::Addrs;
use super::{ClusterSpec, Role};

/// A free port on loopback.
const ANY: &str = "127.0.0.1:0";

/// Runs of the gateway under `tl up`: everything on loopback but the API, debug answers on.
pub(super) fn gateway(spec: &ClusterSpec) -> Table {
    let mut section = Table::new();
    section.insert("listen".into(), host_port(&spec.host, spec.port).into());
    section.insert("health_listen".into(), ANY.into());
    section.insert("registry_listen".into(), ANY.into());
    section.insert("debug".into(), true.into());
    Table::from_iter([("gateway".to_owned(), Value::Table(section))])
}

/// `registry` is the gateway's; a reference engine has none and takes no part in the cluster.
pub(super) fn engine(
    spec: &ClusterSpec,
    role: Role,
    registry: Option<&str>,
    threads: usize,
) -> Table {
    let mut section = Table::new();
    section.insert("role".into(), role.name().into());
    section.insert("model_dir".into(), spec.model.clone().into());
    for key in ["http_listen", "health_listen", "grpc_listen", "kv_listen"] {
        section.insert(key.into(), ANY.into());
    }
    section.insert("gateway_registry".into(), registry.unwrap_or("").into());
    section.insert("kv_blocks".into(), i64::from(spec.kv_blocks).into());
    section.insert("prefill_chunk".into(), 0.into());
    section.insert("threads".into(), i64::try_from(threads).unwrap_or(1).into());
    Table::from_iter([("engine".to_owned(), Value::Table(section))])
}

/// Writes the addresses a part got into its configuration, so that a restart takes the same ones.
pub(super) fn pin(config: &mut Table, addrs: &Addrs) {
    let Addrs { http, health, grpc, kv, registry } = addrs;
    for (name, section) in config.iter_mut() {
        let Value::Table(section) = section else { continue };
        let mut set = |key: &str, address: Option<&String>| {
            if let Some(address) = address {
                section.insert(key.to_owned(), address.clone().into());
            }
        };
        set(if name == "gateway" { "listen" } else { "http_listen" }, Some(http));
        set("health_listen", Some(health));
        set("grpc_listen", grpc.as_ref());
        set("kv_listen", kv.as_ref());
        set("registry_listen", registry.as_ref());
    }
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_takes_the_addresses_of_the_first_start() {
        let mut config = Table::from_iter([("engine".to_owned(), Value::Table(Table::new()))]);
        let addrs = Addrs {
            http: "127.0.0.1:1".into(),
            health: "127.0.0.1:2".into(),
            grpc: Some("127.0.0.1:3".into()),
            kv: Some("127.0.0.1:4".into()),
            registry: None,
        };
        pin(&mut config, &addrs);
        let section = config["engine"].as_table().unwrap();
        let got: Vec<_> = section.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap())).collect();
        let mut expect = vec![
            ("http_listen", "127.0.0.1:1"),
            ("health_listen", "127.0.0.1:2"),
            ("grpc_listen", "127.0.0.1:3"),
            ("kv_listen", "127.0.0.1:4"),
        ];
        expect.sort_unstable();
        let mut got = got;
        got.sort_unstable();
        assert_eq!(got, expect);
    }

    #[test]
    fn an_ipv6_host_is_bracketed() {
        assert_eq!(host_port("::1", 8080), "[::1]:8080");
        assert_eq!(host_port("127.0.0.1", 0), "127.0.0.1:0");
    }
}
