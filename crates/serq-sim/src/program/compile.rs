//! From the IR to instructions.

use serq_lang::ir::{
    Arrival, Bind, BlockId, CEvict, CExpr, CHold, CPreempt, CQueue, CRef, CRenew, CRun, CSegment,
    CServe, CStage, CStageKind, CStmt, CTell, Claim, Ctx, Fun, Program, RunMode,
};

use super::{
    ChoosePlan, ClaimPlan, Compiled, ContentPlan, HoldPlan, Op, PoolPlan, RenewPlan, RunPlan,
    SpillPlan, StepPlan, TellPlan, members,
};
use crate::expr::{Builder, Expr};
use crate::stage::Mode;
use crate::stage::coast;

/// Instructions and plans of a validated program; the second part is one plan per step stage.
pub(crate) fn compile(ir: &Program) -> (Compiled<'_>, Vec<Option<StepPlan>>, Vec<Option<Expr>>) {
    let mut c = Compiler {
        ir,
        b: Builder::new(&ir.tables),
        ops: Vec::new(),
        origin: Vec::new(),
        tracks: tracks(ir),
        holds: Vec::new(),
        runs: Vec::new(),
        chooses: Vec::new(),
        contents: Vec::new(),
        tells: Vec::new(),
        renews: Vec::new(),
    };
    let init = c.part(ir.init, Op::Return);
    let turn = c.part(ir.turn, Op::Return);
    let session = c.part(ir.session, Op::End);
    c.tie_bookings();
    let mut pools: Vec<_> = (0..ir.pools.len()).map(|i| c.pool(i)).collect();
    let mut steps: Vec<_> = (0..ir.stages.len()).map(|i| c.step(i)).collect();
    tie(ir, &mut pools, &mut steps);
    let capacities = ir
        .stages
        .iter()
        .map(|s| match &s.kind {
            CStageKind::Ps(capacity) => Some(c.b.expr(capacity)),
            _ => None,
        })
        .collect();
    let snapshots = ir.pools.iter().any(|p| {
        let keys: &[CExpr] = match &p.evict {
            CEvict::By(keys) => keys,
            CEvict::Lru => &[],
        };
        p.spill.is_some() || keys.iter().any(reads_attributes)
    });
    let gap = match &ir.arrival {
        Arrival::Renewal(gap) => Some(c.b.expr(gap)),
        _ => None,
    };
    let gauges = ir.gauges.iter().map(|g| c.b.expr(&g.value)).collect();
    let ahead = super::ahead::ahead(&c.ops, &c.runs);
    let compiled = Compiled {
        ir,
        code: c.b.code,
        ops: c.ops,
        origin: c.origin,
        holds: c.holds,
        coasts: coasts(ir) && pools.iter().all(|p| !p.live),
        contents: c.contents,
        tells: c.tells,
        renews: c.renews,
        minders: minders(ir),
        shares: ir.pools.iter().any(|p| p.shared),
        data_keys: data_keys(ir),
        runs: c.runs,
        chooses: c.chooses,
        pools,
        init,
        turn,
        session,
        slots: ir.slots,
        gap,
        gauges,
        flows: flow_stages(ir),
        pool_members: members(ir.pools.iter().map(|p| &p.name)),
        stage_members: members(ir.stages.iter().map(|s| &s.name)),
        snapshots,
        ahead,
    };
    (compiled, steps, capacities)
}

/// Whether iterations may be run many at a time at all.
fn coasts(ir: &Program) -> bool {
    let books = |s: &CStmt| matches!(s, CStmt::Book(_));
    let iterates = |s: &CStage| matches!(s.kind, CStageKind::Step(_));
    ir.stages.iter().any(iterates) && ir.gauges.is_empty() && !ir.blocks.iter().flatten().any(books)
}

