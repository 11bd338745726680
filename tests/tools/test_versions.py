"""The versions: what is asked for, what is pinned, what is locked; and the
settings of pip that uv is told."""

import re
import tomllib

import install
import pytest
import yaml
from changes import CHANGELOG, editions
from constraints import line
from notebooks import ROOT

from attnbook import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())


def lines(name):
    text = re.sub(r"#.*", "", (ROOT / name).read_text())
    return [line.strip() for line in text.splitlines() if line.strip()]


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins():
    found = (
        re.match(r"([\w.-]+)==([^;\s]+)", p) for p in lines("constraints.txt")
    )
    return {plain(m[1]): m[2] for m in found}


def test_uv_and_pip_are_asked_for_the_same_and_all_is_pinned():
    asked = lines("requirements.txt")
    assert PROJECT["dependency-groups"]["book"] == asked
    assert {plain(re.match(r"[\w-]+", r)[0]) for r in asked} <= set(pins())


def test_the_lock_has_the_pinned_versions():
    """More of them only for other systems, and for another Python."""
    locked = {}
    for package in LOCK["package"]:
        locked.setdefault(package["name"], []).append(package.get("version"))
    assert all(version in locked[name] for name, version in pins().items())
    assert {n for n, v in locked.items() if len(v) > 1} == {"soupsieve"}


def test_the_lock_names_public_hosts_alone():
    text = (ROOT / "uv.lock").read_text()
    hosts = set(re.findall(r'"[a-z]+://([^/"]+)', text))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_a_pin_names_the_python_it_needs():
    assert line("torch", "2.13.0+cpu", ">=3.11") == "torch==2.13.0"
    newer = line("a", "4", ">=3.11.5")
    assert newer == 'a==4; python_full_version >= "3.11.5"'


def test_the_book_has_one_version():
    """Package, citation, changelog, errata and the reference that pages name.

    The tag that a release makes is that reference, see CONTRIBUTING.md.
    """
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    errata = (ROOT / "chapters" / "errata.md").read_text("utf-8")
    newest = editions(CHANGELOG.read_text("utf-8"))[0]
    (edition,) = re.findall(r"known in edition ([\d.]+)\.\s", errata)
    (changed,) = re.findall(r"\(([\d.]+)\)", newest.name)
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    named = {
        "CITATION.cff": citation["version"],
        "CHANGELOG.md": changed,
        "errata.md": edition,
        "_config.yml": config["repository"]["branch"].removeprefix("v"),
    }
    assert named == dict.fromkeys(named, __version__)


LISTED = """\
:env:.cert='/env.pem'
:env:.timeout='9'
global.cert='/global.pem'
global.extra-index-url='https://a/simple https://b/simple'
global.find-links='\\n/wheels'
install.constraint='c.txt'
install.no-index='false'
list.format='json'
"""


def test_uv_is_told_pips_settings():
    options, variables = install.for_uv(install.settings(LISTED))
    assert variables == {"SSL_CERT_FILE": "/env.pem"}
    assert " ".join(options) == (
        "--index https://a/simple --index https://b/simple "
        "--find-links /wheels --constraints c.txt "
        "--index-strategy unsafe-best-match"
    )


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """An environment whose commands are taken down; what of them fails."""
    monkeypatch.chdir(tmp_path)
    made, broken = [], set()

    def run(command, **_):
        made.append(text := " ".join(map(str, command)))
        fails = any(word in text for word in broken)
        output = LISTED if "config list" in text else ""
        return install.subprocess.CompletedProcess(text, int(fails), output)

    monkeypatch.setattr(install.subprocess, "run", run)
    return made, broken


@pytest.mark.parametrize(
    "broken, way",
    [
        (set(), ["uv pip install"]),
        ({"uv --version"}, ["pip install --q", "uv pip install"]),
        ({"uv --version", "version-check uv"}, ["pip install"] * 2),
        ({"uv pip install"}, ["uv pip install", "pip install --q"]),
        ({"pip --version"}, ["-m venv --clear .venv", "uv pip install"]),
    ],
)
def test_uv_installs_and_else_pip(calls, broken, way):
    calls[1].update(broken)
    assert install.main(["constraints.txt"]) == 0
    made = [c for c in calls[0] if "install" in c or "venv " in c]
    assert len(made) == len(way)
    assert all(w in m for w, m in zip(way, made, strict=True))
    assert "-rrequirements.txt -cconstraints.txt" in made[-1]
    assert ("--find-links /wheels" in made[-1]) == ("uv pip" in made[-1])


def test_on_windows_the_environment_is_elsewhere(calls, monkeypatch):
    program = install.program
    monkeypatch.setattr(install, "program", lambda name: program(name, "nt"))
    assert install.main(["constraints.txt"]) == 0
    scripts = str(program("", "nt").parent)
    made = [c for c in calls[0] if "-m venv" not in c]
    assert made and all(c.startswith(scripts) for c in made)
    assert f"--python {program('python', 'nt')} " in made[-1]


def test_what_cannot_be_installed_fails(calls, monkeypatch):
    calls[1].add("install")
    assert install.main([]) == 1
    calls[0].clear()
    monkeypatch.setattr(install.sys, "version_info", (3, 10, 4))
    assert install.main([]) == 2 and calls[0] == []
