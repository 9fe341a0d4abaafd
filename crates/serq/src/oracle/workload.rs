//! A scenario as a program's settings and sessions.
//!
//! A program that stands for schedulers says which engines it has (stages named C, or P and D, each with a
//! `memory`), and what can be set: constants by name (`C.blocks`) and attributes of a request
//! (`prompt`). What it lacks must be at vLLM's default in the scenario; anything else would be another
//! scenario, and is refused.

use serq_lang::ir::{Arrival, CSession, CStageKind, Content, Preset, Program};
use thiserror::Error;

use super::read::Trace;
use super::run::Side;
use super::scenario::{Engine, Mode, OnFailure, Policy, Request, Scenario};

/// Why a program cannot be run on a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    #[error("{trace}: the scenario sets {name} to {value}, and the program has no `let {name}`")]
    Setting { trace: String, name: String, value: String },
    #[error(
        "{trace}: request {id} has {name} = {value}, and no `set` of the program assigns `{name}`"
    )]
    Attribute { trace: String, id: String, name: String, value: String },
    #[error(
        "{trace}: the scenario has an engine {side}, and the program no step stage of that name with a memory"
    )]
    Engine { trace: String, side: Side },
    #[error("{trace}: the program has a stage {side}, an engine that the scenario has not")]
    Foreign { trace: String, side: Side },
    #[error("{trace}: hand-shakes that take steps are not in any program")]
    Handshake { trace: String },
}

/// A constant's name, the scenario's value, and vLLM's default.
struct Setting {
    name: String,
    value: f64,
    default: f64,
}

/// The program's engines: stage and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) side: Side,
    pub(super) stage: usize,
    pub(super) pool: usize,
    /// Units in a block.
    pub(super) block: u64,
}

/// The overrides that make a program with these constants the scenario's: `name=value`.
///
/// Errors: a setting that differs from vLLM's default and that the program does not have.
pub fn settings(trace: &Trace, constants: &[String]) -> Result<Vec<String>, Unfit> {
    let scenario = &trace.scenario;
    if scenario.engines.values().any(|e| e.handshake_steps > 0) {
        return Err(Unfit::Handshake { trace: trace.name.clone() });
    }
    let mut sets = Vec::new();
    for Setting { name, value, default } in wanted(scenario) {
        if constants.contains(&name) {
            sets.push(format!("{name}={value}"));
        } else if value != default {
            let (trace, value) = (trace.name.clone(), value.to_string());
            return Err(Unfit::Setting { trace, name, value });
        }
    }
    Ok(sets)
}

fn wanted(scenario: &Scenario) -> Vec<Setting> {
    let flag = |on: bool| f64::from(u8::from(on));
    let mut all = Vec::new();
    let mut add = |name: &str, value: f64, default: f64| {
        all.push(Setting { name: name.to_owned(), value, default });
    };
    add("tick", scenario.tick_seconds, 1.0);
    if scenario.mode != Mode::Colocated {
        add("router_delay", scenario.router_delay as f64, 1.0);
        add("notif_delay", scenario.notification_delay as f64, 0.0);
        add("concurrent", flag(scenario.concurrent), 0.0);
    }
    for (side, engine) in &scenario.engines {
        let Engine { blocks, block, budget, slots, long_prefill, watermark, lease, .. } = *engine;
        let mut add = |name: &str, value: f64, default: f64| {
            add(&format!("{side}.{name}"), value, default);
        };
        add("budget", budget as f64, 64.0);
        add("seqs", slots as f64, 8.0);
        add("blocks", blocks as f64 + 1.0, 64.0);
        add("bs", f64::from(block), 4.0);
        add("caching", flag(engine.prefix_caching), 1.0);
        add("threshold", long_prefill as f64, 0.0);
        add("whole", flag(engine.whole_prompt), 1.0);
        add("watermark", watermark, 0.0);
        add("policy", flag(engine.policy == Policy::Priority), 0.0);
        add("async", flag(engine.asynchronous), 0.0);
        if scenario.mode != Mode::Colocated {
            add("lease", lease, 30.0);
        }
        if *side == Side::D {
            add("recompute", flag(engine.on_failure == OnFailure::Recompute), 0.0);
            let stops = scenario.crash.map_or(f64::INFINITY, |t| t as f64 * scenario.tick_seconds);
            add("stops", stops, f64::INFINITY);
        }
    }
    all
}

