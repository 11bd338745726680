"""What a figure shows are the numbers of the cell that has made it.

The engine holds a figure's script against the checks of its cell, states and
the numbers that belong to them; here a reader's controls go to these states,
and sentence, tables and pictures are held against the same numbers.
"""

import re

import numpy as np
import pytest
from figure import Figure, by_figure, numbers, tip, unit


def near(expected, decimals=2):
    """As it is shown: rounded to so many decimals."""
    return pytest.approx(expected, abs=0.51 * 10**-decimals)


def cells(figure):
    """The last table, row by row, as text without commas."""
    return figure.host.get_by_role("table").last.evaluate(
        "table => [...table.rows].slice(1).map(row => [...row.cells].map("
        "cell => cell.textContent.replaceAll(',', '')))"
    )


def of_average(figure, state, found):
    *rows, total = figure.table("Weight × value").values()
    if found["average"] is None:
        assert total == [] and "no average" in figure.said
        assert "NaN" not in figure.host.locator("figure").inner_html()
        return
    columns = found["weights"], figure.data["values"], found["terms"]
    assert np.array(rows) == near(np.transpose(columns))
    assert total == near([found["average"]])
    said = numbers(figure.said.partition("; ")[2])[:4]
    assert said == near([*found["weights"], found["average"]])


def of_kernel(figure, state, found):
    data = figure.data
    weights = np.array(found["weights"])
    order = np.argsort(-weights, kind="stable")
    shares = [*weights[order[:4]], weights[order[4:]].sum()]
    table = figure.table("Largest weights × counts")
    assert [row[0] for row in table.values()] == near(shares)
    assert figure.bars("Largest weights × counts") == near(shares, 1.5)
    for name, (weight, count) in [*table.items()][:4]:
        j = np.argmin(np.abs(np.subtract(data["keys"], numbers(name))))
        assert numbers(name) == near([data["keys"][j]])
        assert weight == near(weights[j])
        assert count == near(data["values"][j], 1)
    said = numbers(figure.said)
    days = np.linspace(0, data["last"], len(data["truth"]))
    truth = np.interp(state["day"], days, data["truth"])
    told = [data["widths"][state["width"]], state["day"], found["answer"]]
    assert said[:4] == near([*told, truth], 1)
    assert said[4:] == near(
        [weights.max(), data["keys"][order[0]], found["error"]]
    )
    # Each count is as large as its weight, and the answer on the fit.
    discs, fit, (x, y) = figure.host.locator("svg").evaluate("""svg => {
      const { cx, cy } = svg.querySelector(
        "circle[r='6']:not([fill-opacity])");
      return [
        [...svg.querySelectorAll("circle[fill-opacity]")]
          .map((circle) => circle.r.baseVal.value),
        [...svg.querySelectorAll("polyline")].map((line) =>
          [...line.points].map(({ x, y }) => [x, y]))
          .filter((line) => line.length > 5).at(-1),
        [cx.baseVal.value, cy.baseVal.value],
      ];
    }""")
    radii = 3 + 15 * np.sqrt(weights)
    assert discs[: len(weights)] == pytest.approx(radii, abs=0.06)
    assert np.interp(x, *np.transpose(fit)) == pytest.approx(y, abs=0.3)


def of_query(figure, state, found):
    data = figure.data
    point = [state["x"], state["y"]]
    score = "Score" if data["scale"] == 1 else "Scaled score"
    caption = f"{score} {data['formula']} and weight"
    shown = np.transpose(list(figure.table(caption).values()))
    assert shown == near(np.array([found["scores"], found["weights"]]))
    assert figure.bars(caption) == near(found["weights"], 1.5)
    said = numbers(figure.said)
    assert said[:3] == near([*point, np.hypot(*point)])
    assert said[-2:] == near(found["context"])
    last = len(data["planes"]) - 1
    assert drawn(figure, "rect", last) == near(found["context"], 1.5)
    assert drawn(figure, "g", 0) == near(point, 1.5)


def drawn(figure, selector, plane):
    """The point of a plane at which the middle of a shape stands."""
    picture = figure.host.locator("svg").nth(plane)
    frame = picture.bounding_box()
    box = picture.locator(selector).bounding_box()
    right = box["x"] + box["width"] / 2 - frame["x"] - 20
    up = frame["y"] + frame["width"] - box["y"] - box["height"] / 2
    low = figure.data["planes"][plane]["low"]
    return [low + pixels / unit(figure, plane) for pixels in (right, up)]


