"""Makes tests/reference/tiny_lm.safetensors and tiny_lm.json: a small GPT-2 over bytes, and what
Hugging Face transformers says of it in float64: continuations, losses with a sliding window,
last-word scores. Used by tests/golden/{generate,evaluate}_test.cpp and src/train/evaluate_test.cpp.
Needs torch, transformers and safetensors:
    python tests/reference/tiny_lm.py
"""

import json
import math
import pathlib

import torch
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).parent
END_OF_TEXT = 256
CONFIG = dict(vocab_size=257, n_positions=32, n_embd=16, n_layer=2, n_head=2,
              bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT)
TEXT = ("A small model sees 32 bytes at once.\n"
        "Größe 東京 🙂 are characters of several bytes;\n"
        " the last line has no newline")
PASSAGES = [
    "the cat sat on the mat",
    "a b",
    "the passage that is longer than the context of the model loses its beginning, not its end",
    "für Grüße aus München",
]


def make_weights():
    """Random values, then a few steps on the text itself, so that some predictions are right."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(**CONFIG, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    for name, value in model.named_parameters():
        mean = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        torch.nn.init.normal_(value, mean, 0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    ids = list(("\n".join([TEXT, *PASSAGES])).encode())
    windows = torch.tensor([ids[i:i + 32] for i in range(0, len(ids) - 32, 4)])
    for _ in range(120):
        optimizer.zero_grad()
        model(windows, labels=windows).loss.backward()
        optimizer.step()
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    save_file(weights, HERE / "tiny_lm.safetensors", metadata={"format": "pt"})


def load_model():
    model = GPT2LMHeadModel(GPT2Config(**CONFIG)).double().eval()
    weights = {name: torch.from_numpy(value).double()
               for name, value in load_file(HERE / "tiny_lm.safetensors").items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and all("lm_head" in n or "attn.bias" in n for n in missing), missing
    model.tie_weights()
    return model


def log_probabilities(model, ids):
    """Row i: the distribution of the token after ids[: i + 1]."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def evaluate(model, ids, block, stride):
    """One forward for each target, with exactly the inputs that its window shows the model."""
    nats, correct = 0.0, 0
    for target in range(1, len(ids)):
        first = 0 if target <= block else math.ceil((target - block) / stride) * stride
        row = log_probabilities(model, ids[first:target])[-1]
        nats -= row[ids[target]].item()
        correct += int(row.argmax() == ids[target])
    return nats, correct


def greedy(model, prompt, count, **options):
    output = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)),
                            max_new_tokens=count, do_sample=False, eos_token_id=None,
                            pad_token_id=END_OF_TEXT, **options)
    return output[0, len(prompt):].tolist()


def sliding(model, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(log_probabilities(model, ids[-CONFIG["n_positions"]:])[-1].argmax()))
    return ids[len(prompt):]


def last_words(model):
    nats, tokens, correct = 0.0, 0, 0
    for passage in PASSAGES:
        context, word = passage.rsplit(" ", 1)
        target = list((" " + word).encode())
        ids = (list(context.encode()) + target)[-(CONFIG["n_positions"] + 1):]
        rows = log_probabilities(model, ids[:-1])[-len(target):]
        nats -= sum(row[token].item() for row, token in zip(rows, target))
        tokens += len(target)
        correct += int(all(row.argmax() == token for row, token in zip(rows, target)))
    return {"accuracy": correct / len(PASSAGES), "perplexity": math.exp(nats / len(PASSAGES)),
            "loss": nats / tokens, "passages": len(PASSAGES), "tokens": tokens}


def main():
    make_weights()
    model = load_model()
    ids = list(TEXT.encode())
    words = len(TEXT.split()) + len(TEXT.splitlines())
    evaluations = []
    for block, stride in [(32, 32), (32, 8), (32, 1), (20, 20), (20, 7), (1, 1)]:
        nats, correct = evaluate(model, ids, block, stride)
        targets = len(ids) - 1
        evaluations.append({
            "block_size": block, "stride": stride, "loss": nats / targets,
            "perplexity": math.exp(nats / targets),
            "bits_per_byte": nats / math.log(2) / len(TEXT.encode()),
            "accuracy": correct / targets, "tokens": targets,
            "word_perplexity": math.exp(nats / words)})
    prompts = [list(b"The"), list(b"a longer one"), [END_OF_TEXT]]
    result = {
        "config": CONFIG | {"model_type": "gpt2"},
        "text": TEXT,
        "passages": PASSAGES,
        "evaluations": evaluations,
        "last_words": last_words(model),
        "generations": [
            {"prompt": prompt, "greedy": greedy(model, prompt, 16),
             "penalised": greedy(model, prompt, 16, repetition_penalty=1.4),
             "sliding": sliding(model, prompt, 48)} for prompt in prompts],
    }
    (HERE / "tiny_lm.json").write_text(json.dumps(result, indent=1) + "\n")


main()
