"""M/M/1 (arrivals 0.8, services 1 per second) in peers; ratios to what serq printed.

An event is an arrival or an end of service, counted alike for all: two per customer. Each figure is
the best of five runs, in CPU time of this process.
"""

import random
import re
import sys
import time

import ciw
import pyserq
import simpy

RATE = 0.8


def pyserq_mm1(horizon):
    deployment = """fn main() {
      stage s : fifo (1);
      server { set sent = now; run s (cost(s, ~exp(1))); observe sojourn = now - sent; }
    }"""
    workload = f"workload {{ arrive poisson({RATE}); session {{ turn; }} }}"
    program = pyserq.compile(source=deployment, workload_source=workload, horizon=horizon)
    start = time.process_time()
    report = pyserq.run(program)
    seconds = time.process_time() - start
    sojourn = re.search(r'"count":(\d+),"mean":([\d.]+)', report.json())
    return int(sojourn[1]), float(sojourn[2]), seconds


def simpy_mm1(horizon):
    rng = random.Random(1)
    env = simpy.Environment()
    server = simpy.Resource(env, capacity=1)
    sojourns = []

    def customer():
        came = env.now
        with server.request() as turn:
            yield turn
            yield env.timeout(rng.expovariate(1.0))
        sojourns.append(env.now - came)

    def source():
        while True:
            yield env.timeout(rng.expovariate(RATE))
            env.process(customer())

    env.process(source())
    start = time.process_time()
    env.run(until=horizon)
    seconds = time.process_time() - start
    return len(sojourns), sum(sojourns) / len(sojourns), seconds


def ciw_mm1(horizon):
    ciw.seed(1)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=RATE)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[1],
    )
    simulation = ciw.Simulation(network)
    start = time.process_time()
    simulation.simulate_until_max_time(horizon)
    seconds = time.process_time() - start
    records = simulation.get_all_records()
    sojourns = [r.exit_date - r.arrival_date for r in records]
    return len(sojourns), sum(sojourns) / len(sojourns), seconds


def main():
    with open(sys.argv[1], encoding="utf-8") as printed:
        serq = float(re.search(r"serq\s+([\d.]+) million", printed.read())[1]) * 1e6
    for name, run, horizon in [
        ("pyserq", pyserq_mm1, 2e6),
        ("SimPy", simpy_mm1, 1e5),
        ("Ciw", ciw_mm1, 2e4),
    ]:
        best = 0.0
        for _ in range(5):
            count, mean, seconds = run(horizon)
            best = max(best, 2 * count / seconds)
        print(f"  {name:7} {best / 1e6:6.3f} million events per CPU second, "
              f"1/{serq / best:.1f} of serq (mean sojourn {mean:.3f})")


if __name__ == "__main__":
    main()
