"""A program with one thing changed: what somebody could write by mistake.

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
#: Pairs of names of which one is easily written for the other.
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
#: Methods whose call may be left out: what remains still runs.
LEFT_OUT = {
    "transpose",
    "unsqueeze",
    "sqrt",
    "exp",
    "clone",
    "detach",
    "flip",
    "masked_fill",
    "clamp",
    "roll",
    "abs",
    "eval",
    "train",
}
#: Functions that give the same when their two arguments change places.
EITHER_WAY = {
    "maximum",
    "minimum",
    "max",
    "min",
    "allclose",
    "equal",
    "difference",
    "transpose",
    "swapaxes",
}
#: Calls that change no value.
SAME_VALUE = {"contiguous", "numpy", "double"}
#: Arguments that are left alone: the tests have one device, and with another
#: seed the right answer is drawn from other numbers.
AS_GOOD = {"device", "non_blocking", "seed"}
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)

#: A way down a tree: names of fields, and places in those that are lists.
Path = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Mutant:
    """A wrong program.

    A mutant of a task has `make`, which gives the wrong function. A mutant of
    a room has `plant`, which gives the room's changed syntax tree, and the
    tests that reach the changed line, the fastest first.
    """

    function: str
    change: str
    line: str = ""
    make: Callable[[], Any] | None = None
    plant: Callable[[], ast.Module] | None = None
    tests: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The change, and the line that it is in: how a reason names it."""
        return f"{self.change} in {self.line}" if self.line else self.change


class Changed(NamedTuple):
    """A tree with one change.

    Attributes:
        before: the tree as it was.
        path: the way to the node that is replaced, see `_places`.
        new: what is put in its place.
        where: the definitions around it, `("Block", "forward")`.
        change: the change in words, `x - peak → x + peak`.
        line: the first line of the statement, as `ast.unparse` writes it.
        lines: the lines of the source that the statement takes.
    """

    before: ast.Module
    path: Path
    new: ast.AST
    where: tuple[str, ...]
    change: str
    line: str
    lines: range

    def tree(self) -> ast.Module:
        """A changed copy of the tree; the tree itself stays as it is."""
        tree = copy.deepcopy(self.before)
        parent, _, _ = _along(tree, self.path[:-1])
        name, n = self.path[-1]
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
                yield Changed(
                    before=tree,
                    path=path,
                    new=new,
                    where=where,
                    change=_told(node, new),
                    line=ast.unparse(statement).splitlines()[0],
                    lines=_lines_of(statement),
                )


def _lines_of(statement: ast.stmt) -> range:
    """The lines of the source that a statement takes."""
    last = statement.end_lineno or statement.lineno
    return range(statement.lineno, last + 1)


