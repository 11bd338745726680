"""Chapter 5's figure: a mask put together, and a row in four conventions."""

import numpy as np
import pytest
from figure import Figure

PAGE = "05_masking"
START = (True, 0, 0, 8)
FORMS = {  # where a query may attend, where not
    1: ("True", "False"),
    2: ("False", "True"),
    3: ("0", "−∞"),
}


def by_numpy(causal, left, right, window):
    """Which columns are real, and the mask (T, S)."""
    i, j = np.indices((8, 8))
    real = (j[0] >= left) & (j[0] < 8 - right)
    mask = real & (i - j < window)
    return real, mask & (j <= i) if causal else mask


def set_to(figure, causal, left, right, window):
    figure.control("Causal").set_checked(causal)
    figure.slide("Padding left", left)
    figure.slide("Padding right", right)
    figure.slide("Window", window)


def ticked(figure):
    """The square as drawn: True in a filled cell, (T, S)."""
    cells = figure.host.locator("svg").evaluate(
        """svg => [...svg.querySelectorAll("rect")]
          .filter((r) => r.getBBox().width === r.getBBox().height)
          .map((r) => [r.getBBox().y, r.getBBox().x,
            r.getAttribute("fill") !== "none",
            r.nextElementSibling?.textContent === "✓"])"""
    )
    assert len(cells) == 64
    assert all(filled == tick for *_, filled, tick in cells)
    return np.array([filled for *_, filled, _ in sorted(cells)]).reshape(8, 8)


def assert_shows(figure, query, causal, left, right, window):
    real, mask = by_numpy(causal, left, right, window)
    assert (ticked(figure) == mask).all()

    written = figure.host.get_by_role("table").evaluate(
        "table => [...table.rows].slice(1)"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    names = [row[0] for row in written]
    words = figure.data["words"]
    assert names == [*["pad"] * left, *words[: real.sum()], *["pad"] * right]
    for column, (yes, no) in FORMS.items():
        assert [row[column] for row in written] == [
            yes if may else no for may in mask[query]
        ]
    # transformers' mask knows padding, and nothing of the other masks.
    assert [row[4] for row in written] == ["1" if r else "0" for r in real]

    said = figure.said
    assert f": {mask.sum()} of 64 pairs are allowed." in said
    seen = ", ".join(np.array(names)[mask[query]])
    assert (
        f"Query {query}, “{names[query]}”, may attend to "
        f"{mask[query].sum()} of 8 keys{seen and f': {seen}'}."
    ) in said
    empty = ", ".join(map(str, np.flatnonzero(~mask.any(1))))
    if empty:
        assert f" {empty}. Softmax would be 0/0" in said
    else:
        assert "No query is left without keys." in said


def test_every_mask_is_numpys(visit):
    figure = Figure(visit(PAGE), "masks")
    assert_shows(figure, 4, *START)
    figure.slide("Query", 0)
    for masks in (
        (True, 2, 0, 8),
        (True, 0, 3, 8),
        (True, 2, 0, 3),
        (True, 3, 3, 1),
        (False, 0, 0, 8),
        (False, 3, 0, 2),
        (False, 0, 2, 1),
    ):
        set_to(figure, *masks)
        assert_shows(figure, 0, *masks)


@pytest.mark.parametrize("touch", [False, True])
def test_a_query_is_chosen_or_pointed_at(visit, touch):
    figure = Figure(visit(PAGE, has_touch=touch), "masks")
    figure.slide("Query", 7)
    assert_shows(figure, 7, *START)
    row = figure.host.locator('[data-mark="6"]')
    row.tap() if touch else row.click()
    assert figure.control("Query").input_value() == "6"
    assert_shows(figure, 6, *START)
