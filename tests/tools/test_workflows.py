"""The workflows: actions by commit, the least rights, limits of time."""

import os
import re
import subprocess
import sys

import pytest
import yaml
from dependencies import project
from notebooks import ROOT

from attnbook import __version__

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

#: What these commits are, as the actions' own repositories have them tagged.
COMMITS = {
    "actions/checkout v6.0.2": "de0fac2e4500dabe0009e67214ff5f5447ce83dd",
    "actions/setup-python v6.2.0": "a309ff8b426b58ec0e2a45f0f869d46889d02405",
    "actions/upload-artifact v7.0.0": (
        "bbbca2ddaa5d8feaa63e36b76fdaad77386f024f"
    ),
    "actions/upload-pages-artifact v5.0.0": (
        "fc324d3547104276b827a68afc52ff2a11cc49c9"
    ),
    "actions/deploy-pages v5.0.0": "cd2ce8fcbc39b97be8ca5fce6e763baed58fa128",
}
RIGHTS = {
    "deploy": {"pages": "write", "id-token": "write"},
    "else": {"contents": "read"},
}


def faults(text):
    """What a workflow has that it should not, or lacks."""
    workflow = yaml.safe_load(text)
    found = []
    for line in re.findall(r"uses: *(.*)", text):
        named = re.fullmatch(r"([\w/-]+)@([0-9a-f]{40}) # (v[\d.]+)", line)
        if not named or COMMITS.get(f"{named[1]} {named[3]}") != named[2]:
            found.append(f"no commit that is known: {line}")
    if workflow.get("permissions") != {}:
        found.append("rights for every job")
    for name, job in workflow["jobs"].items():
        if job.get("permissions") != RIGHTS.get(name, RIGHTS["else"]):
            found.append(f"{name}: other rights than it needs")
        if not 0 < job.get("timeout-minutes", 0) <= 60:
            found.append(f"{name}: no limit of time")
        for step in job["steps"]:
            kept = step.get("with", {}).get("persist-credentials", True)
            if "/checkout@" in step.get("uses", "") and kept:
                found.append(f"{name}: the token stays in the copy")
        if name == "deploy" and any("run" in step for step in job["steps"]):
            found.append("deploy: runs something beside its rights")
    if re.search(r"pull_request_target|secrets\.", text):
        found.append("secrets within reach")
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_keeps_the_rules(path):
    assert faults(path.read_text("utf-8")) == []


def runs(name):
    text = (ROOT / ".github/workflows" / name).read_text("utf-8")
    steps = [
        step.get("run", "")
        for job in yaml.safe_load(text)["jobs"].values()
        for step in job["steps"]
    ]
    return [run for run in steps if run]


@pytest.mark.parametrize("name", ["test.yml", "pages.yml"])
def test_what_is_installed_is_the_locks_to_the_hash(name):
    first, second, third = runs(name)[:3]
    assert first == "python -m pip install --require-hashes -r .ci/uv.txt"
    assert second == "uv sync --locked"
    assert third == "touch .venv/installed"  # so that make adds nothing


def test_every_system_runs_what_is_typed_without_make():
    text = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    job = yaml.safe_load(text)["jobs"]["systems"]
    systems = {
        s.partition("-")[0] for s in job["strategy"]["matrix"]["system"]
    }
    assert systems == {"ubuntu", "macos", "windows"}
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    typed = [run for run in runs("test.yml") if "python tools" in run]
    assert len(typed) == 2
    for run in typed:
        words = run.removeprefix("uv run --no-sync ").split()[1:]
        assert " ".join(["python", *words]) in readme, run


def test_every_python_that_is_named_is_tested():
    """README names the oldest and the newest; the lock is for all of them."""
    text = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    whole = jobs["test"]["strategy"]["matrix"]["python"]
    systems = jobs["systems"]["strategy"]["matrix"]["python"]
    oldest, newest = whole
    minors = range(int(oldest[2:]), int(newest[2:]) + 1)
    assert systems == [f"3.{minor}" for minor in minors]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"Python {oldest} to {newest}" in readme
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"Python {oldest} to {newest}" in contributing
    assert project()["project"]["requires-python"] == f">={oldest}"
    newest_versions = (ROOT / ".github/workflows/newest.yml").read_text()
    assert f'python-version: "{newest}"' in newest_versions


@pytest.mark.skipif(os.name == "nt", reason="the step is a POSIX shell's")
@pytest.mark.parametrize("tag", [f"v{__version__}", "v0.0.1", __version__])
def test_publishing_refuses_a_tag_that_is_not_the_version(tag, tmp_path):
    text = (ROOT / ".github/workflows/pages.yml").read_text("utf-8")
    steps = yaml.safe_load(text)["jobs"]["build"]["steps"]
    ran = [step.get("run", "") for step in steps]
    (step,) = (s for s in steps if "GITHUB_REF_NAME" in s.get("run", ""))
    assert step["if"] == "github.ref_type == 'tag'"
    assert ran.index(step["run"]) < ran.index("make book")
    (tmp_path / "chapters").symlink_to(ROOT / "chapters")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    done = subprocess.run(
        ["bash", "-c", step["run"]],
        cwd=tmp_path,
        env={**os.environ, "GITHUB_REF_NAME": tag},
    )
    assert (done.returncode == 0) == (tag == f"v{__version__}")
