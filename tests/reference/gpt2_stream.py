#!/usr/bin/env python3
"""Four AdamW steps of a tiny GPT-2 over a stream of 61 tokens in float64: the values that benchmarks/device_check.sh
wants of `tessera train`, which cuts a text into blocks that share a token with their neighbours.

The model, the update and their check against a NumPy program's float64 values are those of gpt2_steps.py. The stream is
the three rows of input_ids in gpt2_tiny/tiny_biased_gpt2_ref.safetensors and their last target; each step takes its three
blocks of 20 ids and 20 targets.

    python tests/reference/gpt2_stream.py [--data ../shared/data]

Needs torch and safetensors. Writes gpt2_stream.json beside itself.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

import gpt2_steps

HERE = Path(__file__).resolve().parent
STEPS = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / ".." / "shared" / "data")
    folder = parser.parse_args().data / "gpt2_tiny"
    torch.set_num_threads(1)  # one order of additions
    worst = gpt2_steps.check_against_numpy(folder)
    adamw = json.loads((folder / "expected.json").read_text())["tiny_biased_gpt2"]["adamw"]
    reference = load_file(folder / "tiny_biased_gpt2_ref.safetensors")
    stream = torch.cat([reference["input_ids"].flatten(), reference["target_ids"].flatten()[-1:]]).long()
    width = gpt2_steps.SHAPE["n_positions"]
    ids, targets = stream[:-1].view(1, -1, width), stream[1:].view(1, -1, width)
    model = gpt2_steps.load_model(folder, torch.float64)
    optimizer = gpt2_steps.make_optimizer(model, dict(
        lr=adamw["lr"], betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["eps"], weight_decay=adamw["weight_decay"]))
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses.append(gpt2_steps.backward(model, ids, targets))
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), adamw["grad_clip_norm"]).item())
        optimizer.step()
    facts = {"made_by": "tests/reference/gpt2_stream.py", "torch": torch.__version__, "ids": stream.tolist(),
             "loss_before_step": losses, "grad_norm_before_clip": norms, "difference_from_numpy_float64": worst}
    (HERE / "gpt2_stream.json").write_text(json.dumps(facts) + "\n")
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
