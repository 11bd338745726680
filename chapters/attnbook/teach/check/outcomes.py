"""Outcomes as data: what a stranger's function did, sent as plain numbers.

An answer runs in a process that it could take over. So that process does not
say whether the answer is right. It says what the answer returned, case by
case, and the process that grades compares that with the reference by itself.
Only numbers, text and lists of them arrive. A tensor arrives as its numbers,
so a subclass that calls itself equal to everything is a plain tensor here;
anything that is none of these arrives as the name of its type.
"""

from __future__ import annotations

import base64
import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.teach.check.finding import (
    CALLED_AGAIN,
    NOT_CONTIGUOUS,
    Finding,
    Kind,
)
from attnbook.teach.check.guard import OutOfTime
from attnbook.teach.check.rules import RuleBroken
from attnbook.teach.check.running import Outcome
from attnbook.teach.check.settled import Foreign, settled

#: The largest tensor whose numbers are sent. Those of right answers have up
#: to 20,000; of a larger one its shape says enough.
MOST_NUMBERS = 10**6
#: How many lists may lie in each other, and how long a text may be.
DEEPEST, LONGEST = 20, 10_000

#: Types of numbers, by the names under which they are sent.
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    )
}
_LISTS: dict[str, Callable[[list], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
}


def packed(outcome: Outcome) -> dict[str, Any]:
    """An outcome as data that JSON can say; `unpacked` reads it."""
    error = outcome.error
    return {
        "result": _pack(outcome.result),
        "gradients": [_pack(g) for g in outcome.gradients],
        "spoilt": [
            [at, name, part] for at, (name, part) in outcome.spoilt.items()
        ],
        "error": None if error is None else _pack_error(error),
        "again": outcome.again,
    }


def unpacked(data: Any) -> Outcome:
    """The outcome that somebody has sent, who may have sent anything.

    Raises:
        ValueError: if it is none.
    """
    try:
        gradients = tuple(_unpack(g) for g in data["gradients"])
        if not all(isinstance(g, Tensor) for g in gradients):
            raise ValueError("a gradient that is no tensor")
        spoilt = {
            at: (_text(name), _text(part)) for at, name, part in data["spoilt"]
        }
        if not all(isinstance(at, (int, str)) for at in spoilt):
            raise ValueError("an argument that is in no place")
        error = data["error"]
        again = data["again"]
        if again not in ("", CALLED_AGAIN, NOT_CONTIGUOUS):
            raise ValueError("another call than there is")
        return Outcome(
            settled(_unpack(data["result"])),
            gradients,
            spoilt,
            None if error is None else _unpack_error(error),
            again,
        )
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,  # torch's, and too deep a recursion
        OverflowError,
    ) as why:
        raise ValueError(
            f"this is no outcome; expected what `packed` makes; got {why!r}"
        ) from why


def _pack(x: Any, depth: int = 0) -> list:
    """A value as data for JSON: a list that begins with the name of its kind.

    Raises:
        RecursionError: lists in each other to more than `DEEPEST` levels.
    """
    x = _itself(x)
    if isinstance(x, Tensor):
        return _pack_tensor(x)
    if isinstance(x, (np.ndarray, np.generic, complex)):
        try:
            return _pack_tensor(torch.as_tensor(np.asarray(x)))
        except (TypeError, ValueError):  # of text, or of objects
            return _pack_other(x)
    if x is None or isinstance(x, bool):
        return ["plain", x]
    if isinstance(x, int):
        return ["int", str(int(x))] if abs(x) < 10**300 else _pack_other(x)
    if isinstance(x, float):
        return ["float", float(x).hex()]
    if type(x) is str and len(x) <= LONGEST:
        return ["str", x.encode("utf-8", "surrogatepass").hex()]
    if depth < DEEPEST:
        if isinstance(x, dict):
            pairs = [[_pack(k), _pack(v, depth + 1)] for k, v in x.items()]
            return ["dict", pairs]
        for name, kind in _LISTS.items():
            if isinstance(x, kind):  # type: ignore[arg-type]
                return [name, [_pack(part, depth + 1) for part in x]]
    return _pack_other(x)


def _itself(x: Any) -> Any:
    """The object inside of a `Foreign`; anything else as it is."""
    return x.value if isinstance(x, Foreign) else x


def _pack_other(x: Any) -> list:
    """What is sent of an object that is not data: the name of its type."""
    return ["other", type(x).__name__[:100]]


