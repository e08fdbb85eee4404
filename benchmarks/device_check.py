#!/usr/bin/env python3
"""One step of device_check.sh, which see: device_check.py STEP --device D --tessera PROGRAM …

Prints what it found as its last line, and ends with 0 (as it should be), 1 (not so) or 77 (cannot be tried here).
Needs nothing but Python; `compare` starts benchmarks/compare/run.py, whose peers need torch.
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
F32 = ("--precision", "f32")
LOSS_TOLERANCE = 1e-5  # relative; f32 against values in f64
NORM_TOLERANCE = 1e-4
BF16_TOLERANCE = 1e-2
# Runs of twice the same work on a GPU: its sums may be added in another order.
RESUME_TOLERANCE = 1e-5
DEVICE_TOLERANCE = 1e-4  # six steps on one kind of device against six on another


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=sorted(STEPS))
    parser.add_argument("--device", required=True)
    parser.add_argument("--tessera", type=Path, required=True)
    parser.add_argument("--python", required=True, help="has torch")
    parser.add_argument("--data", type=Path, required=True, help="folder with gpt2_tiny/, gpt2/ and tinyshakespeare.txt")
    parser.add_argument("--work", type=Path, required=True, help="a folder to write into")
    parser.add_argument("--seconds", type=int, default=60, help="that one process may take")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--size", choices=["gpt2", "small"], default="gpt2")
    return parser.parse_args()


# --- Tessera --------------------------------------------------------------------------------------------------------

def run(command, arguments, **more):
    environment = dict(os.environ, TESSERA_CACHE=str(arguments.work / "cache"), **more)
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment,
                              timeout=arguments.seconds, check=False, errors="replace")
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no end after {arguments.seconds} s: {command[0]} {command[1]}") from error
    print("$", *command, file=sys.stderr)
    print(done.stderr[-4000:], file=sys.stderr)
    return done


def tessera(arguments, *words):
    """The JSON lines that a command prints."""
    done = run([arguments.tessera, *words, "--json"], arguments)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        raise Failed(f"tessera {words[0]} ended with {done.returncode}: {lines[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def train(arguments, *settings, device):
    events = tessera(arguments, "train", *settings, f"run.device={device}", "log.every=1")
    return [event for event in events if event["event"] == "start"], \
           [event for event in events if event["event"] == "step"]


# --- gpt2_tiny ------------------------------------------------------------------------------------------------------

def read_ids(path, name):
    """A matrix of I32 in a safetensors file."""
    raw = path.read_bytes()
    length, = struct.unpack_from("<Q", raw)
    entry = json.loads(raw[8:8 + length])[name]
    begin, end = entry["data_offsets"]
    values = struct.unpack_from(f"<{(end - begin) // 4}i", raw, 8 + length + begin)
    columns = entry["shape"][1]
    return [list(values[i:i + columns]) for i in range(0, len(values), columns)]


def make_model(arguments, name):
    """Folder of the model with a tokenizer that has as many tokens, the rows of ids that its reference values are of
    as JSON lines, and those values."""
    source = arguments.data / "gpt2_tiny"
    if not source.is_dir():
        raise Skipped(f"{source} is not there: set TESSERA_DATA to the folder of the test data")
    expected = json.loads((source / "expected.json").read_text())[name]
    folder = arguments.work / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(expected["config"], model_type="gpt2")))
    shutil.copyfile(source / f"{name}.safetensors", folder / "model.safetensors")
    characters = "".join(chr(0x4E00 + i) for i in range(expected["config"]["vocab_size"]))
    (folder / "tessera_tokenizer.json").write_text(
        json.dumps({"kind": "char", "characters": characters, "end_of_text": None}))
    reference = source / f"{name}_ref.safetensors"
    rows = [ids + targets[-1:] for ids, targets in zip(read_ids(reference, "input_ids"), read_ids(reference, "target_ids"))]
    text = folder / "rows.jsonl"
    text.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    return folder, text, expected


def difference(value, right):
    return abs(value - right) / abs(right)


def require(found, tolerance, what):
    if not found <= tolerance:
        raise Failed(f"{what} differs by {found:.1e}, more than {tolerance:.0e}")


def evaluate(arguments):
    model, rows, expected = make_model(arguments, "tiny_random_gpt2")
    losses = {}
    for device in (arguments.device, "cpu"):
        result, = tessera(arguments, "evaluate", model, "--data", rows, "--device", device, *F32)
        if result["tokens"] != 32:
            raise Failed(f"{result['tokens']} tokens were predicted, not 32")
        losses[device] = result["loss"]
    loss, right = losses[arguments.device], expected["ref_loss"]
    off, off_cpu = difference(loss, right), difference(loss, losses["cpu"])
    require(off, LOSS_TOLERANCE, f"the loss {loss} against the reference {right}")
    require(off_cpu, LOSS_TOLERANCE, f"the loss {loss} against the CPU's {losses['cpu']}")
    return f"loss {loss:.7f}, off the reference by {off:.1e}, the CPU by {off_cpu:.1e}"


def generate(arguments):
    model, _, expected = make_model(arguments, "tiny_random_gpt2")
    sequences = expected["greedy_max_length_10"]
    for sequence in sequences:
        prompt = ",".join(map(str, sequence[:4]))
        for more in ([], ["--no-cache"]):
            result, = tessera(arguments, "generate", model, "--prompt-ids", prompt, "-n", 6, "-t", 0, *more,
                              "--device", arguments.device, *F32)
            if result["ids"] != sequence[4:]:
                raise Failed(f"after {prompt} came {result['ids']}, not {sequence[4:]}")
    return f"{len(sequences)} sequences as the reference has them, with cache and without"


def train_tiny(arguments):
    model, _, expected = make_model(arguments, "tiny_biased_gpt2")
    adamw, width = expected["adamw"], expected["config"]["n_positions"]
    reference = json.loads((HERE.parent / "tests" / "reference" / "gpt2_stream.json").read_text())
    losses, norms = reference["loss_before_step"], reference["grad_norm_before_clip"]
    text = model / "stream.jsonl"
    text.write_text(json.dumps({"input_ids": reference["ids"]}) + "\n")
    config = arguments.work / "tiny.yaml"
    config.write_text("{}\n")

    def steps_on(device, dtype):
        _, steps = train(
            arguments, config, "--fresh", f"run.dir={arguments.work / f'tiny-{device}-{dtype}'}",
            f"model.init_from={model}", f"data.tokenizer={model}", f"data.train={text}", f"data.validation={text}", f"data.block_size={width}",
            "train.global_batch_size=3", "train.batch_size=3",
            f"train.max_steps={len(losses)}", "optim.schedule=constant", f"optim.lr={adamw['lr']}",
            f"optim.betas=[{adamw['beta1']},{adamw['beta2']}]", f"optim.eps={adamw['eps']}",
            f"optim.weight_decay={adamw['weight_decay']}", f"optim.grad_clip={adamw['grad_clip_norm']}",
            f"precision.compute={dtype}", "checkpoint.on_exit=false", device=device)
        if len(steps) != len(losses):
            raise Failed(f"{len(steps)} steps on {device}, not {len(losses)}")
        return steps

    here = steps_on(arguments.device, "f32")
    loss = max(difference(step["loss"], right) for step, right in zip(here, losses))
    norm = max(difference(step["grad_norm"], right) for step, right in zip(here, norms))
    require(loss, LOSS_TOLERANCE, "a loss against the reference")
    require(norm, NORM_TOLERANCE, "a gradient norm against the reference")
    cpu = max(difference(a["loss"], b["loss"]) for a, b in zip(here, steps_on("cpu", "f32")))
    require(cpu, LOSS_TOLERANCE, "a loss against the CPU's")
    half = max(difference(step["loss"], right) for step, right in zip(steps_on(arguments.device, "bf16"), losses))
    require(half, BF16_TOLERANCE, "a loss in bf16 against the reference")
    return (f"{len(losses)} steps: losses off by {loss:.1e} (the CPU's by {cpu:.1e}, in bf16 {half:.1e}), "
            f"gradient norms by {norm:.1e}")


def resume(arguments):
    text = arguments.data / "tinyshakespeare.txt"
    if not text.exists():
        raise Skipped(f"{text} is not there: set TESSERA_DATA to the folder of the test data")
    config = arguments.work / "resume.yaml"
    config.write_text("model: {n_layer: 2, n_head: 2, n_embd: 64, n_positions: 64, dropout: 0.1}\n")

    def part(name, last, device, *more):
        return train(arguments, config, f"run.dir={arguments.work / name}", f"data.train={text}", "data.tokenizer=byte",
                     "data.truncate=0.1", "train.batch_size=8", f"train.max_steps={last}", "optim.lr=1e-3",
                     "optim.schedule=constant", "precision.compute=f32", *more, device=device)

    _, whole = part("whole", 6, arguments.device, "--fresh")
    _, first = part("halves", 3, arguments.device, "--fresh")
    start, second = part("halves", 6, arguments.device)
    if [event["resumed_from_step"] for event in start] != [3] or len(second) != 3:
        raise Failed(f"the run did not go on from step 3: {start}")
    found = max(difference(a["loss"], b["loss"]) for a, b in zip(whole, first + second, strict=True))
    require(found, RESUME_TOLERANCE, "a loss of 3 + 3 steps against 6 in one go")
    _, cpu = part("cpu", 6, "cpu", "--fresh")
    # With dropout: its masks are the same on every device.
    other = max(difference(a["loss"], b["loss"]) for a, b in zip(whole, cpu, strict=True))
    require(other, DEVICE_TOLERANCE, "a loss of 6 steps with dropout against the CPU's")
    return f"6 losses of 3 + 3 steps off 6 in one go by {found:.1e}; with dropout off the CPU's by {other:.1e}"


# --- Others ---------------------------------------------------------------------------------------------------------

def compare(arguments):
    out = arguments.work / f"compare_{arguments.dtype}.json"
    size = ["--rows", 8, "--block", 1024, "--steps", 12] if arguments.size == "gpt2" else \
           ["--layers", 1, "--rows", 1, "--block", 64, "--steps", 4]
    command = [arguments.python, HERE / "compare" / "run.py", "gpt2", "--device", arguments.device, "--peer", "both",
               "--dtype", arguments.dtype, "--rounds", 1, "--tessera", arguments.tessera, "--python", arguments.python,
               "--data", arguments.data, "--timeout", arguments.seconds, "--out", out, *size]
    out.unlink(missing_ok=True)
    environment = dict(os.environ, TESSERA_CACHE=str(arguments.work / "cache"))
    # Not captured: the table and the messages belong into the log, also of a step that is ended in the middle.
    code = subprocess.run([str(word) for word in command], env=environment, check=False).returncode
    if not out.exists():
        raise Failed(f"the comparison ended with {code}")
    record = json.loads(out.read_text())
    (round_,), failed = record["rounds"], record["failed"]
    figures = []
    for side, result in round_.items():
        memory = result["gpu_memory_mib"] if arguments.device != "cpu" else result["peak_rss_mib"]
        figures.append(f"{side} {result['tokens_per_second']:.0f} tok/s {memory or 0:.0f} MiB")
    figures += [f"{side} failed" for side in failed]
    if failed:
        raise Failed("; ".join(figures))
    return "; ".join(figures)


def cases(arguments, program, pattern, needed):
    """Cases of a unit test program, of which `needed` must not be skipped."""
    path = arguments.tessera.parent / "tests" / program
    if not path.exists():
        raise Skipped(f"{program} is not built: scripts/build.sh cuda {program}")
    report = arguments.work / f"{program}.json"
    report.unlink(missing_ok=True)
    done = run([path, f"--gtest_filter={pattern}"], arguments, GTEST_OUTPUT=f"json:{report}")
    print(done.stdout, file=sys.stderr)
    if not report.exists():
        raise Failed(f"{program} ended with {done.returncode} and without a report")
    found = [case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"]]
    failed = [case["name"] for case in found if case.get("failures")]
    if failed or done.returncode != 0:
        raise Failed(f"{program} ended with {done.returncode}; failed: {', '.join(failed) or 'none'}")
    ran = {case["name"] for case in found if case["result"] == "COMPLETED"}
    if needed not in ran:
        raise Skipped(f"{program} skipped {needed} (see the log)" if any(case["name"] == needed for case in found)
                      else f"{program} has no test {needed}")
    return f"{needed} and {len(ran) - 1} more cases of {program}"


def nccl(arguments):
    if arguments.device == "cpu":
        raise Skipped("NCCL moves tensors of GPUs only")
    return cases(arguments, "transports_test", "Nccl.*", "EveryVerbAndTypeOfOneRankOnAGpu")


def memory(arguments):
    """What step lines call mem: weights, gradients and two moments of f32, and what a small step needs besides."""
    text = arguments.data / "tinyshakespeare.txt"
    if not text.exists():
        raise Skipped(f"{text} is not there: set TESSERA_DATA to the folder of the test data")
    config = arguments.work / "memory.yaml"
    config.write_text("model: {n_layer: 6, n_head: 8, n_embd: 512, n_positions: 32}\n")
    done = run([arguments.tessera, "train", config, f"run.dir={arguments.work / 'memory'}", "--fresh", f"data.train={text}",
                "data.tokenizer=byte", "data.truncate=0.1", "train.batch_size=1", "train.max_steps=2", "log.every=1",
                "precision.compute=f32", "checkpoint.on_exit=false", f"run.device={arguments.device}"], arguments)
    found = re.findall(r"^step 2/2 .*\| mem ([0-9.]+)([KMG]iB)", done.stderr, re.MULTILINE)
    if done.returncode != 0 or len(found) != 1:
        raise Failed(f"tessera train ended with {done.returncode} and without the line of step 2 (see the log)")
    mib = float(found[0][0]) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[found[0][1]]
    parameters = 6 * (12 * 512 * 512 + 13 * 512) + (257 + 32 + 2) * 512
    least = 16 * parameters / 2**20
    # A process that drives a GPU has far more resident memory than this: a figure of the wrong kind shows. On a CPU the
    # libraries count, too.
    if not least <= mib <= least + (1536 if arguments.device == "cpu" else 512):
        raise Failed(f"mem {mib:.0f} MiB in the line of a step whose state alone takes {least:.0f} MiB")
    return f"mem {mib:.0f} MiB in the step's line, {least:.0f} of them weights, gradients and moments"


STEPS = {"evaluate": evaluate, "generate": generate, "train": train_tiny, "resume": resume, "compare": compare,
         "nccl": nccl, "memory": memory}


def main():
    arguments = parse()
    arguments.work.mkdir(parents=True, exist_ok=True)
    try:
        print(STEPS[arguments.step](arguments))
    except Failed as error:
        print(error)
        sys.exit(1)
    except Skipped as error:
        print(error)
        sys.exit(77)
    except (OSError, ValueError, KeyError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
