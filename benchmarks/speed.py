"""How fast is it? The book's model beside its peers, in one process.

Every comparison runs on the same inputs, and where results are compared on
the same weights; the contenders take turns, in another order each round. What
is kept is the ratio within a round: its median and quartiles. The page "How
fast is it" shows the result. It takes about ten minutes on two cores; on a
machine that does other things at the same time the spread grows.

usage: python benchmarks/speed.py [--rounds N] [SECTION ...]

SECTION: one or more of decode, limit, uncached, layouts, attention,
explicit, training, memory, whose results then replace the stored ones of the
same machine; all if none is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from int8 import Int8Linear
from peers import PlainGPT
from results import CHAPTERS, quartiles, store
from torch import nn

from attnbook.attention import attend, weigh
from attnbook.fast import PackedLinear, pack, replace_linear
from attnbook.generate import generate
from attnbook.gpt import GPT, GPTConfig
from attnbook.layers import MultiHeadAttention
from attnbook.masks import causal_mask
from attnbook.pretrained import load_model
from attnbook.town import TOWN_CONFIG, TOWN_RECIPE, Town, accuracy, encode
from attnbook.training import loss_share, make_optimizer, mean_loss

THREADS = 2
NEW_TOKENS = 17  # the first comes from the prompt, sixteen from decoding
#: Prompts of these lengths in a batch of eight, for the padded one.
UNEQUAL = (64, 128, 192, 256, 320, 384, 448, 512)


# ---- taking turns


def rounds_of(
    contenders: dict[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """What each contender gives in each round, after one to warm up."""
    for run in contenders.values():
        run()
    found = {name: [] for name in contenders}
    names, shuffle = list(contenders), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(names)  # nobody always follows the same one
        for name in names:
            found[name].append(contenders[name]())
    return found


def against(found: dict[str, list[float]], peer: str, name: str) -> list:
    """How many times faster than its peer, round by round: quartiles."""
    return quartiles([a / b for a, b in zip(found[peer], found[name])])


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# ---- decoding


class Clock:
    """Notes the time at each new token of transformers' `generate`."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, tokens, scores, **_) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(len(tokens), dtype=torch.bool)


def a_token(times: list[float]) -> float:
    """Seconds a decoding step, the prompt's own left out."""
    return (times[-1] - times[0]) / (len(times) - 1)


def ours(model: GPT, prompts: list[list[int]], **options) -> Callable:
    """A run of `generate`: seconds a decoding step."""

    def run() -> float:
        times = []
        for _ in generate(model, prompts, NEW_TOKENS, **options):
            times.append(time.perf_counter())
        return a_token(times)

    return run


def theirs(model: nn.Module, prompts: list[list[int]]) -> Callable:
    """A run of transformers' `generate`, greedy, with its cache."""
    T = max(len(p) for p in prompts)
    tokens = torch.tensor([[0] * (T - len(p)) + p for p in prompts])
    real = torch.tensor([[0] * (T - len(p)) + [1] * len(p) for p in prompts])

    def run() -> float:
        clock = Clock()
        model.generate(
            tokens,
            attention_mask=real,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=True,
            stopping_criteria=[clock],
        )
        return a_token(clock.times)

    return run


