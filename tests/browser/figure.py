"""An interactive figure of an open page, as a reader uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from press.places import HTML as SITE

NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")


def numbers(text: str) -> list[float]:
    """The numbers of a text, whose minus sign may be the true one."""
    return [float(n.replace("−", "-")) for n in NUMBER.findall(text)]


@contextmanager
def handled(page: Page, *events: str) -> Iterator[None]:
    """Wait at the end of the block until the page has handled an event.

    What a finger does comes to the page a moment after it was sent.
    """
    page.evaluate(
        "events => { window.handled = Promise.race(events.map((event) =>"
        " new Promise((done) => addEventListener(event,"
        " () => setTimeout(done), { once: true })))); }",
        events,
    )
    yield
    page.evaluate("handled")


def tap(place: Locator) -> None:
    """Tap on something by a finger, and wait for the click that it makes."""
    with handled(place.page, "click"):
        place.tap()


def unfold(page: Page, inside: Locator) -> None:
    """Open the side road in which something stands, by the keyboard."""
    for fold in page.locator("details:not([open])", has=inside).all():
        fold.locator("> summary").press("Enter")


def figures() -> list[tuple[str, str, int]]:
    """Page, kind and number of each figure of the built book."""
    found = []
    for page in sorted(SITE.glob("*.html")):
        kinds = re.findall(r'<div data-explore="(\w+)"', page.read_text())
        found += [
            (page.stem, kind, kinds[:n].count(kind))
            for n, kind in enumerate(kinds)
        ]
    return found


by_figure = pytest.mark.parametrize(
    "place", figures(), ids=lambda place: "-".join(map(str, place))
)


class Figure:
    """The n-th figure of a kind on a page."""

    def __init__(self, page: Page, kind: str, nth: int = 0) -> None:
        self.page = page
        self.host = page.locator(f'[data-explore="{kind}"]').nth(nth)
        unfold(page, self.host)
        self.host.scroll_into_view_if_needed()

    @property
    def data(self) -> dict[str, Any]:
        """What the notebook's cell wrote into the page."""
        script = self.host.locator("script").first
        return json.loads(script.text_content())

    @property
    def said(self) -> str:
        """The sentence of the state, which screen readers are told."""
        return self.host.get_by_role("status").inner_text()

    @property
    def checks(self) -> list[tuple[dict, dict]]:
        """States of the figure, and the numbers that the cell found there."""
        return [(c["state"], c["values"]) for c in self.data["checks"]]

    def go(self, state: dict) -> None:
        """To a state of the cell by the controls, which stand in the order
        of its parts; a part that never differs has none."""
        states = [each for each, _ in self.checks]
        parts = [n for n in state if any(s[n] != state[n] for s in states)]
        controls = self.host.locator("input, select").all()
        for name, control in zip(parts, controls, strict=True):
            kind = control.get_attribute("type")
            value = state[name]
            if kind == "checkbox":
                control.set_checked(value)
            elif kind == "range":
                control.fill(str(value))
            else:
                control.select_option(index=value)

    def control(self, label: str) -> Locator:
        return self.host.get_by_label(label, exact=True)

    def slide(self, label: str, value: float) -> None:
        self.control(label).fill(str(value))

    def choose(self, label: str, option: str) -> None:
        self.control(label).select_option(option)

    def press(self, name: str) -> None:
        self.host.get_by_role("button", name=name, exact=True).click()

    def table(self, caption: str) -> dict[str, list[float]]:
        """The numbers of a table, a list under each row's name.

        Names that stand twice are told apart by a mark: "the", "the'".
        """
        table = self.host.get_by_role("table", name=caption)
        rows: dict[str, list[float]] = {}
        for name, *cells in table.evaluate(
            "table => [...table.rows]"
            ".filter(row => row.querySelector('th[scope=row]'))"
            ".map(row => [...row.cells].map(cell => cell.textContent.trim()))"
        ):
            while name in rows:
                name += "'"
            rows[name] = [n for cell in cells for n in numbers(cell)]
        return rows

    def bars(self, caption: str) -> list[float]:
        """How long the bars of a table are, as shares of their room."""
        return self.host.get_by_role("table", name=caption).evaluate(
            "table => [...table.querySelectorAll('i')].map(bar =>"
            " bar.offsetWidth / bar.parentElement.clientWidth)"
        )

    def pull(
        self, mark: str, right: float, down: float, *, touch: bool = False
    ) -> None:
        """Pull the middle of a mark by some pixels, by mouse or finger."""
        place = self.host.locator(f'[data-mark="{mark}"]').first
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        stops = [(x, y), (x + right / 2, y + down / 2), (x + right, y + down)]
        with handled(self.page, "pointerup", "pointercancel"):
            (self._by_finger if touch else self._by_mouse)(stops)

    def _by_mouse(self, stops: list[tuple[float, float]]) -> None:
        self.page.mouse.move(*stops[0])
        self.page.mouse.down()
        for stop in stops[1:]:
            self.page.mouse.move(*stop)
        self.page.mouse.up()

    def _by_finger(self, stops: list[tuple[float, float]]) -> None:
        session = self.page.context.new_cdp_session(self.page)
        kinds = ["touchStart", "touchMove", "touchMove"]
        for kind, (x, y) in zip(kinds, stops):
            session.send(
                "Input.dispatchTouchEvent",
                {"type": kind, "touchPoints": [{"x": x, "y": y}]},
            )
        session.send(
            "Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []}
        )


def unit(figure: Figure, plane: int = 0) -> float:
    """How many pixels of a query's plane make up one."""
    size = figure.host.locator("svg").nth(plane).bounding_box()["width"]
    ends = figure.data["planes"][plane]
    return (size - 40) / (ends["high"] - ends["low"])


def tip(figure: Figure, name: str) -> complex:
    """An arrow's, from the middle of the dial, as a + bi upwards."""
    dial = figure.host.locator("svg").first
    x, y = (
        complex(b["x"] + b["width"] / 2, -b["y"] - b["height"] / 2)
        for shape in (dial.locator(f'[data-mark="{name}"]'), dial)
        for b in [shape.bounding_box()]
    )
    return x - y
