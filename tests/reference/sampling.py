"""Reference values for src/inference/sampling_test.cpp.

Runs the logits processors of Hugging Face transformers, in the order in which generate() applies
them, in float64 and prints the rows of the test's table. Needs torch and transformers:
    python tests/reference/sampling.py
"""

import torch
from transformers.generation import logits_process as hf

LOGITS = [1.5, -0.25, 3.0, 0.0, 2.5, -4.0, 2.5, 0.75, -1.0, 1.0, 2.0, -0.5]
HISTORY = [2, 1, 2, 11, 6]
# repetition_penalty, temperature, top_k, top_p, min_p
CASES = [
    (1.0, 1.0, 0, 1.0, 0.0),
    (1.0, 0.7, 0, 1.0, 0.0),
    (1.3, 1.0, 0, 1.0, 0.0),
    (0.8, 1.0, 0, 1.0, 0.0),
    (1.0, 1.0, 3, 1.0, 0.0),
    (1.0, 1.0, 2, 1.0, 0.0),  # the second and third are equal: both stay
    (1.0, 1.0, 0, 0.8, 0.0),
    (1.0, 1.0, 0, 0.05, 0.0),
    (1.0, 1.0, 0, 1.0, 0.3),
    (1.0, 2.0, 0, 0.9, 0.2),
    (1.2, 0.8, 7, 0.85, 0.0),
    (1.2, 1.4, 9, 0.95, 0.15),
    (1.0, 1.0, 100, 1.0, 1.0),
]


def distribution(penalty, temperature, top_k, top_p, min_p):
    ids = torch.tensor([HISTORY])
    scores = torch.tensor([LOGITS], dtype=torch.float64)
    if penalty != 1.0:
        scores = hf.RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    if temperature != 1.0:
        scores = hf.TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k:
        scores = hf.TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1.0:
        scores = hf.TopPLogitsWarper(top_p)(ids, scores)
    if min_p:
        scores = hf.MinPLogitsWarper(min_p)(ids, scores)
    return scores.softmax(-1)[0].tolist()


for case in CASES:
    values = ", ".join(f"{value:.15g}" for value in distribution(*case))
    print("{{%g, %g, %d, %g, %g},\n {%s}}," % (*case, values))
