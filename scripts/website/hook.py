"""MkDocs' hook: adds the generated pages, and makes links of docs/ lead to pages of the site.

The pages in docs/ are written for a reader of the repository. Here a link to a file outside docs/
becomes a link to the page with that file's text, and links between the languages are left to the
language menu.
"""

from __future__ import annotations

import re
from typing import Any

import pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

GENERATED = pages.generated()
OTHER_LANGUAGE = re.compile(r"\s*\[(?:한국어|English)\]\((?!http)[^)]*\)")


@event_priority(100)  # before the plugin that chooses a page for each language
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the pictures and notebooks that pages lead to."""
    for path in GENERATED:
        files.append(File(path, config.docs_dir, config.site_dir, config.use_directory_urls))
    for path in pages.assets():
        target = pages.source_page(path)
        asset = File(target, None, config.site_dir, config.use_directory_urls)
        asset.abs_src_path = str(pages.ROOT / path)
        files.append(asset)
    return files


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Return the text of a generated page."""
    write = GENERATED.get(page.file.src_uri)
    return write() if write else None


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Make links out of docs/ lead to the pages of those files."""
    here = page.file.src_uri

    def inside(match: re.Match[str]) -> str:
        path = pages.outside(match.group(0), here)
        return pages.relative(pages.source_page(path), here) if path else match.group(0)

    if here in GENERATED:
        return markdown
    return pages.LINK.sub(inside, OTHER_LANGUAGE.sub("", markdown))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search dialog, which the theme leaves without a name."""
    name = {"ko": "검색"}.get(str(config.theme["language"]), "Search")
    return output.replace('role="dialog"', f'role="dialog" aria-label="{name}"', 1)
