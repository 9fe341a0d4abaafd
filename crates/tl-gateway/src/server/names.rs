//! From the name a client uses to the model that is served.

use std::collections::BTreeMap;

use tl_api::config::{Route, Target};

/// The configured routes. A name without one is its own model.
#[derive(Debug, Default)]
pub(crate) struct Names {
    routes: BTreeMap<String, Served>,
    table: Vec<Route>,
    epoch: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) model: String,
    /// Empty: the default order.
    pub(crate) targets: Vec<Target>,
    /// A route names it, so it is known even when nobody serves it now.
    pub(crate) configured: bool,
}

impl Names {
    pub(crate) fn new(routes: &[Route]) -> Names {
        let mut names = Names { table: routes.to_vec(), ..Names::default() };
        for route in routes {
            let served = Served {
                model: route.model.clone(),
                targets: route.targets.clone(),
                configured: true,
            };
            for name in std::iter::once(&route.model).chain(&route.aliases) {
                names.routes.insert(name.clone(), served.clone());
            }
        }
        names
    }

    pub(crate) fn resolve(&self, name: &str) -> Served {
        self.routes.get(name).cloned().unwrap_or_else(|| Served {
            model: name.to_owned(),
            targets: Vec::new(),
            configured: false,
        })
    }

    /// As the follower of a table of that epoch.
    pub(crate) fn after(self, epoch: u64) -> Names {
        Names { epoch: epoch + 1, ..self }
    }

    /// Grows with each table.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn table(&self) -> &[Route] {
        &self.table
    }

    /// Models that routes name.
    pub(crate) fn models(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|route| route.model.as_str())
    }
}
