#!/usr/bin/env python3
"""Sharding over two nodes with a slow cable between them: what each strategy sends across, what a step takes, and whether
that is what the schedule predicts. The nodes are namespaces of this machine, each with two ranks; the cable's bandwidth is set.

    python benchmarks/compare/nodes.py                                 # needs root; about 20 minutes
    python benchmarks/compare/nodes.py --mbit 100 --rounds 1 --steps 4 --only full_shard mics

The prediction takes two measurements: the seconds of the same step over a cable without a limit (which holds computation,
copies inside a node, and all that is not the cable's bandwidth), and the bandwidth that one TCP stream gets. All else comes
from `tessera plan`: the bytes that go across, by operation, and the order of the schedule's instructions. It is replayed
with the measured seconds shared out over forward and backward (1 : 2, by parameters in matrix products), and the cable as a
queue: what the schedule lets overlap does. It can be no less than the longer of both and no more than their sum.

Gloo adds a tensor over ranks whole where each rank needs its part only, so its reduce-scatter sends twice what a ring
needs. The prediction of seconds counts that in, since it happens; `planned` bytes are those of a ring, `sent` what the
kernel counted on the cable, headers included.

Wants an idle machine. Ranks have one thread each. Exit code 77: this machine cannot play two nodes.
"""

import argparse
import json
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import run
from two_nodes import ADDRESSES, CannotRun, TwoNodes

NODE_RANKS = 2
WORLD = 2 * NODE_RANKS
PORT = 29400
VARIANTS = {
    "full_shard": ["parallel.strategy=full_shard"],
    "full_shard, one level": ["parallel.strategy=full_shard", "parallel.hierarchical_gather=false"],
    "mics": ["parallel.strategy=mics", f"parallel.shard_degree={NODE_RANKS}"],
    "hybrid_shard_zero2": ["parallel.strategy=hybrid_shard_zero2", f"parallel.shard_degree={NODE_RANKS}"],
    "ddp": ["parallel.strategy=ddp"],
}
VERBS = ("all_gather", "reduce_scatter", "all_reduce")
GLOO_SENDS = {"all_gather": 1, "reduce_scatter": 2, "all_reduce": 1}  # of the bytes of a ring
RATIO_LIMIT = 0.15


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=Path, default=run.ROOT / "build" / "tessera")
    parser.add_argument("--mbit", type=float, nargs="+", default=[50, 100, 200], help="bandwidths of the cable, Mbit/s")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="NAME",
                        help="strategies: " + "; ".join(VARIANTS))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, default=1, help="sequences of 64 tokens of one rank in a step")
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps; the first two are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that one training may take")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="another setting for all")
    parser.add_argument("--out", type=Path, help="write everything as JSON here")
    arguments = parser.parse_args()
    if not arguments.tessera.exists():
        parser.error(f"Tessera is not at {arguments.tessera}. Run 'make build', or say where it is (--help).")
    if min(arguments.layers, arguments.rows, arguments.rounds) < 1 or arguments.steps < 4 or min(arguments.mbit) <= 0:
        parser.error("needs at least 1 layer, row and round, 4 steps, and bandwidths above 0")
    arguments.threads, arguments.device, arguments.python = 1, "cpu", sys.executable
    return arguments


def settings(arguments, folder):
    """Config and overrides of every variant."""
    config = folder / "nodes.yaml"
    config.write_text(f"model: {{preset: tiny, n_layer: {arguments.layers}, n_head: 4, n_embd: {arguments.width}, "
                      "n_positions: 64, dropout: 0}\ndata: {tokenizer: byte, block_size: 64, sampling: windows}\n"
                      "optim: {schedule: constant, lr: 1e-3}\n")
    # A bucket of a block's shard: the text-book's overlap of all-reduce and backward, which the default of 25 MiB would
    # leave out with a model this small.
    bucket = 12 * arguments.width**2 * 4 / NODE_RANKS / 2**20
    return [config, f"train.batch_size={arguments.rows}", f"train.global_batch_size={arguments.rows * WORLD}",
            f"train.max_steps={arguments.steps}", "train.eval_every=0", "checkpoint.every=0", "checkpoint.on_exit=false",
            "checkpoint.best=false", "log.every=1", "precision.compute=f32", "run.device=cpu", "run.threads=1",
            f"parallel.bucket_mb={bucket:.3f}", f"data.cache_dir={folder / 'cache'}", *arguments.set]


