"""Words link to the glossary: press.terms.

First small pages as trees, then a whole small book, then the book itself.
"""

import io
import re

import docutils.core
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from myst_parser.docutils_ import Parser
from notebooks import ROOT
from pages import built, pages, soup_of
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import docutils_namespace, patch_docutils

from press import terms

# Pages


def page(text):
    """A page as a tree: a head, and a section of which the text is given."""
    return docutils.core.publish_doctree(
        f"# Title\n\nA head with a token.\n\n## Section\n\n{text}\n",
        parser=Parser(),
        settings_overrides={
            "myst_enable_extensions": ["dollarmath"],
            "doctitle_xform": False,
        },
    )


def shown(doctree):
    """The page's text, its links as [anchor: text]."""
    for link in list(doctree.findall(nodes.reference)):
        if link["classes"]:
            [anchor] = re.findall("#(.*)", link["refuri"])
            text = nodes.Text(f"[{anchor}: {link.astext()}]")
            link.parent.replace(link, text)
    return doctree.astext()


def term(name, *wordings, but=()):
    found = [terms.read_wording(one) for one in wordings or [name]]
    found += [terms.read_wording(one, means=False) for one in but]
    return terms.Term(name, name, "What it is.", tuple(found), frozenset())


@pytest.fixture(scope="module")
def glossary():
    return [
        term("token", but=["token ring"]),
        term("query"),
        term("mask"),
        term("causal", "causal mask", "causal"),
        term("value", "*value*", "keys and [values]"),
    ]


@pytest.mark.parametrize(
    "text, linked",
    [
        ("A token, a token.", "A [token: token], a token."),
        ("Tokens and queries.", "[token: Tokens] and [query: queries]."),
        ("The token's mask.", "The [token: token]'s [mask: mask]."),
        ("tokenizer, pre-token, token-wise, unmask", "unmask"),
        ("`token`, [token](https://a.org), **Token.**", "Token."),
        ("$mask$", "mask"),
        ("| token |\n|---|\n| mask |\n", "mask"),
        ("```\ntoken\n```\n", "token"),
        ("<p>token</p>\n", "<p>token</p>"),
        (
            "Causal mask, causal mask, mask",
            "[causal: Causal mask], causal mask, [mask: mask]",
        ),
        ("A token ring of tokens", "A token ring of [token: tokens]"),
        ("Its value, a *value*", "Its value, a [value: value]"),
        ("Values, keys and values", "Values, keys and [value: values]"),
        ("A causal\nmask", "[causal: causal\nmask]"),
        ("A causal $x$ mask", "A [causal: causal] x [mask: mask]"),
        ("*A token is*, a token", "A token is, a [token: token]"),
    ],
)
def test_first_uses_are_linked(glossary, text, linked):
    doctree = page(text)
    terms.link_page(doctree, glossary, "glossary")
    text = shown(doctree)
    assert "A head with a token." in text
    assert text.strip().endswith(linked)
    assert text.count("[") == linked.count("[")


@pytest.mark.parametrize(
    "wording", ["keys [and] [values]", "keys []", "[keys"]
)
def test_a_wording_that_cannot_be_read(wording):
    with pytest.raises(ExtensionError):
        terms.read_wording(wording)


# A small book

BOOK = {
    "index": "# Book\n\n```{toctree}\none\ntwo\nglossary\n```\n"
    "## Section\n\nA token.\n",
    "one": "# One\n\n## Section\n\nA token has a width.\n",
    "two": "# Two\n\n## Section\n\nAnother token.\n",
    "glossary": "# Glossary\n\n```{glossary}\ntoken\n"
    "  % wordings: token,\n  % piece of text\n"
    "  A piece. It has\n  a vector. [One](one.md)\n```\n",
}


def build(folder, **texts):
    """Build the book with other texts; what it warns of."""
    for name, text in (BOOK | texts).items():
        (folder / f"{name}.md").write_text(text, "utf-8")
    warnings = io.StringIO()
    places = (folder, None, folder / "o", folder / "t")
    settings = {
        "extensions": ["myst_parser", "press.terms"],
        "html_theme": "basic",
    }
    with patch_docutils(folder), docutils_namespace():
        Sphinx(
            *places, "html", settings, status=None, warning=warnings
        ).build()
    return re.sub("\x1b.*?m", "", warnings.getvalue())


