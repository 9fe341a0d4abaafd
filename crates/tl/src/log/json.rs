//! One JSON object a line, with the keys that the contract names: `ts`, `level`, `msg`, `service`,
//! and in lines about a request `request_id`, `trace_id` and `span_id`. An event's other fields, and
//! those of the spans around it, stand beside them.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

#[derive(Debug)]
pub(crate) struct JsonLines {
    pub(crate) service: &'static str,
}

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let mut ts = String::new();
        SystemTime.format_time(&mut Writer::new(&mut ts))?;
        line.insert("ts".into(), ts.into());
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        line.insert("level".into(), level.into());
        line.insert("msg".into(), Value::Null);
        line.insert("service".into(), self.service.into());
        line.insert("target".into(), event.metadata().target().into());
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let Some(fields) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            if let Ok(Value::Object(fields)) = serde_json::from_str(fields) {
                for (key, value) in fields {
                    put(&mut line, key, value);
                }
            }
        }
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// A field never takes the place of the line's own keys.
fn put(line: &mut Map<String, Value>, key: String, value: Value) {
    let own = ["ts", "level", "msg", "service", "target"].contains(&key.as_str());
    line.insert(if own { format!("field_{key}") } else { key }, value);
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.0.insert("msg".into(), value);
        } else {
            put(self.0, field.name().to_owned(), value);
        }
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_the_contracts_keys_and_the_fields_of_its_spans() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines { service: "tl-engine" })
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let _request =
                tracing::info_span!("request", request_id = "r-1", trace_id = "ab").entered();
            let _choice = tracing::info_span!("choice", index = 3_u32).entered();
            tracing::warn!(blocks = 7_u64, ts = "mine", full = true, why = %"a \"b\"", "no room");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        let ts = line["ts"].take();
        assert!(ts.as_str().unwrap().ends_with('Z'), "{ts}");
        line["target"].take();
        assert_eq!(
            line,
            serde_json::json!({
                "ts": null, "target": null, "level": "warn", "msg": "no room",
                "service": "tl-engine", "request_id": "r-1", "trace_id": "ab", "index": 3,
                "blocks": 7, "field_ts": "mine", "full": true, "why": "a \"b\"",
            })
        );
    }
}
