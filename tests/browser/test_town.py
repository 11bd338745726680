"""The town's model in the built pages, held against torch's."""

from __future__ import annotations

import re

import pytest
import torch
from figure import tap
from playwright.sync_api import Page, expect
from views import PHONE, WIDE

from attnbook.town import WORDS, Town
from press import town_page
from press.browser import read_whole
from press.places import HTML as SITE

STORY = town_page.STORY.split()
HALF = 0.005 + 1e-4  # what is shown has two decimals, and logits are rounded


class Answers:
    """The place of a page where the model answers."""

    def __init__(self, page: Page, nth: int = 0) -> None:
        self.page = page
        self.host = page.locator("[data-town]").nth(nth)
        self.host.locator(".proof").wait_for()

    def press(self, name: str) -> None:
        self.host.get_by_role("button", name=name, exact=True).click()

    def go(self, word: str) -> None:
        self.host.locator(f"[data-do='go {word}']").click()

    def pick(self, n: int) -> None:
        self.host.locator(f"[data-do='pick {n}']").click()

    @property
    def words(self) -> list[str]:
        return self.host.locator(".words button").all_inner_texts()

    @property
    def said(self) -> str:
        return self.host.locator(".say").inner_text()

    def table(self, css: str) -> dict[str, list[str]]:
        """The cells under each row's name."""
        return dict(
            self.host.locator(css).evaluate(
                "table => [...table.tBodies[0].rows].map((row) => {"
                " const [name, ...cells] = [...row.cells].map("
                "  (cell) => cell.textContent.trim());"
                " return [name, cells]; })"
            )
        )

    def assert_next(self, **switches) -> None:
        """Truth and model, for each word that is shown, as Python has them."""
        temperature = switches.pop("temperature", 1.0)
        words = self.words
        logits = town_page.logits(town_page.load(), words, **switches)[-1]
        p = (logits / temperature).softmax(-1)
        try:
            truth = Town().next_words(words)
        except ValueError:
            truth = None
        shown = self.table(".next")
        rest = 1.0
        for name, (true, ours, _) in list(shown.items())[:-1]:
            assert abs(float(ours) - p[WORDS.index(name)]) < HALF, name
            rest -= p[WORDS.index(name)].item()
            if truth is None:
                assert true == "–"
            else:
                assert abs(float(true) - truth.get(name, 0)) < HALF, name
        assert abs(float(shown["83 more"][1]) - rest) < HALF
        assert WORDS[p.argmax()] in shown


def test_a_story_and_what_may_follow_it(visit):
    town = Answers(visit("the_town"))
    assert town.words == STORY
    town.assert_next()
    assert "model gives 0.99 to “library”" in town.said
    town.go("library")
    assert town.words == [*STORY, "library"]
    town.assert_next()
    town.press("Write on")
    assert town.words[-1] == "</s>" and "has ended" in town.said
    town.press("Undo")
    town.press("Undo")
    assert town.words == STORY
    town.assert_next()


def test_words_are_typed(visit):
    town = Answers(visit("the_town"))
    town.press("Start anew")
    typed = town.host.get_by_label("Words to add")
    typed.fill("lena ran to the moon")
    typed.press("Enter")
    assert "“moon” is none of the town’s 89 words" in town.said
    assert town.words == ["<s>"]
    typed.fill("lena ran to the ran")
    typed.press("Enter")
    assert town.words == "<s> lena ran to the ran".split()
    assert "No story has “ran” as its word 5" in town.said
    town.assert_next()  # the truth is silent
    town.pick(3)  # and from an earlier word one goes on
    town.go("the")
    assert town.words == "<s> lena ran to the".split()
    town.assert_next()


def test_what_is_pasted_may_be_large_and_may_have_capitals(visit):
    town = Answers(visit("the_town"))
    town.press("Start anew")
    typed = town.host.get_by_label("Words to add")
    typed.fill("Mira went to the Mill")
    typed.press("Enter")
    assert town.words == "<s> mira went to the mill".split()
    typed.fill("the " * 3000)
    typed.press("Enter")  # it would freeze for half a minute
    assert "A story has at most 300 words here; these 3000" in town.said
    typed.fill("x" * 200_000)
    typed.press("Enter")
    assert f"“{'x' * 30}…” is none of the town’s" in town.said
    assert town.words == "<s> mira went to the mill".split()


SWITCHED = {
    "a head": (["take head 3 of block 1 out"], {"heads": ["1.3"]}),
    "two": (
        ["take head 0 of block 0 out", "take head 1 of block 0 out"],
        {"heads": ["0.0", "0.1"]},
    ),
    "a block": (["take block 0 out"], {"blocks": [0]}),
    "out and in": (["take block 1 out", "take block 1 out"], {}),
}


@pytest.mark.parametrize("presses, switches", SWITCHED.values(), ids=SWITCHED)
def test_what_is_out_changes_the_answer(visit, presses, switches):
    town = Answers(visit("the_town"))
    for name in presses:
        town.press(name)
    town.assert_next(**switches)
    town.press("All on again")
    town.assert_next()


