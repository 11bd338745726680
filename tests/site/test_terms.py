"""Words link to the glossary, symbols to the notation: site/terms.py.

First small pages as trees, then a whole small book, then the book itself.
"""

import html
import io
import re

import docutils.core
import pytest
from book import extension
from bs4 import BeautifulSoup
from docutils import nodes
from myst_parser.docutils_ import Parser
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import docutils_namespace, patch_docutils
from test_site import built, pages


@pytest.fixture(scope="module")
def terms():
    """The extension, under the name by which Sphinx knows it."""
    return extension("terms")


# Formulas


@pytest.mark.parametrize(
    "latex, symbols",
    [
        (r"s_{ij} = q_i \cdot k_j", "s_ij q_i k_j"),
        (r"\sqrt{d_k} \le d_{\mathrm{in}}^2", "d_k d_in"),
        (r"\alpha_{ij} W_q^{(h)} c'_i", r"\alpha_ij W_q h c_i"),
        (r"\sum_{j=1}^{S} e^{s_j}", "S e s_j"),
        (r"\operatorname{Var}(x) \text{ as in } Q K^{\mathsf T}", "x Q K"),
        (r"\mathrm{d} x + \begin{aligned} a \end{aligned}", "x a"),
    ],
)
def test_the_symbols_of_a_formula(terms, latex, symbols):
    found = [
        atom
        for atom in terms.atoms(latex)
        if not re.match(r"\\(?!alpha)", atom)
    ]
    assert found == symbols.split()


def test_what_does_not_matter_in_a_symbol(terms):
    assert terms.normal(r" d_{\mathrm{in}} ") == terms.normal("d_{in}")
    assert terms.normal(r"\alpha_{i\,j}") == r"\alpha_ij"
    assert terms.normal("d_k") != terms.normal("d_v")


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


def term(terms, name, *forms, but=()):
    found = [terms.read_form(form) for form in forms or [name]]
    found += [terms.read_form(form, means=False) for form in but]
    return terms.Term(name, name, "What it is.", tuple(found), frozenset())


@pytest.fixture(scope="module")
def glossary(terms):
    return [
        term(terms, "token", but=["token ring"]),
        term(terms, "query"),
        term(terms, "mask"),
        term(terms, "causal", "causal mask", "causal"),
        term(terms, "value", "*value*", "keys and [values]"),
    ]


@pytest.mark.parametrize(
    "text, linked",
    [
        ("A token, a token.", "A [token: token], a token."),
        ("Tokens and queries.", "[token: Tokens] and [query: queries]."),
        ("The token's mask.", "The [token: token]'s [mask: mask]."),
        ("- a mask\n", "[mask: mask]"),
        ("> a mask\n", "[mask: mask]"),
        # Whole words.
        ("tokenizer, pre-token, token-wise, unmask", "unmask"),
        # No running text.
        ("`token`, [token](https://a.org), **Token.**", "Token."),
        ("$mask$", "mask"),
        ("### A token\n", "A token"),
        ("| token |\n|---|\n| mask |\n", "mask"),
        ("```\ntoken\n```\n", "token"),
        ("<p>token</p>\n", "<p>token</p>"),
        # The longer wins, before and after it is linked.
        ("A causal mask.", "A [causal: causal mask]."),
        (
            "A causal mask, a causal mask, a mask",
            "[causal: causal mask], a causal mask, a [mask: mask]",
        ),
        # What means something else.
        ("A token ring of tokens", "A token ring of [token: tokens]"),
        # Stressed, and by what stands around.
        ("Its value, a *value*", "Its value, a [value: value]"),
        ("Its value, *values*", "Its value, values"),
        (
            "Some values, keys and values",
            "Some values, keys and [value: values]",
        ),
        ("Keys and *values*", "Keys and [value: values]"),
        # Across what is stressed, a line's end, a formula.
        ("A *causal* mask", "A [causal: causal mask]"),
        ("A causal\nmask", "[causal: causal\nmask]"),
        ("A causal $x$ mask", "A [causal: causal] x [mask: mask]"),
        ("A *token*", "A [token: token]"),
        ("A *[token](https://a.org)*, a token", "A token, a [token: token]"),
        (
            "*A token is stressed*, a token",
            "A token is stressed, a [token: token]",
        ),
    ],
)
def test_first_uses_are_linked(terms, glossary, text, linked):
    doctree = page(text)
    terms.link_page(doctree, "page", glossary, [], str)
    text = shown(doctree)
    assert "A head with a token." in text
    assert text.strip().endswith(linked)
    assert text.count("[") == linked.count("[")


