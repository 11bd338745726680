"""The house as a whole: which folder may import which, no circle anywhere,
rooms and functions of a size that one can hold, and tests that mirror it."""

import ast
import graphlib
import re
from functools import cache

import pytest
from imports import imported
from notebooks import CHAPTERS, ROOT

import attnbook

#: Folders of rooms, the lowest first. The name under which a room is imported
#: begins where its folder ends. A room imports from its own folder and from
#: lower ones.
FOLDERS = {
    "library": CHAPTERS,
    "press": ROOT / "site",
    "tools": ROOT / "tools",
    "benchmarks": ROOT / "benchmarks",
}

#: Lines that a room has at most. The catalogue is content: it grows with the
#: book, and nobody reads it from top to bottom.
LONGEST_ROOM = 450

#: Lines of code that a function has at most without saying why, in a comment
#: that begins with "long:". Its docstring is not counted.
LONGEST_FUNCTION = 40


def rooms():
    """Every room of the house: its folder, its name, and its file."""
    for folder, place in FOLDERS.items():
        for path in sorted(place.rglob("*.py")):
            parts = path.relative_to(place).with_suffix("").parts
            yield folder, ".".join(parts).removesuffix(".__init__"), path


ROOMS = list(rooms())
FOLDER = {name: folder for folder, name, _ in ROOMS}


@cache
def arrows():
    """What each room imports of the house, in functions too."""
    assert len(FOLDER) == len(ROOMS), "two rooms have one name"
    found = {}
    for _, name, path in ROOMS:
        source = path.read_text("utf-8")
        found[name] = imported(source, set(FOLDER)) - {name}
    return found


def test_folders_import_from_lower_ones_only():
    height = list(FOLDERS).index
    upwards = [
        f"{room} imports {other}"
        for room, others in arrows().items()
        for other in others
        if height(FOLDER[other]) > height(FOLDER[room])
    ]
    assert upwards == []


def test_there_is_no_circle_in_the_whole_house():
    found = dict(arrows())
    found.pop("attnbook.__main__")
    graphlib.TopologicalSorter(found).prepare()  # else a CycleError


def drawn():
    """The rows of the drawing of the library, the lowest first.

    It is in the package's docstring. Words stand apart from rooms by more
    spaces than rooms from each other.
    """
    told = attnbook.__doc__.partition("::\n\n")[2].partition("\n\n")[0]
    rows = []
    for line in told.splitlines():
        names = re.match(r"    (?:(?:\w+)(?:   |$))+", line + "   ")
        if names:
            rows.append(names[0].split())
    return rows[::-1]


def test_the_drawing_of_the_library_is_right():
    """It has every room, and each imports from rows further down only."""
    rows = {name: n for n, row in enumerate(drawn()) for name in row}
    library = {
        name.removeprefix("attnbook."): name
        for name in FOLDER
        if re.fullmatch(r"attnbook\.[a-z]\w*", name)
    }
    library.pop("run")
    library.pop("teach")
    assert set(rows) == set(library)
    found = arrows()
    upwards = [
        f"{room} imports {other}"
        for room, name in library.items()
        for other in library
        if library[other] in found[name] and rows[other] >= rows[room]
    ]
    assert upwards == []


def test_a_room_can_be_held_at_once():
    long = {
        name
        for _, name, path in ROOMS
        if len(path.read_text("utf-8").splitlines()) > LONGEST_ROOM
        and not name.startswith("attnbook.teach.catalogue.")
    }
    assert long == set()