def pair() -> tuple[GPT, nn.Module]:
    """GPT-2 small with random weights, the book's and transformers'."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from attnbook.pretrained import rename

    torch.manual_seed(0)
    config = GPTConfig()
    theirs = GPT2Config(
        n_layer=config.n_layers,
        n_head=config.n_heads,
        n_embd=config.d_model,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    peer = GPT2LMHeadModel(theirs)
    peer.eval().generation_config.eos_token_id = None  # nobody stops early
    model = GPT(config).eval()
    model.load_state_dict(rename(peer.state_dict(), model, "gpt2"))
    return model, peer


def draw_prompts(*lengths: int) -> list[list[int]]:
    """Random tokens, the same each time."""
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randint(50_257, (n,), generator=generator, device="cpu").tolist()
        for n in lengths
    ]


def read_bandwidth() -> float:
    """Bytes a second at which this process reads memory, at its best."""
    much = torch.ones(1 << 28)  # 1 GiB, far beyond the processor's caches
    a, b = much.chunk(2)
    fastest = min(
        seconds(read)
        for read in (much.sum, much.amax, lambda: torch.dot(a, b)) * 5
    )
    return much.nbytes / fastest


def decode(rounds: int) -> dict:
    """Tokens a second against transformers; the limit; 8 bits."""
    model, peer = pair()
    packed, int8 = pack(model), pack(model, Int8Linear)
    cases = {
        "1 × 32": draw_prompts(32),
        "1 × 512": draw_prompts(512),
        "8 × 32": draw_prompts(*[32] * 8),
        "8 × 512": draw_prompts(*[512] * 8),
        "8 × 64…512, padded": draw_prompts(*UNEQUAL),
    }
    rows = {}
    for name, prompts in cases.items():
        runs = {
            "transformers": theirs(peer, prompts),
            "plain": ours(model, prompts),
            "packed": ours(packed, prompts),
            "int8": ours(int8, prompts),
        }
        found = rounds_of(runs, rounds)
        rows[name] = {
            "tokens_per_second": {
                who: quartiles([len(prompts) / s for s in found[who]])
                for who in ("transformers", "plain", "packed", "int8")
            },
            "ratio": {
                who: against(found, "transformers", who)
                for who in ("plain", "packed", "int8")
            },
        }
        report(name, rows[name]["ratio"])
    return {
        "rows": rows,
        "same_tokens": same_tokens(model, packed, peer, cases),
        "int8_loss": int8_loss(model, int8),
    }


def limit(rounds: int) -> dict:
    """The share of memory's speed that decoding reaches, and the time of its
    calls alone: of a model of as many layers and next to no width.
    """
    model, peer = pair()
    packed = pack(model)
    narrow = dataclasses.replace(model.config, vocab_size=16, d_model=12)
    calls = pack(GPT(narrow).eval())
    result = {}
    for n_prompt in (32, 512):
        prompts = draw_prompts(n_prompt)
        runs = {
            "transformers": theirs(peer, prompts),
            "plain": ours(model, prompts),
            "packed": ours(packed, prompts),
            "calls": ours(calls, [[token % 16 for token in prompts[0]]]),
            "read": read_bandwidth,
        }
        found = rounds_of(runs, 2 * rounds)
        moved = moved_bytes(model, n_prompt)
        result[f"1 × {n_prompt}"] = {
            "bytes": moved,
            "share": {
                who: quartiles(
                    [moved / s / b for s, b in zip(found[who], found["read"])]
                )
                for who in ("transformers", "plain", "packed")
            },
            "calls": quartiles(
                [a / b for a, b in zip(found["calls"], found["packed"])]
            ),
        }
        report(f"limit, 1 × {n_prompt}", result[f"1 × {n_prompt}"]["share"])
    return result


def moved_bytes(model: GPT, n_prompt: int) -> int:
    """Bytes that a step of decoding must read: weights, and the cache as it
    is on average over the steps. Of the embeddings it reads a row.
    """
    config = model.config
    tables = model.position_embedding.weight.nbytes
    weights = sum(p.nbytes for p in model.parameters()) - tables
    tokens = n_prompt + NEW_TOKENS / 2
    cache = 2 * config.n_layers * config.d_model * 4 * tokens
    return round(weights + cache)


def same_tokens(model, packed, peer, cases) -> dict[str, float]:
    """Share of the tokens that are those of transformers' `generate`."""
    shares = {}
    for name, prompts in cases.items():
        T = max(len(p) for p in prompts)
        tokens = torch.tensor([[0] * (T - len(p)) + p for p in prompts])
        real = torch.tensor(
            [[0] * (T - len(p)) + [1] * len(p) for p in prompts]
        )
        expected = peer.generate(
            tokens,
            attention_mask=real,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )[:, T:].tolist()
        for who, one in {"plain": model, "packed": packed}.items():
            steps = list(generate(one, prompts, NEW_TOKENS))
            rows = [list(row) for row in zip(*steps)]
            pairs = [
                (a, b) for x, y in zip(rows, expected) for a, b in zip(x, y)
            ]
            same = sum(a == b for a, b in pairs) / len(pairs)
            shares[f"{who}, {name}"] = round(same, 4)
    return shares


