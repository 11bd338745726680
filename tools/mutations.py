"""A program with one thing changed: what could stand there by mistake.

There are libraries that mutate (mutmut, cosmic-ray). They change files and run
a whole test suite for each change; here a changed function is judged in
milliseconds, and the changes are those that attention code gets: an axis, a
transpose, a mask inverted, a shift or a scale left out.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, NamedTuple

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
#: Names that are taken for each other.
_PAIRS = (
    "sum mean, amax amin, max min, argmax argmin, cos sin, tril triu, any all,"
    "floor ceil, zeros ones, zeros_like ones_like, repeat_interleave repeat,"
    "softmax log_softmax, sqrt rsqrt, exp expm1, log log1p"
)
NAMES = {
    a: b
    for pair in _PAIRS.split(",")
    for a, b in (pair.split(), pair.split()[::-1])
}
#: Methods without which the rest is still a program that runs.
LEFT_OUT = {
    *("transpose", "unsqueeze", "sqrt", "exp", "clone", "detach", "flip"),
    *("masked_fill", "clamp", "roll", "abs", "eval", "train"),
}
#: Functions of two arguments that do not care which is the first.
EITHER_WAY = {
    *("maximum", "minimum", "max", "min", "allclose", "equal", "difference"),
    *("transpose", "swapaxes"),
}
#: Calls that change no value.
SAME_VALUE = {"contiguous", "numpy", "double"}
#: Another of these is as good: a test's device is the same, and what is drawn.
AS_GOOD = {"device", "non_blocking", "seed"}
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Mutant:
    """A wrong program: whose, what was changed, and in which line."""

    function: str
    change: str
    line: str = ""
    make: Callable[[], Any] | None = None  # the function
    plant: Callable[[], Any] | None = None  # or the tree of a room
    tests: tuple[str, ...] = ()  # that reach the line; the fastest first

    @property
    def name(self) -> str:
        return self.change + (f" in {self.line}" if self.line else "")


class Changed(NamedTuple):
    """A tree with one change."""

    before: ast.Module
    path: tuple  # to the node that is another one
    new: ast.AST
    where: tuple[str, ...]  # the definitions around it: ("Block", "forward")
    change: str  # "x - peak → x + peak"
    line: str  # the first line of its statement, as `ast.unparse` writes it
    lines: range  # of the source: its statement's

    def tree(self) -> ast.Module:
        """A copy, changed."""
        tree = copy.deepcopy(self.before)
        parent, (name, n) = _along(tree, self.path[:-1])[0], self.path[-1]
        if n is None:
            setattr(parent, name, self.new)
        else:
            getattr(parent, name)[n] = self.new
        return ast.fix_missing_locations(tree)


def mutations(tree: ast.Module, *, guards: bool = False) -> Iterator[Changed]:
    """Every tree that differs in one place.

    Args:
        tree: what is changed; it stays as it is.
        guards: also change the conditions under which something is refused.
    """
    for path in _places(tree, guards):
        node, where, statement = _along(tree, path)
        seen = {ast.dump(node)}
        for new in _instead(node):
            if (dumped := ast.dump(new)) not in seen:
                seen.add(dumped)
                new = copy.deepcopy(new)
                told = _told(node, new)
                line = ast.unparse(statement).splitlines()[0]
                lines = range(statement.lineno, statement.end_lineno + 1)
                yield Changed(tree, path, new, where, told, line, lines)


def _places(tree: ast.AST, guards: bool, path: tuple = ()) -> Iterator[tuple]:
    """Paths to the nodes whose change changes what a program does."""
    for name, value in ast.iter_fields(tree):
        if name in ("decorator_list", "returns", "annotation"):
            continue
        many = isinstance(value, list)
        for n, item in enumerate(value if many else [value]):
            if not isinstance(item, ast.AST) or _is_message(item):
                continue
            if not guards and _is_guard(item):
                continue
            here = (*path, (name, n if many else None))
            yield here
            yield from _places(item, guards, here)


def _is_message(node: ast.AST) -> bool:
    """A docstring, what is said to whoever is refused, a seed."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg in AS_GOOD
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", "") == "manual_seed"
    return isinstance(node, (ast.Raise, ast.JoinedStr))


def _is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


def _along(tree: ast.AST, path: tuple) -> tuple[Any, tuple, ast.AST]:
    """The node at the end of a path, the definitions and the last statement
    on the way."""
    where, statement = [], tree
    for name, n in path:
        tree = getattr(tree, name)
        tree = tree if n is None else tree[n]
        where += [tree.name] if isinstance(tree, DEFINITIONS) else []
        statement = tree if isinstance(tree, ast.stmt) else statement
    return tree, tuple(where), statement


