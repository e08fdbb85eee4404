#!/usr/bin/env python3
"""The four WikiText-2 experiments of a known report on PyTorch's FSDP, run by Tessera on the processes of this machine:
configs/fsdp-wikitext2. One table, beside the report's figures.

    python benchmarks/compare/fsdp_wikitext2.py                    # a small model of the same shape: a few minutes on CPUs
    python benchmarks/compare/fsdp_wikitext2.py --only a,d --out /tmp/fsdp           # /tmp/fsdp.md and /tmp/fsdp.json, too
    GPT2=/models/gpt2 python benchmarks/compare/fsdp_wikitext2.py --full --device cuda    # the configs as they are

All four train on the same text, epochs, rows and seed (this is checked); what differs is what the report varies: block,
wrapping, prefetch, number format, checkpointing. The small profile's settings and the reason of each are SMALL below, and
are printed. Minutes an epoch: the steps' own seconds, without start and evaluations. Peak of tensors: the most that rank 0's
allocator had handed out in any step (an epoch's last batch may leave a rank without rows, so its last step does not count);
offloaded shards are apart. Peak RSS: of the largest process, as the kernel counts it. Perplexity: of one validation text by
the best evaluation's model, at its own block, at 64 (the longest that all of them were trained on) and at 512. Of weights
that began at random, positions beyond the block were never trained. The largest block is planned, not run: for GPT-2 124M
and the config's rows a rank on GPUs whose tensors have --memory; no GPU is needed. --full begins with pretrained weights
where GPT2 names their folder, and with random ones otherwise; on CPUs it takes many hours.
"""

import argparse
import dataclasses
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import run

FOLDER = "fsdp-wikitext2"
SHORT, LONG = 64, 512  # blocks at which all are evaluated, beside their own
MAY_DIFFER = ("parallel.", "precision.", "data.block_size", "data.stride", "run.name", "run.dir")

SMALL = [  # setting, why
    ("~model.init_from", "random weights: no pretrained model is so small"),
    ("model.n_layer=4", "12 layers take hours on CPUs"),
    ("model.n_head=4", "heads of width 16"),
    ("model.n_embd=64", "768 takes hours on CPUs"),
    ("model.n_positions=512", "the longest block that is trained or evaluated"),
    ("model.dropout=0", "a small model on little text does not overfit in these epochs"),
    ("data.tokenizer=bpe:2048", "GPT-2's 50,257 tokens would be nearly all of the model"),
    ("data.truncate=0.02", "the first fiftieth of the training text"),
    ("train.batch_size=2", "24 rows of 512 tokens would leave one step an epoch"),
    ("optim.lr=3e-3", "for random weights and a small model"),
    ("precision.compute=f32", "f16 is many times slower than f32 on most CPUs"),
]
SMALL_VALIDATION_BYTES = 120_000


@dataclasses.dataclass(frozen=True)
class Method:
    key: str
    config: str
    words: str
    block: int
    report_time: str  # minutes and seconds of an epoch
    report_perplexity: float
    note: str


