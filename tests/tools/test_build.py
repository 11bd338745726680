"""Building: a failed build fails, and the forms say what they lack."""

import subprocess

import build
import pytest
import small_site
from small_site import CONTENTS, SETTINGS

from press import browser, pdf


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """A build in a folder of its own; the commands that it would run."""
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "HTML", tmp_path / "_build" / "html")
    (tmp_path / "_build").mkdir()
    commands = []
    returns = [0]

    def run(command, cwd):
        commands.append(command)
        return subprocess.CompletedProcess(command, returns[0])

    monkeypatch.setattr(build.subprocess, "run", run)
    return tmp_path / "_build", commands, returns


@pytest.mark.parametrize("version", ["2.0.0", "0.15.1", "20.1"])
def test_a_wrong_jupyter_book_stops_the_build(builds, monkeypatch, version):
    folder, commands, _ = builds
    monkeypatch.setattr(build.metadata, "version", lambda name: version)
    assert build.main([]) == 1
    assert commands == [] and folder.exists()


@pytest.mark.parametrize("code", [7, 0])  # the other has written nothing
def test_a_failed_build_fails(builds, code):
    folder, commands, returns = builds
    (folder / "old").touch()
    returns[:] = [code]
    assert build.main([]) == (code or 1)
    assert "-W" in commands[0] and not (folder / "old").exists()


@pytest.mark.parametrize("missing", ["Chromium", "b.html"])
def test_a_form_that_cannot_be_made_says_what_it_lacks(
    tmp_path, monkeypatch, capsys, missing
):
    site = small_site.write(tmp_path)
    monkeypatch.setattr(build, "HTML", site)
    monkeypatch.setattr(build, "settings", lambda: SETTINGS)
    monkeypatch.setattr(build, "contents", lambda: CONTENTS)
    monkeypatch.setattr(pdf, "FILE", site / "book.pdf")
    monkeypatch.setattr(browser, "NAMES", ("no-such-browser",))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(site))
    (site / missing).unlink(missing_ok=True)
    assert build.main(["pdf"]) == 1
    assert missing in capsys.readouterr().err
    assert not (site / "book.pdf").exists()


@pytest.mark.parametrize("chapter", ["99", "4", "how_fast"])
def test_no_slides_are_made_of_what_is_no_chapter(builds, capsys, chapter):
    assert build.main(["slides", "04", chapter]) == 2
    assert f"there is no chapter {chapter}; exp" in capsys.readouterr().err


def test_slides_are_made_of_one_chapter_or_of_all():
    one = "04_scaled_dot_product_attention"
    assert build.pages_with_slides(["04"]) == [one]
    assert build.pages_with_slides([one]) == [one]
    assert len(build.pages_with_slides([])) == 24


@pytest.mark.parametrize("arguments", [["html"], ["pdf", "epub"], [""]])
def test_an_unknown_form_is_refused(builds, capsys, arguments):
    assert build.main(arguments) == 2
    assert "epub | pdf" in capsys.readouterr().err
    assert builds[1] == []
