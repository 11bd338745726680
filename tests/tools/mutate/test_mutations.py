"""The changes of a line: those that somebody could make by mistake."""

import ast

import pytest
from mutate.mutations import mutations


def changes(source, **options):
    tree = ast.parse(source)
    return [c.change for c in mutations(tree, **options)]


@pytest.mark.parametrize(
    "source, wanted",
    {
        "a - b": {"a - b → a + b", "a - b → b - a", "a - b → a", "a - b → b"},
        "y = x.sum(-1)": {"x.sum(-1) → x.mean(-1)", "1 → 2", "1 → 0"},
        "x < y": {"x < y → x <= y", "x < y → x > y"},
        "y = f(a, b)": {"f(a, b) → f(b, a)"},
        "write(a)": {"write(a) → pass", "write(a) → a"},
        "x.mT": {"x.mT → x"},
        "~m": {"~m → m"},
        "y = x.masked_fill(m, v)": {
            "x.masked_fill(m, v) → x",
            "x.masked_fill(m, v) → x.masked_fill(~m, v)",
            "x.masked_fill(m, v) → x.masked_fill(v, m)",
        },
        "x[:n]": {"x[:n] → x", "x[:n] → x[:n + 1]", "x[:n] → x[:n + -1]"},
        "x = f(x)": {"x = f(x) → pass", "f(x) → x"},
        "x += 1": {"x += 1 → x -= 1", "x += 1 → pass", "1 → 2", "1 → 0"},
        "for a in b:\n    pass": {"for a in b: → the first alone"},
        "y = draw(seed=3)": set(),
        "y = maximum(a, b)": set(),
        "'a text'": set(),
    }.items(),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_changes_of_a_line(source, wanted):
    assert set(changes(source)) == wanted


def test_a_refusal_is_changed_only_for_a_room():
    source = "if x < 1:\n    raise ValueError(f'{x + 1}')"
    assert changes(source) == []
    assert "x < 1 → x <= 1" in changes(source, guards=True)
    assert not any("x + 1" in c for c in changes(source, guards=True))
