//! Logs of a part: lines on standard error, human by default, JSON with `TL_LOG_FORMAT=json`.

use tracing_subscriber::EnvFilter;

use crate::cli::Command;

/// `TL_LOG` takes a filter such as `info` or `tl_gateway=debug`; servers say `info` by default, the
/// commands around them only warnings.
pub(crate) fn init(command: &Command) {
    let default = match command {
        Command::Engine(_) | Command::Gateway(_) => "info",
        _ => "warn",
    };
    let filter = EnvFilter::try_from_env("TL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::env::var("TL_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().init();
    } else {
        builder.with_ansi(false).with_target(false).init();
    }
}
