"""What the PyTorch peers share: GPT-2 as a good PyTorch program writes it today (SDPA, fused AdamW, tied head), and the
same JSON lines as `tessera train --json` (docs/metrics.md), so that both sides are read alike."""

import json
import math
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, positions, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
            else:
                residual = name.endswith(("c_proj.weight", "mlp_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters())  # the head is wte: counted once


def add_common_arguments(parser):
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="bf16: by autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--log-every", type=int, default=1, help="steps between step lines")


def prepare(arguments):
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)


def autocast(arguments):
    return torch.autocast(torch.device(arguments.device).type, dtype=torch.bfloat16, enabled=arguments.dtype == "bf16")


def make_optimizer(model, lr, betas, weight_decay):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=matrices, weight_decay=weight_decay), dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def cosine(step, peak, low, warmup, end):
    """Learning rate of update `step`, from 1."""
    if step <= warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / max(1, end - warmup))
    return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * progress))


def update(model, optimizer, batch, lr, clip, arguments):
    """One optimizer step; returns loss and gradient norm."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    with autocast(arguments):
        loss = model(*batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    if hasattr(norm, "full_tensor"):  # of sharded gradients
        norm = norm.full_tensor()
    return loss.item(), norm.item()


class Reporter:
    """Events on stdout. Rates leave out evaluations."""

    def __init__(self, log_every, tokens_per_step):
        self.log_every, self.tokens_per_step = log_every, tokens_per_step
        self.begin = self.since = time.perf_counter()
        self.steps_since = 0

    def emit(self, event, **fields):
        print(json.dumps(dict(event=event, **fields)), flush=True)

    def start(self, run, parameters, batch_size):
        self.emit("start", run=run, dir=None, parameters=parameters, trainable_parameters=parameters, world_size=1,
                  global_batch_size=batch_size, resumed_from_step=None)
        self.since = time.perf_counter()

    def step(self, step, loss, grad_norm, lr, seconds):
        self.steps_since += 1
        if step % self.log_every:
            return
        now = time.perf_counter()
        rate = self.steps_since * self.tokens_per_step / (now - self.since)
        self.emit("step", step=step, epoch=None, loss=loss, grad_norm=grad_norm, lr=lr,
                  tokens=step * self.tokens_per_step, tokens_per_second=rate, mfu=None, seconds=seconds)
        self.since, self.steps_since = now, 0

    def evaluation(self, step, loss, began):
        self.emit("eval", step=step, loss=loss, perplexity=math.exp(loss), accuracy=None)
        self.since += time.perf_counter() - began

    def end(self, step, loss, best):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{step} steps in {time.perf_counter() - self.begin:.1f} s, peak RSS {peak:.0f} MiB", file=sys.stderr)
        self.emit("end", status="done", step=step, loss=loss, best_eval_loss=best, model=None)
