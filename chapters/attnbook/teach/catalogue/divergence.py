"""Where two models that should be the same begin to differ.

When their results differ, one knows that something is wrong, but not where,
because one wrong tensor spoils everything that is computed from it. So both
models are run on the same input, and what their modules give is kept
(`record`). Then the tensors are compared in the order in which they were
computed (`compare`); the first one that differs shows where to look.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbook.values import one_of


def record(
    model: nn.Module, names: Sequence[str], *args: object, **kwargs: object
) -> dict[str, Tensor]:
    """Call a model, and keep what its modules give, without gradients.

    Args:
        model: any module. It should be in evaluation mode; with dropout, two
            calls of the same model would differ.
        names: the names of submodules, as `named_modules` has them, such as
            "blocks.0.attention". After a name, ":input" asks for what the
            module is given instead, as in "blocks.0:input"; ":output" alone
            asks for what the model itself gives.
        args, kwargs: what the model is called with.

    Returns:
        A tensor for each name. Where a module gives several things, it is the
        first tensor among them; where a module runs more than once, that of
        its first run.

    Raises:
        ValueError: a name that no module has; a module that does not run,
            or neither gives nor is given a tensor.
    """
    found: dict[str, Tensor] = {}

    def keep(name, things):
        tensor = _first_tensor(things)
        if tensor is not None:
            found.setdefault(name, tensor.detach().clone())

    with ExitStack() as hooks, torch.no_grad():
        for name in names:
            hooks.enter_context(_hook(model, name, keep))
        model(*args, **kwargs)
    for name in names:
        if name not in found:
            raise ValueError(
                f"nothing was kept of {name!r}; expected a module that runs "
                "in this call and gives a tensor; got none"
            )
    return {name: found[name] for name in names}


def _hook(model, name, keep):
    """Have `keep(name, things)` called when a module of a model runs.

    `name` is one of `record`; `things` are what the module gives, or what it
    is given if the name ends in ":input". Returns torch's handle, which takes
    the hook away again when it is left as a context.

    Raises:
        ValueError: no module has the name.
    """
    modules = dict(model.named_modules())
    module, _, what = name.partition(":")
    if module not in modules or what not in ("", "input", "output"):
        near = difflib.get_close_matches(module, modules, cutoff=0)
        raise ValueError(
            "there is no such module; expected a name such as "
            f"{' or '.join(near)}, or one that ends in ':input'; got {name!r}"
        )
    if what == "input":
        return modules[module].register_forward_pre_hook(
            lambda _, args, kwargs: keep(name, (args, kwargs)),
            with_kwargs=True,
        )
    return modules[module].register_forward_hook(
        lambda _, args, output: keep(name, output)
    )


def _first_tensor(things):
    """The first tensor in nested tuples, lists and values of mappings, or
    None if there is none."""
    if isinstance(things, Mapping):
        things = tuple(things.values())
    if isinstance(things, (tuple, list)):
        tensors = map(_first_tensor, things)
        return next((t for t in tensors if t is not None), None)
    return things if isinstance(things, Tensor) else None


@dataclass(frozen=True)
class Row:
    """One tensor of two models.

    Attributes:
        label: what the tensor is, such as "block 0: attention".
        shape: its shape in our model, or in theirs if ours lacks it.
        difference: the largest |ours − theirs|; NaN if there is none to be
            had, and then `problem` says why.
        agrees: whether that is no more than the bound.
        problem: why there is no difference to be had.
    """

    label: str
    shape: tuple[int, ...] | None
    difference: float
    agrees: bool
    problem: str = ""


@dataclass(frozen=True)
class Divergence:
    """What `compare` has found, tensor by tensor.

    Printed, it is a table with an arrow at the first tensor that differs.

    Attributes:
        rows: a row for each pair of tensors, in the order of computation.
        bound: the largest difference that counts as none.
    """

    rows: tuple[Row, ...]
    bound: float

    @property
    def first(self) -> str | None:
        """The label of the first tensor that differs, as computed.

        It is None if none does.
        """
        return next((r.label for r in self.rows if not r.agrees), None)

    def __str__(self) -> str:
        cells = [(" ", "tensor", "shape", "largest |Δ|")]
        first = next((r for r in self.rows if not r.agrees), None)
        for row in self.rows:
            # Below the bound no digits are shown: another machine has others.
            size = f"≤ {_short(self.bound, 5)}"
            if not row.agrees:
                size = row.problem or _short(row.difference)
            arrow = "→" if row is first else ""
            cells.append((arrow, row.label, _sizes(row.shape), size))
        widths = [max(len(c) for c in column) for column in zip(*cells)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip()
            for line in cells
        ]
        if first is None:
            return "\n".join([*lines, f"All {len(self.rows)} agree."])
        return "\n".join([*lines, f"The first that differs: {first.label}"])


def compare(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    pairs: Sequence[tuple[str, str, str]],
    *,
    bound: float = 1e-4,
    real: Tensor | None = None,
) -> Divergence:
    """Compare the records of two models, tensor by tensor.

    A tensor that is missing on one side, has another shape or holds a NaN
    counts as different.

    Args:
        ours, theirs: what `record` has kept of each model.
        pairs: for each tensor a label, its name in ours and its name in
            theirs, in the order of computation, as `pairs_of` gives them.
        bound: the largest |ours − theirs| that counts as no difference.
        real: (B, T), True at real tokens and False at padding. What the
            models compute at padding is not compared.

    Raises:
        ValueError: nothing to compare; a bound that is no number from 0 on;
            a padding mask that does not fit.
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError(
            "there is nothing to compare; expected at least one pair of "
            "names; got none"
        )
    if not 0 <= bound < math.inf:
        raise ValueError(
            f"this is no bound; expected a number from 0 on; got {bound}"
        )
    rows = tuple(
        _row(label, ours.get(a), theirs.get(b), bound, real)
        for label, a, b in pairs
    )
    return Divergence(rows, bound)


