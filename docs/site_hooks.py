"""What MkDocs needs to make a site of pages that are read on a code host as well.

The README and its siblings at the root become pages of the site, and a link to a file of the repository that is no page
becomes a link to the code host.
"""

from __future__ import annotations

import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FROM_THE_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""A page at the root of the repository, and what it is called on the site."""

LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root to the site."""
    for source, target in FROM_THE_ROOT.items():
        text = _file(config, source)
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to where its targets are on the site."""
    sources = {target: source for source, target in FROM_THE_ROOT.items()}
    here = page.file.src_uri
    source = sources.get(here, f"docs/{here}")

    def rewritten(link: re.Match[str]) -> str:
        start, target, end = link.groups()
        if re.match(r"[a-z]+:", target):
            return link[0]
        return f"{start}{_on_the_site(posixpath.join(posixpath.dirname(source), target), here, config, files)}{end}"

    return LINK.sub(rewritten, markdown)


def _on_the_site(path: str, here: str, config: MkDocsConfig, files: Files) -> str:
    """Return the link to a path of the repository, from a page of the site."""
    path = posixpath.normpath(path)
    page = FROM_THE_ROOT.get(path, path.removeprefix("docs/"))
    if (path in FROM_THE_ROOT or path.startswith("docs/")) and files.get_file_from_path(page):
        return posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{config.repo_url}/blob/main/{path}"


def _file(config: MkDocsConfig, name: str) -> str:
    with open(posixpath.join(posixpath.dirname(config.config_file_path), name), encoding="utf-8") as file:
        return file.read()