@torch.inference_mode()
def int8_loss(model: GPT, int8: GPT) -> dict:
    """What the rounding to 8 bits costs: logits, and the town's model."""
    tokens = torch.tensor(draw_prompts(256, 256))
    exact, rounded = model(tokens), int8(tokens)
    trained = load_model(
        CHAPTERS / "attnbook" / "data" / "town.safetensors"
    ).model.eval()
    small = pack(trained, Int8Linear)
    town = Town()
    stories = encode(town.stories(300, seed=1_000_000))
    questions = Town(people=(4, 4)).questions("returning", 300, seed=2_000_000)
    return {
        "relative_error": float(
            f"{((exact - rounded).std() / exact.std()).item():.3g}"
        ),
        "same_choice": round(
            (exact.argmax(-1) == rounded.argmax(-1)).float().mean().item(), 3
        ),
        "town_loss": [
            round(mean_loss(m, *stories), 4) for m in (trained, small)
        ],
        "town_returning": [
            round(accuracy(m, questions), 4) for m in (trained, small)
        ],
    }


def uncached(rounds: int) -> dict:
    """With the cache against everything computed again for each token."""
    model, _ = pair()
    packed = pack(model)
    prompts = draw_prompts(512)
    found = rounds_of(
        {
            "plain, no cache": ours(model, prompts, cached=False),
            "plain": ours(model, prompts),
            "packed, no cache": ours(packed, prompts, cached=False),
            "packed": ours(packed, prompts),
        },
        max(3, rounds // 2),
    )
    ratio = {
        who: against(found, f"{who}, no cache", who)
        for who in ("plain", "packed")
    }
    report("cached over uncached", ratio)
    return {"prompt": 512, "ratio": ratio}


def layouts(rounds: int) -> dict:
    """One product of decoding, the matrix laid out in three ways.

    As many matrices as together do not fit into the processor's caches are
    taken in turn.
    """
    result = {}
    for out, width, count in ((2304, 768, 24), (50_257, 768, 2)):
        torch.manual_seed(0)
        rows = [torch.randn(out, width) for _ in range(count)]
        contenders = {
            "rows": [nn.Linear(width, out, bias=False) for _ in rows],
            "columns": [nn.Linear(width, out, bias=False) for _ in rows],
            "packed": [PackedLinear(w, None) for w in rows],
        }
        for w, a, b in zip(rows, contenders["rows"], contenders["columns"]):
            a.weight = nn.Parameter(w)
            b.weight = nn.Parameter(w.t().contiguous().t())
        for batch in (1, 8):
            x = torch.randn(batch, 1, width)
            with torch.inference_mode():
                found = rounds_of(
                    {
                        name: lambda m=m, x=x: seconds(
                            lambda: [f(x) for f in m]
                        )
                        for name, m in contenders.items()
                    },
                    6 * rounds,
                )
            name = f"{out} × {width}, {batch} rows"
            result[name] = {
                who: against(found, "rows", who)
                for who in ("columns", "packed")
            }
            report(name, result[name])
    return result


# ---- attention


def attention(rounds: int) -> dict:
    """The block's causal forward pass against `nn.MultiheadAttention`, as it
    comes, and with its "fast path" switched off, which is faster.
    """
    torch.manual_seed(0)
    block = MultiHeadAttention(768, 12).eval()
    peer = nn.MultiheadAttention(768, 12, batch_first=True).eval()
    with torch.no_grad():
        for kind in ("weight", "bias"):
            q, k, v = getattr(peer, f"in_proj_{kind}").chunk(3)
            getattr(block.query, kind).copy_(q)
            getattr(block.key_value, kind).copy_(torch.cat([k, v]))
            getattr(block.out, kind).copy_(getattr(peer.out_proj, kind))
    with torch.no_grad():
        laid_out = replace_linear(block, PackedLinear)
    result = {}
    for T in (128, 256, 512, 1024, 2048):
        x = torch.randn(1, T, 768)
        hidden = ~causal_mask(T)  # True: may not attend, the peer's way

        def run_peer(fast, x=x, hidden=hidden):
            torch.backends.mha.set_fastpath_enabled(fast)
            return peer(
                x, x, x, attn_mask=hidden, is_causal=True, need_weights=False
            )[0]

        runs = {
            "as it comes": lambda: run_peer(True),
            "fast path off": lambda: run_peer(False),
            "plain": lambda x=x: block(x, causal=True),
            "packed": lambda x=x: laid_out(x, causal=True),
        }
        with torch.inference_mode():
            results = [run() for run in runs.values()]
            for one in results[1:]:
                torch.testing.assert_close(
                    one, results[0], atol=1e-4, rtol=1e-4
                )
            found = rounds_of(
                {n: lambda r=r: seconds(r) for n, r in runs.items()},
                3 * rounds,
            )
        result[T] = {
            f"{who} over {other}": against(found, other, who)
            for other in ("as it comes", "fast path off")
            for who in ("plain", "packed")
        }
        report(f"attention, T = {T}", result[T])
    torch.backends.mha.set_fastpath_enabled(True)
    return result


def explicit(rounds: int) -> dict:
    """The explicit path's time and memory over the fused path's."""
    result = {}
    for T in (256, 512, 1024, 2048, 4096):
        with torch.inference_mode():
            runs = {
                name: (lambda r=r: seconds(r))
                for name, r in attention_paths(T).items()
            }
            found = rounds_of(runs, max(3, rounds // 2))
        peaks = {
            path: extra_memory(f"{path}:{T}") for path in ("explicit", "fused")
        }
        result[T] = {
            "time": against(found, "explicit", "fused"),
            "extra_megabytes": peaks,
        }
        print(f"explicit, T = {T}: {result[T]}", flush=True)
    return result


def attention_paths(T: int) -> dict[str, Callable]:
    """Causal attention of 12 heads of width 64, both ways."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 12, T, 64) for _ in range(3))
    mask = causal_mask(T)
    return {
        "explicit": lambda: weigh(q, k, mask=mask) @ v,
        "fused": lambda: attend(q, k, v, causal=True),
    }


# ---- memory, each in a process of its own


def memory(rounds: int) -> dict:
    """Most memory that a whole process takes, generating from 512 tokens."""
    found = {
        name: extra_memory(name)
        for name in ("transformers", "plain", "packed", "int8")
    }
    print(f"memory: {found}", flush=True)
    return found


def extra_memory(name: str) -> int:
    """Megabytes at the peak of a process that does one thing only."""
    command = [sys.executable, __file__, "--peak", name]
    out = subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8"
    )
    return int(out.stdout)


def peak(name: str) -> None:
    """Do the one thing, and print the megabytes of the peak."""
    before = 0
    path, _, T = name.partition(":")
    if T:
        run = attention_paths(int(T))[path]
        before = highest(since_now=True)
        with torch.inference_mode():
            run()
    elif name == "transformers":
        from transformers import GPT2Config, GPT2LMHeadModel

        peer = GPT2LMHeadModel(
            GPT2Config(bos_token_id=0, eos_token_id=0, pad_token_id=0)
        )
        theirs(peer.eval(), draw_prompts(512))()
    else:
        model = GPT(GPTConfig()).eval()
        if name != "plain":
            model = pack(model, Int8Linear if name == "int8" else PackedLinear)
        ours(model, draw_prompts(512))()
    print((highest() - before) // 1024)


def highest(*, since_now: bool = False) -> int:
    """Kilobytes that this process has taken at most, or, with `since_now`,
    takes now; from then on the most is counted anew.

    Linux's own count: what `resource` gives holds the parent's as well.
    """
    status = Path("/proc/self/status")
    if since_now and status.exists():
        Path("/proc/self/clear_refs").write_text("5", "utf-8")
    if not status.exists():
        raise OSError(
            "the peak of a process is read from Linux's /proc; expected "
            f"{status}; got none: leave out the sections that need it"
        )
    return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text("utf-8"))[1])


# ---- training


def stepper(model: nn.Module) -> Callable[[], float]:
    """A step of training on one batch of stories: its seconds."""
    tokens, targets = Town().batches(
        TOWN_RECIPE.batch_size, torch.Generator().manual_seed(0)
    )
    labels = torch.cat([tokens[:, :1], targets[:, :-1]], 1)
    total = int((targets != -100).sum())
    optimizer = make_optimizer(model, TOWN_RECIPE)
    theirs = hasattr(model, "generation_config")  # transformers' counts itself

    def step():
        if theirs:
            loss = model(input_ids=tokens, labels=labels, use_cache=False).loss
        else:
            loss = loss_share(model, tokens, targets, total)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), TOWN_RECIPE.clip)
        optimizer.step()

    return lambda: seconds(step)


def training(rounds: int) -> dict:
    """A step of chapter 11's model against two of the same shape."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(1)  # for matrices this small two are slower
    config = TOWN_CONFIG

    def peer(activation):
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=config.vocab_size,
                n_positions=config.context,
                n_embd=config.d_model,
                n_layer=config.n_layers,
                n_head=config.n_heads,
                activation_function=activation,
                resid_pdrop=0,
                embd_pdrop=0,
                attn_pdrop=0,
                bos_token_id=0,
                eos_token_id=0,
                pad_token_id=None,
            )
        )

    models = {
        "transformers": peer("gelu_new"),  # as GPT-2 comes
        "its GELU in one call": peer("gelu_pytorch_tanh"),
        "nanoGPT-style": PlainGPT(
            config.vocab_size,
            config.context,
            config.d_model,
            config.n_heads,
            config.n_layers,
        ),
        "ours": GPT(config),
        "ours, learned positions": GPT(
            dataclasses.replace(config, positions="learned")
        ),
        "ours, exact GELU too": GPT(
            dataclasses.replace(config, positions="learned", activation="gelu")
        ),
    }

    found = rounds_of(
        {name: stepper(model) for name, model in models.items()}, 20 * rounds
    )
    torch.set_num_threads(THREADS)
    result = {
        who: {
            other: against(found, other, who)
            for other in models
            if not other.startswith("ours")
        }
        for who in models
        if who.startswith("ours")
    }
    for who, ratio in result.items():
        report(f"training, {who}", ratio)
    return result


# ---- the whole


SECTIONS = {
    "decode": decode,
    "limit": limit,
    "uncached": uncached,
    "layouts": layouts,
    "attention": attention,
    "explicit": explicit,
    "training": training,
    "memory": memory,
}


def machine() -> dict:
    """What it ran on, in words that anybody may read."""
    cpu = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (
            cpu.read_text("utf-8") if cpu.exists() else ""
        ).splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": THREADS,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__.split("+")[0],
        "transformers": __import__("transformers").__version__,
        "dtype": "float32",
    }


def report(name: str, ratios: dict[str, list[float]]) -> None:
    """One line a comparison, as it comes."""
    print(
        f"{name}:",
        "; ".join(
            f"{who} ×{m:.2f} ({a:.2f} to {b:.2f})"
            for who, (a, m, b) in ratios.items()
        ),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak", help="used by the script itself")
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    if arguments.peak:
        peak(arguments.peak)
        return 0
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown or arguments.rounds < 2:
        parser.error(
            f"expected sections among {', '.join(SECTIONS)} and at least 2 "
            f"rounds; got {sorted(unknown) or arguments.rounds}"
        )
    about = {"machine": machine(), "rounds": arguments.rounds}
    results = dict(about)
    if arguments.sections:
        data = CHAPTERS / "attnbook" / "data" / "speed.json"
        results = json.loads(data.read_text(encoding="utf-8"))
        if results["machine"] != about["machine"]:
            parser.error(
                "the stored results are another machine's; expected "
                f"{about['machine']}; got {results['machine']}: measure all"
            )
    for name in arguments.sections or SECTIONS:
        results[name] = SECTIONS[name](arguments.rounds)
    store("speed", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