def test_a_link_keeps_what_is_stressed(terms, glossary):
    doctree = page("A *causal* mask.")
    terms.link_page(doctree, "page", glossary, [], str)
    [link] = doctree.findall(nodes.reference)
    assert isinstance(link[0], nodes.emphasis)
    assert link["classes"] == ["term"]
    assert link["refuri"] == "glossary#causal"
    assert link["reftitle"] == "What it is."


@pytest.mark.parametrize("form", ["keys [and] [values]", "keys []", "[keys"])
def test_a_form_that_cannot_be_read(terms, form):
    with pytest.raises(ExtensionError, match="expected words.*got"):
        terms.read_form(form)


@pytest.fixture(scope="module")
def notation(terms):
    def symbol(latex, anchor, *pages):
        return terms.Symbol(
            terms.normal(latex), latex, anchor, "", frozenset(pages)
        )

    return [
        symbol(r"d_{\mathrm{in}}", "d"),
        symbol("q_i", "q"),
        symbol("M", "mask"),
        symbol("M", "product", "other"),
    ]


@pytest.mark.parametrize(
    "text, line, linked",
    [
        # The line has all, in the order of appearance; the text, the first
        # formula that is nothing else.
        (
            "$q_i + d_{in}$, $d_{in}$",
            "[q: q_i] [d: d_in]",
            "q_i + d_{in}, [d: d_{in}]",
        ),
        ("$M$, $M$", "[mask: M]", "[mask: M], M"),
        ("$$\nM = q_i\n$$\n", "[mask: M] [q: q_i]", "M = q_i"),
        ("| $M$ |\n|---|\n| a |\n", "[mask: M]", "a"),
        ("### $M$\n", "[mask: M]", "M"),
        ("**$M$**, [$M$](https://a.org)", "[mask: M]", "M, M"),
    ],
)
def test_symbols_are_linked(terms, notation, text, line, linked):
    doctree = page(text)
    terms.link_page(doctree, "page", [], notation, str)
    text = shown(doctree).replace(r"\mathrm{in}", "in")
    head, _, section = text.partition("\n\nSection\n\n")
    assert head.split("Symbols: ")[1].replace("{in}", "in") == line
    assert section.strip().endswith(linked)
    assert section.count("[") == linked.count("[")


def test_a_letter_with_another_meaning(terms, notation):
    doctree = page("$M$ and $d_{in}$")
    terms.link_page(doctree, "other", [], notation, str)
    assert "[product: M] and [d: d_{in}]" in shown(doctree)


def test_a_page_without_symbols_has_no_line(terms, notation):
    doctree = page("Nothing, and $z$.")
    terms.link_page(doctree, "page", [], notation, str)
    assert "Symbols" not in doctree.astext()


# A small book

BOOK = {
    "index": "# Book\n\n```{toctree}\none\ntwo\nglossary\nnotation\n```\n"
    "## Section\n\nA token.\n",
    "one": "# One\n\n## Section\n\nA token has width $d_k$.\n",
    "two": "# Two\n\n## Section\n\nAnother token, $M$.\n",
    "glossary": "# Glossary\n\n```{glossary}\ntoken\n"
    "  % forms: token,\n  % piece of text\n"
    "  A piece. It has\n  a vector. [One](one.md)\n```\n",
    "notation": "# Notation\n\n| symbol | meaning | shape |\n|---|---|---|\n"
    "| $d_k$ | width of $k$ | $(B, d_{\\mathrm{in}})$ |\n\n"
    "| symbol | meaning | chapter |\n|---|---|---|\n"
    "| $M$ | a mask | [two](two.md) |\n",
}


class Book:
    """A book of pages in a folder, built again and again."""

    def __init__(self, folder):
        self.folder, self.out = folder, folder / "out"

    def write(self, **texts):
        for name, text in texts.items():
            (self.folder / f"{name}.md").write_text(text, "utf-8")

    def build(self, out="out"):
        """Build what has changed; the warnings."""
        self.out, warnings = self.folder / out, io.StringIO()
        with patch_docutils(self.folder), docutils_namespace():
            Sphinx(
                self.folder,
                None,
                self.out,
                self.folder / f"trees of {out}",
                "html",
                status=None,
                warning=warnings,
                confoverrides={
                    "extensions": ["myst_parser", "terms"],
                    "myst_enable_extensions": ["dollarmath"],
                    "html_theme": "basic",
                },
            ).build()
        return re.sub("\x1b.*?m", "", warnings.getvalue())

    def links(self, name):
        text = (self.out / f"{name}.html").read_text("utf-8")
        soup = BeautifulSoup(text, "html.parser")
        return [
            (link["href"], link["title"], link.get_text())
            for link in soup.select("a.term, a.symbol")
        ]