# --- what the schedule predicts ---------------------------------------------------------------------------------------


def plan(arguments, common, variant):
    """`tessera plan` of a variant: its JSON with the schedule's lines as (operation, name)."""
    command = [arguments.tessera, "plan", *common, *VARIANTS[variant], "--world-size", WORLD, "--ranks-per-node", NODE_RANKS]

    def output(*more):
        done = subprocess.run([str(word) for word in [*command, *more]], capture_output=True, text=True, timeout=120,
                              check=False)
        if done.returncode != 0:
            raise SystemExit(f"error: tessera plan failed: {done.stderr.strip()}")
        return done.stdout

    result = json.loads(output("--json"))
    lines = output("--schedule").split("\nschedule\n")[1].strip().splitlines()
    result["schedule"] = [re.fullmatch(r"(\w+) ?(.*?)(?: ?micro_batch \d+)?", line).groups() for line in lines]
    return result


def across(planned, verb):
    """Bytes that a node sends to the other in a step, of the best algorithm."""
    return planned["sent_bytes"][verb]["across_nodes"] * NODE_RANKS


class Replay:
    """A step's instructions on two lanes, computation and cable, in the order of the schedule."""

    def __init__(self, planned, local_seconds, bytes_per_second):
        self.schedule = planned["schedule"]
        self.elements = {unit["name"]: unit["parameters"] for unit in planned["units"]}
        # Looking up an embedding is nothing; the projection at the end multiplies by the same matrix.
        self.work = dict(self.elements, embedding=0, head=self.elements["head"] + self.elements["embedding"])
        self.forward = local_seconds / (3 * sum(self.work.values()))
        self.now = self.cable_free = 0.0
        self.gathered, self.reduced = {}, {}
        self.cable = {verb: GLOO_SENDS[verb] * across(planned, verb) / self.carried(verb) / bytes_per_second
                      for verb in VERBS}

    def carried(self, verb):
        """Elements that all instructions of a kind move; the cable's seconds are shared out by it."""
        operations = {"all_gather": ["Gather"], "reduce_scatter": ["ReduceScatter"], "all_reduce": ["Backward"]}[verb]
        return sum(self.elements[name] for operation, name in self.schedule if operation in operations) or 1

    def send(self, verb, elements):
        self.cable_free = max(self.cable_free, self.now) + self.cable[verb] * elements
        return self.cable_free

    def compute(self, name, times):
        self.now = max(self.now, self.gathered.get(name, 0)) + times * self.forward * self.work[name]

    def seconds(self):
        bucket, last_scatter = [], 0.0
        for operation, name in self.schedule:
            if operation == "Gather":
                self.gathered[name] = self.send("all_gather", self.elements[name])
            elif operation in ("Forward", "Recompute"):
                self.compute(name, 1)
            elif operation == "Backward":
                self.compute(name, 2)
                bucket.append(name)
            elif operation == "ReduceScatter":  # one at a time
                self.now = max(self.now, last_scatter)
                self.reduced[name] = last_scatter = self.send("reduce_scatter", self.elements[name])
            elif operation == "AllReduce":
                self.now = max([self.now, *(self.reduced.get(flat, 0) for flat in bucket)])
                self.send("all_reduce", sum(self.elements[flat] for flat in bucket))
                bucket = []
            elif operation in ("Agree", "Accumulate"):
                self.now = max(self.now, self.cable_free)
            elif operation not in ("Free", "ClipAndStep"):
                raise SystemExit(f"error: the prediction knows no instruction {operation}; leave that setting out")
        return self.now


# --- what happens -----------------------------------------------------------------------------------------------------


