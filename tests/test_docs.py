"""The Python of README and the guides runs: blocks of a page in order, in one process."""

import os
import re
from pathlib import Path

import pytest
from helpers import run_python

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]


def marks(page):
    return pytest.mark.tpu_aot if page.name == "aot.md" else ()


@pytest.mark.parametrize("page", [pytest.param(p, id=p.name, marks=marks(p)) for p in PAGES])
def test_code_of_a_page_runs(page, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    run_python(f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(blocks))


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.name)
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert os.path.exists(page.parent / target), target