def _pack_tensor(x: Tensor) -> list:
    """The type, shape and numbers of a tensor.

    They are read past the methods of a subclass, which could say anything.
    """
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        name = str(x.dtype).removeprefix("torch.")
        if x.layout != torch.strided or x.is_meta or name not in _DTYPES:
            return ["other", "Tensor"]
        plain = x.detach().as_subclass(Tensor)
        if plain.numel() > MOST_NUMBERS:
            return ["large", name, list(plain.shape)]
        plain = plain.resolve_conj().resolve_neg().cpu().flatten()
        # Copied, because a tensor of one number counts as contiguous whatever
        # its stride is.
        copy = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
        raw = copy.view(torch.uint8).numpy().tobytes()
        numbers = base64.b64encode(raw).decode("ascii")
        return ["tensor", name, list(x.shape), numbers]


def _unpack(data: list, depth: int = 0) -> Any:
    """The value that `_pack` has made this data of.

    Raises:
        ValueError: data that `_pack` does not make; whoever sent it may have
            made it himself.
    """
    if depth > DEEPEST:
        raise ValueError("too many lists in each other")
    match data:
        case ["plain", None | True | False as x]:
            return x
        case ["int", str(digits)]:
            return int(digits)
        case ["float", str(number)]:
            return float.fromhex(number)
        case ["str", str(text)]:
            return bytes.fromhex(text).decode("utf-8", "surrogatepass")
        case ["dict", list(pairs)]:
            return {_unpack(k): _unpack(v, depth + 1) for k, v in pairs}
        case [("list" | "tuple" | "set") as kind, list(parts)]:
            return _LISTS[kind]([_unpack(part, depth + 1) for part in parts])
        case ["tensor", str(name), list(shape), str(numbers)]:
            return _unpack_tensor(_DTYPES[name], shape, numbers)
        case ["large", str(name), list(shape)]:
            # A tensor of this shape that takes memory for one number only.
            return torch.zeros((), dtype=_DTYPES[name]).expand(shape)
        case ["other", str(name)]:
            return type(_text(name), (), {"__repr__": _its_type})()
    raise ValueError(f"no value: {str(data)[:50]}")


def _unpack_tensor(dtype: torch.dtype, shape: list, numbers: str) -> Tensor:
    """A tensor of a type, a shape and its numbers as bytes in base64.

    Raises:
        ValueError: the three do not fit each other, or are too large.
    """
    raw = bytearray(base64.b64decode(numbers, validate=True))
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("no shape")
    size = math.prod(shape)
    if size > MOST_NUMBERS or len(raw) != size * dtype.itemsize:
        raise ValueError("numbers that do not fit their shape")
    if dtype == torch.bool and any(byte > 1 for byte in raw):
        raise ValueError("neither True nor False")
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)


def _its_type(x: object) -> str:
    """The words that stand for an object of which only the type is known."""
    return f"a {type(x).__name__}"


def _pack_error(error: BaseException) -> list:
    """An error as data: the name of its type, and its text, if it has one."""
    if isinstance(error, RuleBroken):
        found = error.finding
        return ["rule", found.kind.name, found.name, found.count, found.total]
    try:
        text = str(error)[:LONGEST]
    except BaseException:  # a stranger's error may refuse even that
        text = ""
    text = text.encode("utf-8", "replace").decode()
    kind = type(error)
    return [kind.__module__, kind.__name__[:100], bool(error.args), text]


def _unpack_error(data: list) -> BaseException:
    """An error of the same type, if it is one of Python's or of the check's;
    else of a new type with the same name."""
    if data[0] == "rule":
        return _unpack_rule(data)
    module, name, says, text = data
    kind = getattr(builtins, name, None) if module == "builtins" else None
    if (module, name) == (OutOfTime.__module__, OutOfTime.__name__):
        kind = OutOfTime
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        kind = type(_text(name), (Exception,), {})
    try:
        return kind(_text(text)) if says or text else kind()
    except TypeError:  # one that wants more, such as UnicodeDecodeError
        return type(name, (Exception,), {})(_text(text))


#: What a rule can say of an answer.
_RULES = {Kind.USES_AUTOGRAD, Kind.USES_FUNCTION, Kind.HOLDS_TOO_MUCH}


def _unpack_rule(data: list) -> RuleBroken:
    """The `RuleBroken` that was sent, if a rule says such a thing.

    Raises:
        ValueError: a kind of finding that no rule has, or other fields.
    """
    _, name, function, count, total = data
    kind = Kind[_text(name)]
    if kind not in _RULES or not all(type(n) is int for n in (count, total)):
        raise ValueError("no rule says so")
    finding = Finding(kind, name=_text(function), count=count, total=total)
    return RuleBroken(finding)


def _text(x: Any) -> str:
    """A text that was sent.

    Raises:
        ValueError: it is something else, or too long.
    """
    if type(x) is not str or len(x) > LONGEST:
        raise ValueError("no text")
    return x