#: A block, its parts in the order of computation, and the last norm.
_OURS = "blocks.{}", "attention_norm attention feed_forward_norm feed_forward"
_THEIRS = {
    "gpt2": ("transformer.h.{}", "ln_1 attn ln_2 mlp", "transformer.ln_f"),
    "llama": (
        "model.layers.{}",
        "input_layernorm self_attn post_attention_layernorm mlp",
        "model.norm",
    ),
}
_LABELS = ("first norm", "attention", "second norm", "feed-forward")


def pairs_of(family: str, n_layers: int) -> list[tuple[str, str, str]]:
    """The tensors to compare of a `GPT` and a model of transformers.

    Args:
        family: the kind of their model, "gpt2" or "llama".
        n_layers: how many blocks both models have.

    Returns:
        A (label, name in ours, name in theirs) for each tensor, in the order
        of computation, for `compare`.

    Raises:
        ValueError: another family than "gpt2" or "llama".
    """
    theirs, names, final = _THEIRS[one_of("family", family, _THEIRS)]
    ours, our_names = _OURS
    pairs = [("embedding", "blocks.0:input", f"{theirs.format(0)}:input")]
    for n in range(n_layers):
        mine, other = ours.format(n), theirs.format(n)
        pairs += [
            (f"block {n}: {label}", f"{mine}.{a}", f"{other}.{b}")
            for label, a, b in zip(_LABELS, our_names.split(), names.split())
        ]
        pairs.append((f"block {n}: output", mine, other))
    pairs.append(("final norm", "norm", final))
    return [*pairs, ("logits", ":output", "lm_head")]


def _row(label, ours, theirs, bound, real):
    """The `Row` about one tensor, which may be None on either side."""
    present = theirs if ours is None else ours
    shape = None if present is None else tuple(present.shape)

    def problem(text):
        return Row(label, shape, math.nan, False, text)

    def those(is_so, **sides):
        return " and ".join(
            name for name, side in sides.items() if is_so(side)
        )

    if lacking := those(lambda side: side is None, ours=ours, theirs=theirs):
        return problem(f"missing in {lacking}")
    if ours.shape != theirs.shape:
        return problem(f"another shape: theirs {_sizes(theirs.shape)}")
    kind = torch.promote_types(
        torch.promote_types(ours.dtype, theirs.dtype), torch.float64
    )
    a, b = (t.detach().cpu().to(kind) for t in (ours, theirs))
    if real is not None:
        if a.shape[:2] != real.shape or not real.any():
            raise ValueError(
                f"the padding mask does not fit {label}; expected "
                f"{tuple(a.shape[:2])} with a real token; got "
                f"{tuple(real.shape)} with {int(real.sum())}"
            )
        kept = real.bool().cpu()
        a, b = a[kept], b[kept]
    if nan := those(lambda side: side.isnan().any(), ours=a, theirs=b):
        return problem(f"NaN in {nan}")
    gap = (a - b).abs().masked_fill(a == b, 0)  # equal infinities too
    largest = gap.max().item() if gap.numel() else 0.0
    return Row(label, shape, largest, largest <= bound)


def _sizes(shape):
    """A shape in words: "2×3", "scalar", or "" if there is none."""
    if shape is None:
        return ""
    return "×".join(str(n) for n in shape) or "scalar"


def _short(number, digits=0):
    """A number with an exponent, as one writes it: 1e-4, and neither 1e-04
    nor 0.0001."""
    if number == 0 or math.isinf(number):
        return f"{number:g}"
    mantissa, exponent = f"{number:.{digits}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"