/// Whether something asks for tokens under way (what prefills still need, samples, content), or
/// engines do more than compute.
fn tracks(ir: &Program) -> bool {
    let asks = |s: &CStmt| match s {
        CStmt::Renew(_) | CStmt::Tell(_) => true,
        CStmt::Hold(hold) => hold.lease_on.is_some(),
        CStmt::Run(r) => {
            r.mode == RunMode::Steps || r.then.is_some() || r.answers.is_some() || r.first.is_some()
        }
        _ => false,
    };
    let ahead = |k: &CStageKind| matches!(k, CStageKind::Step(s) if s.ahead || s.stops.is_some());
    let mut owed = false;
    ir.each_expr(&mut |_, e| {
        e.walk(&mut |e| owed |= matches!(e, CExpr::Call(Fun::Owed, _)));
    });
    owed || ir.pools.iter().any(|p| p.shared)
        || ir.stages.iter().any(|s| ahead(&s.kind))
        || ir.blocks.iter().flatten().any(asks)
}

/// Per pool: stages that some hold lets mind a lease of it.
fn minders(ir: &Program) -> Vec<Vec<u32>> {
    let mut minders = vec![Vec::new(); ir.pools.len()];
    for stmt in ir.blocks.iter().flatten() {
        let CStmt::Hold(CHold { lease: Some((pool, _)), lease_on: Some(stage), .. }) = stmt else {
            continue;
        };
        for list in &mut minders[pool.base..pool.base + pool.count] {
            list.extend((stage.base..stage.base + stage.count).map(|s| s as u32));
        }
    }
    for list in &mut minders {
        list.sort_unstable();
        list.dedup();
    }
    minders
}

fn data_keys(ir: &Program) -> Vec<u64> {
    let mut keys: Vec<u64> = match &ir.arrival {
        Arrival::Sessions(all) => all.iter().flat_map(|s| &s.content).map(|c| c.0).collect(),
        Arrival::Trace => ir.trace_content.iter().flatten().map(|c| c.0).collect(),
        _ => return Vec::new(),
    };
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// What pools and stages know of each other.
fn tie(ir: &Program, pools: &mut [PoolPlan], steps: &mut [Option<StepPlan>]) {
    for (i, pool) in ir.pools.iter().enumerate() {
        if let Some(Some(step)) = pool.admit_via.map(|stage| steps[stage].as_mut()) {
            step.queues.push(i as u32);
        }
        if let Some(spill) = &pool.spill {
            pools[spill.to].tier = true;
        }
    }
    for (i, step) in steps.iter().enumerate() {
        if let Some(memory) = step.as_ref().and_then(|s| s.memory) {
            pools[memory as usize].memory_of.push(i as u32);
            pools[memory as usize].integral |= step.as_ref().is_some_and(|s| s.integral);
        }
    }
}

/// Whether a pool is the memory of an engine that counts in whole numbers.
fn is_integral(ir: &Program, pool: usize) -> bool {
    ir.stages
        .iter()
        .any(|s| matches!(&s.kind, CStageKind::Step(s) if s.integral && s.memory == Some(pool)))
}

/// Whether a member of a family is shared.
fn is_shared(ir: &Program, r: &CRef) -> bool {
    ir.pools[r.base..r.base + r.count].iter().any(|p| p.shared)
}

/// Stages that some run goes over together with others.
fn flow_stages(ir: &Program) -> Vec<bool> {
    let mut flows = vec![false; ir.stages.len()];
    for stmt in ir.blocks.iter().flatten() {
        let CStmt::Run(run) = stmt else { continue };
        if run.also.is_empty() {
            continue;
        }
        for r in std::iter::once(&run.stage).chain(&run.also) {
            flows[r.base..r.base + r.count].fill(true);
        }
    }
    flows
}

fn reads_attributes(e: &CExpr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, CExpr::Attr(_)));
    found
}

