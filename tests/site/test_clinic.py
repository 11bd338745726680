"""The scripts of the clinic's search box come on its page alone."""

import json
from types import SimpleNamespace

from press import clinic


def test_the_index_is_put_beside_the_scripts(tmp_path):
    (tmp_path / "_static").mkdir()
    app = SimpleNamespace(
        outdir=tmp_path, builder=SimpleNamespace(name="html")
    )
    clinic.write_index(app, None)
    script = (tmp_path / "_static" / "clinic-index.js").read_text("utf-8")
    given = script.removeprefix("window.clinicIndex = ").rstrip(";\n")
    assert json.loads(given)["entries"][0].keys() == {"id", "says"}


def test_a_failed_build_gets_no_index(tmp_path):
    app = SimpleNamespace(
        outdir=tmp_path, builder=SimpleNamespace(name="html")
    )
    clinic.write_index(app, RuntimeError())
    assert not list(tmp_path.iterdir())


def test_only_its_own_page_loads_the_box():
    loaded = []
    app = SimpleNamespace(
        add_js_file=lambda name, loading_method: loaded.append(name)
    )
    clinic.add_scripts(app, "index", "page.html", {}, None)
    assert loaded == []
    clinic.add_scripts(app, clinic.PAGE, "page.html", {}, None)
    assert loaded == ["ranking.js", "clinic.js"]
