"""The sections of the book, and the site's search for them."""

import json
from types import SimpleNamespace

import pytest
from ranked import in_node

from attnbook.teach.page.ranking import rank
from press import sections
from press.contents import contents

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
    text = "```{glossary}\npad-ding\n  Tokens.\n\n  Also called: fill.\n```\n"
    [entry] = sections.entries_of(text)
    assert entry.anchor == "term-pad-ding"
    assert entry.title == "pad-ding, fill"


@pytest.fixture(scope="module")
def found():
    everything = sections.all_sections(contents().documents)
    return everything, sections.search_index(everything)


@pytest.mark.parametrize(
    "typed, page",
    [("GQA", "glossary"), ("rotary embedding", "09"), ("KV cache", "14")],
)
def test_words_of_the_trade_lead_to_a_section(found, typed, page):
    everything, index = found
    first = [everything[n].page for n, _ in rank(index, typed)[:3]]
    assert any(name.startswith(page) for name in first), first


def test_what_people_type_is_learned_for_the_section_that_is_meant(found):
    everything, _ = found
    told = dict(sections.examples(everything))
    assert len(told) > 400
    meant = everything[told["radixattention"]]
    assert meant.anchor == "pages-that-are-found-again"
    assert sections.examples(everything[:1]) == []


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


def test_the_index_is_put_beside_the_scripts_of_the_search_alone(tmp_path):
    loaded = []
    app = SimpleNamespace(
        add_js_file=lambda name, loading_method: loaded.append(name),
        outdir=tmp_path,
        builder=SimpleNamespace(name="epub"),
    )
    sections.add_scripts(app, "index", "page.html", {}, None)
    assert loaded == []
    sections.add_scripts(app, "search", "page.html", {}, None)
    assert loaded == ["ranking.js", "sections.js"]
    sections.write_search(app, None)  # another builder has no search
    assert not list(tmp_path.iterdir())