def of_scale(figure, state, found):
    shown = np.concatenate(list(figure.table("Weights").values()))
    assert shown == near(found["weights"])
    assert figure.bars("Weights") == near(found["weights"], 1.5)
    width = figure.host.locator("svg").bounding_box()["width"]
    dot = float(figure.host.locator("circle").get_attribute("cx"))
    place = 70 + (width - 100) * (state["octave"] + 6) / 12
    assert dot == pytest.approx(place, abs=1)
    *_, heard, _, gradient = numbers(figure.said)
    assert heard == near(found["heard"])
    assert gradient == near(found["gradient"], 3)


def of_masks(figure, state, found):
    drawn = figure.host.locator("svg").evaluate(
        """svg => [...svg.querySelectorAll("rect")]
          .filter((r) => r.getBBox().width === r.getBBox().height)
          .map((r) => [r.getBBox().y, r.getBBox().x,
            Number(r.getAttribute("fill") !== "none"),
            Number(r.nextElementSibling?.textContent === "✓")])"""
    )
    for look in (2, 3):  # filled, and ticked
        square = [cell[look] for cell in sorted(drawn)]
        assert square == np.ravel(found["mask"]).tolist()
    forms = "sdpa", "multihead", "additive", "transformers"
    names, *written = zip(*cells(figure))
    left = state["left"]
    words = figure.data["words"]
    real = words[: 8 - left - state["right"]]
    assert [*names] == ["pad"] * left + real + ["pad"] * state["right"]
    assert [*map(list, written)] == [found[form] for form in forms]
    row = state["row"]
    seen = [n for n, may in zip(names, found["mask"][row]) if may]
    assert f": {found['allowed']} of 64 pairs are allowed." in figure.said
    assert f"Query {row}, “{names[row]}”, may attend to " in figure.said
    assert f"{len(seen)} of 8 keys" in figure.said
    assert ", ".join(seen) in figure.said
    assert ("would be 0/0" in figure.said) == (0 in found["keys"])


def of_heads(figure, state, found):
    words = figure.data["words"]
    word = state["word"]
    later = len(words) - word - 1
    row = np.pad(np.round(found["weights"], 4), (0, later))  # as the data
    styles = figure.host.locator(".text span").evaluate_all(
        "spans => spans.map(span => span.getAttribute('style'))"
    )
    shades = [float(re.search(r"([\d.]+)%", s)[1]) / 60 for s in styles]
    assert shades == pytest.approx(row, abs=0.001)
    order = np.argsort(-row[: word + 1], kind="stable")
    largest = {f"{n} {words[n]}": row[n] for n in order[:5]}
    if word > 4:
        largest[f"{word - 4} more"] = row[order[5:]].sum()
    caption = f"Weights of “{words[word]}” (word {word})"
    shown = figure.table(caption)
    assert list(shown) == list(largest)
    assert np.ravel([*shown.values()]) == near([*largest.values()])
    assert figure.bars(caption) == near([*largest.values()], 1.5)
    # The largest weight of every head, of each block.
    tops = {}
    for other, its in figure.checks:
        if other["word"] == word:
            tops.setdefault(other["block"], []).append(max(its["weights"]))
    for n, largest in tops.items():
        every = f"Block {n}, every" if len(tops) > 1 else "Every"
        shown = figure.table(f"{every} head")
        assert list(shown) == figure.data["heads"]
        assert np.ravel([*shown.values()]) == near(largest)
    most = found["most"]
    on = "itself" if most == word else f"“{words[most]}” (word {most})"
    place = figure.data["heads"][state["head"]]
    place = f"block {state['block']}, {place}" if len(tops) > 1 else place
    assert figure.said.lower().startswith(f"{place}: ")
    told = figure.said.split("puts")[1]
    assert numbers(told)[:1] == near([row.max()])
    assert f" {on}" in told.split("of its weight on")[1]


def of_encoder(figure, state, found):
    spans = figure.host.locator(".text span")
    words = spans.all_inner_texts()
    row = found["weights"]
    shown = spans.evaluate_all(
        "spans => spans.map(span => span.getAttribute('style'))"
    )
    shades = [float(re.search(r"([\d.]+)%", s)[1]) / 60 for s in shown]
    assert shades == pytest.approx(row, abs=0.001)
    [chosen] = figure.host.locator(".text .from").all_inner_texts()
    assert chosen == words[min(state["word"], len(words) - 1)]
    if state["text"] == 0:
        assert words[2] == figure.data["first"][state["first"]]
        assert words[5] == figure.data["second"][state["second"]]
    block = figure.data["blocks"][state["block"]]
    table = figure.table(f"All heads of block {block}, from “{chosen}”")
    assert table[str(state["head"])] == near([max(row)])
    top = "itself" if words[found["most"]] == chosen else words[found["most"]]
    assert f"“{chosen}” gives {max(row):.2f} of its weight to" in figure.said
    assert top in figure.said
    assert figure.said.startswith(f"Block {block}, head {state['head']}: ")