METHODS = [
    Method("a", "full-shard-block64", "full_shard, one unit", 64, "1:52", 85, "one unit: nothing to prefetch"),
    Method("b", "transformer-wrap-block128", "full_shard, transformer wrap", 128, "1:47", 62, ""),
    Method("c", "size-wrap-f16-block256", "full_shard, size wrap, no prefetch", 256, "1:22", 45.36, "units as in (b)"),
    Method("d", "checkpointing-f16-block512", "as (c), checkpointing", 512, "1:39", 35.09, "units as in (b)"),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    profile = parser.add_mutually_exclusive_group()
    profile.add_argument("--small", action="store_true", help="a small model on little text (the default)")
    profile.add_argument("--full", action="store_true", help="the configs as they are: GPT-2 124M, all of WikiText-2")
    parser.add_argument("--tessera", type=Path, default=run.ROOT / "build" / "tessera")
    parser.add_argument("--python", type=Path, default=run.ROOT / ".venv" / "bin" / "python", help="has torch; to name it")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TESSERA_DATA", run.ROOT / ".." / "shared" / "data")),
                        help="folder of the real data")
    parser.add_argument("--only", default="a,b,c,d", help="letters, with commas between them")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, help="of a rank (its share of the cores)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--memory", default="4GiB", help="of a GPU for tensors, where the largest block is planned")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="another setting for all four")
    parser.add_argument("--timeout", type=float, default=7 * 86400, help="seconds that one training may take")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the runs here; else they are removed")
    parser.add_argument("--out", metavar="NAME", help="write NAME.md and NAME.json")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := set(wanted) - {method.key for method in METHODS}:
        parser.error(f"--only takes letters from a to d, not {', '.join(sorted(unknown))}")
    arguments.methods = [method for method in METHODS if method.key in wanted]
    arguments.threads = arguments.threads or max(1, (os.cpu_count() or 1) // arguments.ranks)
    arguments.data = arguments.data.resolve()
    for what, path in (("Tessera", arguments.tessera), ("WikiText-2", arguments.data / "wikitext2")):
        if not path.exists():
            parser.error(f"{what} is not at {path}. Run 'make build', or say where it is (--help).")
    return arguments


def answer(arguments, *command):
    """What a command of Tessera prints."""
    words = [str(part) for part in (arguments.tessera, *command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=arguments.timeout)
    if done.returncode != 0:
        raise run.SideFailed(f"error: exit code {done.returncode} of\n  {shlex.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout


def validation_text(arguments, folder):
    """The text that training and `evaluate` measure; of the small profile its beginning, whole lines."""
    whole = arguments.data / "wikitext2" / "wiki.valid.tokens"
    if arguments.full:
        return whole
    text = whole.read_bytes()[:SMALL_VALIDATION_BYTES]
    beginning = folder / "validation.txt"
    beginning.write_bytes(text[:text.rindex(b"\n") + 1])
    return beginning


def settings_of(arguments, text):
    small = [] if arguments.full else [setting for setting, _ in SMALL]
    return [*small, f"data.validation={text}", f"run.device={arguments.device}", *arguments.set]


def resolved(arguments, method, settings):
    """Every setting of a training, as `--cfg` prints it: group.key → value."""
    result, group = {}, ""
    for line in answer(arguments, "train", f"{FOLDER}/{method.config}", *settings, "--cfg").splitlines():
        key, _, value = line.partition(":")
        if line and not line.startswith((" ", "#")):
            group = key
        elif line.startswith("  "):
            result[f"{group}.{key.strip()}"] = value.partition("  # ")[0].strip()
    return result


def check_fair(arguments, settings):
    """Every method's settings; nothing but what the report varies may differ between them."""
    every = {method.key: resolved(arguments, method, settings) for method in arguments.methods}
    for key in next(iter(every.values())):
        values = {one.get(key, "") for one in every.values()}
        if len(values) > 1 and not key.startswith(MAY_DIFFER):
            raise SystemExit(f"error: {key} differs between the trainings: {', '.join(sorted(values))}")
    return every


def notes_of(arguments, method, settings):
    notes = [method.note] if method.note else []
    wanted = resolved(arguments, method, [])["precision.compute"]
    if settings["precision.compute"] != wanted:
        notes.append(f"{settings['precision.compute']} in place of {wanted}")
    return "; ".join(notes)


def largest_block(arguments, method):
    """Of GPT-2 124M as the config has it; None where not even one token fits."""
    command = ["plan", f"{FOLDER}/{method.config}", "--world-size", arguments.ranks, "--device", "cuda",
               "--fit", "block_size", "--memory", arguments.memory, "~model.init_from", "--json"]
    try:
        return json.loads(answer(arguments, *command))["block_size"]
    except run.SideFailed as error:
        print(f"warning: no largest block for ({method.key}); {error}", file=sys.stderr)
        return None


def perplexity(arguments, folder, text, block, context):
    """None where the model's context is shorter."""
    if context < block:
        return None
    rows = max(1, 4096 // block)
    result = answer(arguments, "evaluate", folder, "--data", text, "--block-size", block, "--batch-size", rows,
                    "--device", arguments.device, "--json", "-q")
    return json.loads(result)["perplexity"]


def read_steps(folder):
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return events[0], [event for event in events if event["event"] == "step"]


def measure(arguments, method, settings, text, folder, context):
    command = [arguments.tessera, "train", f"{FOLDER}/{method.config}", *settings, f"run.dir={folder}", "log.every=1",
               "--nproc", arguments.ranks, "--fresh", "--json", "-q"]
    command = [str(part) for part in command]
    outside = run.measure(command, arguments)
    start, steps = read_steps(folder)
    seconds = [step["seconds"] for step in steps]
    steady = seconds[min(2, len(seconds) - 1):]  # the first ones warm up caches and allocators
    peaks = [step["memory_bytes"] for step in steps if "peak" in step["memory_bytes"]]
    return {
        "command": shlex.join(command), "parameters": start["parameters"], "steps": len(steps),
        "epochs": steps[-1]["epoch"], "tokens_per_step": steps[0]["tokens"],
        "minutes_per_epoch": sum(seconds) / steps[-1]["epoch"] / 60,
        "step_seconds": statistics.median(steady),
        "tokens_per_second": steps[-1]["tokens"] / sum(seconds),
        "peak_tensor_mib": max((one["peak"] for one in peaks), default=0) / 2**20,
        "offloaded_mib": max((one["host"] for one in peaks), default=0) / 2**20,
        "peak_rss_mib": outside["peak_rss_mib"], "wall_seconds": outside["wall_seconds"],
        "train_loss": steps[-1]["loss"],
        "perplexity": {block: perplexity(arguments, folder, text, block, context)
                       for block in sorted({method.block, SHORT, LONG})},
    }


def describe(arguments, settings, shared):
    """Lines above the table: what was run, on what, from which weights."""
    weights = "random weights"
    if shared["model.init_from"].strip('"'):
        weights = f"the weights in {shared['model.init_from']}"
    facts = arguments.facts
    profile = "the configs as they are" if arguments.full else "the small profile"
    lines = [f"{arguments.ranks} ranks, {arguments.threads} threads each, {arguments.device}; {facts['cpu']}, "
             f"{facts['cores']} cores{', ' + facts['gpu'] if facts['gpu'] else ''}, {facts['memory_gib']} GiB, load "
             f"{facts['load_before']:.1f} before; Tessera {facts['revision']}, torch {facts['torch']}.",
             f"{profile[0].upper() + profile[1:]}, from {weights}, seed {shared['run.seed']}, {shared['train.max_epochs']} "
             f"epochs, {shared['train.batch_size']} rows a rank."]
    reasons = {} if arguments.full else dict(SMALL)
    lines += [f"- `{setting}`: {reasons[setting]}" if setting in reasons else f"- `{setting}`" for setting in settings]
    return lines


def cell(value, digits):
    return "–" if value is None else f"{value:,.{digits}f}"


def table(arguments, results):
    head = ["method", "compute", "block", f"largest block, {arguments.memory}", "min/epoch", "step, s", "tokens/s",
            "peak of tensors, MiB", "offloaded, MiB", "peak RSS, MiB", "ppl, own block", f"ppl at {SHORT}", f"ppl at {LONG}",
            "report: min/epoch", "report: ppl", "notes"]
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for method in arguments.methods:
        result = results[method.key]
        ppl = result["perplexity"]
        cells = [f"({method.key}) {method.words}", result["compute"], str(method.block), cell(result["largest_block"], 0),
                 cell(result["minutes_per_epoch"], 2), cell(result["step_seconds"], 3), cell(result["tokens_per_second"], 0),
                 cell(result["peak_tensor_mib"], 1), cell(result["offloaded_mib"], 1), cell(result["peak_rss_mib"], 0),
                 cell(ppl[method.block], 1), cell(ppl[SHORT], 1), cell(ppl[LONG], 1),
                 method.report_time, str(method.report_perplexity), result["notes"]]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def run_all(arguments, folder):
    text = validation_text(arguments, folder)
    settings = settings_of(arguments, text)
    every = check_fair(arguments, settings)
    shared = next(iter(every.values()))
    heading = describe(arguments, settings, shared)
    print("\n".join(heading), file=sys.stderr, flush=True)
    results = {}
    for method in arguments.methods:
        print(f"({method.key}) {method.config} …", file=sys.stderr, flush=True)
        ours = every[method.key]
        results[method.key] = {"config": method.config, "block": method.block, "compute": ours["precision.compute"],
                               "notes": notes_of(arguments, method, ours), "largest_block": largest_block(arguments, method),
                               **measure(arguments, method, settings, text, folder / method.config,
                                         int(ours["model.n_positions"]))}
        print(json.dumps(results[method.key]), file=sys.stderr, flush=True)
    page = "\n".join([*heading, "", *table(arguments, results)]) + "\n"
    print(page, end="")
    if arguments.out:
        record = {"profile": "full" if arguments.full else "small", "settings": settings, "resolved": every,
                  "hardware": arguments.facts, "memory_of_largest_block": arguments.memory, "methods": results,
                  "report": {method.key: {"time": method.report_time, "perplexity": method.report_perplexity}
                             for method in arguments.methods}}
        Path(arguments.out + ".md").write_text(page)
        Path(arguments.out + ".json").write_text(json.dumps(record, indent=1) + "\n")


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended, too
    os.environ["TESSERA_DATA"] = str(arguments.data)
    arguments.facts = run.hardware(arguments)
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        run_all(arguments, arguments.keep.resolve())
        return
    with tempfile.TemporaryDirectory(prefix="tessera-fsdp-") as name:
        run_all(arguments, Path(name))


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as error:
        raise SystemExit(f"error: {error}") from None
