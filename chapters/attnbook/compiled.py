"""A block of the model as one compiled program, in place of many calls.

To write a token, a model of thirty blocks makes about a thousand calls: each
goes from Python into torch, looks for the kernel that fits, and computes
little. `torch.compile` records the calls that one block makes in a step, and
makes a program of them, in which small operations are joined. All blocks are
alike, so one program serves them all, each with its own weights; a program of
the whole step takes many times as long to make. The results are the same up
to rounding.

What a program must not have built in is what changes from step to step. So
the positions of the new tokens are a tensor that the program is given, and
the number of keys is an axis whose length is left open. The keys and values
are written into the cache's memory where they are: nothing is copied.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnbook.cache import KVCache, Places
from attnbook.fast import EightBitLinear, PackedLinear
from attnbook.gpt import GPT
from attnbook.positions import alibi_bias

#: Which axis of a tensor are the rows, and of keys and values the slots.
ROWS = 0
SLOTS = 2


class _LayerSlots(NamedTuple):
    """What a layer is handed in place of a `LayerCache`: its own memory, and
    the slot of each row's new token, as tensors."""

    keys: Tensor  # (B, H_kv, S, d_k)
    values: Tensor  # (B, H_kv, S, d_v)
    positions: Tensor  # (B,)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new k and v, (B, H_kv, 1, d), and return all of them."""
        rows = torch.arange(len(k), device=k.device)
        self.keys[rows, :, self.positions] = k[:, :, 0]
        self.values[rows, :, self.positions] = v[:, :, 0]
        return self.keys, self.values


