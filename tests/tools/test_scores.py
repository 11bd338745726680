"""The tool that measures the pages: its table."""

from types import SimpleNamespace

import pytest
import scores


def report(performance):
    points = dict.fromkeys(scores.CATEGORIES, {"score": 1.0})
    items = [{"transferSize": 1500}, {"transferSize": 2600}]
    return {
        "categories": points | {"performance": {"score": performance}},
        "audits": {"network-requests": {"details": {"items": items}}},
    }


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Two pages, and no Chromium that anybody would start."""
    monkeypatch.setattr(scores, "HTML", tmp_path / "html")
    two = SimpleNamespace(files=lambda site: sorted(site.glob("*.html")))
    monkeypatch.setattr(scores, "contents", lambda: two)
    monkeypatch.setattr(scores, "find_chromium", lambda playwright: "")
    (tmp_path / "html").mkdir()
    for name in ("05_masking.html", "index.html"):
        (tmp_path / "html" / name).touch()
    return tmp_path


def test_the_table_has_the_medians_of_runs_that_lie_apart(site, monkeypatch):
    asked = []

    def inspect(url, _):
        asked.append(url.rpartition("/")[2])
        return report(len(asked) / 100)

    monkeypatch.setattr(scores, "inspect", inspect)
    assert scores.main([]) == 0
    assert asked == 3 * ["05_masking.html", "index.html"]
    _, _, *rows = (site / "scores.md").read_text().splitlines()
    assert rows == [
        "| 05_masking | 4 | 3 | 100 | 100 | 100 |",
        "| index | 4 | 4 | 100 | 100 | 100 |",
    ]
