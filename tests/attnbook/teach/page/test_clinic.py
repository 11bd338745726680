"""The clinic: symptoms, causes, tests of one line, and the search."""

import importlib
import json
import math
import re

import pytest
import torch
import torch.nn.functional as F
from mdit_py_plugins.anchors.index import slugify
from notebooks import CHAPTERS, read
from ranked import in_node

from attnbook.teach.catalogue import all_mistakes, all_tasks
from attnbook.teach.check.registry import the_book
from attnbook.teach.page import mistakes
from attnbook.teach.page.clinic import (
    MOST_CAUSES,
    find_causes,
    index_path,
    read_clinic,
    the_clinic,
)
from attnbook.teach.page.ranking import rank

CAUSES = the_clinic().causes
TASKS = all_tasks()
KNOWN = all_mistakes()


def is_well(test, mine):
    """What a test of one line says of a function: an error counts as no."""
    names = {"torch": torch, "F": F, "math": math, "mine": mine}
    try:
        return bool(eval(test, names))
    except Exception:
        return False


def test_there_are_twenty_to_forty_symptoms_with_six_causes_at_most():
    symptoms = the_clinic().symptoms
    assert 20 <= len(symptoms) <= 40
    assert all(len(s.causes) <= MOST_CAUSES for s in symptoms)


def test_every_known_mistake_has_one_cause_or_a_reason():
    listed = [m for cause in CAUSES.values() for m in cause.mistakes]
    listed += the_clinic().elsewhere
    assert sorted(listed) == sorted(KNOWN)
    assert all(the_clinic().elsewhere.values())


def test_causes_are_sentences_without_names_of_functions():
    for cause in CAUSES.values():
        assert cause.says.endswith("."), cause.id
        assert not re.search(r"\w+\(|`", cause.says), cause.id
        assert not any(m in cause.says for m in KNOWN), cause.id


def test_each_cause_is_told_in_ten_ways_at_least():
    few = [c.id for c in CAUSES.values() if ways_to_say(c) < 10]
    assert few == []


def ways_to_say(cause):
    """In how many ways the file has what people with this cause say."""
    return len(cause.words.split(",")) + len(cause.said)


@pytest.mark.parametrize("name", CAUSES)
def test_a_test_of_one_line_tells_right_from_wrong(name):
    cause = CAUSES[name]
    assert "\n" not in cause.test
    compile(cause.test, name, "eval")
    if not cause.on:
        return  # it is about a program of one's own
    task = TASKS[cause.on]
    assert is_well(cause.test, task.right)
    if task.home:
        assert is_well(cause.test, the_book().own_function(task))
    wrong = [KNOWN[m].wrong for m in cause.mistakes if KNOWN[m].task is task]
    wrong = [w for w in wrong if w.__name__ not in the_clinic().tests]
    if cause.wrong:
        wrong.append(eval(cause.wrong, {"torch": torch, "F": F}))
    assert wrong, "no wrong answer that the test could be tried on"
    for each in wrong:
        assert not is_well(cause.test, each), each


@pytest.mark.parametrize("name", the_clinic().tests)
def test_a_mistakes_own_test_tells_right_from_wrong(name):
    mistake = KNOWN[name]
    test = the_clinic().tests[name]
    assert is_well(test, mistake.task.right)
    assert not is_well(test, mistake.wrong)


def test_every_mistake_has_a_line_that_tells_it():
    for mistake in KNOWN.values():
        line = the_clinic().test_of(mistake)
        compile(line, mistake.name, "eval")


def sections(page):
    """The anchors of a chapter's headings."""
    cells = read(CHAPTERS / f"{page}.ipynb").cells
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    return {slugify(h) for h in re.findall(r"(?m)^#{1,3} (.+)$", text)}


def test_every_cause_leads_to_a_section():
    """Where one was renamed, tools/clinic.py --write mends the link."""
    there = {}
    lost = []
    for cause in CAUSES.values():
        page, _, anchor = cause.at.partition("#")
        there[page] = there.get(page) or sections(page)
        if anchor not in there[page]:
            lost.append(f"{cause.id}: {cause.at}")
    assert lost == []


def test_find_gives_the_likely_cause_first():
    found = mistakes.find("loss halves with padding mask")
    assert found[0].id == "padding_mask_replaces_causal"
    assert len(found) == 3
    told = repr(found)
    assert CAUSES["padding_mask_replaces_causal"].test in told
    assert "05_masking.ipynb#padding" in told
    assert "05_masking.ipynb#padding" in found._repr_markdown_()
    assert len(mistakes.find("padding", most=5)) == 5


def test_what_nothing_fits_is_said():
    assert "Nothing fits" in repr(mistakes.find("xyzzy"))
    with pytest.raises(ValueError, match="nothing to search for"):
        mistakes.find("  ")


def test_a_page_finds_what_python_finds():
    index = json.loads(index_path(the_book().clinic).read_text("utf-8"))
    queries = [cause.words for cause in CAUSES.values()]
    queries += [s.title for s in the_clinic().symptoms]
    found = in_node(
        "given.queries.map((q) => "
        "ranking.rank(ranking.open(given.index), q).slice(0, 9))",
        {"index": index, "queries": queries},
    )
    assert found == [[list(r) for r in rank(index, q)[:9]] for q in queries]


def test_every_cause_is_found_by_its_own_words():
    for cause in CAUSES.values():
        assert cause in find_causes(cause.says, 1), cause.id


FILE = """
synonyms = []
[[symptom]]
title = "It fails"
words = ""
also = {also}
[[symptom.cause]]
id = "a"
says = "It is broken."
test = "True"
on = ""
mend = "Mend it."
at = "01#a"
mistakes = []
words = ""
[tests]
[elsewhere]
"""


@pytest.mark.parametrize(
    "also, says",
    [('["b"]', "does not exist"), (str(["a"] * 6), "too many causes")],
)
def test_a_file_that_does_not_hold_together_is_refused(tmp_path, also, says):
    path = tmp_path / "clinic.toml"
    path.write_text(FILE.format(also=also), "utf-8")
    with pytest.raises(ValueError, match=says):
        read_clinic(path)


def test_two_causes_of_one_name_are_refused(tmp_path):
    text = FILE.format(also="[]")
    cause = text[text.index("[[symptom.cause]]") : text.index("[tests]")]
    path = tmp_path / "clinic.toml"
    path.write_text(text.replace("[tests]", f"{cause}[tests]"), "utf-8")
    with pytest.raises(ValueError, match="two causes"):
        read_clinic(path)


def test_a_book_without_a_clinic_says_so(monkeypatch):
    module = importlib.import_module("attnbook.teach.page.clinic")

    class Bare:
        clinic = None

    monkeypatch.setattr(module, "the_book", Bare)
    module.the_clinic.cache_clear()
    with pytest.raises(LookupError, match="no clinic"):
        module.the_clinic()
    module.the_clinic.cache_clear()
