"""The page of an audit in a real browser: it fits a phone, galleries are folded, and nothing is complained about."""

import pytest

from asrnorm.audit import AuditedModule, Plan, read_images, run_audit, write_audit
from helpers.audited import ColorNet, make_folder
from helpers.browser import CHROMIUM, open_browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    images = read_images(make_folder(tmp_path / "data"), (32, 32))
    outputs = {name: index for index, name in enumerate(images.classes)}
    models = [AuditedModule(f"a_model_of_some_length.py:network_{n}", ColorNet(n)) for n in (1, 8)]
    for model in models:
        model.probe((32, 32))
    plan = Plan(severities=(1, 5), corruptions=("saturate", "frost"), fgsm=(8,), pgd=(8,), candidates=4)
    audit = run_audit(models, images, [outputs] * 2, plan, workers=1, progress=False)
    return write_audit(audit, images, tmp_path / "out")[0]


def test_the_page_fits_a_phone_with_folded_galleries_in_which_every_image_shows(page):
    with open_browser() as browser:
        tab = browser.new_page().open(page, width=375, height=812)
        assert tab.run("document.documentElement.scrollWidth") == 375
        first = "document.querySelector('table td:nth-child(2)').getBoundingClientRect().right"
        assert tab.run(first) < 375, "the first number is seen without scrolling"
        folded = tab.run("document.documentElement.scrollHeight")
        assert tab.run("[...document.querySelectorAll('.gallery')].every(one => one.closest('details'))")
        tab.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert tab.run("document.querySelectorAll('.gallery img').length") > 4
        assert tab.run("[...document.images].every(image => image.naturalWidth)")
        assert tab.run("document.documentElement.scrollHeight") > folded + 300
        assert tab.problems == []
