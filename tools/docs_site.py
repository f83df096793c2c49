"""Hooks of MkDocs: pages from outside `docs/`, and links to files that are not part of the site.

In the repository the pages link to source files and tests, so that the links work where the files are read. The site
has no such files, so there such a link becomes plain text. A link to a file that does not exist is a warning, which
ends `make docs-site`.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import behaviour

_ROOT: Final = Path(__file__).resolve().parents[1]
# Page of the site -> file of the repository.
_ROOT_PAGES: Final = {
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/provider-changelog.md": "airflow_provider_fluss/CHANGELOG.md",
    "project/security.md": "SECURITY.md",
}
_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_BEHAVIOUR: Final = "reference/behaviour.md"
# A paragraph that says what only the site shows.
_FOR_THE_REPOSITORY: Final = re.compile(r"^In the repository (?:.+\n)+\n", re.MULTILINE)
# A sample of what a command prints as a table, with a rule below the headings.
_SAMPLE: Final = re.compile(r"^ *```text\n(?:(?! *```).*\n)*?.*───", re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks.docs_site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's own pages to the site."""
    for uri, name in _ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=(_ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page's text with links that the site can follow."""
    uri = page.file.src_uri
    source = _ROOT_PAGES.get(uri, f"docs/{uri}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        if not (_ROOT / target).exists():
            _log.warning("%s links to %s, which does not exist", source, target)
            return match["text"]
        shown = _site_uri(target)
        if shown is None or files.get_file_from_path(shown) is None:
            return match["text"] if "`" in match["text"] else f"`{match['text']}`"
        return f"[{match['text']}]({posixpath.relpath(shown, posixpath.dirname(uri) or '.')}{match['anchor'] or ''})"

    del config
    text = _LINK.sub(link, _FOR_THE_REPOSITORY.sub("", markdown))
    text = _SAMPLE.sub(lambda match: match[0].replace("```text", "``` { .text .rows }", 1), text)
    return behaviour.with_folded_columns(text) if uri == _BEHAVIOUR else text


def _site_uri(target: str) -> str | None:
    """Return the page or file of the site that a file of the repository is, or None."""
    for uri, name in _ROOT_PAGES.items():
        if name == target:
            return uri
    return target.removeprefix("docs/") if target.startswith("docs/") else None