/// Gives a program the scenario's requests, a session each, and the trace's length.
///
/// Requests of one tick come in this order: those that stay on the decode engine, then the others,
/// each as the scenario lists them. Errors: an attribute or an engine that is missing.
pub(super) fn prepare(
    trace: &Trace,
    mut program: Program,
) -> Result<(Program, Vec<String>), Unfit> {
    let scenario = &trace.scenario;
    let mut order: Vec<&Request> = scenario.requests.iter().collect();
    order.sort_by_key(|r| (r.arrive, !r.local));
    let mut ranks: Vec<&str> = scenario.requests.iter().map(|r| r.id.as_str()).collect();
    ranks.sort_unstable();
    let mut sessions = Vec::with_capacity(order.len());
    for request in &order {
        let rank = ranks.binary_search(&request.id.as_str()).unwrap_or(0);
        sessions.push(session(trace, &program, request, rank)?);
    }
    program.arrival = Arrival::Sessions(sessions);
    (program.limit, program.trace) = (None, None);
    program.trace_times.clear();
    program.trace_content.clear();
    program.warmup = 0.0;
    program.horizon = trace.ticks.max(1) as f64 * scenario.tick_seconds;
    program.version = serq_lang::ir::version_needed(&program);
    Ok((program, order.iter().map(|r| r.id.clone()).collect()))
}

fn session(
    trace: &Trace,
    program: &Program,
    request: &Request,
    rank: usize,
) -> Result<CSession, Unfit> {
    let scenario = &trace.scenario;
    let tick = scenario.tick_seconds;
    let flag = |on: bool| f64::from(u8::from(on));
    // A dead engine hears nothing.
    let hears = |side: Side, t: u64| side != Side::D || scenario.crash.is_none_or(|dies| t < dies);
    let leaves = |side: Side| {
        let at = request.aborts.get(&side).filter(|t| hears(side, **t));
        at.map_or(f64::INFINITY, |t| *t as f64 * tick)
    };
    // The engine that moves the prompt counts the steps.
    let mover = if scenario.mode == Mode::Push { Side::P } else { Side::D };
    let default = scenario.engines.get(&mover).map_or(0, |e| e.transfer_steps);
    let steps = request.transfer_steps.unwrap_or(default);
    // A leg that is sent at once, or to one engine only, is not lost on its way to the other.
    let dropped = request.dropped && !request.local && !scenario.concurrent;
    let moves = scenario.mode != Mode::Colocated && !request.local;
    // Name, value, and the value with which the attribute may be missing.
    let attributes = [
        ("prompt", request.prompt.len() as f64, f64::NAN),
        ("o", request.out as f64, f64::NAN),
        ("priority", request.priority as f64, 0.0),
        ("born", request.arrive as f64 * tick, request.arrive as f64 * tick),
        ("rank", rank as f64, rank as f64),
        ("local", flag(request.local), 0.0),
        ("steps", steps as f64, if moves { f64::NAN } else { steps as f64 }),
        ("fails", flag(request.transfer_fails), 0.0),
        ("dropped", flag(dropped), 0.0),
        ("leaves", leaves(Side::C), f64::INFINITY),
        ("leavesP", leaves(Side::P), f64::INFINITY),
        ("leavesD", leaves(Side::D), f64::INFINITY),
    ];
    let mut attrs = Vec::new();
    for (name, value, without) in attributes {
        match program.attrs.iter().position(|a| a == name) {
            Some(slot) => attrs.push(Preset(slot, value)),
            None if value == without => {}
            None => {
                return Err(Unfit::Attribute {
                    trace: trace.name.clone(),
                    id: request.id.clone(),
                    name: name.to_owned(),
                    value: value.to_string(),
                });
            }
        }
    }
    let prompt = request.prompt.segments().iter().map(|s| Content(s.key, s.len as f64));
    let answer = Content(request.answer_key, f64::INFINITY);
    Ok(CSession {
        attrs,
        at: request.arrive as f64 * tick,
        content: prompt.chain([answer]).collect(),
        ..CSession::default()
    })
}

/// Checks that a program has the scenario's engines, and no other.
pub fn engines(trace: &Trace, program: &Program) -> Result<(), Unfit> {
    places(trace, program).map(drop)
}

/// Where the scenario's engines are in the program.
pub(super) fn places(trace: &Trace, program: &Program) -> Result<Vec<Place>, Unfit> {
    let mut places = Vec::new();
    for side in Side::ALL {
        let name = side.to_string();
        let stage = program.stages.iter().position(|s| s.name == name);
        let name = || trace.name.clone();
        let wanted = trace.scenario.engines.get(&side);
        let (stage, engine) = match (stage, wanted) {
            (Some(stage), Some(engine)) => (stage, engine),
            (None, None) => continue,
            (Some(_), None) => return Err(Unfit::Foreign { trace: name(), side }),
            (None, Some(_)) => return Err(Unfit::Engine { trace: name(), side }),
        };
        let memory = match &program.stages[stage].kind {
            CStageKind::Step(step) => step.memory,
            _ => None,
        };
        let pool = memory.ok_or_else(|| Unfit::Engine { trace: name(), side })?;
        places.push(Place { side, stage, pool, block: u64::from(engine.block) });
    }
    Ok(places)
}