class CompiledGPT(GPT):
    """A model whose blocks are compiled, for one token a row; see
    `compile_steps`, which makes it. All other calls are the plain model's."""

    def __init__(self, model: GPT, backend: Any) -> None:
        nn.Module.__init__(self)
        self.config = model.config
        self.token_embedding = model.token_embedding
        self.position_embedding = model.position_embedding
        self.blocks = model.blocks
        self.norm = model.norm
        self.head = model.head
        self.train(model.training)
        # Not dynamic: what may differ is said by `_leave_open`. Otherwise the
        # sizes of another model would be left open too, after one of this
        # process has been compiled, and that fails.
        options: dict[str, Any] = {
            "fullgraph": True,
            "dynamic": False,
            "backend": backend,
        }
        # Torch makes eight programs of a function at most. Newer versions
        # can count them for each model by itself.
        if "isolate_recompiles" in signature(torch.compile).parameters:
            options["isolate_recompiles"] = True
        # The program of each function; none, once one could not be made.
        self._programs: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
            function: torch.compile(function, **options)
            for function in (_run_block, _run_head)
        }

    @property
    def is_compiled(self) -> bool:
        """Whether steps run as a program; False after it could not be made."""
        return bool(self._programs)

    def forward(
        self,
        tokens: Tensor,
        *,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | None = None,
        last: bool = False,
    ) -> Tensor:
        """What `GPT.forward` gives and raises, with the same arguments."""
        is_step = (
            self.is_compiled
            and type(cache) is KVCache  # another kind has slots of its own
            and max(cache.lengths) > 0
            and real is None
            and segments is None
            and isinstance(tokens, Tensor)
            and tokens.shape[1:] == (1,)
            and not torch.is_grad_enabled()
        )
        if not is_step:
            return super().forward(
                tokens, real=real, segments=segments, cache=cache, last=last
            )
        assert cache is not None
        self._check(tokens, None)
        places = cache.place(len(tokens), 1)
        if self.config.positions == "learned":
            self._check_length(places.n_keys)
        at = places.positions  # (1,), or (B, 1) where rows differ in length
        at = at.reshape(-1, 1).expand(len(tokens), 1)
        n = self.n_slots(cache, places)
        keys, values = cache.slots(places, n)
        logits = self.step(tokens, at, keys, values)
        cache.commit(places)
        return logits

    def n_slots(self, cache: KVCache, places: Places) -> int:
        """How many slots of the cache a step is handed: those in use.

        A step may be handed more, up to all. The mask then hides the rest.
        """
        return places.n_keys

    def step(
        self, tokens: Tensor, at: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """The logits of one new token a row: (B, 1, vocab_size).

        Args:
            tokens: the new token of each row, (B, 1).
            at: its position, which is also its slot, (B, 1).
            keys, values: the memory of all layers, (L, B, H_kv, S, d), into
                which the new ones are written.
        """
        slots = torch.arange(keys.shape[-2], device=at.device)  # (S,)
        mask = (slots <= at)[:, None, None]  # (B, 1, 1, S)
        if self.config.positions == "alibi":
            bias = alibi_bias(self.config.n_heads, at, slots)  # (B, H, 1, S)
            mask = bias.masked_fill(~mask, -math.inf).to(keys.dtype)
        _leave_open(mask, ROWS, 3)
        _leave_open(at, ROWS)
        x = self.embed(tokens, at)  # (B, 1, d_model)
        for block, k, v in zip(self.blocks, keys, values):
            # A layer's memory is a tensor by itself: a program that writes
            # into a part of a tensor copies the whole.
            _leave_open(x, ROWS)
            _leave_open(k, ROWS, SLOTS)
            _leave_open(v, ROWS, SLOTS)
            x = self._run(_run_block, block, x, at, mask, k, v)
        if isinstance(self.head, EightBitLinear):
            _leave_open(x, ROWS)
            return self._run(_run_head, self.norm, self.head, x)
        return self.unembed(x)

    def _run(self, function: Callable[..., Tensor], *given: Any) -> Tensor:
        """Run a function by its program, or as it is where there can be
        none."""
        if function in self._programs:
            try:
                return self._programs[function](*given)
            except _failures() as error:
                self._programs = {}
                reason = " ".join(str(error).split())[:200]
                warnings.warn(
                    "a step could not be compiled, so the model writes "
                    f"with plain calls from now on: {reason}",
                    stacklevel=2,
                )
        return function(*given)


def _leave_open(x: Tensor, *axes: int) -> None:
    """Tell the compiler that these axes have other sizes in other steps.

    A size of one is never left open, since it broadcasts.
    """
    for axis in axes:
        if x.shape[axis] > 1:
            torch._dynamo.mark_dynamic(x, axis)


def _failures() -> tuple[type[Exception], ...]:
    """What torch raises if it cannot make a program, or makes no more of
    them; the last has had two names."""
    errors = torch._dynamo.exc
    names = ("FailOnRecompileLimitHit", "FailOnCacheLimitHit")
    limits = [getattr(errors, n) for n in names if hasattr(errors, n)]
    return (errors.TorchDynamoException, *limits)


def _run_block(
    block: nn.Module,
    x: Tensor,
    at: Tensor,
    mask: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """One block for one token a row: this is compiled.

    Nothing in it is a number that changes from step to step.

    Shapes: x (B, 1, d_model), at (B, 1), mask (B, 1 or H, 1, S), keys and
    values (B, H_kv, S, d), into which the new ones are written → as x.
    """
    part = _LayerSlots(keys, values, at[:, 0])
    return block(x, positions=at, mask=mask, cache=part)


def _run_head(norm: nn.Module, head: nn.Module, x: Tensor) -> Tensor:
    """The logits by a head in 8 bits, which is compiled, too."""
    return head(norm(x))


def why_not(device: torch.device) -> str | None:
    """One sentence that says why nothing can be compiled here, or None.

    A program for a CPU is C++, so it takes a C++ compiler; one for a graphics
    card takes Triton.
    """
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return None if has_triton() else "there is no Triton for the card"
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        return f"there is no C++ compiler ({reason or 'none was found'})"
    return None


def compile_steps(model: GPT, backend: Any = "inductor") -> GPT:
    """The model with the blocks of its steps compiled: for writing.

    A step is a call with a cache and one new token a row. The result shares
    the weights of the model, which stays as it is, and is used like it. The
    program is made at the first step, which takes ten seconds of a processor
    or more. It is made once more when the number of rows first changes, or
    that of threads, and never for another length.

    The matrices may be in 8 bits, as `fast.pack` makes them of
    `EightBitLinear`.

    Where there is no compiler, the model itself is returned, and a warning
    says why.

    Args:
        model: in evaluation mode, and not packed by oneDNN.
        backend: what makes the program, as `torch.compile` calls it.

    Raises:
        ValueError: the model is in training mode, or it is packed.
    """
    if model.training:
        raise ValueError(
            "the steps of a model in training cannot be compiled, because "
            "dropout is not for writing; expected model.eval(); got a model "
            "in training mode"
        )
    if any(isinstance(m, PackedLinear) for m in model.modules()):
        raise ValueError(
            "the steps of a packed model cannot be compiled, because the "
            "compiler does not know oneDNN's layout; expected the model "
            "before pack; got one with packed matrices"
        )
    reason = why_not(model.token_embedding.weight.device)
    if backend == "inductor" and reason is not None:
        warnings.warn(
            f"the model writes with plain calls, because {reason}",
            stacklevel=2,
        )
        return model
    return CompiledGPT(model, backend)
