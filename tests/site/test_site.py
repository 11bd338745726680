"""The built pages: what they load, link to, show and weigh.

Run on ``_build/html``, which ``make book`` makes. Each check is a function
over a folder of pages that returns its faults as sentences; below, each is
run on the book, and on made-up pages that have just the fault it is for.
"""

import gzip
import io
import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
import sphinxcontrib.katex as sphinx_katex
import yaml
from book import extension
from bs4 import BeautifulSoup
from build import HTML as SITE
from build import missing_pages
from fontTools.ttLib import TTFont
from notebooks import ROOT
from PIL import Image

# Bytes a page may cost a reader who has nothing of the site yet and reads to
# its end: on a slow mobile line (1.6 Mbit/s) this many take one and a half
# seconds. Counted: page, css and js as gzip sends them, images and fonts as
# they are. Of this, 70 kB are every page's; a chapter has 35 to 60 kB of text,
# 25 to 45 kB of KaTeX's fonts, and the rest for its figures.
WEIGHT_LIMIT = 300_000

# What may not be loaded: each does on the reader's machine, from elsewhere
# or at a great weight, what the build has already done or nobody uses.
UNWANTED = re.compile(
    r"mathjax|require(\.min)?\.js|thebe|fontawesome\.js", re.I
)

ALT_LENGTH = 25  # letters; fewer cannot say what a figure shows


# Reading pages


def pages(site):
    """The site's pages, without the theme's own files."""
    return sorted(
        page
        for page in site.rglob("*.html")
        if not page.relative_to(site).parts[0].startswith("_")
    )


@cache
def parse(text):
    return BeautifulSoup(text, "html.parser")


def soup_of(page):
    return parse(page.read_text("utf-8"))


@cache
def ids_of(text):
    return {tag["id"] for tag in parse(text).find_all(id=True)}


def is_foreign(url):
    return bool(urlsplit(url).netloc)


def is_local(url):
    parts = urlsplit(url)
    return not parts.scheme and not parts.netloc


