"""Chapters 6 and 11: where a word looks, by every head of the model."""

import re

import numpy as np
import pytest
from figure import Figure, numbers

FIRST, WHOLE = "06_multi_head_attention", "11_small_language_model"
CLOSE = 0.0051  # what is shown has two decimals


def maps(data):
    """The weights, (blocks, heads, T, T)."""
    T = len(data["words"])
    found = np.zeros((*np.shape(data["weights"])[:2], T, T))
    found[..., *np.tril_indices(T)] = np.array(data["weights"]) / 1e4
    return found


def shading(figure):
    """Of each word of the text, from 0 to 1."""
    styles = figure.host.locator(".text span").evaluate_all(
        "spans => spans.map(span => span.getAttribute('style'))"
    )
    return [float(re.search(r"([\d.]+)%", s)[1]) / 60 for s in styles]


def assert_shows(figure, word, block, head):
    words, found = figure.data["words"], maps(figure.data)
    row = found[block, head, word]
    assert row.sum() == pytest.approx(1, abs=1e-3)
    assert shading(figure) == pytest.approx(row, abs=0.001)

    order = np.argsort(-row[: word + 1], kind="stable")
    expected = {f"{n} {words[n]}": row[n] for n in order[:5]}
    if word > 4:
        expected[f"{word - 4} more"] = row[order[5:]].sum()
    shown = figure.table(f"Weights of “{words[word]}” (word {word})")
    assert list(shown) == list(expected)
    for name, weight in expected.items():
        assert shown[name] == pytest.approx([weight], abs=CLOSE)

    assert figure.bars(f"Weights of “{words[word]}” (word {word})") == (
        pytest.approx(list(expected.values()), abs=0.01)
    )

    for n, heads in enumerate(found):
        every = "Every" if len(found) == 1 else f"Block {n}, every"
        shown = figure.table(f"{every} head")
        assert list(shown) == figure.data["heads"]
        assert np.concatenate(list(shown.values())) == pytest.approx(
            heads[:, word].max(-1), abs=CLOSE
        )

    most = order[0]
    on = "itself" if most == word else f"“{words[most]}” (word {most})"
    assert f" {on}" in figure.said.split("of its weight on")[1]
    place = f"{figure.data['heads'][head]}: ".capitalize()
    if len(found) > 1:
        place = f"Block {block}, {place.lower()}"
    assert figure.said.startswith(place)
    told = numbers(figure.said.split("puts")[1].split(" of its")[0])
    assert told == pytest.approx([row.max()], abs=CLOSE)


def test_a_story_by_the_whole_model(visit):
    figure = Figure(visit(WHOLE), "heads")
    last = len(figure.data["words"]) - 1
    assert_shows(figure, last, 1, 3)
    assert figure.data["words"][maps(figure.data)[1, 3, last].argmax()] == (
        "library"
    )
    for word, block, head in ((0, 0, 1), (1, 0, 0), (11, 1, 2), (24, 0, 3)):
        for label, n in (("Word", word), ("Block", block), ("Head", head)):
            figure.control(label).select_option(str(n))
        assert_shows(figure, word, block, head)
    figure.control("Word").press("ArrowUp")
    assert_shows(figure, last - 1, 0, 3)

    figure.host.locator('[data-mark="11"]').click()
    assert figure.control("Word").input_value() == "11"
    figure.host.locator('[data-mark="1 2"]').click()
    assert_shows(figure, 11, 1, 2)


def test_four_heads_and_their_mean_by_touch(visit):
    figure = Figure(visit(FIRST, has_touch=True), "heads")
    found = maps(figure.data)[0]
    assert found[4] == pytest.approx(found[:4].mean(0), abs=1e-4)
    for word, head in ((0, 0), (4, 4), (9, 2)):
        figure.host.locator(f'[data-mark="{word}"]').tap()
        figure.host.locator(f'[data-mark="0 {head}"]').tap()
        assert_shows(figure, word, 0, head)
    figure.choose("Head", "mean")
    assert_shows(figure, 9, 0, 4)
