//! From the choices' reports to the bytes a client gets, whole or as a stream.
//!
//! Everything that counts for a request (load, in-flight gauges, the meter) is owned by the
//! body, so it ends when the last byte has left or the client has gone, never before.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use hyper::body::{Body, Frame, SizeHint};
use tl_api::error::ApiError;
use tl_api::openai::{Choice, ChunkPart, Delta, FinishReason, Head, Kind, TokenLogprob, Usage};
use tl_api::sse;
use tokio::sync::mpsc;

use super::handover::{Out, RouteInfo};
use super::meter::Meter;
use super::shared::Load;

/// A comment after so much silence keeps proxies from closing the stream.
const PING_AFTER: Duration = Duration::from_secs(15);

pub(crate) type Reports = mpsc::Receiver<(u32, Out)>;

/// What of an answer came before its head was written.
pub(crate) enum Begun {
    /// The first report that commits to an answer.
    With {
        route: Vec<(u32, RouteInfo)>,
        first: (u32, Out),
    },
    Failed(ApiError),
}

/// Waits until the answer has begun or is known not to.
pub(crate) async fn begin(reports: &mut Reports) -> Begun {
    let mut route = Vec::new();
    loop {
        match reports.recv().await {
            Some((index, Out::Routed(info))) => {
                route.retain(|(i, _)| *i != index);
                route.push((index, info));
            }
            Some((_, Out::Failed(error))) => return Begun::Failed(error),
            Some((_, Out::Restart)) => {}
            Some(first @ (_, Out::Part(_) | Out::Done { .. })) => {
                return Begun::With { route, first };
            }
            None => return Begun::Failed(broken()),
        }
    }
}

fn broken() -> ApiError {
    ApiError::internal("the answer ended without an outcome")
}

/// Adds the choices' counts: the prompt is one, and choice 0 speaks for it.
fn add(total: &mut Usage, index: u32, usage: Usage) {
    if index == 0 {
        total.prompt_tokens = usage.prompt_tokens;
        total.cached_tokens = usage.cached_tokens;
    }
    total.completion_tokens += usage.completion_tokens;
}

#[derive(Default)]
struct Collected {
    text: String,
    logprobs: Option<Vec<TokenLogprob>>,
    finish: Option<FinishReason>,
}

impl Collected {
    fn add(&mut self, part: ChunkPart) {
        self.text.push_str(&part.text);
        if let Some(entries) = part.logprobs {
            self.logprobs.get_or_insert_default().extend(entries);
        }
        self.finish = part.finish.or(self.finish);
    }
}

/// A whole answer, once all choices are done.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Usage,
    pub(crate) loads: Vec<Load>,
    pub(crate) route: Vec<(u32, RouteInfo)>,
}

/// Collects every choice. The first failure fails the answer.
pub(crate) async fn whole(
    reports: &mut Reports,
    n: u32,
    wants_logprobs: bool,
    meter: &mut Meter,
) -> Result<Whole, ApiError> {
    let mut parts: Vec<Collected> = (0..n).map(|_| Collected::default()).collect();
    let mut whole = Whole::default();
    let mut done = 0;
    while done < n {
        let Some((index, out)) = reports.recv().await else { return Err(broken()) };
        let Some(choice) = parts.get_mut(index as usize) else { continue };
        match out {
            Out::Routed(info) => {
                whole.route.retain(|(i, _)| *i != index);
                whole.route.push((index, info));
            }
            Out::Part(part) => {
                meter.first_output();
                choice.add(part);
            }
            Out::Restart => *choice = Collected::default(),
            Out::Done { usage, load } => {
                add(&mut whole.usage, index, usage);
                whole.loads.extend(load);
                done += 1;
            }
            Out::Failed(error) => return Err(error),
        }
    }
    for (index, collected) in (0..).zip(parts) {
        whole.choices.push(Choice {
            index,
            text: collected.text,
            logprobs: collected.logprobs.or_else(|| wants_logprobs.then(Vec::new)),
            finish: collected.finish.ok_or_else(broken)?,
        });
    }
    Ok(whole)
}

/// One answer's bytes and everything that ends with them.
pub(crate) struct WholeBody {
    bytes: Option<Bytes>,
    meter: Meter,
    _loads: Vec<Load>,
}