def target_of(url, page, site):
    """The file that a local URL names on a page."""
    path = unquote(urlsplit(url).path)
    if not path:
        return page
    base = site if path.startswith("/") else page.parent
    target = (base / path.lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target


def from_srcset(value):
    return [part.split()[0] for part in value.split(",") if part.strip()]


@cache
def css_urls(css):
    found = re.findall(r"""url\(\s*['"]?([^'")]+)""", css)
    found += re.findall(r"""@import\s+['"]([^'"]+)""", css)
    return [url for url in found if not url.startswith(("data:", "#"))]


def assets(soup):
    """URLs that a browser fetches by itself when it shows the page."""
    urls = []
    for tag in soup.find_all(True):
        if tag.name == "link":
            loaded = {
                "stylesheet",
                "icon",
                "preload",
                "modulepreload",
                "prefetch",
                "preconnect",
                "dns-prefetch",
                "manifest",
                "apple-touch-icon",
                "mask-icon",
            }
            if loaded & {rel.lower() for rel in tag.get("rel", [])}:
                urls.append(tag.get("href", ""))
        elif tag.name in {"image", "use"}:
            urls += [tag.get("href", ""), tag.get("xlink:href", "")]
        else:
            if tag.name != "a":
                urls += [tag.get("src", ""), tag.get("poster", "")]
            if tag.name == "object":
                urls.append(tag.get("data", ""))
            urls += from_srcset(tag.get("srcset", ""))
        urls += css_urls(tag.get("style", ""))
        if tag.name == "style":
            urls += css_urls(tag.string or "")
    return [url for url in urls if url and not url.startswith("data:")]


def style_sheets(page, site):
    """The local style sheets of a page, and those that they import."""
    queue = [
        target_of(tag["href"], page, site)
        for tag in soup_of(page).select("link[rel~=stylesheet][href]")
        if is_local(tag["href"])
    ]
    found = []
    for sheet in queue:  # grows while it is read
        if sheet in found or not sheet.is_file():
            continue
        found.append(sheet)
        css = sheet.read_text("utf-8")
        queue += [
            target_of(url, sheet, site)
            for url in css_urls(css)
            if is_local(url) and urlsplit(url).path.endswith(".css")
        ]
    return found


# Checks


def foreign_assets(site):
    """Nothing is fetched from another host."""
    faults = []
    for page in pages(site):
        soup = soup_of(page)
        loaded = [(page, url) for url in assets(soup)]
        for sheet in style_sheets(page, site):
            loaded += [(sheet, u) for u in css_urls(sheet.read_text("utf-8"))]
        faults += [
            f"{page.name} loads {url} (named in {where.name})"
            for where, url in loaded
            if is_foreign(url)
        ]
        faults += [
            f"{page.name} has a script that names another host: {found[0]}"
            for script in soup.find_all("script")
            if (
                found := re.search(
                    r"(https?:)?//[\w-]+\.[\w.-]+", script.string or ""
                )
            )
        ]
    return faults


def broken_links(site):
    """Every local link names a file, every fragment an id in it."""
    faults = []
    for page in pages(site):
        soup = soup_of(page)
        urls = assets(soup)
        urls += [tag["href"] for tag in soup.select("a[href], link[href]")]
        urls += [tag["action"] for tag in soup.select("form[action]")]
        for url in sorted({url for url in urls if is_local(url)}):
            target = target_of(url, page, site)
            fragment = unquote(urlsplit(url).fragment)
            if not target.is_file():
                faults.append(f"{page.name}: {url} names no file")
            elif fragment and target.suffix == ".html":
                if fragment not in ids_of(target.read_text("utf-8")):
                    faults.append(f"{page.name}: {url} names no place there")
        for sheet in style_sheets(page, site):
            faults += [
                f"{sheet.name}: {url} names no file"
                for url in css_urls(sheet.read_text("utf-8"))
                if is_local(url) and not target_of(url, sheet, site).is_file()
            ]
    return faults


def is_file_name(alt):
    return bool(
        re.search(r"\.(png|svg|jpe?g|gif|webp)$", alt.strip(), re.I)
        or re.search(r"[0-9a-f]{16}", alt)
    )


def images_without_words(site):
    """Each image says what it shows; a figure in a whole sentence."""
    faults = []
    for page in pages(site):
        for image in soup_of(page).find_all("img"):
            alt = image.get("alt")
            where = f"{page.name}: {image.get('src')}"
            decorative = "logo__image" in image.get("class", [])
            if alt == "" and decorative:  # the title stands beside it
                continue
            if not (alt or "").strip():
                faults.append(f"{where} has no alt text")
            elif is_file_name(alt):
                faults.append(f"{where} has a file's name as alt text: {alt}")
            elif image.find_parent(class_="cell_output"):
                if len(alt.strip()) < ALT_LENGTH:
                    faults.append(f"{where} has a short alt text: {alt}")
    return faults


def launch_faults(site, chapters, config):
    """Each notebook's page opens that notebook in Colab and Binder."""
    repository = config["repository"]
    owner_name = urlsplit(repository["url"]).path.strip("/")
    branch, folder = repository["branch"], repository["path_to_book"]
    starts = {
        "colab.research.google.com": "https://colab.research.google.com/github/"
        f"{owner_name}/blob/{branch}/{folder}/",
        "mybinder.org": f"https://mybinder.org/v2/gh/{owner_name}/{branch}"
        f"?urlpath=lab/tree/{folder}/",
    }
    faults = []
    for page in pages(site):
        links = {tag["href"] for tag in soup_of(page).select("a[href]")}
        own = chapters / f"{page.stem}.ipynb"
        for host, start in starts.items():
            launching = {url for url in links if urlsplit(url).netloc == host}
            for url in sorted(launching):
                name = url.removeprefix(start)
                if name == url:
                    faults.append(f"{page.name}: {url} is not under {start}")
                elif not (chapters / name).is_file():
                    faults.append(f"{page.name}: {url} names no notebook")
            if own.is_file() and start + own.name not in launching:
                faults.append(f"{page.name} has no link {start}{own.name}")
    return faults


def rules(css):
    """Selector and declarations of each rule, those inside @media too."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    return re.findall(r"([^{}]+)\{([^{}]*)\}", css)


def face(declarations):
    """Whether a font or a use of one is bold, and whether it is italic."""
    weight = re.search(r"(?:font-weight:|\bnormal )\s*(\w+)", declarations)
    bold = bool(weight) and weight[1] in {"bold", "600", "700", "900"}
    return bold, "italic" in declarations


def matches(soup, selector):
    """Whether a rule is for anything on the page; if unsure, yes."""
    selector = re.sub(r"::?(before|after|host)\b,?", "", selector).strip()
    try:
        return soup.select_one(selector) is not None
    except Exception:  # a selector that the parser does not know
        return True


def fonts(page, site):
    """The font files that the page's style sheets make a browser fetch."""
    soup, declared, used = soup_of(page), [], set()
    for sheet in style_sheets(page, site):
        for selector, body in rules(sheet.read_text("utf-8")):
            if selector.strip() == "@font-face" and css_urls(body):
                family = re.search(r"font-family:\s*([^;]+)", body)[1]
                family = family.replace("\\", "").strip("\"' ")
                declared.append(
                    (
                        family,
                        face(body),
                        target_of(css_urls(body)[0], sheet, site),
                    )
                )
    families = {family for family, _, _ in declared}
    for sheet in style_sheets(page, site):
        for selector, body in rules(sheet.read_text("utf-8")):
            named = {family for family in families if family in body}
            if named and "@font-face" not in selector:
                if matches(soup, selector):
                    used |= {(family, face(body)) for family in named}
    return [file for family, kind, file in declared if (family, kind) in used]


def weights(page, site):
    """What a page costs: pairs of a file and its bytes on the wire."""
    files = {page} | set(style_sheets(page, site)) | set(fonts(page, site))
    for url in assets(soup_of(page)):
        if is_local(url):
            files.add(target_of(url, page, site))
    packed = {".html", ".css", ".js"}
    return sorted(
        (
            (
                len(gzip.compress(file.read_bytes(), 6, mtime=0))
                if file.suffix in packed
                else file.stat().st_size,
                file.name,
            )
            for file in files
            if file.is_file()
        ),
        reverse=True,
    )


def overweight(site, limit):
    """No page costs more than the limit."""
    faults = []
    for page in pages(site):
        costs = weights(page, site)
        total = sum(size for size, _ in costs)
        if total > limit:
            table = "".join(f"\n{size:10,}  {name}" for size, name in costs)
            faults.append(
                f"{page.name} weighs {total:,} bytes of {limit:,}:{table}"
            )
    return faults


def late_pages(site):
    """Nothing but one style sheet keeps a page from being drawn."""
    faults = []
    for page in pages(site):
        soup = soup_of(page)
        sheets = soup.select("link[rel~=stylesheet]")
        if len(sheets) != 1:
            faults.append(f"{page.name} links {len(sheets)} style sheets")
        faults += [
            f"{page.name} waits for {script['src']}"
            for script in soup.select("script[src]")
            if not {"defer", "async"} & set(script.attrs)
            and script.get("type") != "module"
        ]
    return faults


def jumping_images(site):
    """Each image has its width and height in the page."""
    return [
        f"{page.name}: {image.get('src')} has no size"
        for page in pages(site)
        for image in soup_of(page).find_all("img")
        if not (image.get("width") and image.get("height"))
    ]


def source_text(path):
    """The Markdown of a page's source, without its code."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join(
            "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "markdown"
        )
    text = re.sub(r"^(```+|~~~+).*?^\1", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def raw_formulas(site, chapters):
    """Every formula is rendered: none is left as text, none has failed."""
    faults = []
    for page in pages(site):
        soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
        sources = [chapters / f"{page.stem}{end}" for end in (".ipynb", ".md")]
        for source in filter(Path.is_file, sources):
            if re.search(r"\$[^$\s]", source_text(source)):
                if not soup.select_one(".bd-article .katex, article .katex"):
                    faults.append(f"{page.name} shows no formula as such")
        if soup.select_one(".katex-error"):
            faults.append(f"{page.name} has a formula that failed")
        for tag in soup.select("script, style, pre, code, .katex"):
            tag.decompose()
        left = re.search(
            r"\\[(\[].{0,40}|\$\$.{0,40}|\$[^$\n]*[\\_^][^$\n]*\$"
            r"|\\begin\{\w+",
            soup.get_text(),
        )
        if left:
            faults.append(f"{page.name} has a raw formula: {left[0]}")
    return faults


def unwanted_scripts(site):
    """No script is loaded for what the build has already done."""
    faults = []
    for page in pages(site):
        soup = soup_of(page)
        texts = assets(soup) + [
            script.string
            for script in soup.find_all("script")
            if script.string and not script.get("src")
        ]
        faults += [
            f"{page.name} loads or calls {found[0]}"
            for text in texts
            if (found := UNWANTED.search(text))
        ]
    return faults


# "Vaswani et al. (2017)", "(Vaswani and others, 2017)", "Vaswani's 2017"
AUTHOR_YEAR = re.compile(
    r"([^\W\d_][\w-]+)(?:['’]s)?(?: et al\.| and others)?,? \(?"
    r"((?:1[89]|20)\d\d)"
)


def words_before(link):
    """What its paragraph says before a link, to the link's own end."""
    block = link.find_parent(["p", "li", "td", "dd"]) or link.parent
    text = ""
    for part in block.descendants:
        if isinstance(part, str):
            text += part
            if link in part.parents:
                break
    return re.sub(r"\s+", " ", text)[-160:]


def citation_faults(site):
    """Where a work is cited, the text names its author and year."""
    entries = site / "bibliography.html"
    faults = []
    for page in pages(site):
        for link in soup_of(page).select('a[href*="bibliography.html#"]'):
            entry = soup_of(entries).find(id=urlsplit(link["href"]).fragment)
            if entry is None or "citation" not in entry.get("class", []):
                continue  # a heading; or a broken link, another check's
            text, entry = words_before(link), entry.get_text()
            if not any(
                author in entry and year in entry
                for author, year in AUTHOR_YEAR.findall(text)
            ):
                faults.append(
                    f"{page.name}: “…{text[-60:]}” does not name "
                    f"author and year of {link['href']}"
                )
    return faults


def headless_pages(site):
    """Each page has a language, a title, one h1, a description, an icon."""
    wanted = [
        "html[lang]",
        "title",
        "h1",
        "link[rel~=icon]",
        'meta[name="description"][content]',
        'meta[name="viewport"]',
    ]
    return [
        f"{page.name} has no {selector}"
        for page in pages(site)
        for selector in wanted
        if not soup_of(page).select_one(selector)
    ]


def unnumbered_formulas(site):
    """Every displayed formula of a chapter has a number of its own."""
    faults = []
    for page in pages(site):
        blocks = soup_of(page).select("div.math")
        found = [block.select_one(".eqno") for block in blocks]
        texts = [
            number.get_text("", strip=True) if number else ""
            for number in found
        ]
        chapter = page.name[:2].lstrip("0") if page.name[0].isdigit() else ""
        wanted = [f"({chapter}.{n})" for n in range(1, len(texts) + 1)]
        texts = [text.rstrip("#") for text in texts]
        if texts != wanted:
            faults.append(f"{page.name} numbers its formulas {texts}")
    return faults


# The book


def built():
    """The built site; a test fails where there is none."""
    if not (SITE / "index.html").is_file():
        pytest.fail(f"there is no site at {SITE}; run `make book` first")
    return SITE


def settings(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def report(faults):
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "check",
    [
        foreign_assets,
        broken_links,
        images_without_words,
        unwanted_scripts,
        citation_faults,
        headless_pages,
        unnumbered_formulas,
        late_pages,
        jumping_images,
    ],
    ids=lambda check: check.__name__,
)
def test_book(check):
    report(check(built()))


def test_book_has_every_page():
    report(missing_pages(built(), settings("_toc.yml")))


def test_book_opens_in_colab_and_binder():
    report(launch_faults(built(), ROOT / "chapters", settings("_config.yml")))


def test_book_weighs_little():
    report(overweight(built(), WEIGHT_LIMIT))


def test_book_renders_its_formulas():
    report(raw_formulas(built(), ROOT / "chapters"))


def test_katex_is_of_one_version():
    css = (ROOT / "site/vendor/katex/katex.min.css").read_text("utf-8")
    [version] = re.findall(r'content:"(\d+\.\d+\.\d+)"', css)
    assert version == sphinx_katex.katex_version


# The checks: each fault is found, and its absence is not


def write_site(folder, body="", head="", name="index", **files):
    """A one-page site that has no fault of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "icon.svg").write_text("<svg/>", "utf-8")
    (folder / f"{name}.html").write_text(
        '<!DOCTYPE html><html lang="en"><head><title>A page</title>'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="description" content="A page.">'
        f'<link rel="icon" href="icon.svg">{head}</head>'
        f"<body><article><h1>A page</h1>{body}</article></body></html>",
        "utf-8",
    )
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(text, "utf-8")
    return folder


def the_fault(faults, words):
    assert len(faults) == 1, faults
    assert words in faults[0]


@pytest.mark.parametrize(
    "numbers, fault",
    [
        (["(4.1)", "(4.2)"], False),
        (["(4.1)", "(4.1)"], True),
        (["(4.1)", ""], True),
        (["(3.1)", "(3.2)"], True),
    ],
)
def test_formulas_without_a_number_are_found(tmp_path, numbers, fault):
    body = "".join(
        f'<div class="math"><span class="eqno">{n}</span></div>'
        for n in numbers
    )
    site = write_site(tmp_path, body, name="04_page")
    assert bool(unnumbered_formulas(site)) == fault


@pytest.mark.parametrize(
    "head, body",
    [
        ('<script src="https://cdn.example.org/a.js"></script>', ""),
        ('<script src="//cdn.example.org/a.js"></script>', ""),
        ('<script>import("https://cdn.example.org/a.js")</script>', ""),
        ('<link rel="stylesheet" href="https://cdn.example.org/a.css">', ""),
        ('<link rel="preload" href="https://cdn.example.org/a.js">', ""),
        ('<link rel="shortcut icon" href="https://cdn.example.org/i">', ""),
        ("<style>@import 'https://cdn.example.org/a.css';</style>", ""),
        ('<link rel="stylesheet" href="far.css">', ""),
        ("", '<img src="https://cdn.example.org/a.png" alt="A curve">'),
        ("", '<img srcset="https://cdn.example.org/a.png 2x" alt="A curve">'),
        ("", '<iframe src="https://cdn.example.org/"></iframe>'),
        ("", '<video><source src="https://cdn.example.org/v"></video>'),
        ("", '<p style="background: url(https://cdn.example.org/a)">a</p>'),
    ],
)
def test_foreign_assets_are_found(tmp_path, head, body):
    font = '@font-face {src: url("https://cdn.example.org/f.woff2")}'
    site = write_site(tmp_path, body, head, far__css=font)
    the_fault(foreign_assets(site), "cdn.example.org")


def test_links_to_other_hosts_are_no_assets(tmp_path):
    body = '<a href="https://arxiv.org/abs/1706.03762">a paper</a>'
    assert foreign_assets(write_site(tmp_path, body)) == []


@pytest.mark.parametrize(
    "body, words",
    [
        ('<a href="gone.html">a</a>', "gone.html names no file"),
        ('<a href="#gone">a</a>', "#gone names no place"),
        ('<a href="other.html#gone">a</a>', "#gone names no place"),
        ('<img src="gone.png" alt="A curve">', "gone.png names no file"),
        ('<img srcset="gone.png 2x" alt="A curve">', "gone.png names no file"),
        ('<form action="gone.html"></form>', "gone.html names no file"),
    ],
)
def test_broken_links_are_found(tmp_path, body, words):
    site = write_site(tmp_path, body, other__html='<p id="here">a</p>')
    the_fault(broken_links(site), words)


def test_broken_links_in_css_are_found(tmp_path):
    site = write_site(
        tmp_path,
        head='<link rel="stylesheet" href="a.css">',
        a__css="p {background: url(gone.svg)}",
    )
    the_fault(broken_links(site), "gone.svg names no file")


def test_whole_links_pass(tmp_path):
    body = (
        '<p id="top"><a href="#top">a</a><a href="other.html?x=1#here">b</a>'
        '<a href="https://example.org/gone#x">c</a><a href="mailto:a@b">d</a>'
    )
    site = write_site(tmp_path, body, other__html='<p id="here">a</p>')
    assert broken_links(site) == []


def figure(alt):
    return f'<div class="cell_output"><img src="a.png" {alt}></div>'


@pytest.mark.parametrize(
    "body, words",
    [
        ('<img src="a.png">', "no alt text"),
        ('<img src="a.png" alt="">', "no alt text"),
        ('<img src="a.png" alt=" ">', "no alt text"),
        ('<img src="a.png" alt="a.png">', "a file's name"),
        (
            '<img src="a.png" alt="_images/0123456789abcdef0123">',
            "a file's name",
        ),
        (
            figure('alt="../_images/0a1b2c3d4e5f6a7b8c9d0e1f.png"'),
            "a file's name",
        ),
        (figure('alt="A heat map"'), "short alt text"),
    ],
)
def test_images_without_words_are_found(tmp_path, body, words):
    the_fault(images_without_words(write_site(tmp_path, body)), words)


def test_images_with_words_pass(tmp_path):
    body = (
        '<img class="logo__image" src="logo.svg" alt="">'
        '<img src="badge.svg" alt="Open in Colab">'
        + figure('alt="Weights fall as the distance to the query grows."')
    )
    assert images_without_words(write_site(tmp_path, body)) == []


COLAB = "https://colab.research.google.com/github/us/book/blob/v1/chapters/"
BINDER = "https://mybinder.org/v2/gh/us/book/v1?urlpath=lab/tree/chapters/"


@pytest.mark.parametrize(
    "links, words",
    [
        ([COLAB + "01_a.ipynb", BINDER + "01_a.ipynb"], None),
        ([BINDER + "01_a.ipynb"], f"no link {COLAB}01_a.ipynb"),
        ([COLAB + "01_a.ipynb"], f"no link {BINDER}01_a.ipynb"),
        (
            [
                COLAB + "01_a.ipynb",
                BINDER + "01_a.ipynb",
                COLAB + "02_b.ipynb",
            ],
            "02_b.ipynb names no notebook",
        ),
        (
            [
                COLAB + "01_a.ipynb",
                BINDER + "01_a.ipynb",
                COLAB.replace("v1", "main") + "01_a.ipynb",
            ],
            "is not under",
        ),
        (
            [
                COLAB + "01_a.ipynb",
                BINDER + "01_a.ipynb",
                BINDER.replace("us/", "them/") + "01_a.ipynb",
            ],
            "is not under",
        ),
    ],
)
def test_launch_faults_are_found(tmp_path, links, words):
    chapters = tmp_path / "chapters"
    chapters.mkdir()
    (chapters / "01_a.ipynb").write_text("{}", "utf-8")
    config = {
        "repository": {
            "url": "https://github.com/us/book",
            "branch": "v1",
            "path_to_book": "chapters",
        }
    }
    body = "".join(f'<a href="{link}">open</a>' for link in links)
    site = write_site(tmp_path / "site", body, name="01_a")
    faults = launch_faults(site, chapters, config)
    if words is None:
        assert faults == []
    else:
        the_fault(faults, words)


def test_overweight_pages_are_found(tmp_path):
    noise = "".join(chr(33 + (7 * i * i + i) % 90) for i in range(5000))
    site = write_site(tmp_path, '<img src="a.png" alt="">', a__png="x" * 5000)
    assert overweight(site, 6000) == []
    the_fault(overweight(site, 5000), "5,000  a.png")
    site = write_site(
        tmp_path, head='<script src="a.js"></script>', a__js=noise
    )
    assert (
        1
        < dict((n, s) for s, n in weights(site / "index.html", site))["a.js"]
        < 5000
    )  # gzip's size


SHEET = '<link rel="stylesheet" href="a.css">'


@pytest.mark.parametrize(
    "head, words",
    [
        (SHEET + '<script defer src="a.js"></script>', None),
        (SHEET + '<script type="module" src="a.js"></script>', None),
        (SHEET + '<script src="a.js"></script>', "waits for a.js"),
        (SHEET + SHEET, "links 2 style sheets"),
        ("", "links 0 style sheets"),
    ],
)
def test_late_pages_are_found(tmp_path, head, words):
    faults = late_pages(write_site(tmp_path, head=head))
    assert faults == [] if words is None else the_fault(faults, words) is None


def test_jumping_images_are_found(tmp_path):
    site = write_site(
        tmp_path, '<img src="a.png" width="4" height="2"><img src="b.png">'
    )
    the_fault(jumping_images(site), "b.png has no size")


def test_only_fonts_in_use_weigh(tmp_path):
    css = (
        "@font-face{font-family:Sums;font-weight:400;src:url(sums.woff2)}"
        "@font-face{font-family:Sums;font-weight:700;src:url(bold.woff2)}"
        "@font-face{font-family:Runes;font-weight:400;src:url(runes.woff2)}"
        ".sum{font-family:Sums}.bold{font-family:Sums;font-weight:700}"
        ".rune{font-family:Runes}"
    )
    site = write_site(
        tmp_path,
        '<p class="sum">a</p>',
        '<link rel="stylesheet" href="a.css">',
        a__css=css,
        sums__woff2="1",
        bold__woff2="12",
        runes__woff2="123",
    )
    names = [name for _, name in weights(site / "index.html", site)]
    assert "sums.woff2" in names
    assert "bold.woff2" not in names and "runes.woff2" not in names


@pytest.mark.parametrize(
    "body, words",
    [
        (r"<p>where \(x\) is</p>", r"\(x\)"),
        (r"<p>\[ x \]</p>", r"\[ x"),
        ("<p>$$ x $$</p>", "$$ x"),
        ("<p>the sum $x_i$ is</p>", "$x_i$"),
        (r"<p>\begin{aligned} x</p>", "aligned"),
        ('<p><code class="katex-error">x^</code></p>', "failed"),
    ],
)
def test_raw_formulas_are_found(tmp_path, body, words):
    the_fault(raw_formulas(write_site(tmp_path, body), tmp_path), words)


def test_unrendered_formulas_are_found(tmp_path):
    site = write_site(tmp_path, "<p>x</p>", name="a")
    cells = [{"cell_type": "markdown", "source": ["An $x$ here."]}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    the_fault(raw_formulas(site, tmp_path), "shows no formula")
    rendered = (
        '<p><span class="katex"><annotation>\\(x_i$$</annotation></span></p>'
        "<pre>echo $$ $a_b$</pre><p>It costs $5 or $6.</p>"
    )
    write_site(tmp_path, rendered, name="a")
    assert raw_formulas(site, tmp_path) == []


@pytest.mark.parametrize(
    "head",
    [
        '<script src="_static/MathJax.js"></script>',
        '<script src="_static/require.min.js"></script>',
        '<script src="_static/sphinx-thebe.js"></script>',
        '<script src="_static/scripts/fontawesome.js?digest=1"></script>',
        '<link rel="preload" href="_static/tex-mathjax.js">',
        "<script>window.MathJax = {}</script>",
    ],
)
def test_unwanted_scripts_are_found(tmp_path, head):
    assert len(unwanted_scripts(write_site(tmp_path, head=head))) == 1


def test_wanted_scripts_pass(tmp_path):
    head = "<script src='_static/copybutton.js'></script>"
    body = "<p>MathJax, thebe and require.js are words here.</p>"
    assert unwanted_scripts(write_site(tmp_path, body, head)) == []


LINK = '<a href="bibliography.html#v">%s</a>'
NAMED = f"<p>{LINK}</p>"


@pytest.mark.parametrize(
    "body",
    [
        NAMED % "Vaswani et al. (2017)",
        f"<p>Vaswani et al. (2017) [{LINK % 1}] say</p>",
        f"<p>as shown (Vaswani and others, 2017; [{LINK % 1}])</p>",
        f"<p>Uszkoreit and <em>Vaswani</em> (2017) [2, {LINK % 1}] say</p>",
        '<a href="bibliography.html#top">the bibliography</a>',
    ],
)
def test_citations_pass(tmp_path, body):
    assert citation_faults(write_citing(tmp_path, body)) == []


@pytest.mark.parametrize(
    "body",
    [
        NAMED % "Vaswani et al. (2018)",
        NAMED % "Bahdanau et al. (2017)",
        NAMED % "Vaswani et al.",
        f"<p>It was shown [{LINK % 1}] by Vaswani et al. (2017).</p>",
        f"<p>Vaswani et al. [{LINK % 1}] say</p>",
    ],
)
def test_citation_faults_are_found(tmp_path, body):
    faults = citation_faults(write_citing(tmp_path, body))
    the_fault(faults, "does not name author and year")


def write_citing(folder, body):
    return write_site(
        folder,
        body,
        bibliography__html='<h1 id="top">Bibliography</h1>'
        '<div class="citation" id="v">Ashish Vaswani. Title. 2017.</div>',
    )


@pytest.mark.parametrize(
    "text",
    [
        ' lang="en"',
        "<title>A page</title>",
        "<h1>A page</h1>",
        '<meta name="viewport" content="width=device-width">',
        '<meta name="description" content="A page.">',
        '<link rel="icon" href="icon.svg">',
    ],
)
def test_headless_pages_are_found(tmp_path, text):
    site = write_site(tmp_path)
    assert headless_pages(site) == []
    page = site / "index.html"
    whole = page.read_text("utf-8")
    assert text in whole
    page.write_text(whole.replace(text, ""), "utf-8")
    assert len(headless_pages(site)) == 1


def test_a_site_that_is_not_built_fails(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SITE", tmp_path)
    with pytest.raises(pytest.fail.Exception, match="make book"):
        built()


# The extension that makes the pages


@pytest.fixture(scope="module")
def book_page():
    return extension("book_page")


@pytest.fixture(scope="module")
def styles():
    return extension("styles")


@pytest.fixture(scope="module")
def pictures():
    return extension("pictures")


@pytest.fixture
def warnings(book_page, styles, pictures, monkeypatch):
    """What the extensions warn of."""
    said = []
    for module in (book_page, styles, pictures):
        monkeypatch.setattr(
            module.logger,
            "warning",
            lambda text, *words: said.append(text % words),
        )
    return said


THEME_PAGE = """
<head>
<meta name="viewport" content="a" /><meta name="viewport" content="b"/>
<script>
  document.documentElement.dataset.theme = localStorage.getItem("theme") \
|| "auto";
</script>
<link rel="preload" as="script" href="_static/scripts/bootstrap.js?digest=1" />
<script defer src="_static/scripts/fontawesome.js?digest=1"></script>
<link rel="stylesheet" href="_static/katex/katex.min.css?v=1" />
<script src="_static/searchtools.js"></script>
<script src="searchindex.js"></script>
<script src="_static/doctools.js"></script>
<script defer src="_static/book.js"></script>
<script>DOCUMENTATION_OPTIONS.pagename = 'index';</script>
<div id="pst-primary-sidebar" class="bd-sidebar">
<button class="search-button-field" aria-label="Search"></button>
<i class="theme-switch fa-solid fa-sun" title="Light"></i>
<summary aria-label="Toggle hidden content"></summary>
</div>
<footer class="bd-footer"></footer>
""".replace("\\\n", "")


def test_a_page_is_mended(book_page, warnings):
    page = book_page.mend(THEME_PAGE, "a page")
    for gone in (
        "fontawesome",
        "searchtools",
        "searchindex",
        "preload",
        'aria-label="Search"',
        "title=",
        "Toggle hidden",
        'content="b"',
        "localStorage",
    ):
        assert gone not in page
    assert 'role="complementary" aria-label="Book"' in page
    assert page.count("<script defer src=") == 2
    assert '<script type="module">DOCUMENTATION_OPTIONS' in page
    assert "prefers-color-scheme" in page
    assert warnings == []


def test_a_page_keeps_what_it_shows(book_page):
    shown = '<div id="search-results"></div><div class="highlight-a"></div>'
    page = book_page.mend(THEME_PAGE + shown, "a page")
    assert "searchindex.js" in page


@pytest.mark.parametrize(
    "article, end",
    [
        (
            "<article><h1>a</h1><p>b</p></article>",
            '<footer class="bd-footer" id="first-view-ends">',
        ),
        (
            "<article><h1>a</h1><h2>b</h2></article>",
            '<footer class="bd-footer" id="first-view-ends">',
        ),
        (
            "<h2>0</h2><article><h1>a</h1><h2>b</h2><p>c</p><h2>d</h2><h2>e</h2>",
            '<h2 id="first-view-ends">d</h2>',
        ),
    ],
)
def test_a_page_says_where_its_first_view_ends(book_page, article, end):
    page = book_page.mend(
        THEME_PAGE.replace("<footer", article + "<footer"), "a page"
    )
    assert page.count('href="#first-view-ends" blocking="render"') == 1
    assert page.count(' id="first-view-ends"') == 1
    assert end in page


@pytest.mark.parametrize(
    "place",
    [
        "pst-primary-sidebar",
        "theme-switch",
        "preload",
        "dataset.theme",
        "fontawesome",
        "DOCUMENTATION_OPTIONS",
        "search-button-field",
        "viewport",
        "<head>",
        "bd-footer",
    ],
)
def test_a_mend_without_a_place_warns(book_page, warnings, place):
    book_page.mend(THEME_PAGE.replace(place, ""), "a page")
    assert len(warnings) == 1 and "a page has no" in warnings[0]


@pytest.mark.parametrize(
    "measures, said",
    [
        (
            ".forEach(e=>{e.tabIndex=e.scrollWidth>e.clientWidth"
            "||e.scrollHeight>e.clientHeight?0:-1})",
            0,
        ),
        (".forEach(e=>{e.tabIndex=0})", 1),
    ],
)
def test_the_theme_s_script_measures_nothing(
    book_page, warnings, tmp_path, measures, said
):
    script = tmp_path / book_page.THEME_SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text(f"all(){measures};go()\n//# sourceMappingURL=a.map")
    app = SimpleNamespace(
        outdir=tmp_path, builder=SimpleNamespace(name="html")
    )
    book_page.mend_theme_script(app, None)
    assert script.read_text().startswith("all();go()") == (not said)
    assert "sourceMappingURL" not in script.read_text()
    assert len(warnings) == said


def test_code_loses_what_looks_like_no_token(styles):
    theme = """
html[data-theme="{0}"] .highlight {{ background: #fff; color: #{1} }}
html[data-theme="{0}"] .highlight .n {{ color: #{1} }} /* Name */
html[data-theme="{0}"] .highlight .p {{ color: #{2} }}
html[data-theme="{0}"] .highlight .k {{ color: #00f; font-weight: bold }}
"""
    names = styles.plain_tokens(
        theme.format("light", "111", "111") + theme.format("dark", "eee", "f")
    )
    assert names == {"n"}, "p has a colour of its own in the dark"
    assert styles.plain_tokens("") == set()
    page = """
<span class="n">a</span><div class="highlight"><pre><span></span>\
<span class="k">def</span> <span class="n">a</span><span class="p">(</span>
</pre></div><span class="n">b</span>"""
    assert styles.without_plain_tokens(page, names) == page.replace(
        '<span class="n">a</span><span class="p">', 'a<span class="p">'
    )
    assert styles.without_plain_tokens(page, set()) == page


def test_the_book_s_code_is_plain_where_it_looks_plain():
    for page in pages(built()):
        for word in soup_of(page).select(".highlight pre > span[class]"):
            assert word["class"] not in (["n"], ["p"], ["w"]), page.name


PAGE = """
<div class="cell" id="top"><p style="color: var(--own)">a</p></div>
<script>box.className = "made"; box.style.setProperty("--set", 1);</script>
"""


@pytest.mark.parametrize(
    "css, kept",
    [
        (".cell > p { color: red }", ".cell > p{color: red}"),
        (".cell{a:b} .gone{a:b}", ".cell{a:b}"),
        (".cell,.gone{a:b}", ".cell{a:b}"),
        (".cell .gone{a:b}", ""),
        (".made{a:b}", ".made{a:b}"),
        ("#top{a:b} #gone{a:b}", "#top{a:b}"),
        ("p{a:b} video{a:b}", "p{a:b}"),
        ("p:hover::before{a:b}", "p:hover::before{a:b}"),
        ("p:not(.gone){a:b}", "p:not(.gone){a:b}"),
        ("p[data-any=one]{a:b}", "p[data-any=one]{a:b}"),
        ("*{a:b}", "*{a:b}"),
        ("@media print{p{a:b} .gone{a:b}}", "@media print{p{a:b}}"),
        ("@media print{.gone{a:b}}", ""),
        ("/*! A licence. */ /* A word. */", "/*! A licence. */"),
        ("p{} .cell{a:b}", ".cell{a:b}"),
        ("@keyframes no{from{a:b} to{a:c}}", ""),
        (
            "@keyframes go{from{a:b}}p{animation:go 1s}",
            "@keyframes go{from{a:b}}\np{animation:go 1s}",
        ),
        ("@font-face{font-family:No;src:url(a)}", ""),
        (
            r"@font-face{font-family:A\ B;src:url(a)}p{font:1em 'A B'}",
            r"@font-face{font-family:A\ B;src:url(a)}" '\np{font:1em "A B"}',
        ),
        ("p{--a:1;--b:2;c:var(--b)}", "p{--b:2;c:var(--b)}"),
        ("p{--a:var(--b);--b:2;c:d}", "p{c:d}"),
        ("p{--own:1;--set:2;--no:';}'}", None),
        ('p{--no:"a;}b";c:d}', "p{c:d}"),
        (".cell--x:hover{a:b}", ""),
    ],
)
def test_a_style_sheet_keeps_what_is_used(styles, warnings, css, kept):
    words = styles.words_of(PAGE)
    found = styles.purge(css, words)
    if kept is None:
        assert "--own:1" in found and "--set:2" in found
    else:
        assert found == kept
    assert warnings == []


def test_wrong_css_warns(styles, warnings):
    styles.purge("p{a:b} }", {"p"})
    assert len(warnings) == 1 and "css, line 1" in warnings[0]


def test_a_style_sheet_finds_its_files_from_elsewhere(styles, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "a.css").write_text('i{a:url("b.png")}', "utf-8")
    sheet = tmp_path / "parts/b.css"
    sheet.write_text(
        '@import "../a.css";b{a:url(../c.png)}u{a:url("data:x;(y)")}', "utf-8"
    )
    assert styles.read_sheet(sheet, tmp_path) == (
        'i{a:url(b.png)}b{a:url(c.png)}u{a:url("data:x;(y)")}'
    )


def test_a_font_keeps_the_glyphs_that_are_shown(styles):
    font = ROOT / "site/vendor/katex/fonts/KaTeX_Math-Italic.woff2"
    small = styles.subset_font(font, {"x", "y"})
    assert len(small) < font.stat().st_size / 3
    assert set(TTFont(io.BytesIO(small)).getBestCmap()) == {ord("x"), ord("y")}
    assert small == styles.subset_font(font, {"y", "x"})


def test_the_characters_of_formulas_are_found(styles):
    page = (
        'a<span class="katex"><span class="katex-mathml">b</span>'
        '<span class="katex-html"><span>c</span>&lt;<span>d</span></span>'
        "</span>e"
    )
    assert styles.characters_of_formulas(page) == {"c", "<", "d"}


def write_styled(site):
    """Two pages with the same three style sheets, one of them for print."""
    static = site / "_static"
    static.mkdir(parents=True)
    (static / "a.css").write_text("p{a:b} .gone{a:b}", "utf-8")
    (static / "b.css").write_text("b{a:b}", "utf-8")
    (static / "a.js").write_text("", "utf-8")
    head = (
        '<link rel="stylesheet" href="_static/a.css?v=1" />'
        '<link rel="stylesheet" href="_static/b.css" media="print" />'
        '<script src="_static/a.js?v=1"></script>'
    )
    write_site(site, "<p>one</p>", head)
    return write_site(site, "<b>two</b>", head, name="two")


def test_pages_share_one_style_sheet(styles, warnings, tmp_path):
    site = write_styled(tmp_path / "site")
    styles.lighten(site)
    links = {
        page.name: [
            link["href"]
            for link in soup_of(page).select("link[rel=stylesheet]")
        ]
        for page in pages(site)
    }
    assert len(links["index.html"]) == 1
    assert links["index.html"] == links["two.html"]
    css = (site / links["index.html"][0]).read_text("utf-8")
    assert css == "p{a:b}\n@media print{b{a:b}}"
    assert warnings == []


def test_a_page_with_formulas_asks_for_their_fonts_at_once(styles):
    head = '<link rel="stylesheet" href="../_static/a.css" />'
    fonts = ["fonts/KaTeX_Main-Regular.01.woff2"]
    plain = styles.relinked(head, "book.02.css", fonts)
    assert "preload" not in plain
    asking = styles.relinked(head + '<b class="katex">', "book.02.css", fonts)
    assert (
        'rel="preload" href="../_static/fonts/KaTeX_Main-Regular.01.woff2"'
        in asking
    )
    css = (
        "{src:url(fonts/KaTeX_Main-Regular.1.woff2) format('woff2')} {src:"
        "url(fonts/KaTeX_Size1-Regular.1.woff2)}"
    )
    assert styles.EARLY_FONTS.findall(css) == [
        "fonts/KaTeX_Main-Regular.1.woff2"
    ]


def test_a_page_without_a_style_sheet_warns(styles, warnings, tmp_path):
    write_site(tmp_path)
    styles.lighten(tmp_path)
    assert warnings == ["no style sheet to make lighter on index.html"]


FIGURE = '<img alt="" src="_images/a.png" />'


def write_pictured(site):
    (site / "_images").mkdir(parents=True)
    Image.effect_noise((40, 20), 50).convert("RGBA").save(
        site / "_images/a.png"
    )
    (site / "_images/b.svg").write_text(
        '<svg viewBox="0 0 30 10"></svg>', "utf-8"
    )
    body = f"{FIGURE}<h2>More</h2>{FIGURE}<img alt='' src='_images/b.svg'>"
    return write_site(site, body.replace("'", '"'))


def test_pictures_are_packed_sized_and_wait(pictures, warnings, tmp_path):
    site = write_pictured(tmp_path / "site")
    with Image.open(site / "_images/a.png") as before:
        pixels = before.tobytes()
    pictures.settle(site)
    first, second, drawn = soup_of(site / "index.html").find_all("img")
    assert first["src"] == second["src"] == "_images/a.webp"
    with Image.open(site / "_images/a.webp") as after:
        assert after.convert("RGBA").tobytes() == pixels
    assert not (site / "_images/a.png").exists()
    assert (second["width"], second["height"]) == ("40", "20")
    assert (drawn["width"], drawn["height"]) == ("30", "10")
    assert first.get("loading") is None  # in the first view
    assert second["loading"] == drawn["loading"] == "lazy"
    assert warnings == []


def test_a_picture_of_unknown_size_warns(pictures, warnings, tmp_path):
    site = write_pictured(tmp_path / "site")
    (site / "_images/b.svg").write_text("<svg></svg>", "utf-8")
    pictures.settle(site)
    assert warnings == ["index.html: b.svg tells no size"]


@pytest.mark.parametrize(
    "latex, words",
    [
        (r"\argmax_i x_i", r"\argmax is unknown"),
        (r"x \in \R", r"\R is unknown"),
        (r"a \\ b", "a line break"),
        (r"\begin{aligned} a \\ b \end{aligned}", None),
        (r"\operatorname{argmax} x \Rightarrow \mathbb{R}", None),
    ],
)
def test_formulas_that_notebooks_cannot_read(book_page, latex, words):
    fault = book_page.fault_of_formula(latex)
    assert fault is None if words is None else words in fault
