"""The theme's script loses what the press knows of it, or the build fails."""

import pytest

from press import theme_script


@pytest.mark.parametrize("known", [True, False])
def test_another_script_of_the_theme_fails_the_build(
    monkeypatch, tmp_path, known
):
    warnings = []
    monkeypatch.setattr(
        theme_script.logger, "warning", lambda *text: warnings.append(text)
    )
    script = tmp_path / theme_script.THEME_SCRIPT
    script.parent.mkdir(parents=True)
    measures = (
        ".forEach(e=>{e.tabIndex=e.scrollWidth>e.clientWidth"
        "||e.scrollHeight>e.clientHeight?0:-1})"
    )
    script.write_text(
        f"all(){measures if known else ''};go()\n//# sourceMappingURL=a.map",
        "utf-8",
    )
    theme_script.mend_theme_script(tmp_path)
    assert script.read_text("utf-8") == "all();go()\n"
    assert len(warnings) == (0 if known else 1)