@pytest.fixture
def book(terms, tmp_path):
    book = Book(tmp_path)
    book.write(**BOOK)
    return book


A_TOKEN = ("glossary.html#term-token", "A piece.", "token")


def test_a_book_is_linked(book):
    assert book.build() == ""
    d_k = ("notation.html#sym-d-k", "width of k; shape (B, d_in)", r"\(d_k\)")
    M = ("notation.html#sym-M-two", "a mask", r"\(M\)")
    assert book.links("one") == [d_k, A_TOKEN, d_k]
    assert book.links("two") == [M, A_TOKEN, M]
    for name in ("index", "glossary", "notation"):
        assert book.links(name) == []
    rows = (book.out / "notation.html").read_text("utf-8")
    assert re.search('<tr [^>]*id="sym-d-k"', rows)


def test_two_builds_are_the_same(book):
    book.build("first"), book.build("second")
    names = [f"{name}.html" for name in BOOK]
    first, second = (
        [(book.folder / out / name).read_bytes() for name in names]
        for out in ("first", "second")
    )
    assert first == second


def test_a_changed_page_is_linked_and_the_others_stay(book):
    book.build()
    book.write(two=BOOK["two"].replace("Another token", "A token, a token"))
    assert book.build() == ""
    assert [link[2] for link in book.links("two")][1:] == ["token", r"\(M\)"]
    assert A_TOKEN in book.links("one")


def test_a_changed_glossary_reaches_every_page(book):
    book.build()
    book.write(glossary=BOOK["glossary"].replace("A piece.", "A part."))
    assert book.build() == ""
    for name in ("one", "two"):
        assert "A part." in [title for _, title, _ in book.links(name)]


@pytest.mark.parametrize(
    "name, old, new, warning",
    [
        (
            "glossary",
            "token\n",
            "tensor\n  It has axes.\n\ntoken\n",
            "glossary.md: WARNING: tensor is explained and not used; "
            "expected it in some page",
        ),
        (
            "one",
            "A token",
            "One",
            "glossary.md: WARNING: token is explained "
            "and not used; expected it in one",
        ),
        (
            "notation",
            "$d_k$",
            "$d_k$, $x$",
            "notation.md: WARNING: x is "
            "explained and not used; expected it in some page",
        ),
        (
            "two",
            "$M$",
            "$x$",
            "notation.md: WARNING: M is explained and not "
            "used; expected it in two",
        ),
    ],
)
def test_what_is_not_used_is_warned_of(book, name, old, new, warning):
    book.write(**{name: BOOK[name].replace(old, new, 1)})
    assert warning in book.build()


def test_a_comment_that_cannot_be_read(book):
    book.write(glossary=BOOK["glossary"].replace("forms:", "form:"))
    with pytest.raises(ExtensionError, match="expected forms: or except:"):
        book.build()


# The book

UNLINKED = {"index", "glossary", "notation", "bibliography"}


def links_of(page, kind):
    """A page's links to terms or symbols: address and tooltip of each."""
    return [
        (address, html.unescape(tooltip))
        for address, tooltip in re.findall(
            rf'<a class="{kind} [^>]*href="([^"]*)" title="([^"]*)"',
            page.read_text("utf-8"),
        )
    ]


def test_each_page_links_a_term_once():
    for page in pages(built()):
        words, symbols = links_of(page, "term"), links_of(page, "symbol")
        assert len(words) == len(set(words)), page.name
        if page.stem in UNLINKED:
            assert not words + symbols, page.name
        if re.match(r"\d\d_", page.stem):  # a chapter
            assert len(words) > 10 and symbols, page.name


def test_tooltips_are_plain_sentences():
    for page in pages(built()):
        for _, tooltip in links_of(page, "term"):
            assert re.fullmatch(r"[A-Z].{5,200}[.]", tooltip), tooltip
        for _, tooltip in links_of(page, "term") + links_of(page, "symbol"):
            assert not re.search(r"[\\${}%]", tooltip), tooltip


def test_the_glossary_is_in_alphabetical_order():
    text = (built() / "glossary.html").read_text("utf-8")
    names = re.findall(r'<dt id="term-[^"]*">(.*?)<', text)
    assert len(names) > 60
    assert names == sorted(names, key=str.lower)