def _told(old: ast.AST, new: ast.AST) -> str:
    """A change in words; of a long one what is different alone."""
    a = ast.unparse(old).splitlines()[0]
    if isinstance(old, ast.For):
        return f"{a} → the first alone"
    b = ast.unparse(ast.fix_missing_locations(new)).splitlines()[0]
    if max(len(a), len(b)) > 60:
        start = max(len(commonprefix([a, b])) - 12, 0)
        end = len(commonprefix([a[start:][::-1], b[start:][::-1]])) - 12
        end = max(end, 0)
        a, b = (
            "…" * (start > 0) + x[start : len(x) - end] + "…" * (end > 0)
            for x in (a, b)
        )
        a, b = (x if len(x) <= 60 else f"{x[:36]}…{x[-22:]}" for x in (a, b))
    return f"{a} → {b}"


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in the place of a node by mistake."""
    if isinstance(node, ast.AugAssign):
        if other := OPERATORS.get(type(node.op)):
            yield ast.AugAssign(node.target, other(), node.value)
        yield ast.Pass()
    elif isinstance(node, ast.BinOp):
        if other := OPERATORS.get(type(node.op)):
            yield ast.BinOp(node.left, other(), node.right)
        if not isinstance(node.op, (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)):
            yield ast.BinOp(node.right, node.op, node.left)
        yield node.left
        yield node.right
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)
        for n in range(len(node.values)):
            rest = node.values[:n] + node.values[n + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and not _is_axis(node):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _other_values(node.value))
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Call):
        yield from _other_calls(node)
    elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield node.value
    elif isinstance(node, ast.Subscript):
        yield from _other_places(node)
    elif isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        yield ast.If(ast.Constant(False), node.body, node.orelse)
    elif isinstance(node, ast.For):
        body = [*node.body, ast.Break()]
        yield ast.For(node.target, node.iter, body, node.orelse)
    elif isinstance(node, ast.Assign):
        target = node.targets[0]  # a step left out: x = f(x), x[...] = y
        if isinstance(target, (ast.Subscript, ast.Attribute)) or (
            ast.unparse(target) in ast.unparse(node.value)
            and getattr(getattr(node.value, "func", 0), "attr", "")
            not in SAME_VALUE
        ):
            yield ast.Pass()
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield ast.Pass()


def _is_axis(node: ast.UnaryOp) -> bool:
    """−1 and −2, of which 1 and 2 would often be the same axis."""
    return isinstance(node.operand, ast.Constant) and (
        isinstance(node.operand.value, int) and node.operand.value > 0
    )


def _other_values(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        yield value - 1
    elif isinstance(value, float):
        yield value + 1
        yield value * 2


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    """Another name, no call, an argument less, two in the other order, the
    mask inverted."""
    fn, args, keywords = node.func, node.args, node.keywords
    name = getattr(fn, "attr", getattr(fn, "id", ""))
    if other := NAMES.get(name):
        if isinstance(fn, ast.Attribute):
            named = ast.Attribute(fn.value, other, ast.Load())
        else:
            named = ast.Name(other, ast.Load())
        yield ast.Call(named, args, keywords)
    if isinstance(fn, ast.Attribute):
        alone = name in LEFT_OUT or not isinstance(fn.value, ast.Name)
        if alone and name not in SAME_VALUE:
            yield fn.value
    elif len(args) == 1 and not keywords:
        yield args[0]
    if name in ("masked_fill", "masked_fill_") and args:
        inverted = ast.UnaryOp(ast.Invert(), args[0])
        yield ast.Call(fn, [inverted, *args[1:]], keywords)
    for n, keyword in enumerate(keywords):
        if keyword.arg not in AS_GOOD:
            yield ast.Call(fn, args, keywords[:n] + keywords[n + 1 :])
    for n in range(len(args) - 1 if name not in EITHER_WAY else 0):
        swapped = [*args[:n], args[n + 1], args[n], *args[n + 2 :]]
        yield ast.Call(fn, swapped, keywords)


def _other_places(node: ast.Subscript) -> Iterator[ast.AST]:
    """A slice without its bounds, or off by one."""
    if not isinstance(node.slice, ast.Slice):
        return
    if isinstance(node.ctx, ast.Load):
        yield node.value
    for bound in ("lower", "upper"):
        old = getattr(node.slice, bound)
        if old and not isinstance(old, ast.Constant):
            for step in (1, -1):
                off = copy.copy(node.slice)
                setattr(
                    off, bound, ast.BinOp(old, ast.Add(), ast.Constant(step))
                )
                yield ast.Subscript(node.value, off, node.ctx)
