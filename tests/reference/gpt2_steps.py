#!/usr/bin/env python3
"""Twenty optimizer steps of a tiny GPT-2 in plain PyTorch: the values that Tessera's training must reproduce.

Independent of Tessera: an nn.Module in the layout of Hugging Face's GPT-2 (Conv1D weights as [in, out]), attention
written out, PyTorch's own AdamW and clip_grad_norm_. Before it writes anything it checks itself against
gpt2_tiny/tiny_biased_gpt2_ref.safetensors (a NumPy program's float64 logits, loss, gradients and AdamW steps).

    python tests/reference/gpt2_steps.py [--data ../shared/data] [--check]

Needs torch and safetensors. Writes beside itself gpt2_steps.safetensors and gpt2_steps.json; --check compares with what
is there instead. Tensors:
    ids, targets     I32 [step, micro_batch, row, position]; targets[t] is the token after ids[t], -100 = no target
    lr               F64 [step]
    loss.f32/.f64    F64 [step], before the update: sum of the cross entropies of all four micro-batches' targets
                     divided by their total number (not the mean of means)
    grad_norm.f32/.f64  F64 [step], before clipping
    final.f32.NAME, final.f64.NAME   the weights after the last step, Hugging Face names without "transformer."
"""

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
IGNORE = -100
SHAPE = dict(n_layer=2, n_embd=24, n_head=3, vocab_size=131, n_positions=20)
SETTINGS = dict(
    steps=20, micro_batches=4, rows=2, seed=20240607,
    lr=1e-3, min_lr=1e-4, warmup=5, decay_steps=20, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, grad_clip=1.0,
)
# How many of the 40 positions of each micro-batch have a target, about: very unequal on purpose.
VALID = [1.0, 0.8, 0.4, 0.12]


class Conv1D(nn.Module):
    """y = x W + b with W stored [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(rows, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """Pre-norm, learned positions, output projection tied to wte, no dropout."""

    def __init__(self, n_layer, n_embd, n_head, vocab_size, n_positions):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(n_positions, n_embd)
        self.h = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def load_model(folder, dtype):
    weights = load_file(folder / "tiny_biased_gpt2.safetensors")
    model = Gpt2(**SHAPE)
    model.load_state_dict({name.removeprefix("transformer."): value for name, value in weights.items()})
    return model.to(dtype)


def make_optimizer(model, settings):
    matrices = [p for p in model.parameters() if p.dim() >= 2]  # wte and wpe included
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=matrices, weight_decay=settings["weight_decay"]), dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=settings["lr"], betas=settings["betas"], eps=settings["eps"])


def learning_rate(step, settings):
    """Of optimizer update `step`, counted from 1 as in every event. Warm-up: peak * step / warmup up to the peak at
    step = warmup; then a half cosine that reaches min_lr at step = decay_steps and stays there."""
    peak, low = settings["lr"], settings["min_lr"]
    warmup, end = settings["warmup"], settings["decay_steps"]
    if step <= warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / (end - warmup))
    return low + (peak - low) * 0.5 * (1.0 + math.cos(math.pi * progress))


def make_batches(settings):
    """ids and targets, [step, micro_batch, row, position]."""
    generator = torch.Generator().manual_seed(settings["seed"])
    shape = (settings["steps"], settings["micro_batches"], settings["rows"], SHAPE["n_positions"])
    tokens = torch.randint(SHAPE["vocab_size"], (*shape[:3], shape[3] + 1), generator=generator)
    ids, targets = tokens[..., :-1].clone(), tokens[..., 1:].clone()
    keep = torch.rand(shape, generator=generator) < torch.tensor(VALID).view(1, -1, 1, 1)
    keep[:, :, 0, 0] = True  # never a micro-batch without a target here
    keep[::5, 3, 1, :] = False  # in some steps a row has none
    return ids, targets.masked_fill(~keep, IGNORE)


def backward(model, ids, targets):
    """Loss of the global batch; gradients add up over its micro-batches."""
    total = int((targets != IGNORE).sum())
    loss = 0.0
    for micro_ids, micro_targets in zip(ids, targets):
        logits = model(micro_ids)
        part = F.cross_entropy(logits.flatten(0, 1), micro_targets.flatten(), ignore_index=IGNORE,
                               reduction="sum") / total
        part.backward()
        loss += part.item()
    return loss


def train(folder, dtype, settings, batches):
    model = load_model(folder, dtype)
    optimizer = make_optimizer(model, settings)
    losses, norms, rates = [], [], []
    for step, (ids, targets) in enumerate(zip(*batches), start=1):
        rate = learning_rate(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        losses.append(backward(model, ids, targets))
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), settings["grad_clip"]).item())
        optimizer.step()
        rates.append(rate)
    final = {name: p.detach().clone().contiguous() for name, p in model.named_parameters()}
    return losses, norms, rates, final


def difference(a, b):
    return ((a - b).norm() / b.norm()).item()


def check_against_numpy(folder):
    """The model and the update are right: float64 against the NumPy program's values. Returns the worst differences."""
    expected = load_file(folder / "tiny_biased_gpt2_ref.safetensors")
    facts = json.loads((folder / "expected.json").read_text())["tiny_biased_gpt2"]
    adamw = facts["adamw"]
    ids, targets = expected["input_ids"].long(), expected["target_ids"].long()
    model = load_model(folder, torch.float64)
    worst = {"logits": difference(model(ids).detach(), expected["logits"])}
    settings = dict(lr=adamw["lr"], betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["eps"],
                    weight_decay=adamw["weight_decay"])
    optimizer = make_optimizer(model, settings)
    worst["loss"] = worst["grad_norm"] = worst["grad"] = worst["adamw3"] = 0.0
    for step in range(adamw["steps"] + 1):
        optimizer.zero_grad()
        loss = backward(model, ids[None], targets[None])
        worst["loss"] = max(worst["loss"], abs(loss - facts["loss_before_step"][step]))
        if step == 0:
            for name, p in model.named_parameters():
                wanted = expected[f"grad.{name}"]
                worst["grad"] = max(worst["grad"], ((p.grad - wanted).abs().max() / wanted.abs().max()).item())
        if step == adamw["steps"]:
            break
        norm = nn.utils.clip_grad_norm_(model.parameters(), adamw["grad_clip_norm"]).item()
        worst["grad_norm"] = max(worst["grad_norm"], abs(norm - facts["grad_norm_before_clip"][step]))
        optimizer.step()
    for name, p in model.named_parameters():
        wanted = expected[f"adamw3.{name}"]
        if name.endswith("c_attn.bias"):  # the key third: its true gradient is zero, so Adam follows rounding
            keep = torch.cat([torch.arange(0, 24), torch.arange(48, 72)])
            worst["adamw3"] = max(worst["adamw3"], difference(p.detach()[keep], wanted[keep]))
        else:
            worst["adamw3"] = max(worst["adamw3"], difference(p.detach(), wanted))
    limits = dict(logits=1e-13, loss=1e-10, grad_norm=1e-10, grad=1e-12, adamw3=1e-9)
    for name, limit in limits.items():
        if not worst[name] <= limit:
            raise SystemExit(f"the reference itself is wrong: {name} differs by {worst[name]:.3g}, limit {limit:g}")
    return worst