def test_a_hidden_word_and_a_window(visit):
    town = Answers(visit("the_town"))
    town.pick(11)
    town.press("Hide “library”")
    town.pick(len(STORY) - 1)
    town.assert_next(hidden=[11])
    assert "“library”" not in town.said.split("truth")[0]
    sees = town.host.get_by_label("A word sees")
    sees.select_option("the last 8 and the first 4")
    town.assert_next(hidden=[11], window=8, sinks=4)


def test_a_temperature(visit):
    town = Answers(visit("the_town"))
    slider = town.host.get_by_label("Temperature")
    for value in ("2", "0.5"):
        slider.fill(value)
        town.assert_next(temperature=float(value))
    slider.fill("0")
    assert town.table(".next")["library"][1] == "1.00"


def test_without_the_cache_the_work_alone_changes(visit):
    town = Answers(visit("the_town"))
    before = town.table(".next")
    town.host.get_by_label("KV cache").uncheck()
    assert town.table(".next") == before
    note = town.host.locator("[data-panel=work] .note").inner_text()
    assert "differ by 0 at most" in note and "took 2,546,496" in note
    town.go("library")
    town.assert_next()


def test_the_heads_and_the_parts_are_torchs(visit):
    town = Answers(visit("the_town"))
    model = town_page.load()
    tokens = torch.tensor([[WORDS.index(word) for word in STORY]])
    from attnbook.layers import attention_weights

    maps = torch.cat(attention_weights(model, tokens)).flatten(0, 1)
    rows = town.host.locator(".heads svg")
    assert rows.count() == len(maps) == 8
    for n, found in enumerate(maps[:, -1]):
        heights = rows.nth(n).evaluate(
            "svg => [...svg.innerHTML.matchAll(/M\\S+ (\\S+?)h/g)]"
            ".map(([, top]) => 1 - Number(top))"
        )
        assert heights == pytest.approx(found.tolist(), abs=1e-5)
    parts = town.table(".parts")
    logit = town_page.logits(model, STORY)[-1].max().item()
    *shares, total = [
        float(cells[-1].replace("−", "-")) for cells in parts.values()
    ]
    assert total == pytest.approx(logit, abs=HALF)
    assert sum(shares) == pytest.approx(logit, abs=8 * HALF)
    assert len(shares) == 6


#: What a button sets, and what the model says then.
SET = {
    "Without the carrier": {"heads": ["1.3"]},
    "Temperature 2": {"temperature": 2},
    "A window of 8": {"window": 8},
}
SAID = {
    "Where does Omar go back to?": "0.99 to “library”",
    "And Mira?": "0.98 to “mill”",
    "Without the carrier": "0.80 to “harbour”",
    "Which bank?": "0.36 to “marched”",
    "Is or are?": "0.99 to “are”",
    "No cache": "0.99 to “library”",
    "Temperature 2": "0.26 to “early”",
    "A window of 8": "0.89 to “station”",
}


def test_what_there_is_to_try(visit):
    page = visit("the_town")
    town = Answers(page)
    tries = town.host.locator("[data-do^=try]")
    names = tries.all_inner_texts()
    assert len(names) == 9 and {*SET} < {*names}
    notes = set()
    for name in names:
        town.press(name)
        note = town.host.locator("[data-part=tries] .note")
        notes.add(note.inner_text())
        href = note.locator("a").get_attribute("href")
        assert (SITE / href).is_file()
        if name != "Guess ahead":  # after which the story may have ended
            town.assert_next(**SET.get(name, {}))
            assert SAID[name] in town.said
    assert len(notes) == 9


def test_another_weight_and_it_does_not_answer(visit):
    """The picture stays, and a sentence says what is wrong."""
    page = visit("index")

    def spoil(route):
        response = route.fetch()
        text = response.text()
        at = text.index('"high":"') + 5000
        changed = "A" if text[at] != "A" else "z"
        route.fulfill(
            response=response, body=text[:at] + changed + text[at + 1 :]
        )

    page.route("**/town.js", spoil)
    page.goto(page.url.replace("index.html", "the_town.html"))
    alert = page.locator("[data-town] [role=alert]")
    expect(alert).to_contain_text("The model does not answer here")
    cell = page.locator(".cell_output", has=alert)
    assert cell.locator("img").is_visible()
    assert cell.get_by_text("three bars").is_visible()


def test_without_scripts_picture_and_sentence_stand_in(visit):
    page = visit("the_town", java_script_enabled=False)
    assert page.locator("[data-town] p").is_visible()
    assert page.locator(".cell_output img").is_visible()


def test_it_prints_as_its_picture(visit):
    page = visit("the_town")
    town = Answers(page)
    picture = page.locator(".cell_output", has=town.host).locator("img")
    assert not picture.is_visible()
    page.emulate_media(media="print")
    assert picture.is_visible()
    assert not town.host.locator(".town").is_visible()


def test_it_answers_with_the_network_cut_off_and_from_a_file(visit):
    page = visit("the_town")
    town = Answers(page)
    page.context.set_offline(True)
    town.go("library")
    town.assert_next()
    other = page.context.new_page()
    other.goto((SITE / "the_town.html").as_uri())
    Answers(other).assert_next()


