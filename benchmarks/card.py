"""What writing waits for on a graphics card, and what makes it faster there.

A model of GPT-2 small's shape, its weights as they were drawn, writes after
prompts of 512 tokens, for one text and for many at once. Beside it run the
model without its cache, the model in 16 bits, and three with fewer calls: its
blocks compiled, its step recorded as a CUDA graph, and both. One more has as
many layers and next to no width, and its time is that of the calls alone. They
take turns, and a ratio is taken within a round. `make gpu` runs it; the page
"How fast is it" shows what it found.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import torch
from results import quartiles
from rounds import against, rounds_of
from torch import Tensor
from writers import draw_prompts, ours

from attnbook.cache import KVCache, Places
from attnbook.compiled import CompiledGPT, compile_steps
from attnbook.gpt import GPT, GPTConfig

BATCHES = (1, 8, 64)
PROMPT = 512

#: Makes of a function without arguments one that repeats its calls.
Record = Callable[[Callable[[], None]], Callable[[], None]]


def as_cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """Record the calls of a function on the card, to be repeated as one.

    It is run three times before, beside the other work of the card, so that
    kernels which are made at their first call are there.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class Recorded(CompiledGPT):
    """A model whose step is recorded once, and then repeated.

    What is repeated reads and writes the same addresses each time. So the
    tokens and their positions are copied into tensors that stay, and the step
    is handed the whole memory of the cache, where the mask hides the slots
    that are not in use. Another cache is recorded anew.

    Args:
        model: in evaluation mode.
        backend: what compiles the blocks; "eager" leaves them as they are.
        record: what records; `as_cuda_graph` if not given.
    """

    def __init__(
        self,
        model: GPT,
        backend: str = "inductor",
        record: Record | None = None,
    ) -> None:
        super().__init__(model, backend)
        self.record = record or as_cuda_graph
        self.memory: tuple[int, ...] = ()
        self.inputs: list[Tensor] = []
        self.logits = torch.empty(0)
        self.repeat: Callable[[], None] = lambda: None

    def n_slots(self, cache: KVCache, places: Places) -> int:
        """All slots: an address must not move when one more is in use."""
        return cache.capacity

    def step(
        self, tokens: Tensor, at: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """What `CompiledGPT.step` gives, by the recorded calls."""
        memory = (keys.data_ptr(), values.data_ptr(), *keys.shape)
        if memory != self.memory:
            self.memory = memory
            self.inputs = [tokens.clone(), at.clone()]
            step = super().step

            def work() -> None:
                own_tokens, own_at = self.inputs
                self.logits = step(own_tokens, own_at, keys, values)

            self.repeat = self.record(work)
        for own, new in zip(self.inputs, (tokens, at)):
            own.copy_(new)
        self.repeat()
        return self.logits.clone()


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Ratios for each number of texts, as quartiles.

    Returns:
        under the number of texts: "tokens", tokens a second over those of one
        text; "cache" and "bfloat16", how many times as fast the cache and 16
        bits make a step; "compiled", "recorded" and "both", the same for
        compiled blocks, for recorded calls, and for the two together;
        "calls", the share of a step that calls alone take.
    """
    model = GPT(GPTConfig()).eval()
    half = copy.deepcopy(model).bfloat16()
    narrow = dataclasses.replace(model.config, vocab_size=16, d_model=12)
    calls = GPT(narrow).eval()
    compiled = compile_steps(model)
    recorded = Recorded(model, "eager")
    both = Recorded(model)
    contenders: dict[tuple[str, int], Callable[[], float]] = {}
    for B in BATCHES:
        prompts = draw_prompts(*[PROMPT] * B)
        few = [[token % 16 for token in prompt] for prompt in prompts]
        contenders["plain", B] = ours(model, prompts)
        contenders["uncached", B] = ours(model, prompts, cached=False)
        contenders["bfloat16", B] = ours(half, prompts)
        contenders["compiled", B] = ours(compiled, prompts)
        contenders["recorded", B] = ours(recorded, prompts)
        contenders["both", B] = ours(both, prompts)
        contenders["calls", B] = ours(calls, few)
    found = rounds_of(contenders, rounds)
    one = found["plain", 1]
    return {
        str(B): {
            "tokens": quartiles(
                [B * a / b for a, b in zip(one, found["plain", B])]
            ),
            "cache": against(found, ("uncached", B), ("plain", B)),
            **{
                way: against(found, ("plain", B), (way, B))
                for way in ("bfloat16", "compiled", "recorded", "both")
            },
            "calls": against(found, ("calls", B), ("plain", B)),
        }
        for B in BATCHES
    }
