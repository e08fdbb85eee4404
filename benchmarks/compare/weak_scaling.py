#!/usr/bin/env python3
"""Weak scaling on the processors of this machine: tokens a second of every strategy when each further rank brings its own
share of work, against as many trainings at the same time that do not talk at all.

    python benchmarks/compare/weak_scaling.py --svg scaling.svg --out scaling.json      # 1 to 4 ranks, one thread each
    python benchmarks/compare/weak_scaling.py --ranks 1 2 --rounds 1 --steps 5 --strategies ddp full_shard
    python benchmarks/compare/weak_scaling.py --layers 12 --width 768 --heads 12 --block 256 --rows 4    # GPT-2's blocks

Each rank takes the same rows in a step, whatever the number of ranks. alone: N separate trainings, their rates added: what
the processors can do together, and so the measure of what talking costs. The measurements take turns, in an order that
alternates; a ratio is formed in each round. A strategy that cannot be cut over a number of ranks is left out there: hybrid
ones need groups of --shard-degree. Tokens a second is the median of the step lines but the first two. Wants an idle machine
with a core for each rank; with fewer, ranks share cores, and so do those that are alone.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import run
from scaling import measure_together

STRATEGIES = ("ddp", "full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2")
COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8e5ea2", "#b8860b")
ALONE_COLOUR = "#808080"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=Path, default=run.ROOT / "build" / "tessera")
    parser.add_argument("--python", type=Path, default=run.ROOT / ".venv" / "bin" / "python", help="tells torch's version")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES, metavar="NAME")
    parser.add_argument("--shard-degree", type=int, default=2, help="of hybrid strategies")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--block", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--rows", type=int, default=4, help="sequences of one rank in a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that one training may take")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="another setting for all")
    parser.add_argument("--out", type=Path, help="write everything as JSON here")
    parser.add_argument("--svg", type=Path, help="draw it here")
    arguments = parser.parse_args()
    if not arguments.tessera.exists():
        parser.error(f"Tessera is not at {arguments.tessera}. Run 'make build', or say where it is (--help).")
    if min(arguments.ranks) < 1 or arguments.rounds < 1 or arguments.steps < 3:
        parser.error("needs at least 1 rank, 1 round and 3 steps")
    arguments.ranks = sorted(set(arguments.ranks))
    arguments.threads, arguments.device = 1, "cpu"
    return arguments


def fits(arguments, strategy, ranks):
    """One process is the same whatever the strategy: it is measured as alone."""
    if strategy == "alone":
        return True
    if ranks == 1:
        return False
    return not strategy.startswith("hybrid") or (ranks % arguments.shard_degree == 0 and ranks > arguments.shard_degree)


def command(arguments, folder, name, ranks, strategy):
    settings = [folder / "weak.yaml", f"train.batch_size={arguments.rows}", f"train.global_batch_size={arguments.rows * ranks}",
                f"train.max_steps={arguments.steps}", "train.eval_every=0", "checkpoint.every=0", "checkpoint.on_exit=false",
                "checkpoint.best=false", "log.every=1", "precision.compute=f32", "run.device=cpu", "run.threads=1",
                f"run.dir={folder / name}", f"data.cache_dir={folder / 'cache'}"]
    if ranks > 1:
        settings += ["--nproc", ranks, f"parallel.strategy={strategy}"]
        if strategy.startswith("hybrid"):
            settings += [f"parallel.shard_degree={arguments.shard_degree}"]
    return [str(word) for word in [arguments.tessera, "train", *settings, *arguments.set, "--fresh", "--json", "-q"]]


def measure(arguments, folder, ranks, strategy):
    if strategy == "alone":
        commands = [command(arguments, folder, f"alone{i}", 1, "none") for i in range(ranks)]
    else:
        commands = [command(arguments, folder, strategy, ranks, strategy)]
    return measure_together(commands, arguments)


def measure_rounds(arguments, folder):
    """Each round: {"strategy ranks": result}."""
    folder.joinpath("weak.yaml").write_text(
        f"model: {{preset: tiny, n_layer: {arguments.layers}, n_head: {arguments.heads}, n_embd: {arguments.width}, "
        f"n_positions: {arguments.block}, dropout: 0}}\ndata: {{tokenizer: byte, block_size: {arguments.block}, "
        "sampling: windows}\noptim: {schedule: constant, lr: 1e-3}\n")
    subprocess.run(command(arguments, folder, "warm", 1, "none") + ["train.max_steps=1"], stdout=subprocess.DEVNULL, check=True,
                   timeout=arguments.timeout)  # it makes the cache of tokens, which the others share
    cases = [(ranks, strategy) for ranks in arguments.ranks for strategy in ("alone", *arguments.strategies)
             if fits(arguments, strategy, ranks)]
    rounds = []
    for number in range(arguments.rounds):
        rounds.append({})
        for ranks, strategy in cases if number % 2 == 0 else reversed(cases):
            result = rounds[-1][f"{strategy} {ranks}"] = measure(arguments, folder, ranks, strategy)
            print(json.dumps({"round": number + 1, "strategy": strategy, "ranks": ranks, **result}), file=sys.stderr, flush=True)
    return rounds


def values(rounds, strategy, ranks, key="tokens_per_second"):
    """Of all rounds; empty where a strategy was left out."""
    case = f"{strategy} {ranks}"
    return [one[case][key] for one in rounds if case in one]


def count(ranks):
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def print_tables(arguments, rounds):
    names = ["alone", *arguments.strategies]
    print("\n| tokens/s, median (range) | " + " | ".join(count(ranks) for ranks in arguments.ranks) + " |")
    print("|---|" + "---|" * len(arguments.ranks))
    for name in names:
        cells = [values(rounds, name, ranks) for ranks in arguments.ranks]
        print(f"| {name} | " + " | ".join(run.spread(cell, 0) if cell else "" for cell in cells) + " |")
    print("\n| of the rate alone | " + " | ".join(count(ranks) for ranks in arguments.ranks) + " |")
    print("|---|" + "---|" * len(arguments.ranks))
    for name in arguments.strategies:
        cells = [[ours / alone for ours, alone in zip(values(rounds, name, ranks), values(rounds, "alone", ranks))]
                 for ranks in arguments.ranks]
        print(f"| {name} | " + " | ".join(run.spread(cell, 3) if cell else "" for cell in cells) + " |")
    print("\n| peak MiB of a process | " + " | ".join(count(ranks) for ranks in arguments.ranks) + " |")
    print("|---|" + "---|" * len(arguments.ranks))
    for name in names:
        cells = [values(rounds, name, ranks, "peak_rss_mib") for ranks in arguments.ranks]
        print(f"| {name} | " + " | ".join(run.spread(cell, 0) if cell else "" for cell in cells) + " |")


# --- the drawing ------------------------------------------------------------------------------------------------------


def nice_step(most):
    """A round distance of about five lines up to `most`."""
    power = 10 ** (len(str(int(max(most / 5, 1)))) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= most / 5)


def draw(arguments, facts, rounds):
    """Tokens a second over ranks: medians joined by lines, and bars from the least to the most."""
    width, height, left, right, top, bottom = 720, 440, 80, 190, 56, 56
    series = [(name, colour, [(ranks, values(rounds, name, ranks)) for ranks in arguments.ranks])
              for name, colour in zip(("alone", *arguments.strategies), (ALONE_COLOUR, *COLOURS))]
    most = max(value for _, _, points in series for _, of in points for value in of) * 1.05
    least_ranks, span = arguments.ranks[0], max(arguments.ranks[-1] - arguments.ranks[0], 1)

    def x(ranks):
        return left + 24 + (width - left - right - 48) * (ranks - least_ranks) / span

    def y(value):
        return height - bottom - (height - top - bottom) * value / most

    def text(at_x, at_y, words, size=12, anchor="start", colour="#222"):
        return (f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">'
                f"{escape(words)}</text>")

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="white"/>',
             text(left, 24, f"Weak scaling: {arguments.rows} x {arguments.block} tokens a rank and step", 16),
             text(left, 42, f"{facts['parameters']:,} parameters, f32, one thread a rank; {facts['cpu']}, {facts['cores']} cores"),
             text((left + width - right) / 2, height - 14, "ranks", anchor="middle"),
             text(left - 64, top - 10, "tokens/s")]
    step = nice_step(most)
    for i in range(int(most / step) + 1):
        parts += [f'<line x1="{left}" x2="{width - right}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}" stroke="#ddd"/>',
                  text(left - 8, y(i * step) + 4, f"{i * step:,}", anchor="end")]
    parts += [text(x(ranks), height - bottom + 20, str(ranks), anchor="middle") for ranks in arguments.ranks]
    for number, (name, colour, points) in enumerate(series):
        points = [(ranks, of) for ranks, of in points if of]
        shift = 3 * (number - len(series) / 2)  # so that bars at the same place stay apart
        line = " ".join(f"{x(ranks) + shift:.1f},{y(statistics.median(of)):.1f}" for ranks, of in points)
        dashes = ' stroke-dasharray="5 4"' if name == "alone" else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for ranks, of in points:
            at = x(ranks) + shift
            parts += [f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(min(of)):.1f}" y2="{y(max(of)):.1f}" stroke="{colour}"/>',
                      f'<circle cx="{at:.1f}" cy="{y(statistics.median(of)):.1f}" r="3.5" fill="{colour}"/>']
        legend = top + 14 + 20 * number
        parts += [f'<line x1="{width - right + 16}" x2="{width - right + 40}" y1="{legend - 4}" y2="{legend - 4}" '
                  f'stroke="{colour}" stroke-width="2"{dashes}/>', text(width - right + 46, legend, name)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    arguments = parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that what was started is ended, too
    facts = run.hardware(arguments)
    print(json.dumps(facts), file=sys.stderr)
    if facts["load_before"] > 0.5:
        print(f"warning: the machine is busy (load {facts['load_before']:.1f}): ratios will be noisy", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tessera-weak-") as name:
        rounds = measure_rounds(arguments, Path(name))
    facts["parameters"] = next(iter(rounds[0].values()))["parameters"]
    print(f"{facts['parameters']:,} parameters, {arguments.rows} x {arguments.block} tokens a rank, f32, 1 thread a rank; "
          f"{facts['cpu']}, {os.cpu_count()} cores; Tessera {facts['revision']}; {arguments.rounds} rounds of {arguments.steps} steps")
    print_tables(arguments, rounds)
    if arguments.out:
        chosen = {key: value for key, value in vars(arguments).items() if not isinstance(value, Path)}
        arguments.out.write_text(json.dumps({"hardware": facts, "settings": chosen, "rounds": rounds}, indent=1) + "\n")
    if arguments.svg:
        arguments.svg.write_text(draw(arguments, facts, rounds))


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as error:
        raise SystemExit(f"error: {error}") from None