impl WholeBody {
    pub(crate) fn new(bytes: Vec<u8>, meter: Meter, loads: Vec<Load>) -> WholeBody {
        WholeBody { bytes: Some(bytes.into()), meter, _loads: loads }
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take();
        if bytes.is_some() {
            self.meter.complete();
        }
        Poll::Ready(bytes.map(|b| Ok(Frame::data(b))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}

#[derive(Default, Clone)]
struct ChoiceState {
    opened: bool,
    done: bool,
}

/// What a streamed answer is made of.
pub(crate) struct Streamed {
    pub(crate) head: Head,
    pub(crate) reports: Reports,
    pub(crate) n: u32,
    pub(crate) include_usage: bool,
    pub(crate) debug: bool,
    pub(crate) meter: Meter,
}

struct Events {
    from: Streamed,
    choices: Vec<ChoiceState>,
    usage: Usage,
    loads: Vec<Load>,
    pending: Option<(u32, Out)>,
    over: bool,
}

/// The events of an answer. Dropping the stream tells every driver that the client has gone.
pub(crate) fn events(
    from: Streamed,
    first: (u32, Out),
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let events = Events {
        choices: vec![ChoiceState::default(); from.n as usize],
        from,
        usage: Usage::default(),
        loads: Vec::new(),
        pending: Some(first),
        over: false,
    };
    futures::stream::unfold(events, |mut events| async move {
        let bytes = events.next().await?;
        Some((Ok(bytes), events))
    })
}

impl Events {
    async fn next(&mut self) -> Option<Bytes> {
        let mut bytes = Vec::new();
        while bytes.is_empty() {
            if self.over {
                return None;
            }
            match self.pending.take() {
                Some((index, out)) => self.write(index, out, &mut bytes),
                None => match tokio::time::timeout(PING_AFTER, self.from.reports.recv()).await {
                    Ok(Some((index, out))) => self.write(index, out, &mut bytes),
                    Ok(None) => self.fail(&broken(), &mut bytes),
                    Err(_) => bytes.extend_from_slice(sse::PING),
                },
            }
        }
        // What is ready leaves together.
        while !self.over && bytes.len() < 16 << 10 {
            let Ok((index, out)) = self.from.reports.try_recv() else { break };
            self.write(index, out, &mut bytes);
        }
        Some(bytes.into())
    }

    fn write(&mut self, index: u32, out: Out, bytes: &mut Vec<u8>) {
        let Some(choice) = self.choices.get_mut(index as usize) else { return };
        match out {
            Out::Part(part) => {
                self.from.meter.first_output();
                let opened = std::mem::replace(&mut choice.opened, true);
                if !opened && self.from.head.kind() == Kind::Chat {
                    let opening = Delta { index, opens: true, ..Delta::default() };
                    bytes.extend(sse::event(&self.from.head.chunk(&opening)));
                }
                let delta = Delta {
                    index,
                    opens: false,
                    text: part.text,
                    logprobs: part.logprobs,
                    finish: part.finish,
                };
                bytes.extend(sse::event(&self.from.head.chunk(&delta)));
            }
            Out::Routed(info) if self.from.debug => {
                let prefill = info.prefill.as_deref().unwrap_or("none");
                let text = format!("tl choice={index} prefill={prefill} decode={}", info.decode);
                bytes.extend(sse::comment(&text));
            }
            Out::Routed(_) => {}
            // Nothing that has left is taken back; a driver whose answer streams never asks.
            Out::Restart => self.fail(&broken(), bytes),
            Out::Done { usage, load } => {
                choice.done = true;
                add(&mut self.usage, index, usage);
                self.loads.extend(load);
                if self.choices.iter().all(|c| c.done) {
                    if self.from.include_usage {
                        bytes.extend(sse::event(&self.from.head.usage_chunk(self.usage)));
                    }
                    bytes.extend_from_slice(sse::DONE);
                    self.from.meter.usage(self.usage);
                    self.from.meter.complete();
                    self.over = true;
                }
            }
            Out::Failed(error) => self.fail(&error, bytes),
        }
    }

    /// One error event and no `[DONE]`; the other choices are told by the closed channel.
    fn fail(&mut self, error: &ApiError, bytes: &mut Vec<u8>) {
        bytes.extend(sse::event(&error.body()));
        self.from.meter.failed(error);
        self.from.reports.close();
        self.over = true;
    }
}
