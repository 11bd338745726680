"""The other formats of the built book: the EPUB, plain text, the feed."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as xml
from zipfile import ZipFile

import pytest
from bs4 import BeautifulSoup
from pages import built, pages, soup_of

from press import changes, epub
from press.contents import contents
from press.finish import POLICY
from press.places import HTML
from press.settings import settings

NAMES = contents().documents
POLICY_HEADER = "Content-Security-Policy"
XHTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
MATH = "{http://www.w3.org/1998/Math/MathML}"


# The EPUB


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("epub") / "book.epub"
    epub.save(
        epub.package(built(), settings(), contents(), "2026-01-01"), path
    )
    return path


@pytest.fixture(scope="module")
def files(file):
    with ZipFile(file) as book:
        return {name: book.read(name) for name in book.namelist()}


@pytest.fixture(scope="module")
def texts(files):
    """The pages of the EPUB; this fails where one is not well-formed."""
    return {
        name.removeprefix("book/"): xml.fromstring(content)
        for name, content in files.items()
        if name.endswith(".xhtml")
    }


def test_the_package_names_each_file_and_the_order(files):
    opf = files["book/package.opf"].decode()
    items = dict(re.findall('<item id="([^"]+)" href="([^"]+)"', opf))
    others = {"mimetype", "META-INF/container.xml", "book/package.opf"}
    assert {f"book/{name}" for name in items.values()} == set(files) - others
    read = [items[i] for i in re.findall('idref="([^"]+)"', opf)]
    names = ["title-page", "contents", *NAMES, "solutions"]
    assert read == [f"{name}.xhtml" for name in names]


def test_every_link_of_the_epub_leads_somewhere(files, texts):
    ids = {}
    for name, page in texts.items():
        found = Counter(tag.get("id") for tag in page.iter() if tag.get("id"))
        assert max(found.values(), default=1) == 1, name
        ids[name] = set(found)
    inner = 0
    for name, page in texts.items():
        for link in page.iter(f"{XHTML}a"):
            url = urlsplit(link.get("href"))
            if url.scheme:
                assert url.scheme in ("http", "https", "mailto"), link.attrib
                continue
            target = unquote(url.path) or name
            assert f"book/{target}" in files, link.attrib
            assert not url.fragment or unquote(url.fragment) in ids[target]
            inner += 1
    assert inner > 1500


def test_what_the_epub_shows_is_there_and_described(files, texts):
    pictures = drawings = formulas = 0
    for name, page in texts.items():
        for image in page.iter(f"{XHTML}img"):
            assert f"book/{image.get('src')}" in files
            if name != "title-page.xhtml":
                assert len(image.get("alt", "")) >= 25
                pictures += 1
        for drawing in page.iter(f"{SVG}svg"):
            assert drawing.get("aria-label") and drawing.get("viewBox")
            drawings += 1
        for formula in page.iter(f"{MATH}math"):
            assert formula.get("alttext", "").strip()
            formulas += 1
        assert not list(page.iter(f"{XHTML}script"))
    assert pictures > 50 and drawings > 20 and formulas > 1500


def test_solutions_and_answers_stand_at_the_end_of_the_epub(texts):
    wanted = sum(  # a page's answers stand together
        text.count("<summary>Solution</summary>")
        + ("<summary>Answer</summary>" in text)
        for text in (p.read_text("utf-8") for p in pages())
    )
    end = texts["solutions.xhtml"]
    titles = {
        title.get("id"): title.find(f"{XHTML}a").get("href")
        for title in end.iter(f"{XHTML}h3")
    }
    there = [
        (name, link.get("href").partition("#")[2])
        for name, page in texts.items()
        for line in page.iter(f"{XHTML}p")
        if line.get("class") == "to-solution"
        for link in line
    ]
    assert len(there) == len(titles) == wanted > 70
    for name, place in there:  # and back
        assert titles[place].startswith(f"{name}#")


def test_epubcheck_finds_nothing(file):
    found = shutil.which("epubcheck")
    if not found:
        pytest.skip("no epubcheck here; on Debian: apt-get install epubcheck")
    # Debian's is a jar, which not every machine runs by itself.
    jar = Path(found).resolve()
    command = ["java", "-jar", str(jar)] if jar.suffix == ".jar" else [found]
    done = subprocess.run(
        [*command, "--failonwarnings", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert "0 fatals / 0 errors / 0 warnings" in done.stdout, done.stdout
    assert done.returncode == 0


# Plain text


def without_code(text):
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", text)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_has_all_that_the_page_has(name):
    page = soup_of(built() / f"{name}.html")
    text = twin(name)
    (link,) = page.select('head link[type="text/plain"]')
    assert link["href"] == f"{name}.txt"
    hidden = {
        id(t) for f in page.select("details.hide") for t in f.select("*")
    }
    article = page.select_one("article")
    flat = squeezed(text)
    for formula in article.select("annotation"):
        assert squeezed(formula.get_text()) in flat
    for picture in article.select("img, svg[role=img]"):
        described = picture.get("alt") or picture["aria-label"]
        assert f"[Figure: {squeezed(described)}]" in flat
    for code in article.select("pre"):
        if id(code) not in hidden:
            assert squeezed(code.get_text()) in flat
    folds = article.select("section.exercise details > summary")
    solutions = sum(fold.get_text() == "Solution" for fold in folds)
    end = text.partition("\n## Solutions\n")[2]
    assert end.count("\n### Exercise ") == solutions


@pytest.mark.parametrize("name", NAMES)
def test_no_line_of_a_twin_is_empty_of_sense(name):
    text = without_code(twin(name))
    for needless in (
        "Show the code",
        "Hide the code",
        "Where scripts run",
        "Solution\n",
        "Link to this",
        "\n#\n",
        "[Figure: None]",
        "<span",
        "<div",
        "¶",
    ):
        assert needless not in text, needless
    assert not re.search(r"(?m)^.*\S.*```", twin(name))  # lines begin so


def twin(name):
    return (built() / f"{name}.txt").read_text("utf-8")


def test_the_list_names_every_twin():
    text = (built() / "llms.txt").read_text("utf-8")
    assert re.findall(r"\]\((.*)\.txt\)", text) == NAMES


# The feed, the policy


def test_the_feed_leads_to_the_editions():
    feed = xml.parse(built() / "feed.xml").getroot()
    links = [
        link.get("href")
        for entry in feed.iter(f"{{{changes.ATOM}}}entry")
        for link in entry.iter(f"{{{changes.ATOM}}}link")
    ]
    assert len(links) >= 2
    for link in links:
        page, _, place = link.rpartition("/")[2].partition("#")
        assert soup_of(built() / page).find(id=place), link
    for page in pages():
        (link,) = soup_of(page).select('link[type="application/atom+xml"]')
        assert link["href"] == "feed.xml"


@pytest.mark.parametrize(
    "page", sorted(HTML.glob("*.html")), ids=lambda page: page.stem
)
def test_each_page_has_the_policy_before_all_that_it_governs(page):
    """Only the page's encoding and its width may come before it."""
    head, _, _ = page.read_text("utf-8").partition("</head>")
    tags = BeautifulSoup(head, "html.parser").head.find_all(True)
    policies = [tag for tag in tags if tag.get("http-equiv") == POLICY_HEADER]
    assert [tag["content"] for tag in policies] == [POLICY]
    for tag in tags[: tags.index(policies[0])]:
        assert tag.name == "meta"
        assert "charset" in tag.attrs or tag["name"] == "viewport"