def test_a_book_is_linked(tmp_path):
    assert build(tmp_path) == ""
    for name in BOOK:
        text = (tmp_path / "o" / f"{name}.html").read_text("utf-8")
        links = BeautifulSoup(text, "html.parser").select("a.term")
        assert len(links) == (name in ("one", "two")), name
        for link in links:
            assert link["href"] == "glossary.html#term-token"
            assert link["title"] == "A piece."


def test_what_is_not_used_is_warned_of(tmp_path):
    glossary = BOOK["glossary"].replace("token\n", "axis\n  A.\n\ntoken\n", 1)
    one = BOOK["one"].replace("A token", "One")
    said = build(tmp_path, glossary=glossary, one=one)
    assert "axis is explained and not used" in said
    assert "token is explained and not used; expected it in one" in said


def test_a_comment_that_cannot_be_read(tmp_path):
    text = BOOK["glossary"].replace("wordings:", "wording:")
    with pytest.raises(ExtensionError, match="wordings:"):
        build(tmp_path, glossary=text)


def test_an_entry_has_other_names(tmp_path):
    """A form links where a page uses it; the search knows each of them."""
    names = "\n\n  Also called: word piece, WP.\n\n  See here for: BOS.\n```"
    glossary = BOOK["glossary"].replace("\n```\n", names)
    one = BOOK["one"].replace("A token", "A word piece")
    assert build(tmp_path, glossary=glossary, one=one) == ""
    page = (tmp_path / "o" / "one.html").read_text("utf-8")
    (link,) = BeautifulSoup(page, "html.parser").select("a.term")
    assert link.get_text() == "word piece" and link["title"] == "A piece."
    index = (tmp_path / "o" / "searchindex.js").read_text("utf-8")
    for name in "word piece", "wp", "bos", "token":
        assert re.search(rf'"{name}": ?\[\[\d+, ?"term-token"', index), name


@pytest.mark.parametrize("line", ["Also called: a, , b.", "Also called: a"])
def test_other_names_that_cannot_be_read(tmp_path, line):
    text = BOOK["glossary"].replace("\n```\n", f"\n\n  {line}\n```\n")
    with pytest.raises(ExtensionError, match="full stop"):
        build(tmp_path, glossary=text)


def test_a_word_that_is_to_come_is_warned_of_once_it_is_there(tmp_path):
    entry = "axis\n  % later: chapter 1\n  A. [One](one.md)\n\ntoken\n"
    glossary = BOOK["glossary"].replace("token\n", entry, 1)
    assert build(tmp_path, glossary=glossary) == ""
    one = BOOK["one"] + "\nAn axis.\n"
    said = build(tmp_path, glossary=glossary, one=one)
    assert "axis is used now, in one; take its 'later:' out" in said


#: What people type who look for something that the book explains.
WORDS_OF_THE_TRADE = """RoPE, GQA, MQA, MLA, EOS, pad token, left padding, BPE,
gradient accumulation, mixed precision, autocast, weight tying,
bias correction, rope_theta, document mask, bonus token, TTFT, ITL,
draft model, assisted generation, speculative sampling, KV cache, MHA, FFN,
FlashAttention, nucleus sampling, skip connection, lm_head"""


def test_the_glossary_has_the_words_of_the_trade():
    """As a term, as its other name, or among what is explained there."""
    text = (ROOT / "chapters" / "glossary.md").read_text("utf-8")
    known = set(re.findall(r"(?m)^(\w.*)$", text.partition("{glossary}")[2]))
    for line in terms.CALLED, terms.SEE_HERE:
        for listed in re.findall(rf"(?m)^  {line} (.*)\.$", text):
            known |= {word.strip() for word in listed.split(",")}
    wanted = {" ".join(w.split()) for w in WORDS_OF_THE_TRADE.split(",")}
    assert wanted - known == set()


# The book


def test_a_chapter_links_each_of_its_terms_once():
    for page in pages():
        links = soup_of(page).select("a.term")
        found = {link["href"] for link in links}
        assert len(found) == len(links), page.name
        assert len(found) > 10 or not re.match(r"\d\d_", page.stem), page.name
        if page.stem in {"index", "glossary", "notation", "bibliography"}:
            assert not found, page.name
        for link in links:
            assert re.fullmatch(r"[A-Z][^\\${}%]{5,200}[.]", link["title"])


def test_the_glossary_is_in_alphabetical_order():
    terms = soup_of(built() / "glossary.html").select("dt[id^=term-]")
    names = [term.find(string=True).lower() for term in terms]
    assert names == sorted(names) and len(names) > 60
