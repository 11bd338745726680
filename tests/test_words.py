"""One word, one meaning: names whose word has one in the dictionary of the
house (CONTRIBUTING.md) are found where this is what they mean."""

import ast
import builtins
import collections
import contextlib
import functools
import itertools
import re

import pytest
from notebooks import CHAPTERS, ROOT

PLACES = {
    CHAPTERS: CHAPTERS / "attnbook",
    ROOT / "site": ROOT / "site",
    ROOT / "tools": ROOT / "tools",
    ROOT / "benchmarks": ROOT / "benchmarks",
}

#: Each word, the names that have it (all of a name, or a part between
#: underscores), and where such names may be. Elsewhere they would mean
#: something else.
MEANT = {
    "run": (
        r"(_|^)runs$|^run$",
        {
            "attnbook.run",
            "attnbook.server.Server.run",
            "attnbook.teach.page.mistakes.run",
        },
    ),
    "form": (
        r"(_|^)forms?(_|$)",
        {
            "attnbook.teach._forms",
            "attnbook.teach.catalogue.forms",
            "attnbook.teach.check.own",
            "attnbook.teach.check.registry.Book",
        },
    ),
    "judge": (
        r"(_|^)judge(s|d)?(_|$)",
        {"attnbook.teach.check.judge"},
    ),
    "wording": (r"(_|^)wordings?(_|$)", {"press.terms"}),
    "contender": (
        r"(_|^)contenders?(_|$)",
        {
            "batches",
            "card",
            "further",
            "rounds",
            "shakespeare",
            "speed",
            "gpu",
        },
    ),
    "verdict": (
        r"(_|^)verdicts?(_|$)",
        {"attnbook.teach", "mutate.tasks"},
    ),
}


def _is_mistake(node):
    """Whether a definition is a known mistake: its name says what people do
    wrong, in whatever words."""
    return any(
        isinstance(by, ast.Call)
        and isinstance(by.func, ast.Attribute)
        and by.func.attr == "mistake"
        for by in node.decorator_list
    )


def named(source, room):
    """The names that a room gives to something, each with where it does.
    Those of known mistakes are left out."""

    def walk(node, place):
        for child in ast.iter_child_nodes(node):
            inside = place
            match child:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    inside = f"{place}.{name}"
                    if not _is_mistake(child):
                        yield inside, name
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                    yield f"{place}.{name}", name
            yield from walk(child, inside)

    yield from walk(ast.parse(source), room)


def rooms():
    """Each room's name and source."""
    for begin, place in PLACES.items():
        for path in sorted(place.rglob("*.py")):
            parts = path.relative_to(begin).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            yield name, path.read_text("utf-8")


NAMED = [n for room, source in rooms() for n in named(source, room)]


def having(word, names):
    """Where the names are, of several, that have a word in them."""
    pattern, _ = MEANT[word]
    for where, name in names:
        parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        if re.search(pattern, parted):
            yield where


def inside(where, place):
    """Whether a name is in a room or folder, or is the place itself."""
    return f"{where}.".startswith(f"{place}.")


def elsewhere(word, names):
    """Where names use a word for something else than it means."""
    return [
        where
        for where in having(word, names)
        if not any(inside(where, place) for place in MEANT[word][1])
    ]


@pytest.mark.parametrize("word", MEANT)
def test_a_word_of_the_house_has_one_meaning(word):
    assert elsewhere(word, NAMED) == []


@pytest.mark.parametrize("word", MEANT)
def test_a_word_is_in_the_dictionary_and_used_where_it_may_be(word):
    dictionary = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"\n| {word} | " in dictionary
    found = [*having(word, NAMED)]
    for place in MEANT[word][1]:
        assert any(inside(where, place) for where in found), place


#: Names that everybody knows from Python, with the module that has them.
STANDARD = {
    name: module.__name__
    for module in (builtins, collections, contextlib, functools, itertools)
    for name in dir(module)
    if not name.startswith("_")
}

#: Public names that are standard ones all the same, and why.
SHADOWS = {
    "attnbook.teach.catalogue.c11_language_model.accumulate": (
        "of gradients: the field calls it so"
    ),
}


def shadows(source, room):
    """The functions and classes of a room that have a standard name."""
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node.name in STANDARD:
                yield f"{room}.{node.name}"


def test_no_name_of_a_room_is_one_that_python_has():
    found = {
        name for room, source in rooms() for name in shadows(source, room)
    }
    assert found == set(SHADOWS)


def test_a_name_that_python_has_is_found():
    source = "def partial(q):\n    pass\n\n\ndef parts(q):\n    pass\n"
    assert [*shadows(source, "room")] == ["room.partial"]


@pytest.mark.parametrize(
    "word, source, wrong",
    [
        ("run", "def run(kind):\n    pass\n", ["room.run"]),
        ("run", "runs = {}", ["room.runs"]),
        ("run", "def run_blocks(run_block):\n    pass\n", []),
        ("form", "class Form:\n    pass\n", ["room.Form"]),
        (
            "form",
            "class A:\n    def f(self, form):\n        pass\n",
            ["room.A.f.form"],
        ),
        ("form", "format = transform(platform)", []),
        ("judge", "def judged(x):\n    pass\n", ["room.judged"]),
        ("judge", "@sums.mistake()\ndef judges(x):\n    pass\n", []),
        (
            "judge",
            "@sums.mistake()\ndef f(judge):\n    pass\n",
            ["room.f.judge"],
        ),
    ],
)
def test_a_word_with_another_meaning_is_found(word, source, wrong):
    assert elsewhere(word, named(source, "room")) == wrong