def make_values(folder):
    batches = make_batches(SETTINGS)
    tensors = {"ids": batches[0].int(), "targets": batches[1].int()}
    runs = {}
    for tag, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        losses, norms, rates, final = train(folder, dtype, SETTINGS, batches)
        runs[tag] = (losses, norms, final)
        tensors[f"loss.{tag}"] = torch.tensor(losses, dtype=torch.float64)
        tensors[f"grad_norm.{tag}"] = torch.tensor(norms, dtype=torch.float64)
        tensors["lr"] = torch.tensor(rates, dtype=torch.float64)
        tensors.update({f"final.{tag}.{name}": value for name, value in final.items()})
    counts = (batches[1] != IGNORE).sum((2, 3)).tolist()
    between = {
        "loss": max(abs(a - b) / abs(b) for a, b in zip(runs["f32"][0], runs["f64"][0])),
        "grad_norm": max(abs(a - b) / abs(b) for a, b in zip(runs["f32"][1], runs["f64"][1])),
        "weights": max(difference(value.double(), runs["f64"][2][name]) for name, value in runs["f32"][2].items()
                       if not name.endswith("c_attn.bias")),
        "key third of c_attn.bias": max(difference(value[24:48].double(), runs["f64"][2][name][24:48])
                                        for name, value in runs["f32"][2].items() if name.endswith("c_attn.bias")),
    }
    return tensors, counts, between


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / ".." / "shared" / "data")
    parser.add_argument("--check", action="store_true", help="compare with the files that are there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one order of additions
    folder = arguments.data / "gpt2_tiny"
    worst = check_against_numpy(folder)
    tensors, counts, between = make_values(folder)
    target = HERE / "gpt2_steps.safetensors"
    if arguments.check:
        stored = load_file(target)
        if stored.keys() != tensors.keys():
            raise SystemExit("gpt2_steps.safetensors holds other tensors than this program makes")
        limit = 1e-6
        for name, value in tensors.items():
            found = difference(value.double(), stored[name].double())
            if found > limit and "f32" in name and name.endswith("c_attn.bias"):
                continue
            if not found <= limit:
                raise SystemExit(f"{name} differs from the stored value by {found:.3g}")
        print("gpt2_steps.safetensors agrees")
        return
    save_file(tensors, target)
    facts = {
        "made_by": "tests/reference/gpt2_steps.py", "torch": torch.__version__,
        "weights": "gpt2_tiny/tiny_biased_gpt2.safetensors", "model": SHAPE, "settings": SETTINGS,
        "weight_decay_on": "tensors with 2 or more dimensions (wte and wpe included)",
        "clip": "gradients are multiplied by min(1, grad_clip / (norm + 1e-6))",
        "loss": "sum of cross entropies of the global batch / number of its targets",
        "lr": " ".join(learning_rate.__doc__.split()),
        "targets_per_micro_batch": counts,
        "difference_from_numpy_float64": worst,
        "difference_f32_from_f64": between,
    }
    (HERE / "gpt2_steps.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(dict(worst=worst, between=between, bytes=target.stat().st_size), indent=1))


if __name__ == "__main__":
    main()
