#!/usr/bin/env python3
"""Known answers of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011).

    python tests/reference/philox.py [--check]

The first three vectors are those that the authors publish with Random123 (tests/kat_vectors). The program below is
written from the paper; it must reproduce them before it adds vectors with small and mixed words, as a trainer uses
them. Writes philox4x32_10.json beside itself; words are 32-bit, lowest first, in hexadecimal. Needs Python only.
"""

import argparse
import json
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "philox4x32_10.json"
MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
PUBLISHED = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
MORE = [
    ("00000001 00000000 00000000 00000000", "00000000 00000000"),
    ("00000000 00000001 00000000 00000000", "00000000 00000000"),
    ("00000000 00000000 00000001 00000000", "00000000 00000000"),
    ("00000000 00000000 00000000 00000001", "00000000 00000000"),
    ("00000000 00000000 00000000 00000000", "00000001 00000000"),
    ("00000000 00000000 00000000 00000000", "00000000 00000001"),
    ("00000539 00000007 0000002a 80000003", "deadbeef 00000010"),
]


def philox4x32_10(counter, key):
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        low, high = MULTIPLIERS[0] * x0, MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (high >> 32) ^ x1 ^ k0, high & MASK, (low >> 32) ^ x3 ^ k1, low & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return [x0, x1, x2, x3]


def words(text):
    return [int(word, 16) for word in text.split()]


def text(values):
    return " ".join(f"{value:08x}" for value in values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file that is there")
    arguments = parser.parse_args()
    for counter, key, output in PUBLISHED:
        if text(philox4x32_10(words(counter), words(key))) != output:
            raise SystemExit(f"this program does not reproduce the published vector of counter {counter}")
    vectors = [dict(counter=c, key=k, output=o, published=True) for c, k, o in PUBLISHED]
    vectors += [dict(counter=c, key=k, output=text(philox4x32_10(words(c), words(k))), published=False)
                for c, k in MORE]
    content = "[\n " + ",\n ".join(json.dumps(vector) for vector in vectors) + "\n]\n"
    if arguments.check:
        if TARGET.read_text() != content:
            raise SystemExit("philox4x32_10.json differs from what this program makes")
        print("philox4x32_10.json agrees")
    else:
        TARGET.write_text(content)


if __name__ == "__main__":
    main()