def _places(tree: ast.AST, guards: bool, path: Path = ()) -> Iterator[Path]:
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
    """Whether a node is a docstring, a message or an error, or a seed."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg in AS_GOOD
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", "") == "manual_seed"
    return isinstance(node, (ast.Raise, ast.JoinedStr))


def _is_guard(node: ast.AST) -> bool:
    """Whether a statement only refuses something: `if …: raise …`."""
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


def _along(tree: ast.AST, path: Path) -> tuple[Any, tuple[str, ...], Any]:
    """Follow a path down a tree.

    Returns:
        the node at the end of the path, the names of the definitions on the
        way, and the last statement on the way (the tree if there is none).
    """
    node: Any = tree
    where: list[str] = []
    statement: Any = tree
    for name, n in path:
        node = getattr(node, name)
        if n is not None:
            node = node[n]
        if isinstance(node, DEFINITIONS):
            where.append(node.name)
        if isinstance(node, ast.stmt):
            statement = node
    return node, tuple(where), statement


def _told(old: ast.AST, new: ast.AST) -> str:
    """A change in words; of long ones only the part where they differ."""
    a = ast.unparse(old).splitlines()[0]
    if isinstance(old, ast.For):
        return f"{a} → the first alone"
    b = ast.unparse(ast.fix_missing_locations(new)).splitlines()[0]
    if max(len(a), len(b)) > 60:
        start = max(len(commonprefix([a, b])) - 12, 0)
        end = len(commonprefix([a[start:][::-1], b[start:][::-1]])) - 12
        end = max(end, 0)
        a = _cut(a, start, end)
        b = _cut(b, start, end)
    return f"{a} → {b}"


def _cut(text: str, start: int, end: int) -> str:
    """A text without so many characters at its start and at its end."""
    before = "…" if start else ""
    after = "…" if end else ""
    text = before + text[start : len(text) - end] + after
    return text if len(text) <= 60 else f"{text[:36]}…{text[-22:]}"


#: What makes the replacements of a node.
Handler = Callable[[Any], Iterator[ast.AST]]


def _of_augmented(node: ast.AugAssign) -> Iterator[ast.AST]:
    """`x += y`: another operator, or the step left out."""
    if other := OPERATORS.get(type(node.op)):
        yield ast.AugAssign(node.target, other(), node.value)
    yield ast.Pass()


def _of_operation(node: ast.BinOp) -> Iterator[ast.AST]:
    """`x - y`: another operator, the other order, one side alone."""
    if other := OPERATORS.get(type(node.op)):
        yield ast.BinOp(node.left, other(), node.right)
    if not isinstance(node.op, (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)):
        yield ast.BinOp(node.right, node.op, node.left)
    yield node.left
    yield node.right


def _of_comparison(node: ast.Compare) -> Iterator[ast.AST]:
    """`x < y`: with equality or without, and the other way round."""
    if len(node.ops) == 1:
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other()], node.comparators)


def _of_and_or(node: ast.BoolOp) -> Iterator[ast.AST]:
    """`x and y`: `or` for `and`, and each condition left out."""
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield ast.BoolOp(other, node.values)
    for n in range(len(node.values)):
        rest = node.values[:n] + node.values[n + 1 :]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _of_sign(node: ast.UnaryOp) -> Iterator[ast.AST]:
    """`-x`, `~x`, `not x`: without the sign."""
    if not _is_axis(node):
        yield node.operand


def _of_constant(node: ast.Constant) -> Iterator[ast.AST]:
    """A number or a truth value: the next one, or the other one."""
    yield from map(ast.Constant, _other_values(node.value))


def _of_choice(node: ast.IfExp) -> Iterator[ast.AST]:
    """`x if c else y`: always the one, always the other."""
    yield node.body
    yield node.orelse


def _of_attribute(node: ast.Attribute) -> Iterator[ast.AST]:
    """`x.T`: without the transpose."""
    if node.attr in ("T", "mT"):
        yield node.value


def _of_if(node: ast.If) -> Iterator[ast.AST]:
    """`if c:` with the condition inverted, or never true."""
    yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    yield ast.If(ast.Constant(False), node.body, node.orelse)


def _of_loop(node: ast.For) -> Iterator[ast.AST]:
    """`for a in b:` that stops after its first turn."""
    body = [*node.body, ast.Break()]
    yield ast.For(node.target, node.iter, body, node.orelse)


def _of_assignment(node: ast.Assign) -> Iterator[ast.AST]:
    """`x = f(x)` and `x[...] = y`: the step left out.

    A name that is assigned for the first time is kept: without it the rest
    would be no program.
    """
    target = node.targets[0]
    changes_a_part = isinstance(target, (ast.Subscript, ast.Attribute))
    again = ast.unparse(target) in ast.unparse(node.value)
    called = getattr(node.value, "func", None)
    same_value = getattr(called, "attr", "") in SAME_VALUE
    if changes_a_part or (again and not same_value):
        yield ast.Pass()


def _of_statement(node: ast.Expr) -> Iterator[ast.AST]:
    """A call whose result nobody takes: left out."""
    if isinstance(node.value, ast.Call):
        yield ast.Pass()


def _left_out(node: ast.stmt) -> Iterator[ast.AST]:
    """`break` and `continue`: left out."""
    yield ast.Pass()


def _is_axis(node: ast.UnaryOp) -> bool:
    """Whether a node is an axis such as −1; 1 is often the same axis."""
    return isinstance(node.operand, ast.Constant) and (
        isinstance(node.operand.value, int) and node.operand.value > 0
    )


def _other_values(value: Any) -> Iterator[Any]:
    """Values near a value: off by one, twice as large, False for True."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        yield value - 1
    elif isinstance(value, float):
        yield value + 1
        yield value * 2


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    """A call of another name, no call, one argument less, two arguments in
    the other order, a mask inverted."""
    fn = node.func
    args = node.args
    keywords = node.keywords
    name = getattr(fn, "attr", getattr(fn, "id", ""))
    if other := NAMES.get(name):
        named: ast.expr = ast.Name(other, ast.Load())
        if isinstance(fn, ast.Attribute):
            named = ast.Attribute(fn.value, other, ast.Load())
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


#: For each kind of node what could be there by mistake.
HANDLERS: dict[type[ast.AST], Handler] = {
    ast.AugAssign: _of_augmented,
    ast.BinOp: _of_operation,
    ast.Compare: _of_comparison,
    ast.BoolOp: _of_and_or,
    ast.UnaryOp: _of_sign,
    ast.Constant: _of_constant,
    ast.IfExp: _of_choice,
    ast.Call: _other_calls,
    ast.Attribute: _of_attribute,
    ast.Subscript: _other_places,
    ast.If: _of_if,
    ast.For: _of_loop,
    ast.Assign: _of_assignment,
    ast.Expr: _of_statement,
    ast.Break: _left_out,
    ast.Continue: _left_out,
}


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """What somebody could write by mistake in the place of a node."""
    handler = HANDLERS.get(type(node))
    return handler(node) if handler else iter(())
