//! What was decided about recent requests, for `GET /debug/why/{request_id}`.
//!
//! Kept only with `[gateway].debug`, in a ring of bounded length whose entries are bounded
//! too. No text of a prompt or an answer is in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::shared::now;

const KEPT: usize = 512;
const MAX_NOTES: usize = 128;

#[derive(Debug)]
pub(crate) struct Stories {
    enabled: bool,
    recent: Mutex<VecDeque<Arc<Story>>>,
}

#[derive(Debug)]
pub(crate) struct Story {
    request_id: String,
    begun: Instant,
    /// `None`: nothing is kept.
    notes: Option<Mutex<Vec<Value>>>,
}

impl Stories {
    pub(crate) fn new(enabled: bool) -> Stories {
        Stories { enabled, recent: Mutex::new(VecDeque::new()) }
    }

    pub(crate) fn begin(&self, request_id: &str) -> Arc<Story> {
        let notes = self.enabled.then(|| Mutex::new(Vec::new()));
        let story = Arc::new(Story { request_id: request_id.to_owned(), begun: now(), notes });
        if self.enabled {
            let mut recent = self.recent.lock();
            if recent.len() >= KEPT {
                recent.pop_front();
            }
            recent.push_back(story.clone());
        }
        story
    }

    /// The latest request of that id.
    pub(crate) fn find(&self, request_id: &str) -> Option<Value> {
        let recent = self.recent.lock();
        let story = recent.iter().rev().find(|s| s.request_id == request_id)?;
        let notes = story.notes.as_ref().map(|n| n.lock().clone()).unwrap_or_default();
        Some(json!({"request_id": story.request_id, "notes": notes}))
    }
}

impl Story {
    /// Adds `note`, an object, with the time since the request began.
    pub(crate) fn note(&self, choice: u32, note: impl FnOnce() -> Value) {
        let Some(notes) = &self.notes else { return };
        let mut notes = notes.lock();
        if notes.len() >= MAX_NOTES {
            return;
        }
        let mut entry = note();
        let ms = now().saturating_duration_since(self.begun).as_secs_f64() * 1e3;
        if let Value::Object(map) = &mut entry {
            map.insert("choice".into(), json!(choice));
            map.insert("at_ms".into(), json!((ms * 1000.0).round() / 1000.0));
        }
        notes.push(entry);
    }
}
