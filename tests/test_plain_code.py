"""Code that is written to be read: nothing is packed into a line to save one,
and every function and class says what it is for."""

import ast

import pytest
from notebooks import CHAPTERS, ROOT

PLACES = (
    CHAPTERS / "attnbook",
    ROOT / "site",
    ROOT / "tools",
    ROOT / "benchmarks",
)

#: Where nothing is packed either, though a test's name says what it is for.
TESTS = ROOT / "tests"

ROOMS = [path for place in PLACES for path in sorted(place.rglob("*.py"))]


def _form(node):
    """Of which kinds of nodes an expression consists, without its names."""
    return [
        type(n.value) if isinstance(n, ast.Constant) else type(n)
        for n in ast.walk(node)
    ]


def _is_constant(node):
    """Whether an expression is made of written values alone."""
    named = (ast.Name, ast.Attribute, ast.Call)
    return not any(isinstance(n, named) for n in ast.walk(node))


def _belong_together(targets, values):
    """Whether several names may be assigned in one line.

    They may where the values are of one form, as in ``T, S = q.shape[-2],
    k.shape[-2]``; where all are constants of the module; and where the names
    are those of sizes or tensors, of one letter or two.
    """
    names = [t.id if isinstance(t, ast.Name) else "" for t in targets]
    if all(0 < len(name) <= 2 for name in names):
        return True
    if all(name.isupper() for name in names):
        return all(map(_is_constant, values))
    return all(_form(value) == _form(values[0]) for value in values)


def _paired(node):
    """Whether a statement assigns several values that do not belong together
    to as many names."""
    if not (
        isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
    ):
        return False
    targets = node.targets[0]
    if not isinstance(targets, ast.Tuple):
        return False
    values = node.value.elts
    starred = any(isinstance(n, ast.Starred) for n in (*targets.elts, *values))
    if starred or len(targets.elts) != len(values):
        return False
    return not _belong_together(targets.elts, values)


def _is_condition(node):
    """Whether an expression is true or false by its form."""
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negated or isinstance(node, (ast.Compare, ast.BoolOp))


def _is_sequence(node):
    """Whether an expression is a written text, list or tuple."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (str, bytes))
    return isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr))


def _times_condition(node):
    """Whether a text or list is multiplied by a condition."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return False
    a, b = node.left, node.right
    return (_is_sequence(a) and _is_condition(b)) or (
        _is_sequence(b) and _is_condition(a)
    )


def _splatted(node):
    """Whether a written list or tuple is taken apart by a star."""
    written = (ast.List, ast.Tuple, ast.Set)
    return isinstance(node, ast.Starred) and (
        isinstance(node.ctx, ast.Load) and isinstance(node.value, written)
    )


def _continued(node):
    """Whether a `dict(...)` goes on in a second assignment, which is how a
    long one is kept out of the formatter's hands."""
    return (
        isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.BitOr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "dict"
        and not node.value.args
    )


#: The ways to pack that are seen in one node of a syntax tree.
WAYS = (_paired, _times_condition, _splatted, _continued)


def packed_lines(source):
    """The lines of a source in which something is packed to save a line."""
    tree = ast.parse(source)
    found = [
        node.lineno
        for node in ast.walk(tree)
        if any(packed(node) for packed in WAYS)
    ]
    for node in ast.walk(tree):
        for _, body in ast.iter_fields(node):
            if not isinstance(body, list):
                continue
            statements = [n for n in body if isinstance(n, ast.stmt)]
            for one, other in zip(statements, statements[1:]):
                if one.end_lineno == other.lineno:
                    found.append(other.lineno)
    return sorted(found)


def found_in(place, find):
    """The places, as file:line, of what is found in the code of a folder."""
    return [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(place.rglob("*.py"))
        for line in find(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize("place", [*PLACES, TESTS], ids=lambda p: p.name)
def test_nothing_is_packed_into_a_line(place):
    assert found_in(place, packed_lines) == []


@pytest.mark.parametrize(
    "line, packed",
    [
        ("x, tied = self.norm(x), False", True),
        ("before, found = copied(x), {}", True),
        ("MOST, PLACE = 3, Path(name)", True),
        ("said = 'out' * (real is None)", True),
        ("rest = [x] * (not last)", True),
        ("f(*('a', 'b'), *rest)", True),
        ("x = 1; y = 2", True),
        ("sizes |= dict(vocab_size=V, context=32)", True),
        ("T, S = q.shape[-2], k.shape[-2]", False),
        ("answer, expected = found.answer, found.expected", False),
        ("ROWS, COLUMNS = 2**4, 128", False),
        ("B, T = tokens.shape", False),
        ("a, b = x.double(), 0", False),
        ("zeros = [0] * n", False),
        ("sizes = dict(vocab_size=V, context=32)", False),
        ("seen |= found", False),
        ("seen |= dict(zip(names, found))", False),
        ("f(*rest, 2 * (a > b))", False),
    ],
)
def test_packed_lines_are_found(line, packed):
    assert bool(packed_lines(line)) == packed


CATALOGUE = CHAPTERS / "attnbook" / "teach" / "catalogue"


def spelt_otherwise(source):
    """The lines of a room of the catalogue that register a slip or a mistake
    in another spelling than everywhere.

    A slip is a statement of the room, ``task.slip(...)``, and not the body of
    a loop or of a helper. A mistake is a function that is decorated by
    ``@task.mistake(...)``.
    """
    tree = ast.parse(source)
    usual = set()
    for node in tree.body:
        if isinstance(node, ast.Expr):
            usual.add(("slip", node.value))
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            usual |= {("mistake", by) for by in node.decorator_list}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            kind = node.func.attr
            if kind in ("slip", "mistake") and (kind, node) not in usual:
                yield node.lineno


def test_slips_and_mistakes_have_one_spelling():
    assert found_in(CATALOGUE, spelt_otherwise) == []


@pytest.mark.parametrize(
    "source, lines",
    [
        ("c02.softmax.slip('a', 'b?', f)", []),
        ("@softmax.mistake('o/r #1')\ndef f(x):\n    pass\n", []),
        ("for f in fs:\n    softmax.slip('a', 'b?', f)\n", [2]),
        ("softmax.mistake('o/r #1')(f)", [1]),
        ("@softmax.slip('a', 'b?')\ndef f(x):\n    pass\n", [1]),
    ],
)
def test_another_spelling_is_found(source, lines):
    assert [*spelt_otherwise(source)] == lines


def without_docstring(source):
    """The functions and classes of a module that have no docstring."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and not ast.get_docstring(node)
    ]


#: Names that say by themselves what a function is: the program of a script,
#: and what Sphinx calls of an extension.
KNOWN = {"main", "setup"}


def test_what_a_room_defines_says_what_it_is_for():
    """Helpers of the catalogue too: who adds a slip looks among them first."""
    lacking = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOMS
        for name in without_docstring(path.read_text("utf-8"))
        if name not in KNOWN
    ]
    assert lacking == []


def test_a_function_without_docstring_is_found():
    source = "def f():\n    'Told'\ndef _g():\n    pass\nclass A:\n    pass\n"
    assert without_docstring(source) == ["_g", "A"]
