"""Build the HTML from the committed outputs; anything amiss is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"


def check_version(version: str) -> None:
    """Raise RuntimeError unless this Jupyter Book can build the book.

    Version 2 prints an error in a folder like this, writes nothing and
    reports success.
    """
    if version.split(".")[0] != "1":
        raise RuntimeError(
            "this Jupyter Book cannot build the book; expected version 1.x; "
            f"got {version}; run: make clean book"
        )


def pages(toc: dict) -> list[str]:
    """The documents that a table of contents names, without endings."""
    found = [toc[key] for key in ("root", "file") if key in toc]
    for key in ("parts", "chapters", "sections"):
        for entry in toc.get(key, []):
            found += pages(entry)
    return found


def shown(html: Path) -> list[Path]:
    """The pages of a site, without old addresses, which lead on."""
    return sorted(
        page
        for page in html.glob("*.html")
        if b'http-equiv="refresh"' not in page.read_bytes()
    )


def missing_pages(html: Path, toc: dict) -> list[str]:
    """The pages that should have been built and were not."""
    wanted = ["index.html", *(f"{page}.html" for page in pages(toc))]
    wanted = dict.fromkeys(wanted)
    return [page for page in wanted if not (html / page).exists()]


def main() -> int:
    try:
        check_version(metadata.version("jupyter-book"))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    # What an earlier, failed build left would make this one pass.
    shutil.rmtree(ROOT / "_build", ignore_errors=True)
    (ROOT / "_build").mkdir()
    script = ROOT / "_build" / "town.js"  # made beside the pages
    making = [sys.executable, str(ROOT / "tools" / "town_page.py"), script]
    town = subprocess.Popen(making, cwd=ROOT)
    command = [
        sys.executable,
        "-c",
        "from jupyter_book.cli.main import main; main()",
        "build",
        "chapters",
        "--path-output",
        ".",
        "--config",
        "_config.yml",
        "--toc",
        str(ROOT / "_toc.yml"),  # read from the sources' folder, too
        "--quiet",
        "-W",
        "--keep-going",
        "-n",
    ]
    built = subprocess.run(command, cwd=ROOT)
    failed = town.wait() or built.returncode
    if failed:
        return failed
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    missing = missing_pages(HTML, toc)
    if missing:
        print(f"the build left out {', '.join(missing)}", file=sys.stderr)
        return 1
    script.rename(HTML / "_static" / "town.js")
    from finish import finish  # which knows the pages from here

    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    finish(HTML, config, toc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
