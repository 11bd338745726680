"""How far is the book from the engines? Steps of writing, by turns.

Two models of random weights write on a CPU: one with the sizes of SmolLM2-135M
(30 thin layers) and GPT-2 small. The book's writers and transformers run here,
llama.cpp (its package xllamacpp) and CTranslate2 in another interpreter, which
is given by an option; where one is missing, a line says so and its rows stay
out. llama.cpp's weights are those of the published SmolLM2, since it reads
files, and the time does not depend on the numbers. The contenders take turns,
in another order each round. The median and the quartiles of the milliseconds
a step are stored, and how many times as fast as transformers, and as each
engine, the book's writers are, within each round. Rows that are stored already
stay if they are of this machine and of as many rounds, so that a long run can
be made a part at a time.

usage: python benchmarks/engines.py [--rounds N] [--engines-python PYTHON]
           [--threads 1 2] [--texts 1 8] [--read 32 512] [--models NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from int8 import Int8Linear
from other_process import OtherProcess
from results import CHAPTERS, ROOT, quartiles, store
from rounds import against, machine, rounds_of
from writers import NEW_TOKENS, draw_prompts, ours, pair, theirs

from attnbook.compiled import compile_steps
from attnbook.fast import EightBitLinear, pack
from attnbook.gpt import GPT, GPTConfig

#: The sizes of SmolLM2-135M.
SMOLLM2 = GPTConfig(
    vocab_size=49_152,
    context=2048,
    d_model=576,
    n_heads=9,
    n_kv_heads=3,
    n_layers=30,
    d_ff=1536,
    bias=False,
    positions="rotary",
    rotary_base=100_000.0,
    activation="swiglu",
    norm="rms",
)
WORKER = Path(__file__).with_name("engine_worker.py")
#: Where the engines' files are made.
FOLDER = ROOT / "_build" / "engines"

Turns = dict[str, Callable[[], float]]


def smollm2() -> tuple[GPT, Any]:
    """SmolLM2's shape, of the book and of transformers, the same weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from attnbook.pretrained import rename

    torch.manual_seed(0)
    sizes = SMOLLM2
    config = LlamaConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.d_model,
        intermediate_size=sizes.d_ff or 1536,
        num_hidden_layers=sizes.n_layers,
        num_attention_heads=sizes.n_heads,
        num_key_value_heads=sizes.n_kv_heads,
        max_position_embeddings=sizes.context,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": sizes.rotary_base,
        },
        rms_norm_eps=sizes.norm_eps,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    peer = LlamaForCausalLM(config).eval()
    peer.generation_config.eos_token_id = None  # it never ends early
    model = GPT(sizes).eval()
    model.load_state_dict(rename(peer.state_dict(), model, "llama"))
    return model, peer


MODELS = {"SmolLM2-135M": smollm2, "GPT-2 small": pair}


def make_files() -> None:
    """SmolLM2 for llama.cpp: its published 4-bit file, and from that one the
    same in float32 and in 8 bits, unless they are there."""
    import gguf
    import numpy as np

    from attnbook.published import find

    FOLDER.mkdir(parents=True, exist_ok=True)
    source = find("SmolLM2-135M-Instruct")
    link = FOLDER / "Q4_1.gguf"
    if not link.exists():
        link.symlink_to(source)
    eight = gguf.GGMLQuantizationType.Q8_0
    for kind, number in (("F32", 0), ("Q8_0", 7)):
        path = FOLDER / f"{kind}.gguf"
        if path.exists():
            continue
        read = gguf.GGUFReader(source)
        written = gguf.GGUFWriter(path.with_suffix(".part"), "llama")
        for name, field in read.fields.items():
            if name == "general.architecture" or name.startswith("GGUF."):
                continue
            value = field.contents()
            if name == "general.file_type":
                value = number
            is_list = field.types[0] == gguf.GGUFValueType.ARRAY
            inside = field.types[-1] if is_list else None
            written.add_key_value(name, value, field.types[0], inside)
        for tensor in read.tensors:
            x = gguf.dequantize(tensor.data, tensor.tensor_type)
            x = x.astype(np.float32)
            if kind == "F32" or x.ndim != 2:
                written.add_tensor(tensor.name, x)
            else:
                rounded = gguf.quantize(x, eight)
                written.add_tensor(tensor.name, rounded, raw_dtype=eight)
        written.write_header_to_file()
        written.write_kv_data_to_file()
        written.write_tensors_to_file()
        written.close()
        path.with_suffix(".part").rename(path)


