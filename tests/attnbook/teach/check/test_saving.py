"""Files that are whole or not there at all."""

import stat

import pytest

from attnbook.teach.check.saving import replacing


def test_a_file_takes_the_place_of_the_old_one_at_the_end(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) & 0o044 == 0o044
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_all_is_as_it_was(tmp_path, error):
    path = tmp_path / "marks.csv"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as file:
        file.write(b"ne")
        raise error
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]


def test_what_cannot_be_written_is_said_by_its_own_name(tmp_path):
    path = tmp_path / "no such folder" / "marks.csv"
    with pytest.raises(OSError, match="marks.csv cannot be written; expect"):
        with replacing(path):
            pass
    path = tmp_path / "full.csv"
    with pytest.raises(OSError, match="full.csv cannot be .*; got No space"):
        with replacing(path):
            raise OSError(28, "No space left on device")
    assert [*tmp_path.iterdir()] == []
