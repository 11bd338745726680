"""A process in which llama.cpp and CTranslate2 write, for engines.py.

It runs in an interpreter that has them (`xllamacpp`, `ctranslate2`), and needs
neither torch nor the book. Each line that it is sent is a request in JSON, and
each line that it answers is JSON: what it can run, or the seconds of a step.

usage: PYTHON engine_worker.py FOLDER    FOLDER: the models' files are here
"""

from __future__ import annotations

import json
import os
import random
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: llama.cpp's files, by contender, and CTranslate2's kinds of numbers.
LLAMA = {
    "llama.cpp f32": "F32.gguf",
    "llama.cpp Q8_0": "Q8_0.gguf",
    "llama.cpp Q4_1": "Q4_1.gguf",
}
CTRANSLATE2 = {"CTranslate2 f32": "float32", "CTranslate2 int8": "int8"}
SMOLLM2 = "SmolLM2-135M"
GPT2 = "GPT-2 small"
#: GPT-2 small: tokens, width, blocks, heads, positions.
SIZES = (50_257, 768, 12, 12, 1024)

#: Engines that were made, by what was asked for.
made: dict[tuple, Any] = {}


def installed(package: str) -> str | None:
    """The version of a package, or None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def about(folder: Path) -> dict[str, Any]:
    """What can be run here: a reason for each contender that cannot, or ""."""
    versions = {p: installed(p) for p in ("xllamacpp", "ctranslate2")}
    smol = {}
    for name, file in LLAMA.items():
        smol[name] = "" if (folder / file).exists() else f"there is no {file}"
        if versions["xllamacpp"] is None:
            smol[name] = "xllamacpp is not installed"
    small = {}
    for name in CTRANSLATE2:
        small[name] = ""
        if versions["ctranslate2"] is None:
            small[name] = "ctranslate2 is not installed"
    return {"contenders": {SMOLLM2: smol, GPT2: small}, "versions": versions}


def gpt2(folder: Path) -> str:
    """A folder with a GPT-2 small of random weights, as CTranslate2 has it."""
    import numpy as np
    from ctranslate2.specs import Activation, TransformerDecoderModelSpec

    # long: it is a list of weights, one after the other
    made_in = folder / "gpt2"
    if (made_in / "model.bin").exists():
        return str(made_in)
    vocabulary, d, layers, heads, context = SIZES
    drawn = np.random.default_rng(0)

    def fill(linear, out, width):
        numbers = drawn.standard_normal((out, width), dtype=np.float32)
        linear.weight = 0.02 * numbers
        linear.bias = np.zeros(out, np.float32)

    def even(norm):
        norm.gamma = np.ones(d, np.float32)
        norm.beta = np.zeros(d, np.float32)

    spec = TransformerDecoderModelSpec.from_config(
        layers, heads, pre_norm=True, activation=Activation.GELUTanh
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    table = drawn.standard_normal((vocabulary, d), dtype=np.float32)
    decoder.embeddings.weight = 0.02 * table
    places = drawn.standard_normal((context, d), dtype=np.float32)
    decoder.position_encodings.encodings = 0.02 * places
    even(decoder.layer_norm)
    decoder.projection.weight = decoder.embeddings.weight
    for block in decoder.layer:
        even(block.self_attention.layer_norm)
        fill(block.self_attention.linear[0], 3 * d, d)
        fill(block.self_attention.linear[1], d, d)
        even(block.ffn.layer_norm)
        fill(block.ffn.linear_0, 4 * d, d)
        fill(block.ffn.linear_1, d, 4 * d)
    spec.register_vocabulary([f"t{n}" for n in range(vocabulary)])
    spec.config.bos_token = spec.config.eos_token = "t0"
    spec.config.unk_token = "t0"
    spec.validate()
    spec.optimize()
    made_in.mkdir(parents=True, exist_ok=True)
    spec.save(str(made_in))
    return str(made_in)


def llama(asked: dict[str, Any], path: str) -> float:
    """Seconds of a step of llama.cpp, by its own clock, for one text."""
    import xllamacpp

    key = (asked["contender"], asked["threads"])
    if key not in made:
        made.clear()  # one engine at a time: its threads wait by spinning
        told = xllamacpp.CommonParams()
        told.model.path = path
        told.n_ctx = 600
        told.n_parallel = 1
        told.warmup = False
        told.verbosity = -1
        told.cpuparams.n_threads = asked["threads"]
        told.cpuparams_batch.n_threads = asked["threads"]
        made[key] = xllamacpp.Server(told)
    drawn = random.Random(asked["read"])
    answer = made[key].handle_completions(
        {
            "prompt": [
                drawn.randrange(1000, 40_000) for _ in range(asked["read"])
            ],
            "n_predict": asked["new"],
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
        }
    )
    if not isinstance(answer, dict):
        answer = json.loads(answer)
    if "timings" not in answer:
        raise RuntimeError(f"llama.cpp did not write: {answer}")
    times = answer["timings"]
    # The first token comes from reading the prompt, and is counted with it.
    return times["predicted_ms"] / 1000 / (times["predicted_n"] - 1)


def ctranslate2_step(asked: dict[str, Any], path: str) -> float:
    """Seconds of a step of CTranslate2: the mean over the new tokens."""
    import time

    import ctranslate2

    kind = CTRANSLATE2[asked["contender"]]
    key = (asked["contender"], asked["threads"])
    if key not in made:
        made.clear()
        made[key] = ctranslate2.Generator(
            path,
            device="cpu",
            compute_type=kind,
            intra_threads=asked["threads"],
            inter_threads=1,
        )
    drawn = random.Random(asked["read"])
    prompts = [
        [f"t{drawn.randrange(50_257)}" for _ in range(asked["read"])]
        for _ in range(asked["texts"])
    ]
    ended: list[float] = []

    def keep(step):
        if step.batch_id == 0:
            ended.append(time.perf_counter())
        return False

    made[key].generate_batch(
        prompts,
        max_length=asked["new"],
        min_length=asked["new"],
        include_prompt_in_result=False,
        beam_size=1,
        callback=keep,
    )
    return (ended[-1] - ended[0]) / (len(ended) - 1)


def answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a request asks for, or the error as a sentence."""
    if asked["do"] == "about":
        return about(folder)
    name = asked["contender"]
    try:
        if name in LLAMA:
            if asked["texts"] != 1:
                raise RuntimeError("this binding writes one text at a time")
            return {"seconds": llama(asked, str(folder / LLAMA[name]))}
        return {"seconds": ctranslate2_step(asked, gpt2(folder))}
    except Exception as error:  # said to the one who asked
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    folder = Path(sys.argv[1])
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what the engines print is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), folder)), file=lines)


if __name__ == "__main__":
    main()
