"""Writes hugging_face_merges.txt: the merges that Hugging Face's `tokenizers` learns from this repository's LICENSE.

Usage: python make_hugging_face_merges.py   (needs the package tokenizers; made with 0.23.3)
"""
import json
import pathlib

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(
    vocab_size=256 + 600, min_frequency=2, show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
text = (here / "../../../LICENSE").read_text(encoding="utf-8")
tokenizer.train_from_iterator([text], trainer)
merges = json.loads(tokenizer.to_str())["model"]["merges"]
(here / "hugging_face_merges.txt").write_text(
    "".join(" ".join(merge) + "\n" for merge in merges), encoding="utf-8")