def train(nodes, arguments, common, variant, folder):
    """One training on both nodes: seconds of a step, bytes that a node sends in one, the last loss."""
    command = [arguments.tessera, "launch", "--nnodes", 2, "--nproc-per-node", NODE_RANKS, "--rdzv-endpoint",
               f"{ADDRESSES[0]}:{PORT}", "--local-addr"]
    job = ["--", "train", *common, *VARIANTS[variant], f"run.dir={folder / 'run'}", "--fresh", "--json", "-q"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", TESSERA_JOB_SECRET=secrets.token_hex(16))
    events, counts, begin = [], [], time.monotonic()
    with tempfile.TemporaryFile("w+") as messages:
        other = nodes.start(1, [*command, ADDRESSES[1], *job], stdout=messages, stderr=messages, env=environment)
        first = nodes.start(0, [*command, ADDRESSES[0], *job], stdout=subprocess.PIPE, stderr=messages, env=environment,
                            text=True)
        alarm = threading.Timer(arguments.timeout, nodes.kill_all)
        alarm.start()
        try:
            for line in first.stdout:
                event = run.parse_event(line, ["tessera", "train"])
                if event["event"] == "step":
                    counts.append(nodes.sent_bytes())
                events.append(event)
            codes = [first.wait(), other.wait()]
        finally:
            alarm.cancel()
            first.stdout.close()
            nodes.end_processes()
        if any(codes):
            messages.seek(0)
            late = f" (no end after {arguments.timeout:g} s)" if time.monotonic() - begin >= arguments.timeout else ""
            raise SystemExit(f"error: {variant} ended with the exit codes {codes}{late}:\n{messages.read()[-3000:]}")
    if len(counts) < 4:
        raise SystemExit(f"error: {variant} ended after {len(counts)} steps; nothing can be measured")
    steps = [event for event in events if event["event"] == "step"]
    # A step line comes when the step is over on all ranks and the next has hardly begun.
    sent = [(after - before) / (len(counts) - 2) for before, after in zip(counts[1], counts[-1])]
    return {"seconds": statistics.median(step["seconds"] for step in steps[2:]), "sent_bytes": statistics.mean(sent),
            "loss": steps[-1]["loss"], "parameters": events[0]["parameters"]}


def measure(nodes, arguments, common, folder):
    """Rounds of results[cable][variant]; the variants in turn, so that drift of the machine meets all. Cable: "free" or
    Mbit/s as text."""
    cables = {"free": None, **{f"{mbit:g}": mbit * 1e6 for mbit in sorted(arguments.mbit, reverse=True)}}
    rates, rounds = {}, []
    for number in range(arguments.rounds):
        rounds.append({})
        for cable, bits in cables.items():
            nodes.shape(bits)
            if cable not in rates:
                rates[cable] = nodes.measured_rate(int((bits or 1e10) / 8))
            results = rounds[-1][cable] = {}
            for variant in arguments.only if number % 2 == 0 else reversed(arguments.only):
                results[variant] = train(nodes, arguments, common, variant, folder)
                print(json.dumps({"round": number + 1, "mbit": cable, "strategy": variant, **results[variant]}),
                      file=sys.stderr, flush=True)
    return rates, rounds


def check_same_work(rounds, plans):
    """All variants train the same model on the same tokens, so their losses are equal."""
    results = [(variant, result) for one in rounds for cable in one.values() for variant, result in cable.items()]
    for variant, result in results:
        if result["parameters"] != plans[variant]["parameters"]:
            raise SystemExit(f"error: {variant} has {result['parameters']} parameters, its plan {plans[variant]['parameters']}")
        if abs(result["loss"] - results[0][1]["loss"]) > 1e-5 * abs(results[0][1]["loss"]):
            raise SystemExit(f"error: the loss of {variant} is {result['loss']}, that of {results[0][0]} {results[0][1]['loss']}")


# --- tables -----------------------------------------------------------------------------------------------------------


def of_rounds(rounds, cable, variant, key="seconds"):
    return [one[cable][variant][key] for one in rounds]


def predicted(plans, rounds, rates, cable, variant):
    local = statistics.median(of_rounds(rounds, "free", variant))
    return Replay(plans[variant], local, rates[cable]).seconds()


def print_bytes(plans, rounds):
    print("\n| strategy | planned, MB a node and step | sent, MB | sent / planned | sent / what Gloo needs |\n|---|---|---|---|---|")
    for variant, planned in plans.items():
        ring = sum(across(planned, verb) for verb in VERBS)
        gloo = sum(GLOO_SENDS[verb] * across(planned, verb) for verb in VERBS)
        sent = statistics.median(value for cable in rounds[0] for value in of_rounds(rounds, cable, variant, "sent_bytes"))
        print(f"| {variant} | {ring / 1e6:.1f} | {sent / 1e6:.1f} | {sent / ring:.2f} | {sent / gloo:.2f} |")


def print_seconds(plans, rounds, rates, cables):
    print("\n| cable, Mbit/s | strategy | step, s | predicted, s | step / predicted | cable / rest |\n|---|---|---|---|---|---|")
    for cable in cables:
        for variant, planned in plans.items():
            measured, local = of_rounds(rounds, cable, variant), statistics.median(of_rounds(rounds, "free", variant))
            guess = predicted(plans, rounds, rates, cable, variant)
            on_cable = sum(GLOO_SENDS[verb] * across(planned, verb) for verb in VERBS) / rates[cable]
            print(f"| {cable} | {variant} | {run.spread(measured, 3)} | {guess:.3f} | {statistics.median(measured) / guess:.3f} | "
                  f"{on_cable / local:.1f} |")
    for variant in plans:
        print(f"| no limit | {variant} | {run.spread(of_rounds(rounds, 'free', variant), 3)} | | | |")


def print_ratios(plans, rounds, rates, cables):
    """Of step times to that of mics: within RATIO_LIMIT of the prediction, where the cable takes most of the time."""
    print("\n| cable, Mbit/s | step times | measured | predicted | off by |\n|---|---|---|---|---|")
    for cable in cables:
        for variant in plans:
            if variant == "mics":
                continue
            pairs = zip(of_rounds(rounds, cable, variant), of_rounds(rounds, cable, "mics"))
            ratios = [other / mics for other, mics in pairs]
            guess = predicted(plans, rounds, rates, cable, variant) / predicted(plans, rounds, rates, cable, "mics")
            off = statistics.median(ratios) / guess - 1
            print(f"| {cable} | {variant} : mics | {run.spread(ratios, 3)} | {guess:.3f} | {off:+.1%}"
                  f"{'' if abs(off) <= RATIO_LIMIT else f', more than {RATIO_LIMIT:.0%}'} |")


def main():
    arguments = parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that what was started is ended, too
    facts = run.hardware(arguments)
    print(json.dumps(facts), file=sys.stderr)
    if facts["load_before"] > 0.5:
        print(f"warning: the machine is busy (load {facts['load_before']:.1f}): times will be noisy", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tessera-nodes-") as name:
        folder = Path(name)
        common = settings(arguments, folder)
        with TwoNodes() as nodes:
            plans = {variant: plan(arguments, common, variant) for variant in arguments.only}
            rates, rounds = measure(nodes, arguments, common, folder)
    check_same_work(rounds, plans)
    cables = [cable for cable in rates if cable != "free"]
    print(f"{plans[arguments.only[0]]['parameters']:,} parameters, 2 nodes of {NODE_RANKS} ranks, {arguments.rows} x 64 tokens a rank; "
          f"{facts['cpu']}, {facts['cores']} cores; Tessera {facts['revision']}; median (range) of {arguments.rounds} rounds\n"
          "one TCP stream gets, Mbit/s: " + ", ".join(f"{rate * 8 / 1e6:.1f} of {cable}" for cable, rate in rates.items()))
    print_bytes(plans, rounds)
    print_seconds(plans, rounds, rates, cables)
    if "mics" in plans:
        print_ratios(plans, rounds, rates, cables)
    if arguments.out:
        record = {"hardware": facts, "rates_bytes_per_second": rates, "plans": plans, "rounds": rounds,
                  "predicted_seconds": {cable: {variant: predicted(plans, rounds, rates, cable, variant) for variant in plans}
                                        for cable in cables}}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        print(f"error: two nodes cannot be had on this machine: {error}.", file=sys.stderr)
        sys.exit(77)
