"""What is made beside the pages: put among them, or a warning of it."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from press import beside

WRITES = "import sys; open(sys.argv[1] + '/made.js', 'w').write('1')"


@pytest.fixture
def app(tmp_path):
    return SimpleNamespace(
        outdir=str(tmp_path), builder=SimpleNamespace(name="html")
    )


@pytest.fixture
def started(app, monkeypatch):
    """Start a program in the place of the process; then how it is put."""
    warnings = []
    monkeypatch.setattr(beside.logger, "warning", warnings.append)
    popen = beside.subprocess.Popen

    def start(program):
        def other(command, **options):
            assert command[1:3] == ["-m", "press.beside"]
            return popen([sys.executable, "-c", program, command[3]])

        monkeypatch.setattr(beside.subprocess, "Popen", other)
        room = beside.Beside()
        room.start(app)
        return room, warnings

    return start


def test_what_was_made_is_put_on_the_site(app, started):
    room, warnings = started(WRITES)
    folder = Path(room.folder.name)
    Path(app.outdir).chmod(0o755)
    room.put(app, None)
    assert Path(app.outdir).stat().st_mode & 0o777 == 0o755  # others may read
    assert Path(app.outdir, "made.js").read_text() == "1" and not warnings
    assert not folder.exists()


def test_what_could_not_be_made_is_a_warning(app, started):
    room, warnings = started(f"{WRITES}; sys.exit(3)")
    room.put(app, None)
    assert "could not be made" in warnings[0]
    assert not list(Path(app.outdir).iterdir())


def test_after_a_failed_build_the_process_is_ended(app, started):
    room, warnings = started(f"{WRITES}; import time; time.sleep(1000)")
    process = room.process
    room.put(app, RuntimeError())
    assert process.poll() is not None and not warnings
    room.put(app, RuntimeError())  # Sphinx may say it twice
    assert not list(Path(app.outdir).iterdir())


def test_another_builder_gets_none_of_it(app):
    app.builder.name = "linkcheck"
    room = beside.Beside()
    room.start(app)
    room.put(app, None)
    assert room.process is None and not list(Path(app.outdir).iterdir())