def of_rotary(figure, state, found):
    at = np.array([state["m"], state["n"]]) + state["shift"]
    *rows, total = figure.table("Distance").values()
    angles = np.outer(figure.data["omegas"], at)
    products, pair = found["products"], state["pair"]
    assert np.array(rows) == near(np.column_stack([angles, products]), 3)
    assert total == near([found["score"]], 3)
    said = numbers(figure.said)
    assert {*at} <= {*said}
    distance = state["m"] - state["n"]
    told = [distance, pair, products[pair], len(products), found["score"]]
    assert said[-5:] == near(told, 3)
    tips = [tip(figure, name) for name in ("query", "key")]
    turned = [complex(*found[name]) for name in ("query", "key")]
    pixels = abs(tips[0]) / abs(turned[0])
    assert np.array(tips) / pixels == pytest.approx(turned, abs=0.02)


def of_residual(figure, state, found):
    n = state["block"]
    rows = []
    for it in found.values():
        row = [it["size"]]
        if n > 0:
            row += [it["added"], it["cosine"], it["shares"][n]]
        row.append(it["shares"][0])
        rows.append(row)
    shown = figure.table(f"After block {n}" if n else "Below the first block")
    shown = [row for row in shown.values() if row]
    assert np.array(shown) == near(np.transpose(rows))
    told = numbers(figure.said)[n > 0 :]
    assert told == near(np.ravel([[row[-1], row[0]] for row in rows]))
    for panel, it in enumerate(found.values()):
        drawn = figure.host.locator("svg").nth(panel)
        bars = drawn.locator("rect:not([data-mark])").evaluate_all(
            "bars => bars.map(bar => ['y', 'height'].map("
            "name => bar.getAttribute(name)))"
        )
        shares = np.array(it["shares"])
        y, height = np.array(bars, dtype=float).T
        assert not height[n + 1 :].any()
        tall = np.maximum(1, 90 * abs(shares))
        assert height[: n + 1] == pytest.approx(tall, abs=0.1)
        top = 22 + 90 * (1 - np.maximum(0, shares))
        assert y[: n + 1] == pytest.approx(top, abs=0.1)


def of_cache(figure, state, found):
    names = "rows reused scores flops all_rows all_flops bytes".split()
    shown = [[*map(int, row[1:])] for row in cells(figure)]
    assert shown == [found[name] for name in names]
    words = figure.data["words"]
    S = figure.data["prompt"] + state["call"] - 1
    assert f"writes “{words[S]}”" in figure.said
    assert f"holds {S} tokens" in figure.said
    # The dots stand at the totals; 96 pixels are the largest there is.
    top = figure.checks[-1][1]["all_flops"][1]
    dots = figure.host.locator("circle").evaluate_all(
        "dots => dots.map(dot => Number(dot.getAttribute('cy')))"
    )
    totals = np.array(found["all_flops"][::-1])
    assert dots == pytest.approx(120 - 96 * totals / top, abs=0.06)


def of_merge(figure, state, found):
    shown = figure.table("The part so far")
    assert shown["peak"][-1] == near(found["peak"])
    assert shown["total"][-1] == near(found["total"])
    assert shown["context"][-2:] == near(found["context"])
    assert shown["context / total"] == near(found["average"])
    assert shown["factor for what was there"] == near([found["factor"]])
    scores = np.array(figure.data["scores"])
    scores = scores[::-1] if state["order"] else scores
    read = np.arange(6) < state["read"] * (state["size"] + 1)
    lengths = np.where(read, np.exp(scores - found["peak"]), 0)
    bars = figure.bars("exp(score − peak); * just read, – not yet")
    assert bars == near(lengths, 1.5)
    assert numbers(figure.said)[0] == state["read"]
    assert numbers(figure.said)[-2:] == near(found["average"])


def of_bytes(figure, state, found):
    shown = [[*map(int, row[1:])] for row in cells(figure)]
    assert shown == np.transpose([found["token"], found["fit"]]).tolist()
    tokens = 2 ** state["context"]
    fit = found["fit"]
    assert f"Of texts of {tokens:,} tokens" in figure.said
    assert f"hold {fit[0]} with a key for each head" in figure.said
    assert f"{fit[2]} with latents of {state['latent']}" in figure.said


def of_pages(figure, state, found):
    data = figure.data
    step = state["step"]
    told = [step, found["held"], data["pages"], found["shared"]]
    assert numbers(figure.said) == [*told, found["found"], found["empty"]]
    now = data["steps"][step]
    labels = figure.host.locator("svg text").all_text_contents()
    assert len(labels) == data["pages"]
    for page, text in enumerate(labels):
        who = [k for k, r in now["requests"].items() if page in r["table"]]
        assert len(who) == found["holders"][page]
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


