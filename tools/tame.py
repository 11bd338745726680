"""The table of what each task's cases vary, and what they do not.

usage: python tools/tame.py [--store] [TASK ...]

Without --store the respects in which the cases of the tasks are tame are
listed, each with its reason. With it `mutate/tame.toml` is written anew;
reasons are kept, and a missing one stands there empty, which a test refuses.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import notebooks  # noqa: F401  puts the package on the path
from mutate.tame import TABLE, table, varied


def written(rows: dict[str, dict[str, Any]]) -> str:
    """The table as the text of a TOML file."""
    lines = [
        "# What the cases of each task vary and, where all are alike, why.",
        "# Written by `tools/tame.py --store`, but for the reasons.",
    ]

    def text(x: str) -> str:
        return json.dumps(x, ensure_ascii=False)

    for task, row in rows.items():
        lines += ["", f"[{task}]"]
        if row["varies"]:
            inside = "".join(f"    {text(v)},\n" for v in row["varies"])
            lines.append(f"varies = [\n{inside}]")
        else:
            lines.append("varies = []")
        if tame := row.get("tame", {}):
            lines.append(f"[{task}.tame]")
            lines += [f"{text(k)} = {text(v)}" for k, v in tame.items()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """List in which respects cases are tame, and store it if asked to."""
    from attnbook.teach.catalogue import all_tasks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", action="store_true")
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    given = parser.parse_args(arguments)
    tasks = all_tasks()
    known = table() if TABLE.exists() else {}
    rows: dict[str, dict[str, Any]] = {}
    for name in given.tasks or tasks:
        told = varied(tasks[name])
        why = known.get(name, {}).get("tame", {})
        rows[name] = {
            "varies": [way for way, seen in told.items() if seen],
            "tame": {
                w: why.get(w, "") for w, seen in told.items() if not seen
            },
        }
        for way, reason in rows[name]["tame"].items():
            print(f"{name}: tame in {way}: {reason or '(no reason)'}")
    if given.store:
        both = known | rows
        in_order = {name: both[name] for name in tasks if name in both}
        TABLE.write_text(written(in_order), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
