"""The catalogue: right answers pass, known mistakes are caught and named."""

import functools
import inspect
import re
from dataclasses import replace

import pytest
import torch
from book import CHAPTER_FILES, exercises
from notebooks import CHAPTERS, ROOT, read
from torch.utils._pytree import tree_map
from trials import trials_kept

from attnbook.teach.catalogue import (
    _check_names,
    all_mistakes,
    all_tasks,
    mistakes_by_symptom,
)
from attnbook.teach.catalogue.chapter import questions
from attnbook.teach.catalogue.slips.s11 import _accumulate
from attnbook.teach.catalogue.symptoms import HEADINGS
from attnbook.teach.check.inputs import watched
from attnbook.teach.check.judge import attempted, judge, verdict_on
from attnbook.teach.check.registry import the_book
from attnbook.teach.page.mistakes import links, verdict

TASKS = all_tasks()
MISTAKES = all_mistakes()

#: Mistakes seen in the five notebooks that the book grew out of.
COVERAGE = ROOT / "tests" / "chapters" / "coverage.md"
LABELLED = re.findall(r"`(\w+)`", COVERAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def kept():
    """The trial of the latest task is kept for the next of its answers."""
    with trials_kept():
        yield


def in_chapter(entry):
    """An id that `make check CHAPTER=` finds."""
    return f"{entry.chapter:02}-{entry.name}"


each_task = pytest.mark.parametrize("task", TASKS.values(), ids=in_chapter)
each_mistake = pytest.mark.parametrize(
    "mistake", MISTAKES.values(), ids=in_chapter
)


def test_two_known_mistakes_of_one_name_are_refused():
    task = TASKS["softmax"]
    with pytest.raises(ValueError, match="two known mistakes are named .*"):
        _check_names([task, task])


@each_task
def test_the_right_answer_and_the_packages_own_pass(task):
    verdict = judge(task.right, task)
    assert verdict.kind == "right", verdict.message
    if task.home:
        assert judge(the_book().own_function(task), task).kind == "right"
    assert task.against and task.wanted and task.chapter


@each_task
def test_cases_are_the_same_each_time(task):
    first, second = task.cases(), task.cases()
    assert [repr(c) for c in first] == [repr(c) for c in second]
    assert len(first) > 1


@each_mistake
def test_every_mistake_is_caught_and_recognised_by_its_name(mistake, kept):
    tried, _ = attempted(mistake.wrong, mistake.task)
    # A page shows it as a stranger's code: see `mistakes.verdict`.
    found = verdict_on(tried, known={})
    assert found.kind in ("wrong", "error"), found.message
    assert verdict_on(tried).mistake == mistake.name


def test_a_page_judges_a_mistake_as_a_strangers_code():
    mistake = MISTAKES["forgets_the_scale"]
    tried, _ = attempted(mistake.wrong, mistake.task)
    found = verdict_on(tried, known={})
    assert verdict(mistake).message == found.message
    assert judge(mistake.wrong, mistake.task).kind == "known mistake"


def in_another_spelling(wrong):
    """The same slip, whose sums are rounded otherwise."""

    @functools.wraps(wrong)
    def other(*args, **kwargs):
        return tree_map(
            lambda x: (
                x + 1e-13
                if torch.is_tensor(x)
                and x.is_floating_point()
                and x.dtype == torch.float64
                else x
            ),
            wrong(*args, **kwargs),
        )

    return other


@pytest.mark.parametrize(
    "mistake", [m for m in MISTAKES.values() if m.hint], ids=in_chapter
)
def test_what_an_exercise_recognises_it_knows_in_another_spelling(
    mistake, kept
):
    other = in_another_spelling(mistake.wrong)
    assert judge(other, mistake.task).mistake == mistake.name


SLIPS = [(task, words) for task in TASKS.values() for words in task.slips]


@pytest.mark.parametrize(
    "task, words",
    SLIPS,
    ids=[f"{in_chapter(t)}-{'-'.join(w.split()[:6])}" for t, w in SLIPS],
)
def test_every_slip_is_refused_and_recognised(task, words, kept):
    wrong, hint = task.slips[words]
    for fn in (wrong, in_another_spelling(wrong)):
        verdict = judge(fn, task)
        assert verdict.kind == "known mistake", verdict.message
        assert verdict.mistake == words
    assert f"{words}. hint: {hint}" in " ".join(verdict.message.split())
    assert hint.endswith("?")


def test_an_exercise_knows_three_mistakes_at_least():
    for path in CHAPTER_FILES:
        for exercise in exercises(path):
            task = TASKS[exercise.task]
            assert len(task.known) + len(task.slips) >= 3, task.name
    with pytest.raises(ValueError, match="two slips"):
        task, words = SLIPS[0]
        task.slip(words, *task.slips[words][::-1])


def test_an_entry_is_whole():
    for name, m in MISTAKES.items():
        right, wrong = (
            inspect.signature(fn).parameters for fn in (m.task.right, m.wrong)
        )
        rest = inspect.Parameter.VAR_KEYWORD
        named = [n for n, each in wrong.items() if each.kind != rest]
        expected = list(right)
        if named != list(wrong):  # it takes the others by their names
            expected = [n for n in right if n in named]
        assert named == expected, name
        for text in (m.symptom, m.cause, m.fix):
            assert text.endswith(".") and len(text) > 20, text
        # Public threads and nothing else, or a row of the sources.
        threads = r"([\w.-]+/[\w.-]+ #\d+(, #\d+)*(, )?)*"
        assert re.fullmatch(threads, m.seen), m.seen
        assert m.seen or name in LABELLED, name
    assert len(LABELLED) > 30 and set(LABELLED) <= set(MISTAKES)


def test_a_thread_that_was_not_looked_up_is_marked_on_the_list():
    """The catalogue's page, where all threads stand."""
    unopened = {t for m in MISTAKES.values() for t in m.not_looked_up}
    # A thread that several mistakes cite is marked at each or at none.
    for m in MISTAKES.values():
        assert m.not_looked_up == unopened & set(links(m.seen)), m.name
    cells = read(CHAPTERS / "mistakes.ipynb").cells
    page = "".join(
        text
        for cell in cells
        for output in cell.get("outputs", [])
        for text in output.get("data", {}).get("text/markdown", "")
    )
    found = re.findall(r"\[([^]]+)\]\(\S+?\) \(not looked up\)", page)
    assert set(found) == unopened and len(unopened) == 14


def test_an_exercise_has_a_hint_for_each_mistake_and_nothing_else_has():
    asked = {e.task for path in CHAPTER_FILES for e in exercises(path)}
    for name, m in MISTAKES.items():
        assert bool(m.hint) == (m.task.name in asked), name


def test_each_case_of_an_exercise_has_a_question_and_nothing_else_has():
    asked = {e.task for path in CHAPTER_FILES for e in exercises(path)}
    assert set(questions()) == asked
    for name, given in questions().items():
        cases = [label for label in given if not label.startswith("…")]
        assert cases == [c.label for c in TASKS[name].cases()], name
        assert all(words.endswith("?") for words in given.values()), name


def test_every_mistake_is_found_by_what_one_sees():
    for name, m in MISTAKES.items():
        assert m.headings and set(m.headings) <= set(HEADINGS), name
        assert len(m.headings) == len(set(m.headings)), name
    for heading, names in mistakes_by_symptom().items():
        assert len(names) >= 5, heading


def test_two_of_one_name_are_refused():
    task = replace(TASKS["softmax"], known={})
    wrong = MISTAKES["divides_by_n_again"].wrong
    task.mistake()(wrong)
    with pytest.raises(ValueError, match="divides_by_n_again"):
        task.mistake()(wrong)


def test_what_an_exercise_does_without_is_refused():
    fused = torch.nn.functional.scaled_dot_product_attention
    for name, fn in {
        "attention_in_blocks": lambda q, k, v, block: fused(q, k, v),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape),
    }.items():
        assert "exercise does without" in judge(fn, TASKS[name]).message


