"""The clinic's page and index are what its file says; its search finds."""

import json

import clinic
import pytest

from attnbook.teach.check.registry import the_book
from attnbook.teach.page.clinic import index_path, the_clinic

#: How often the cause of a report is among the first three, at least.
AIM = 0.85


def test_the_page_and_the_index_are_up_to_date():
    """After a change run tools/clinic.py --write.

    Learned weights are rounded, and another processor may round another way.
    """
    assert clinic.PAGE.read_text("utf-8") == clinic.page_text(the_clinic())
    stored = index_path(the_book().clinic).read_text("utf-8")
    stored, made = (json.loads(t) for t in (stored, clinic.index_text()))
    weights = stored.pop("terms")
    of_today = made.pop("terms")
    assert stored == made
    assert list(weights) == list(of_today)
    for term, listed in weights.items():
        assert listed[::2] == of_today[term][::2], term
        assert listed[1::2] == pytest.approx(of_today[term][1::2], abs=1)


def test_other_names_are_read_from_the_glossary():
    found = clinic.glossary_names(
        "padding\n  Tokens.\n\n  Also called: fill tokens,\n  pads.\n\nq\n"
    )
    assert found == [["padding", "fill tokens", "pads"]]
    assert len(clinic.glossary_names(clinic.GLOSSARY.read_text("utf-8"))) > 20


def test_a_link_to_a_renamed_section_is_mended(capsys):
    right = 'at = "05_masking#padding"\n'
    assert clinic.mend_links(right) == right
    assert clinic.mend_links('at = "05_masking#paddings"\n') == right
    lost = clinic.mend_links('at = "05_masking#xyzzy"\n')
    assert lost == 'at = "05_masking#where-people-go-wrong"\n'
    assert "#xyzzy is #where-people-go-wrong now" in capsys.readouterr().out


def test_reports_name_causes_that_exist():
    review, new = clinic.reports()
    later = [r for group in clinic.later_reports().values() for r in group]
    for report in review + new + later:
        assert set(report["causes"]) <= set(the_clinic().causes), report
    threads = [report["thread"] for report in new]
    assert len(set(threads)) == len(threads) >= 60
    assert not set(threads) & {report["thread"] for report in review}


def test_half_of_the_new_reports_are_kept():
    _, new = clinic.reports()
    assert sum(clinic.kept_half(new)) == len(new) // 2
    assert clinic.kept_half(new) == clinic.kept_half(new)


@pytest.mark.parametrize("half", [False, True])
def test_the_cause_is_among_the_first_three(half):
    _, new = clinic.reports()
    kept = clinic.kept_half(new)
    found = [
        clinic.is_found(report, report["symptom"], left_out="new")
        for report, is_kept in zip(new, kept, strict=True)
        if is_kept is half and report["causes"]
    ]
    assert sum(found) >= AIM * len(found), clinic.share(found)


def test_the_causes_of_a_set_that_nothing_was_learned_from_are_found():
    reports = clinic.later_reports()["fourth"]
    learned = {words for words, _ in clinic.learned_from()}
    assert not learned & {report["symptom"] for report in reports}
    found = [clinic.is_found(report, report["symptom"]) for report in reports]
    assert sum(found) >= AIM * len(found), clinic.share(found)


def test_what_is_kept_or_left_out_is_not_learned_from():
    review, new = clinic.reports()
    learned = {words for words, _ in clinic.learned_from()}
    for report, is_kept in zip(new, clinic.kept_half(new), strict=True):
        assert (report["symptom"] in learned) is not is_kept
    without = {words for words, _ in clinic.learned_from("review")}
    own = {words for r in review for words in (r["symptom"], *r["words"])}
    assert own <= learned and not own & without


def test_the_measurement_is_printed_without_what_is_kept(capsys, monkeypatch):
    stored = json.loads(index_path(the_book().clinic).read_text("utf-8"))
    monkeypatch.setattr(clinic, "index_without", lambda left_out: stored)
    clinic.measure(show_kept=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("new, kept: ")


def test_an_unknown_option_is_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["clinic.py", "--wirte"])
    with pytest.raises(SystemExit, match="does not know --wirte"):
        clinic.main()
