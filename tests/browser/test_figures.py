"""What every interactive figure does, whatever it shows."""

import re

from figure import Figure, by_figure, figures, unfold
from notebooks import ROOT
from views import PHONE

from press.browser import read_whole


def test_every_kind_of_figure_is_in_the_book():
    scripts = ROOT.joinpath("chapters/attnbook/teach/page/explore").glob(
        "*.js"
    )
    kinds = {script.stem for script in scripts} - {"explore"}
    assert {kind for _, kind, _ in figures()} == kinds


@by_figure
def test_a_figure_by_keyboard_and_in_print(visit, place):
    page = visit(place[0])
    figure = Figure(page, *place[1:])
    controls = figure.host.locator("input, select, button")
    controls.first.focus()
    for n in range(controls.count()):  # in their order, by the keyboard
        control = controls.nth(n)
        assert control.evaluate("c => c.matches(':focus-visible')")
        assert control.evaluate(
            "c => c.labels[0]?.textContent ?? c.textContent"
        ).strip()
        page.keyboard.press("Tab")
    said = figure.said
    ranges = figure.host.locator("input[type=range]")
    for n in range(ranges.count()):
        before = ranges.nth(n).input_value()
        ranges.nth(n).press("ArrowRight")
        if ranges.nth(n).input_value() == before:  # it was at its end
            ranges.nth(n).press("ArrowLeft")
        assert ranges.nth(n).input_value() != before
        assert figure.said != said, "a slider moved, and nothing was said"
        said = figure.said

    picture = page.locator(".cell_output", has=figure.host).locator("img")
    assert figure.host.locator("figure").is_visible()
    assert not figure.host.locator(":scope > p").is_visible()
    assert not picture.first.is_visible()
    page.emulate_media(media="print")  # the cell's own picture, once more
    assert not figure.host.locator("figure").is_visible()
    assert figure.host.locator(":scope > p").is_visible()
    assert picture.first.is_visible()


@by_figure
def test_without_scripts_picture_and_sentence_stand_in(visit, place):
    page = visit(place[0], java_script_enabled=False)
    host = page.locator(f'[data-explore="{place[1]}"]').nth(place[2])
    unfold(page, host)
    assert host.locator("p").is_visible()
    cell = page.locator(".cell_output", has=host)
    assert cell.locator("img").first.is_visible()


@by_figure
def test_a_figure_fits_a_phone(visit, place):
    page = visit(place[0], viewport=PHONE, theme="dark")
    figure = Figure(page, *place[1:])
    assert figure.host.evaluate(
        "h => [...h.shadowRoot.querySelectorAll('figure, .controls, svg')]"
        ".every(part => part.getBoundingClientRect().right <= innerWidth)"
    )
    ink = figure.host.locator("figure").evaluate(
        "f => getComputedStyle(f).color.match(/[\\d.]+/g).map(Number)"
    )
    assert min(ink[:3]) > 150, "the figure's text is not light on dark"


def test_a_figure_that_disagrees_is_not_shown(visit):
    """Another number in a check: an error in place of the figure."""
    page = visit("index")
    name = "04_scaled_dot_product_attention"

    def spoil(route):
        answer = route.fetch()
        spoilt = re.sub(
            '"heard": *[0-9.]+', '"heard": 9', answer.text(), count=1
        )
        route.fulfill(response=answer, body=spoilt)

    page.route(f"**/{name}.html", spoil)
    read_whole(page, page.url.replace("index", name))
    host = page.locator("[data-explore]").first
    unfold(page, host)
    assert "its heard at" in host.get_by_role("alert").inner_text()
    assert host.locator("figure").count() == 0
    assert host.locator("p").first.is_visible()
