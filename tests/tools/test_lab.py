"""Starting JupyterLab: installed where it is missing, and no version moves."""

import subprocess

import lab
import pytest


@pytest.fixture
def commands(monkeypatch):
    """The commands that would be run; JupyterLab is there or not."""
    made, failing = [], []

    def run(command, **_):
        made.append([str(part) for part in command])
        fails = any(word in " ".join(made[-1]) for word in failing)
        return subprocess.CompletedProcess(command, int(fails))

    monkeypatch.setattr(subprocess, "run", run)
    return made, failing


def test_it_opens_the_chapters(commands, monkeypatch):
    monkeypatch.setattr(lab, "is_installed", lambda: True)
    assert lab.main(["--no-browser"]) == 0
    (command,) = commands[0]
    assert command[1:] == ["-m", "jupyterlab", str(lab.CHAPTERS), *command[4:]]
    assert command[-1] == "--no-browser"


def test_where_it_is_missing_it_is_installed_first(commands, monkeypatch):
    monkeypatch.setattr(lab, "is_installed", lambda: False)
    assert lab.main([]) == 0
    install, start = commands[0]
    assert "jupyterlab>=4" in install and "-cconstraints.txt" in install
    assert start[1:3] == ["-m", "jupyterlab"]


def test_what_cannot_be_installed_is_not_started(
    commands, monkeypatch, capsys
):
    monkeypatch.setattr(lab, "is_installed", lambda: False)
    commands[1].append("pip install")
    assert lab.main([]) == 1
    assert len(commands[0]) == 1
    assert "could not be installed" in capsys.readouterr().err


@pytest.mark.skipif(not lab.is_installed(), reason="needs JupyterLab")
def test_the_environments_own_jupyterlab_is_run():
    """It says its version; a server would have to be ended by hand."""
    assert lab.main(["--version"]) == 0