def long_functions(source):
    """The functions of a source that are long and do not say why."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0]
        docstring = ast.get_docstring(node, clean=False)
        counted = node.end_lineno - node.lineno + 1
        if docstring is not None:
            counted -= first.end_lineno - first.lineno + 1
        own = lines[node.lineno - 1 : node.end_lineno]
        reason = any(re.search(r"# long: \w", line) for line in own)
        if counted > LONGEST_FUNCTION and not reason:
            yield node.name


def test_a_long_function_says_why():
    long = {
        f"{name}.{function}"
        for _, name, path in ROOMS
        for function in long_functions(path.read_text("utf-8"))
    }
    assert long == set()


@pytest.mark.parametrize(
    "begin, lines, long",
    [
        ("", 39, False),
        ("", 40, True),
        ("    # long: a table\n", 60, False),
        ('    """Told\n    at length."""\n', 39, False),
    ],
)
def test_long_functions_are_found(begin, lines, long):
    source = "def f():\n" + begin + "    x = 1\n" * lines
    assert list(long_functions(source)) == ["f"] * long


#: Where the tests of a folder's rooms lie, by the beginning of their names.
TESTS = {
    "attnbook.run.": "attnbook/run",
    "attnbook.teach.check.": "attnbook/teach/check",
    "attnbook.teach.page.": "attnbook/teach/page",
    "attnbook.teach.": "attnbook/teach",
    "attnbook.": "attnbook",
    "press.": "site",
    "mutate.": "tools/mutate",
    "": "tools",
}

CHECK = "attnbook/teach/check/"
CONFINED = "they are tried together: whether a stranger's code gets out"
OWN = "a step of one call, which is tried as a whole in hundreds of ways"
TELLING = "its sentences are read where a verdict is: as a whole"

#: Rooms that have no file of tests of their own: the tests that hold them, and
#: why they are there.
TESTED_BY = {
    "attnbook.gguf_layout": (
        "attnbook/test_gguf.py",
        "a damaged file is refused by both rooms that read one",
    ),
    "attnbook.run.loop": (
        "attnbook/run/test_command.py",
        "the loop is stopped and taken up again as the command it serves",
    ),
    "attnbook.run.places": (
        "attnbook/run/test_command.py",
        "two processes that write one file are two commands",
    ),
    "attnbook.teach.check.audit": (CHECK + "test_confine.py", CONFINED),
    "attnbook.teach.check.own.bounds": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.calling": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.cases": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.command": (
        CHECK + "test_own_command.py",
        "its name says whose command it is",
    ),
    "attnbook.teach.check.own.form": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.layouts": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.modules": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.prepare": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.report": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.own.ways": (CHECK + "test_own.py", OWN),
    "attnbook.teach.check.telling.helping": (
        CHECK + "test_telling.py",
        TELLING,
    ),
    "attnbook.teach.check.telling.messages": (
        CHECK + "test_telling.py",
        TELLING,
    ),
    "attnbook.teach.check.telling.results": (
        CHECK + "test_telling.py",
        TELLING,
    ),
    "attnbook.teach.check.telling.stops": (CHECK + "test_telling.py", TELLING),
    "attnbook.teach.check.trial": (
        CHECK + "test_outcomes.py",
        "a trial is what outcomes that were sent are compared in",
    ),
    "attnbook.teach.check.walls": (CHECK + "test_confine.py", CONFINED),
    "attnbook.teach.page.mistakes": (
        "attnbook/teach/catalogue/test_catalogue.py",
        "it shows mistakes, and the catalogue has them",
    ),
    "measures": (
        "chapters/test_measures.py",
        "it measures pages, and they are held against it",
    ),
    "notebooks": (
        "tools/test_outputs.py",
        "the two tools read and write notebooks in turn",
    ),
    "phrases": (
        "chapters/test_prose.py",
        "its list of phrases is held against the pages",
    ),
    "press.articles": (
        "site/test_epub.py",
        "the EPUB and the PDF are made of its articles",
    ),
    "press.browser": (
        "browser/test_policy.py",
        "it starts a browser, so it is tested where there is one",
    ),
    "press.changes": (
        "site/test_finish.py",
        "the feed is written as the pages are finished",
    ),
    "press.places": (
        "site/test_site.py",
        "it names folders, and has nothing to compute",
    ),
    "press.plain": (
        "site/test_finish.py",
        "the twins are written as the pages are finished",
    ),
    "press.settings": (
        "site/test_site.py",
        "settings are right if the built site is",
    ),
    "screenshots": (
        "browser/test_screenshots.py",
        "it photographs pages, so it is tested where a browser is",
    ),
    "town_model": (
        "site/test_town_page.py",
        "what it has trained answers in the page",
    ),
    "tame": (
        "tools/mutate/test_tame.py",
        "it is the command of the room mutate.tame",
    ),
}


def without_tests():
    """The rooms without a file of tests of their own name.

    Benchmarks are left out: they are scripts that run for minutes. Those
    parts of them that something else stands on are in tests/benchmarks.
    """
    for folder, name, path in ROOMS:
        content = name.startswith("attnbook.teach.catalogue")
        if folder == "benchmarks" or content or path.stem.startswith("__"):
            continue
        begin = next(b for b in TESTS if name.startswith(b))
        own = ROOT / "tests" / TESTS[begin] / f"test_{path.stem}.py"
        if not own.exists():
            yield name


def importers(room):
    """A room, and the rooms that import it, one from another."""
    found = {room}
    others = arrows()
    while more := {o for o, used in others.items() if used & found} - found:
        found |= more
    return found


def test_tests_mirror_the_house():
    """A room has a file of tests of its name, or it is said where they are."""
    assert set(without_tests()) == set(TESTED_BY)


def uses(source, room):
    """Whether tests import a room, or one that stands on it."""
    return bool(imported(source, set(FOLDER)) & importers(room))


@pytest.mark.parametrize("room", TESTED_BY)
def test_the_tests_of_a_room_use_it(room):
    path, reason = TESTED_BY[room]
    assert uses((ROOT / "tests" / path).read_text("utf-8"), room)
    assert len(reason.split()) > 5


@pytest.mark.parametrize(
    "source, used",
    [
        ("from attnbook.gguf_layout import layout", True),
        ("from attnbook.gguf import read", True),
        ("from attnbook import masks", False),
        ("# gguf_layout\nname = 'attnbook.gguf_layout'", False),
    ],
)
def test_tests_that_only_name_a_room_do_not_use_it(source, used):
    assert uses(source, "attnbook.gguf_layout") == used
