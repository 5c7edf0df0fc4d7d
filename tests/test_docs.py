"""The Python of README and the guides runs: blocks of a page in order, in one process."""

import importlib.util
import os
import re
from pathlib import Path

import pytest
from helpers import run_python

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_of_a_page_runs(page, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    if page.name == "aot.md" and importlib.util.find_spec("libtpu") is None:
        pytest.skip("not installed: libtpu")
    run_python(f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(blocks))


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.name)
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert os.path.exists(page.parent / target), target