def engines_of(
    engine: OtherProcess | None,
    model: str,
    threads: int,
    texts: int,
    read: int,
) -> Turns:
    """What the worker can run in this setting; a line says what it cannot."""
    found: Turns = {}
    if engine is None:
        return found
    about = engine.ask({"do": "about"})
    for name, reason in about["contenders"][model].items():
        request = {
            "do": "run",
            "contender": name,
            "model": model,
            "threads": threads,
            "texts": texts,
            "read": read,
            "new": NEW_TOKENS,
        }
        try:
            if reason:
                raise RuntimeError(reason)
            engine.seconds(request)
        except RuntimeError as error:
            print(f"{name} is left out for {model}: {error}", flush=True)
            continue
        found[name] = partial(engine.seconds, request)
    return found


def on(threads: int, step: Callable[[], float]) -> float:
    """Run something of this process on so many threads."""
    torch.set_num_threads(threads)
    return step()


def writers_of(model: GPT) -> dict[str, GPT]:
    """The ways in which the book writes with a model, by name."""
    eight = pack(model, EightBitLinear)
    return {
        "plain": model,
        "packed": pack(model),
        "fewer calls": compile_steps(model),
        "8 bits": eight,
        "8 bits, fewer calls": compile_steps(eight),
        "8 bits, tokens too": pack(model, Int8Linear),
    }


def measure(asked: argparse.Namespace, about: dict[str, Any]) -> None:
    """Measure the rows: by model, and by texts, tokens read and cores.

    The results are stored after each row, so that those of a run that is
    stopped are there.
    """
    engine = None
    if asked.engines_python:
        make_files()
        command = [asked.engines_python, str(WORKER), str(FOLDER)]
        engine = OtherProcess(command)
    else:
        print("engines are left out: --engines-python was not given")
    result: dict[str, Any] = about | {"rows": earlier_rows(about)}
    if engine is not None:
        result["engines"] = engine.ask({"do": "about"})["versions"]
    settings = list(product(asked.texts, asked.read, asked.threads))
    for name in asked.models:
        model, peer = MODELS[name]()
        writers = writers_of(model)
        rows = result["rows"].setdefault(name, {})
        for texts, read, threads in settings:
            top = min(50_257, model.config.vocab_size)
            drawn = draw_prompts(*[read] * texts)
            prompts = [[t % top for t in row] for row in drawn]
            turns: Turns = {
                who: partial(on, threads, ours(one, prompts))
                for who, one in writers.items()
            }
            turns["transformers"] = partial(on, threads, theirs(peer, prompts))
            turns |= engines_of(engine, name, threads, texts, read)
            key = f"{threads} × {texts} × {read}"
            rows[key] = row(rounds_of(turns, asked.rounds), [*writers])
            rows[key] |= {"cores": threads, "texts": texts, "read": read}
            rows[key] |= {"note": asked.note, "load": load()}
            middle = {w: q[1] for w, q in rows[key]["milliseconds"].items()}
            print(f"{name}, {key}: {middle}", flush=True)
            store("engines", result)
    if engine is not None:
        engine.end()


def earlier_rows(about: dict[str, Any]) -> dict[str, Any]:
    """The stored rows, if they are of this machine and of as many rounds."""
    path = CHAPTERS / "attnbook" / "data" / "engines.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    same = all(stored.get(k) == about[k] for k in ("machine", "rounds"))
    return stored["rows"] if same else {}


def row(found: dict[str, list[float]], writers: list[str]) -> dict[str, Any]:
    """Quartiles of what each contender took, and of ratios in a round.

    Args:
        found: the seconds of each round, by contender.
        writers: the contenders that are the book's. Each has a ratio to
            every other contender.
    """
    times = {w: quartiles([1000 * s for s in t]) for w, t in found.items()}
    ratios = {
        peer: {who: against(found, peer, who) for who in writers}
        for peer in found
        if peer not in writers
    }
    return {"milliseconds": times, "times as fast as": ratios}


def load() -> float:
    """How many processes have wanted a core, over the last minute."""
    return round(os.getloadavg()[0], 1)


def main() -> int:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines-python", metavar="PYTHON")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--read", type=int, nargs="+", default=[32, 512])
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS)
    )
    parser.add_argument("--note", default="", help="what else the machine did")
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error(f"expected at least 2 rounds; got {asked.rounds}")
    about = machine()
    del about["threads"]  # it is in each row
    measure(
        asked,
        {
            "machine": about,
            "rounds": asked.rounds,
            "new tokens": NEW_TOKENS,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