@pytest.mark.parametrize(
    "product",
    [
        lambda q, k: q @ k.mT,
        lambda q, k: torch.einsum("...id,...jd->...ij", q, k),
        lambda q, k: torch.tensordot(q, k, ([-1], [-1])),
        torch.inner,
        torch.nn.functional.linear,
    ],
)
def test_a_matrix_product_is_seen_under_any_name(product):
    scores = TASKS["attention_scores"]
    assert "exercise does without" in judge(product, scores).message


def in_one(model, batches, n, rate):
    starts = range(0, len(batches), n)
    joined = [[*map(torch.cat, zip(*batches[k : k + n]))] for k in starts]
    return _accumulate(model, joined, 1, rate)


@pytest.mark.parametrize(
    "name, wrong, case",
    [
        ("accumulate", lambda right, *given: in_one(*given), "a steep loss"),
        ("encode_bytes", lambda right, x, m: right(x, m[:50]), "a hundred"),
        (
            "learn_merges",
            lambda right, x, n: right(x, min(n, 50)),
            "a hundred",
        ),
    ],
)
def test_what_only_one_case_can_tell_is_refused_there(name, wrong, case):
    wrong = functools.partial(wrong, TASKS[name])
    assert f'not right yet on "{case}' in judge(wrong, TASKS[name]).message


def test_a_tensor_too_large_for_an_exercise_is_refused():
    (x,) = watched(torch.ones(200))
    assert (x * 2).sum() == 400
    with pytest.raises(ValueError, match="expected at most 10000"):
        x[:, None] * x