def of_delta(figure, state, found):
    written = figure.data["values"]
    read = [found["first"], found["second"]]
    off = np.linalg.norm(np.subtract(read, written), axis=-1)
    shown = figure.table("Rings are what was written, dots what is read")
    rows = [[*w, *r, o] for w, r, o in zip(written, read, off)]
    assert np.array([*shown.values()]) == near(np.array(rows))
    said = numbers(figure.said.partition(". Then key 1")[2])
    one, two = rows
    assert said == near([*one[2:], 2, *two[2:]])
    told = numbers(figure.said)[:2]
    assert told == near([state["angle"], state["beta"]])
    assert ("of the second value" in figure.said) == state["rule"]
    # The dots are as far from the rings as the numbers say.
    rings, dots = (
        figure.host.locator(f"circle[r='{size}']").evaluate_all(
            "circles => circles.map(c => [c.cx.baseVal.value,"
            " -c.cy.baseVal.value])"
        )
        for size in (7, 4)
    )
    unit = (rings[0][0] - rings[1][0]) / (written[0][0] - written[1][0])
    drawn = np.subtract(dots, rings) / unit
    assert drawn == pytest.approx(np.subtract(read, written), abs=0.02)


def of_rounding(figure, state, found):
    row = [*figure.data["row"]]
    row[figure.data["place"]] = state["large"]
    most = max(abs(w) for n, w in enumerate(row) if n != figure.data["place"])
    caption = f"Each weight's error, beside {most:.2f}"
    assert figure.bars(caption) == near(np.divide(found["off"], most), 1.5)
    codes = np.round(np.divide(found["rounded"], spread(figure, state, found)))
    shown = [
        [float(cell.replace("−", "-")) for cell in cells_of]
        for cells_of in cells(figure)
    ]
    rows = np.transpose([row, codes, found["rounded"]])
    assert np.array(shown) == near(rows)
    said = numbers(figure.said)
    group = figure.data["groups"][state["group"]]
    assert said[:3] == near([state["bits"], group, state["large"]])
    lost = sum(codes == 0)
    tail = [max(found["scales"]), found["largest"], lost, len(row), 0]
    assert said[3:-1] == near(tail, 3)
    assert said[-1] == near(found["kept"])


def spread(figure, state, found):
    """The scale of each weight."""
    group = figure.data["groups"][state["group"]]
    return np.repeat(found["scales"], group)


def of_reward(figure, state, found):
    names = figure.data["names"]
    before = figure.data["before"]
    caption = "The best law; in brackets, what was before"
    shown = figure.table(caption)
    assert np.array([*shown.values()])[:, -2:] == near(
        np.transpose([found["law"], before]), 3
    )
    assert figure.bars(caption) == near(found["law"], 1.5)
    worth = np.ravel([*figure.table("What it is worth").values()])
    assert worth == near([found[n] for n in ("mean", "moved", "aim")], 3)
    most = int(np.argmax(found["law"]))
    assert f"the likeliest is {names[most]} with" in figure.said
    told = figure.said.partition("the likeliest is")[2]
    told = numbers(told.replace(names[most], ""))
    assert told == near([found["law"][most], found["mean"], found["moved"]], 3)
    beta = 2 ** state["octave"]
    assert numbers(figure.said)[0] == near(beta)


def of_shares(figure, state, found):
    rows = cells(figure)
    keeps = found["keeps"]
    sends = found["sends"]
    card = figure.data["cards"][state["card"]]
    for row, way, kept, sent in zip(
        rows, figure.data["ways"], keeps, sends, strict=True
    ):
        assert row[0] == way
        for text, number in zip(row[1:3], (kept, sent)):
            assert float(text) == near(number, 1 if number < 100 else 0)
        assert (row[3] == "yes") == (kept <= card)
    assert figure.bars("A rank keeps") == near(
        np.divide(keeps, max(keeps)), 1.5
    )
    said = figure.said.replace(",", "")
    size = figure.data["models"][state["model"]]
    assert numbers(said)[:2] == [2 ** state["ranks"], size]
    assert f"In {card} GB there is room" in said
    there = sum(kept <= card for kept in keeps)
    assert ("all four" in said) == (there == 4)
    assert ("none of them" in said) == (there == 0)


@by_figure
def test_a_figure_shows_the_numbers_of_its_cell(visit, place):
    figure = Figure(visit(place[0]), *place[1:])
    assert len(figure.checks) > 3
    for state, found in figure.checks:
        figure.go(state)
        globals()[f"of_{place[1]}"](figure, state, found)