#: What a host may allow at most, and the page at least: its own scripts.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self'"
    " 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:"
)


def test_it_answers_where_nothing_else_may_be_asked(visit):
    page = visit("index")
    page.route(
        "**/the_town.html",
        lambda route: route.fulfill(
            response=(response := route.fetch()),
            headers=response.headers | {"content-security-policy": POLICY},
        ),
    )
    page.goto(page.url.replace("index.html", "the_town.html"))
    Answers(page).assert_next()


def test_a_phone(visit):
    page = visit("the_town", viewport=PHONE, has_touch=True, theme="dark")
    town = Answers(page)
    tap(town.host.locator("[data-do='go library']"))
    assert town.words[-1] == "library"
    small = town.host.locator("button, select, [type=text]").evaluate_all(
        "all => all.map((one) => [one.textContent || one.type,"
        " one.offsetWidth, one.offsetHeight])"
        ".filter(([, width, height]) => width < 44 || height < 44)"
    )
    assert small == []
    wide = town.host.locator("section *").evaluate_all(
        "all => all.filter((one) => one.getBoundingClientRect().right"
        " > innerWidth).map((one) => one.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_by_keyboard_alone(visit):
    page = visit("the_town")
    town = Answers(page)
    held = "document.querySelector('[data-town]').shadowRoot.activeElement"
    town.host.locator("[data-do='go library']").focus()
    page.keyboard.press("Enter")
    assert town.words[-1] == "library"
    # The word is gone; another button of the table has the focus.
    assert page.evaluate(f"{held}.dataset.do").startswith("go ")
    seen = set()
    for _ in range(80):
        assert page.evaluate("focusFaults()") == []
        seen.add(page.evaluate(f"{held}?.dataset.do ?? {held}?.type"))
        page.keyboard.press("Tab")
        if page.evaluate(f"{held} === null"):
            break
    assert {"out 1.3", "block 0", "head 0.0", "checkbox", "hide"} <= seen


@pytest.mark.parametrize("name", ["11_small_language_model", "14_kv_cache"])
def test_a_chapter_has_a_place_of_its_own(visit, name):
    page = visit(name)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    host = page.locator("[data-town]")
    host.locator("xpath=ancestor::details[1]/summary").click()
    town = Answers(page)
    assert any(url.endswith("town.js") for url in asked)
    heads = ["1.3"] if name.startswith("11") else []
    assert town.words == STORY
    town.assert_next(heads=heads)
    assert host.locator(".heads").count() == (1 if heads else 0)


def test_the_first_page_leads_there(visit):
    page = visit("index")
    link = page.locator("article a[href='the_town.html']").first
    assert re.search("town", link.inner_text())
    assert link.is_visible()


#: Opens what its place is folded into; and stands so many views below its top.
UNFOLD = """
for (const fold of document.querySelectorAll("details:has([data-town])")) {
  fold.open = true;
}"""
STAND = """
async (views) => {
  const place = document.querySelector("[data-town]");
  const { top } = place.getBoundingClientRect();
  scrollBy({ top: top + views * innerHeight, behavior: "instant" });
  await frames(2);
  return scrollY;
}"""
#: How far from the top of the page each section begins, and each part of the
#: town once it is there; in pixels.
LIES_AT = """
() => {
  const { shadowRoot } = document.querySelector("[data-town]");
  const top = (part) => Math.round(part.getBoundingClientRect().top + scrollY);
  return {
    sections: [...document.querySelectorAll(".bd-article section")].map(top),
    town: [...shadowRoot?.querySelectorAll("[data-panel], .proof") ?? []]
      .map(top),
  };
}"""


@pytest.mark.parametrize("views", [-0.7, 0, 1, 2, 3])
@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
@pytest.mark.parametrize("name", ["the_town", "11_small_language_model"])
def test_nothing_moves_when_it_comes_late(visit, name, size, views):
    """Wherever one stands by then; nor when one leaps through the page."""
    page = visit("index", viewport=size, reduced_motion="reduce")
    held = []
    page.route("**/town.js", lambda route: held.append(route))
    read_whole(page, page.url.replace("index.html", f"{name}.html"))
    page.evaluate(UNFOLD)
    page.evaluate(STAND, 0)
    while not held:  # until it is asked for
        page.wait_for_timeout(10)
    here = page.evaluate(STAND, views)
    before = page.evaluate(LIES_AT)
    assert len(before["sections"]) > 1 and not before["town"]
    (script,) = held
    script.continue_()
    page.locator("[data-town] .proof").wait_for(state="attached")
    page.evaluate("frames(2)")
    assert page.evaluate("scrollY") == here
    after = page.evaluate(LIES_AT)
    assert after["sections"] == before["sections"]
    assert len(after["town"]) > 1
    for leap in 2.7, -0.7, 3.5, 1:
        page.evaluate(STAND, leap)
        assert page.evaluate(LIES_AT) == after
