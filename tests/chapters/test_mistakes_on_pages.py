"""Every known mistake, put in the place of the right function on its page."""

from functools import partial

import pytest
import torch
from book import Wrong, chapter_file, forked, run_whole
from planted import MISTAKES, ran
from real_models import MINILM, needs_minilm
from warm import concerns, loaded_before, running

from attnbook import gguf, layers, pretrained
from attnbook.families import config_of
from attnbook.teach.catalogue import all_tasks
from attnbook.teach.check.registry import the_book

#: Errors that have nothing to do with what a function computes.
BESIDE_THE_POINT = set(
    "NameError ImportError SyntaxError AttributeError TypeError".split()
)


@pytest.mark.parametrize(
    "mistake", MISTAKES, ids=lambda m: f"{m.chapter:02}-{m.name}"
)
def test_the_page_notices_the_mistake(mistake):
    page = ran(chapter_file(mistake.chapter))
    assert page.error is None, "the page fails as it is"
    error = page.mistakes[mistake.name]
    assert error, f"no cell of the chapter notices {mistake.name}"
    assert not BESIDE_THE_POINT & set(error.kinds), error.message


def test_a_right_function_in_its_own_place_is_not_noticed():
    """So it is the mistake that a page notices, not the exchange."""
    task = all_tasks()["softmax"]
    right = Wrong(
        "right", task.name, the_book().own_function(task), task.right
    )
    page = run_whole(chapter_file(task.chapter), [right])
    assert page.error is None and page.mistakes == {"right": None}


def load_twice(wrong=None):
    """Whether each of two loads ran any of the book's code, and whether what
    came is one model."""
    models, loaded = [], []
    with loaded_before(wrong):
        for _ in range(2):
            with running() as ran:
                models.append(pretrained.load(MINILM))
            loaded.append(pretrained.rename.__code__ in ran)
    first, second = models
    same = all(
        torch.equal(a, b)
        for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    return loaded, first is second, same


@needs_minilm
def test_a_model_that_is_there_is_given_once_and_then_loaded():
    """Whoever has the first may change it."""
    assert forked(load_twice, MINILM) == ([False, True], False, True)


def was_emptied():
    """Whether the first weights of a model are noughts, as they are after
    this."""
    with loaded_before(), torch.no_grad():
        weights = next(pretrained.load(MINILM).parameters())
        found = not weights.any()
        weights.zero_()
    return found


@needs_minilm
def test_what_a_process_changes_in_a_model_is_its_own():
    both = [forked(was_emptied, MINILM) for _ in range(2)]
    assert both == [False, False]


@needs_minilm
@pytest.mark.parametrize(
    "wrong, again",
    [
        (pretrained.rename, True),  # runs for it
        (config_of, True),
        (layers.MultiHeadAttention, True),  # a class, which the model has
        (layers.attention_weights, False),
    ],
)
def test_a_model_is_loaded_where_a_mistake_may_be_in_it(wrong, again):
    loaded, *_ = forked(partial(load_twice, wrong), MINILM)
    assert loaded == [again, True]


def test_a_function_that_is_only_named_may_be_used_later():
    def keeps():
        return lambda: config_of

    with running() as ran:
        keeps()
    assert concerns(config_of, frozenset(ran))
    assert not concerns(gguf.read, frozenset(ran))