struct Compiler<'p> {
    ir: &'p Program,
    b: Builder,
    ops: Vec<Op>,
    origin: Vec<(u32, u32)>,
    tracks: bool,
    holds: Vec<HoldPlan>,
    runs: Vec<RunPlan>,
    chooses: Vec<ChoosePlan>,
    contents: Vec<ContentPlan>,
    tells: Vec<TellPlan>,
    renews: Vec<RenewPlan>,
}

impl Compiler<'_> {
    fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    fn emit(&mut self, op: Op, at: (u32, u32)) -> usize {
        self.ops.push(op);
        self.origin.push(at);
        self.ops.len() - 1
    }

    fn part(&mut self, block: BlockId, last: Op) -> u32 {
        let start = self.here();
        self.block(block);
        self.emit(last, (block as u32, self.ir.blocks[block].len() as u32));
        start
    }

    fn block(&mut self, id: BlockId) {
        let ir = self.ir;
        for (i, stmt) in ir.blocks[id].iter().enumerate() {
            self.stmt(stmt, (id as u32, i as u32));
        }
    }

    fn stmt(&mut self, stmt: &CStmt, at: (u32, u32)) {
        let op = match stmt {
            CStmt::Turn => Op::Turn,
            CStmt::Set(slot, e) => Op::Set(*slot as u32, self.b.expr(e)),
            CStmt::Observe(k, e) => Op::Observe(*k as u32, self.b.expr(e)),
            CStmt::Grow(r, e) => Op::Grow(self.b.reference(r), self.b.expr(e)),
            CStmt::Load(r, e) => Op::Load(self.b.reference(r), self.b.expr(e)),
            CStmt::Drop(r) => Op::Drop(self.b.reference(r)),
            CStmt::Release(r) => Op::Release(self.b.reference(r)),
            CStmt::End => Op::End,
            CStmt::Choose { var, count, key } => {
                let plan = ChoosePlan {
                    var: *var as u32,
                    count: self.b.expr(count),
                    key: self.b.expr(key),
                };
                self.chooses.push(plan);
                Op::Choose(self.chooses.len() as u32 - 1)
            }
            CStmt::Run(run) => {
                let plan = self.run(run);
                self.runs.push(plan);
                Op::Run(self.runs.len() as u32 - 1)
            }
            CStmt::Hold(hold) => {
                self.hold(hold, at);
                return;
            }
            CStmt::While(guard, body) => {
                let start = self.here();
                let guard = self.b.expr(guard);
                let branch = self.emit(Op::Branch(guard, 0), at);
                self.block(*body);
                self.emit(Op::Jump(start), at);
                self.ops[branch] = Op::Branch(guard, self.here());
                return;
            }
            // By number until all holds are known.
            CStmt::Book(number) => Op::Book(*number as u32),
            CStmt::Content { add, parts } => {
                let part = |CSegment(key, len): &CSegment| (self.b.expr(key), self.b.expr(len));
                let parts = parts.iter().map(part).collect();
                self.contents.push(ContentPlan { add: *add, parts });
                Op::Content(self.contents.len() as u32 - 1)
            }
            CStmt::Tell(tell) => Op::Tell(self.telling(tell)),
            CStmt::Abandon(r) => Op::Abandon(self.b.reference(r)),
            CStmt::Renew(renew) => Op::Renew(self.renewing(renew)),
            CStmt::Until(deadline, body, other) => {
                self.until(deadline, *body, *other, at);
                return;
            }
            CStmt::Shield(body) => {
                self.emit(Op::Shield, at);
                self.block(*body);
                Op::FrameEnd
            }
            CStmt::Loop(body) => {
                let start = self.here();
                self.block(*body);
                Op::Jump(start)
            }
            CStmt::Branch(guard, then, other) => {
                self.branch(guard, *then, *other, at);
                return;
            }
        };
        self.emit(op, at);
    }

    fn branch(&mut self, guard: &CExpr, then: BlockId, other: BlockId, at: (u32, u32)) {
        let guard = self.b.expr(guard);
        let branch = self.emit(Op::Branch(guard, 0), at);
        self.block(then);
        if self.ir.blocks[other].is_empty() {
            self.ops[branch] = Op::Branch(guard, self.here());
            return;
        }
        let jump = self.emit(Op::Jump(0), at);
        self.ops[branch] = Op::Branch(guard, self.here());
        self.block(other);
        self.ops[jump] = Op::Jump(self.here());
    }

    fn claims(&mut self, claims: &[Claim]) -> Vec<ClaimPlan> {
        let plan = |c: &Claim| ClaimPlan {
            pool: self.b.reference(&c.0),
            units: self.b.expr(&c.1),
            reserve: c.2.as_ref().map(|r| self.b.expr(r)),
        };
        claims.iter().map(plan).collect()
    }

    fn until(&mut self, deadline: &CExpr, body: BlockId, other: BlockId, at: (u32, u32)) {
        let deadline = self.b.expr(deadline);
        let until = self.emit(Op::Until(deadline, 0), at);
        self.block(body);
        self.emit(Op::FrameEnd, at);
        let jump = self.emit(Op::Jump(0), at);
        self.ops[until] = Op::Until(deadline, self.here());
        self.block(other);
        self.ops[jump] = Op::Jump(self.here());
    }

    fn run(&mut self, run: &CRun) -> RunPlan {
        RunPlan {
            stage: self.b.reference(&run.stage),
            mode: match run.mode {
                RunMode::Plain => Mode::Plain,
                RunMode::Prefill => Mode::Prefill,
                RunMode::Decode => Mode::Decode,
                RunMode::Steps => Mode::Steps,
            },
            work: self.b.expr(&run.work),
            growing: run.growing.as_ref().map(|r| self.b.reference(r)),
            also: run.also.iter().map(|r| self.b.reference(r)).collect(),
            then: run.then.as_ref().map(|e| self.b.expr(e)),
            answers: run.answers.map(|slot| slot as u32),
            first: run.first.map(|slot| slot as u32),
            telling: run.telling.as_ref().map(|tell| self.telling(tell)),
        }
    }

    fn telling(&mut self, tell: &CTell) -> u32 {
        let plan = TellPlan {
            pool: self.b.reference(&tell.pool),
            on: tell.on.as_ref().map(|r| self.b.reference(r)),
            after: tell.after.as_ref().map(|e| self.b.expr(e)),
        };
        self.tells.push(plan);
        self.tells.len() as u32 - 1
    }

    fn renewing(&mut self, renew: &CRenew) -> u32 {
        let plan = RenewPlan {
            pool: self.b.reference(&renew.pool),
            time: self.b.expr(&renew.time),
            every: self.b.expr(&renew.every),
            from: self.b.reference(&renew.from),
            after: renew.after.as_ref().map(|e| self.b.expr(e)),
        };
        self.renews.push(plan);
        self.renews.len() as u32 - 1
    }

    /// Bookings name their hold by a number of the program; from here on by its plan.
    fn tie_bookings(&mut self) {
        for op in &mut self.ops {
            if let Op::Book(number) = op {
                let hold = self.holds.iter().position(|h| h.booked == Some(*number));
                // Validated: some hold has the number.
                *number = hold.unwrap_or(0) as u32;
            }
        }
    }

    fn hold(&mut self, hold: &CHold, at: (u32, u32)) {
        let claims = self.claims(&hold.pools);
        let plan = HoldPlan {
            claims,
            reuse: hold.reuse.as_ref().map(|e| self.b.expr(e)),
            cache: hold.cache.as_ref().map(|e| self.b.expr(e)),
            booked: hold.booked.map(|number| number as u32),
            when: hold.when.as_ref().map(|e| self.b.expr(e)),
            lease_on: hold.lease_on.as_ref().map(|r| self.b.reference(r)),
            shares: hold.pools.iter().any(|c| is_shared(self.ir, &c.0)),
            end: 0,
            integral: hold
                .pools
                .iter()
                .any(|c| (c.0.base..c.0.base + c.0.count).any(|p| is_integral(self.ir, p))),
            binds: hold.binds.iter().map(|Bind(slot, e)| (*slot as u32, self.b.expr(e))).collect(),
            lease: hold.lease.as_ref().and_then(|(r, time)| {
                let claim = hold.pools.iter().position(|c| c.0 == *r)?;
                Some((claim as u32, self.b.expr(time)))
            }),
            // What is found in a shared pool changes with every block that somebody completes.
            frozen: !self.ir.pools.iter().any(|p| p.shared)
                && hold
                    .pools
                    .iter()
                    .all(|c| coast::is_frozen(&c.1) && c.2.as_ref().is_none_or(coast::is_frozen)),
        };
        self.holds.push(plan);
        let number = self.holds.len() - 1;
        self.emit(Op::Hold(number as u32), at);
        self.block(hold.body);
        self.holds[number].end = self.here();
        self.emit(Op::HoldEnd, at);
    }

    fn pool(&mut self, i: usize) -> PoolPlan {
        let ir = self.ir;
        let pool = &ir.pools[i];
        let (victims, requeue) = match &pool.preempt {
            CPreempt::By { keys, requeue } => {
                (keys.iter().map(|k| self.b.judging(k)).collect(), Some(self.b.judging(requeue)))
            }
            CPreempt::None | CPreempt::Lifo => (Vec::new(), None),
        };
        let evict = match &pool.evict {
            CEvict::Lru => Vec::new(),
            CEvict::By(keys) => keys.iter().map(|k| self.b.expr(k)).collect(),
        };
        PoolPlan {
            lru: evict.is_empty(),
            evict,
            lifo: pool.preempt != CPreempt::None,
            victims,
            requeue,
            queue: pool.queue.iter().flat_map(|q| q.keys()).map(|k| self.b.expr(k)).collect(),
            live: pool.queue.as_ref().is_some_and(CQueue::is_live),
            spill: pool.spill.as_ref().map(|s| SpillPlan {
                to: s.to as u32,
                via: s.via as u32,
                work: self.b.expr(&s.work),
                when: self.b.expr(&s.when),
            }),
            admit_via: pool.admit_via.map(|s| s as u32),
            memory_of: Vec::new(),
            integral: false,
            tier: false,
        }
    }

    fn step(&mut self, i: usize) -> Option<StepPlan> {
        let ir = self.ir;
        let CStageKind::Step(step) = &ir.stages[i].kind else { return None };
        let keys: &[CExpr] = match &step.serve {
            CServe::By(keys) => keys,
            CServe::ExclusivePrefill | CServe::PrefillAlone => &[],
        };
        Some(StepPlan {
            budget: self.b.expr(&step.budget),
            cost: self.b.expr(&step.cost),
            chunk: self.b.expr(&step.chunk),
            serve: keys.iter().map(|k| self.b.judging(k)).collect(),
            steady_keys: keys.iter().all(is_steady),
            coasting: coast::Coasting::of(step, self.tracks),
            exclusive: step.serve == CServe::ExclusivePrefill,
            alone: step.serve == CServe::PrefillAlone,
            integral: step.integral,
            ahead: step.ahead,
            fenced: step.fenced,
            stops: step.stops.unwrap_or(f64::INFINITY),
            tracks: self.tracks,
            memory: step.memory.map(|p| p as u32),
            queues: Vec::new(),
        })
    }
}

/// Whether a serving key cannot change while one iteration is put together: it reads the
/// resident, the snapshot taken at the start and the clock, but no pool or stage.
fn is_steady(key: &CExpr) -> bool {
    let mut steady = true;
    key.walk(&mut |e| match e {
        CExpr::Call(fun, _) => steady &= fun.is_arithmetic(),
        CExpr::Ctx(var) => debug_assert!(!matches!(var, Ctx::Ntok | Ctx::Npre | Ctx::Attn)),
        _ => {}
    });
    steady
}
