"""The page of an audit in a real browser: it fits a phone, and nothing is complained about."""

import re
import shutil
import subprocess

import pytest

from asrnorm.audit import AuditedModule, Plan, read_images, run_audit, write_audit
from helpers.audited import ColorNet, make_folder

CHROMIUM = shutil.which("chromium")
FRAME = """<iframe id="page" src="out/audit.html" width="390" height="800" style="border: 0"></iframe>
<pre id="said"></pre>
<script>
page.onload = () => {
  const root = page.contentDocument.documentElement;
  const broken = [...page.contentDocument.images].filter(image => !image.naturalWidth).length;
  said.textContent = `widths ${root.scrollWidth} ${root.clientWidth} broken ${broken}`;
};
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_fits_a_phone_and_every_image_shows(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "nothing"))
    images = read_images(make_folder(tmp_path / "data"), (32, 32))
    outputs = {name: index for index, name in enumerate(images.classes)}
    models = [AuditedModule(f"a_model_of_some_length.py:network_{n}", ColorNet(n)) for n in (1, 8)]
    for model in models:
        model.probe((32, 32))
    plan = Plan(severities=(1, 5), corruptions=("saturate", "frost"), fgsm=(8,), pgd=(8,), candidates=4)
    audit = run_audit(models, images, [outputs] * 2, plan, workers=1, progress=False)
    write_audit(audit, images, tmp_path / "out")
    (tmp_path / "frame.html").write_text(FRAME)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--enable-logging=stderr"]
    words = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([*words, (tmp_path / "frame.html").as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'id="said">widths (\d+) (\d+) broken (\d+)', done.stdout)
    assert found, done.stderr[-500:]
    assert found[1] == found[2]
    assert found[3] == "0"
    assert "CONSOLE" not in done.stderr
