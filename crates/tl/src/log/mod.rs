//! Logs of a part: lines on standard error, human by default, JSON with `TL_LOG_FORMAT=json`.

mod json;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::JsonFields;

use crate::cli::Command;
use json::JsonLines;

/// `TL_LOG` takes a filter such as `info` or `tl_gateway=debug`; servers say `info` by default, the
/// commands around them only warnings. With `debug` every request leaves lines in each process it
/// passes, under one `request_id` and one `trace_id`.
pub(crate) fn init(command: &Command) {
    let (service, default) = match command {
        Command::Engine(_) => ("tl-engine", "info"),
        Command::Gateway(_) => ("tl-gateway", "info"),
        _ => ("tl", "warn"),
    };
    let filter = EnvFilter::try_from_env("TL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::env::var("TL_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.fmt_fields(JsonFields::new()).event_format(JsonLines { service }).init();
    } else {
        builder.with_ansi(false).with_target(false).init();
    }
}
