"""What the scripts here share: where the package is, where results go."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = ROOT / "chapters"
sys.path[:0] = [str(CHAPTERS), str(ROOT / "tools")]

from notebooks import write_text  # noqa: E402


def store(name: str, results: dict) -> None:
    """Write `data/NAME.json`, for the page to show, whole or not at all."""
    path = CHAPTERS / "attnbook" / "data" / f"{name}.json"
    text = json.dumps(results, indent=1, ensure_ascii=False)
    write_text(path, text + "\n")
    print(f"stored {path.relative_to(ROOT)}")
