"""Chapter 19's figure: the pages of a server, step by step."""

from collections import Counter

import pytest
from figure import Figure, numbers

PAGE = "19_small_server"


def counted(data, step):
    """What the sentence says, from the tables of a step."""
    now = data["steps"][step]
    requests = now["requests"].values()
    held = Counter(page for r in requests for page in r["table"])
    empty = sum(-r["kept"] % data["size"] for r in requests if r["table"])
    shared = sum(n > 1 for n in held.values())
    found = len(now["found"])
    return [step, len(held), data["pages"], shared, found, empty]


def assert_shows(figure, step):
    assert numbers(figure.said) == counted(figure.data, step)
    now = figure.data["steps"][step]
    labels = figure.host.locator("svg text").all_text_contents()
    assert len(labels) == figure.data["pages"]
    for page, text in enumerate(labels):
        who = [
            letter
            for letter, r in now["requests"].items()
            if page in r["table"]
        ]
        free = "kept" if page in now["found"] else "free"
        assert text == f"{page}: {' and '.join(who) or free}"
    # A filled slot for each token that is kept, those on shared pages once.
    tables = [r for r in now["requests"].values() if r["table"]]
    filled = {
        (r["table"][p // 4], p % 4) for r in tables for p in range(r["kept"])
    }
    slots = figure.host.locator('svg rect:not([fill="none"])')
    assert slots.count() == len(filled)
    rows = figure.table("The requests")
    for letter, r in now["requests"].items():
        assert rows[letter] == [*r["table"], r["kept"], r["tokens"]]


def test_each_step_shows_its_tables(visit):
    figure = Figure(visit(PAGE), "pages")
    for step in range(len(figure.data["steps"])):
        figure.slide("Step", step)
        assert_shows(figure, step)


@pytest.mark.parametrize("touch", [False, True])
def test_buttons_step_and_stop_at_the_ends(visit, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "pages")
    figure.slide("Step", 0)
    figure.press("Back")
    assert_shows(figure, 0)
    figure.press("Next")
    assert_shows(figure, 1)
    last = len(figure.data["steps"]) - 1
    figure.slide("Step", last)
    figure.press("Next")
    assert_shows(figure, last)
