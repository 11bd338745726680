"""The clinic's search box, by keyboard alone."""


def test_what_one_sees_leads_to_its_cause(visit):
    page = visit("something_is_wrong")
    box = page.get_by_label("What do you see?")
    box.focus()
    page.keyboard.type("loss halves with padding mask")
    status = page.locator("#clinic [role=status]")
    status.filter(has_text="the likeliest first").wait_for()
    links = page.locator("#clinic li a")
    assert "padding mask is used in place of" in links.first.inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**#padding_mask_replaces_causal")


def test_what_nothing_fits_is_said(visit):
    page = visit("something_is_wrong")
    page.get_by_label("What do you see?").fill("xyzzy")
    status = page.locator("#clinic [role=status]")
    status.filter(has_text="Nothing fits these words").wait_for()
    assert page.locator("#clinic li").count() == 0
