"""The files of the site by which a page is run without a clone."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from notebooks import CHAPTERS, ROOT, notebooks
from pages import built

from attnbook import __version__
from press import package

PAGE = (CHAPTERS / "run_a_page.md").read_text("utf-8")


def seen() -> set[Path]:
    """What lies at the top of the repository and of the chapters."""
    return {*ROOT.iterdir(), *CHAPTERS.iterdir()}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    package.put_package_on_site(folder)
    return folder


def test_the_wheel_has_every_file_of_the_package(site):
    wheel = site / "run" / f"attnbook-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        packed = {n for n in archive.namelist() if n.startswith("attnbook/")}
        needs = archive.read(
            f"attnbook-{__version__}.dist-info/METADATA"
        ).decode()
    tracked = subprocess.run(
        ["git", "ls-files", "attnbook"],
        cwd=CHAPTERS,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert packed == set(tracked)
    # Whatever versions are there will do.
    assert re.findall(r"(?m)^Requires-Dist: torch$", needs)


def test_the_archive_has_every_notebook(site):
    with zipfile.ZipFile(site / "run" / "notebooks.zip") as archive:
        for path in notebooks():
            assert archive.read(path.name) == path.read_bytes()
        assert len(archive.namelist()) == len(list(notebooks()))


def test_the_same_notebooks_give_the_same_archive(site):
    """No time is in it: two made in one second would be alike anyway."""
    with zipfile.ZipFile(site / "run" / "notebooks.zip") as archive:
        assert {e.date_time for e in archive.infolist()} == {package.DATE}
        assert archive.namelist() == sorted(archive.namelist())


def test_each_file_that_the_page_links_is_there(site):
    links = re.findall(r'href="(run/[^"]+)"', PAGE)
    teachers = (CHAPTERS / "teachers.md").read_text("utf-8")
    links += re.findall(r'href="(run/[^"]+)"', teachers)
    assert {Path(link).name for link in links} == {
        path.name for path in (site / "run").iterdir()
    }
    assert 'href="tutor.txt"' in teachers
    # The commands name the same wheel.
    assert set(re.findall(r"attnbook-[\d.]+-\S+?\.whl", PAGE)) == {
        f"attnbook-{__version__}-py3-none-any.whl"
    }


def test_the_page_says_how_large_the_package_is(site):
    (wheel,) = (site / "run").glob("*.whl")
    said = re.search(r"helper package \(about (\d+) MB\)", PAGE)
    assert said and int(said[1]) == round(wheel.stat().st_size / 1e6)


def test_the_file_for_tutors_is_on_the_site(site):
    text = (ROOT / "site" / "tutor.txt").read_text("utf-8")
    for folder in (site, built()):
        assert (folder / "tutor.txt").read_text("utf-8") == text


def test_the_file_for_tutors_names_pages_and_commands_that_there_are():
    text = (ROOT / "site" / "tutor.txt").read_text("utf-8")
    for name in re.findall(r"(\w+)\.txt", text):
        assert name in ("llms", *(p.stem for p in CHAPTERS.glob("*.md")))
    assert "--as scaled_dot_product_attention" in text


def test_a_package_that_cannot_be_built_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(package, "BUILD", "raise SystemExit('no setuptools')")
    with pytest.raises(RuntimeError, match="no setuptools"):
        package.build_wheel(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_in_the_repository(tmp_path):
    before = seen()
    package.build_wheel(tmp_path)
    assert seen() <= before
