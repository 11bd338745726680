"""The sections of the book, and the site's search for them."""

import json
from types import SimpleNamespace

import pytest
from pages import built
from ranked import in_node
from searched import searched

from attnbook.teach.page.ranking import rank
from press import sections

PAGE = """# A page

Words before.

## First part

About *queries* and `keys`, $x^2$ and [a link](somewhere.md), and
[another](#What-is-(said)-elsewhere).

```python
## no heading
```

### Exercise 1.1: try it

## Further reading
"""


def test_a_page_has_its_sections_without_code_and_exercises():
    found = list(sections.sections_of("a", PAGE))
    assert [s.anchor for s in found] == ["a-page", "first-part"]
    assert found[1].of == "A page"
    assert "queries" in found[1].text
    assert "somewhere" not in found[1].text
    assert "elsewhere" not in found[1].text


def test_an_entry_of_the_glossary_has_its_other_names():
    text = (
        "```{glossary}\npad-ding\n  Tokens. [Chapter 5](05_a.ipynb#b),\n"
        "  [chapter 7](07_c.ipynb)\n\n  Also called: fill.\n```\n"
    )
    [entry] = sections.entries_of(text)
    assert entry.anchor == "term-pad-ding"
    assert entry.title == "pad-ding, fill"
    assert entry.explained_on == ("05_a", "07_c")


@pytest.fixture
def found():
    """All sections, and the index of the search."""
    return searched()


def test_the_site_has_this_index(found):
    """To the byte: another process learned its weights."""
    _, index = found
    script = (built() / "_static" / "sections-index.js").read_text("utf-8")
    assert script == sections.search_script(index)


@pytest.mark.parametrize(
    "typed, page",
    [("GQA", "18"), ("rotary embedding", "09"), ("KV cache", "14")],
)
def test_words_of_the_trade_lead_to_a_section(found, typed, page):
    everything, index = found
    first = [everything[n].page for n, _ in rank(index, typed)[:3]]
    assert any(name.startswith(page) for name in first), first


def test_what_people_type_is_learned_for_the_section_that_is_meant(found):
    everything, _ = found
    told = sections.examples(everything)
    assert len(told) > 3000
    meant = [everything[n] for words, n in told if words == "radixattention"]
    assert [s.anchor for s in meant] == ["pages-that-are-found-again"]
    bare = [s._replace(typed=()) for s in everything]
    assert sections.examples(bare) == []


def test_what_people_type_names_sections_that_exist(found):
    """Where a section was renamed, rename it in site/search_words.toml."""
    everything, _ = found
    there = {sections.key(section) for section in everything}
    assert set(sections.what_is_typed()) - there == set()


def test_a_section_is_named_by_its_title_without_the_minutes():
    section = sections.Section(
        "09_x", "a", "Side road: a b (2 minutes)", "", ""
    )
    assert sections.key(section) == ("09", sections.words_of("a b"))
    entry = sections.Section("glossary", "a", "LSE, log-sum-exp", "", "")
    assert sections.key(entry) == ("glossary", "lse")


def test_what_people_type_leads_to_its_chapter(found):
    everything, index = found
    told = sections.examples(everything)[::10]
    lost = [
        words
        for words, meant in told
        if everything[meant].page
        not in {everything[n].page for n, _ in rank(index, words)[:3]}
    ]
    assert len(lost) < 0.03 * len(told), lost


def test_an_entry_of_the_glossary_leads_to_what_explains_it(found):
    everything, index = found
    led = {}
    for section, shown in zip(everything, index["entries"], strict=True):
        if section.explained_on:
            [by] = shown[4:]
            led[section.anchor] = [everything[n] for n in by]
            assert [s.page for s in led[section.anchor]] == list(
                section.explained_on
            )
        else:
            assert len(shown) == 4
    assert len(led) > 100
    [lora] = led["term-low-rank-adaptation"]
    assert lora.anchor == "a-small-change-of-a-large-matrix"


def test_the_page_finds_what_python_finds(found):
    _, index = found
    typed = ["GQA", "left padding", "constructor", "repeti", "", "🛶"]
    typed += ["positional encoding", "gradient accumulation steps"]
    ranked = in_node(
        "(() => { const index = ranking.open(given.index);"
        "return given.typed.map((q) => ranking.rank(index, q)); })()",
        {"index": json.loads(json.dumps(index)), "typed": typed},
    )
    assert ranked == [[list(r) for r in rank(index, q)] for q in typed]


def test_weights_are_stored_in_steps():
    listed = {"mask": [0, 64, 3, -33], "rope": [7, 1000]}
    stored = {"mask": [0, 2, 3, -1], "rope": [7, 31]}
    assert sections.STEP == 32
    assert sections.coarser(listed) == stored


def test_the_scripts_of_the_search_are_on_its_page_alone():
    loaded = []
    app = SimpleNamespace(
        add_js_file=lambda name, loading_method: loaded.append(name)
    )
    sections.add_scripts(app, "index", "page.html", {}, None)
    assert loaded == []
    sections.add_scripts(app, "search", "page.html", {}, None)
    assert loaded == ["ranking.js", "sections.js"]
