"""The documentation site: its links, the names that it documents, and the files for deployment."""

from __future__ import annotations

import re
from pathlib import Path

import airflow_provider_fluss
import fluss_tiering

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# A path in a code span: of a Python file, or of a folder.
PATH = re.compile(r"`([\w./-]+/|[\w.-]+/[\w./-]+\.py)`")
MADE = {"site/", "dist/"}
"""What `make` makes."""
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


PROVIDER_CHANGELOG = "airflow_provider_fluss/CHANGELOG.md"
PARTS = ["Breaking changes", "Features", "Bug fixes", "Miscellaneous", "Documentation"]


def documented(page: str) -> set[str]:
    return set(re.findall(r"^::: \S+?\.(\w+)$", (DOCS / "reference" / page).read_text(), re.MULTILINE))


def test_links_of_the_pages_at_the_root_lead_to_files() -> None:
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", PROVIDER_CHANGELOG):
        for target in LINK.findall((ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_paths_that_the_pages_name_exist() -> None:
    code = ("airflow_provider_fluss", "engine", "protos", "tests", "tools", "verification")
    folders = [ROOT / name for name in (*code, "docs", "requirements")]
    paths = [path.relative_to(ROOT) for folder in folders for path in (folder, *folder.rglob("*"))]
    present = [f"/{path}/" if (ROOT / path).is_dir() else f"/{path}" for path in paths]
    pages = [
        ROOT / "CONTRIBUTING.md",
        DOCS / "development.md",
        *(DOCS / "explanation").glob("*.md"),
        *(DOCS / "decisions").glob("*.md"),
    ]
    named = {path for page in pages for path in PATH.findall(page.read_text())} - MADE
    assert len(named) > 30
    assert [path for path in sorted(named) if not any(each.endswith(f"/{path}") for each in present)] == []


def test_every_public_name_is_in_the_reference() -> None:
    assert documented("python-api.md") == set(fluss_tiering.__all__) - {"__version__"}
    assert documented("airflow.md") == set(airflow_provider_fluss.__all__) - {"__version__"}


def test_the_provider_has_a_changelog_of_its_own() -> None:
    first, *_ = versions = re.split(r"^## ", (ROOT / PROVIDER_CHANGELOG).read_text(), flags=re.MULTILINE)[1:]
    assert first.split()[0] == airflow_provider_fluss.__version__
    for version in versions:
        parts = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert parts == [part for part in PARTS if part in parts] != []
    # What only the provider has is not told a second time.
    names = set(airflow_provider_fluss.__all__) - set(fluss_tiering.__all__)
    assert [name for name in names if f"`{name}`" in (ROOT / "CHANGELOG.md").read_text()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_options_of_the_deployed_commands_exist() -> None:
    given = {
        option
        for name in ("fluss-tiering.service", "Containerfile")
        for line in (DOCS / "deploy" / name).read_text().splitlines()
        if re.search(r"\bserve\b", line)
        for option in re.findall(r"--[a-z-]+", line)
    }
    assert given
    reference = (DOCS / "reference" / "cli.md").read_text()
    serve = reference.partition("\n## serve\n")[2].partition("\n## ")[0]
    assert all(f"`{option}`" in serve for option in given)


def test_the_first_page_leads_to_every_page() -> None:
    linked = {DOCS / target for target in LINK.findall((DOCS / "index.md").read_text())}
    pages = {page for page in DOCS.rglob("*.md") if page.parent != DOCS / "decisions"} - {DOCS / "index.md"}
    assert {str(page.relative_to(DOCS)) for page in pages - linked} == set()
