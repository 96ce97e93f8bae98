"""MkDocs hook: add the generated pages, and adapt links in docs/ to the site.

The pages in docs/ are written for readers of the repository. Here a link to a file outside docs/
becomes a link to the page with that file's text, and a command whose output a page shows becomes a
link to that page. Links between the languages are removed, since the site has a language menu. Also
written are the page that runs the pronunciation model, and one file for each article.
"""

from __future__ import annotations

import html
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import articles
import pages
import workbench
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import pellucid
from pellucid.apps import view
from pellucid.apps.teach.topic import TOPICS
from pellucid.apps.view.page import template

GENERATED = pages.generated()
SHOWN = {
    "`pellucid explain`": "explain/index.md",
    **{f"`pellucid explain {topic}`": f"explain/{topic}.md" for topic in TOPICS},
    "`pellucid recipes`": "recipes.md",
    "`pellucid train g2p-en --help-all`": "settings.md",
}
"""Commands, and the generated pages with their output."""
SYNONYMS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("synonyms.toml").read_text(encoding="utf-8")
)
"""Further words by which the search finds a page, by page and language."""
EMPTY_SITEMAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></urlset>\n'
LINKS = {
    "<!-- the model itself -->": ("view/try.html#tab=run", "Try it here", "여기서 바로 해 보기"),
    "<!-- the page that learns -->": ("view/learn.html", "Try it here", "여기서 바로 해 보기"),
    "<!-- the two columns -->": (
        "columns.html",
        "Read it in two columns",
        "순전파와 역전파를 두 단으로 나란히 읽기",
    ),
    "<!-- the other language -->": ("ko/index.html", "한국어", "English"),
    "<!-- the story -->": (
        "view/try.html#story=1",
        "A Transformer in eight screens",
        "여덟 장으로 보는 트랜스포머",
    ),
}
"""Places in docs/ for links to pages without a file there; address, and words in both languages."""
FIGURE = re.compile("<!-- figure (\\w+) -->")
"""Place of an interactive figure of viewer/src/figures in a page of docs/."""
ARTICLE = re.compile(r"^## (?:Article|글) (\d{3})\b.*$", re.MULTILINE)
"""Heading of an article on the pages about articles; a link to the article's file follows it."""
OTHER_LANGUAGE = re.compile(r"\s*\[(?:한국어|English)\]\((?!http)[^)]*\)")


@event_priority(100)  # before the plugin that chooses a page for each language
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the pictures and notebooks that pages link to."""
    for path in GENERATED:
        files.append(File(path, config.docs_dir, config.site_dir, config.use_directory_urls))
    for path in pages.assets():
        target = pages.source_page(path)
        asset = File(target, None, config.site_dir, config.use_directory_urls)
        asset.abs_src_path = str(pages.ROOT / path)
        files.append(asset)
    return files


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Return the text of a generated page; None for a file."""
    write = GENERATED.get(page.file.src_uri)
    return write() if write else None


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adapt a page's links, and add figures, links to files, and words for the search."""
    here = page.file.src_uri

    def inside(match: re.Match[str]) -> str:
        path = pages.outside(match.group(0), here)
        return pages.relative(pages.source_page(path), here) if path else match.group(0)

    korean = here.endswith(".ko.md")
    markdown += found_as(here, korean)
    if here in GENERATED:
        return markdown
    up = "../" if korean else ""
    for comment, (address, *words) in LINKS.items():
        own, tab = address, ""
        if address.startswith("view/"):
            mark = "&" if "#" in address else "#"
            own, tab = (up + address) + f"{mark}lang=ko" * korean, ' target="_blank"'
        elif korean and address.startswith("ko/"):
            own = up + address.removeprefix("ko/")
        markdown = markdown.replace(comment, f'<a href="{own}"{tab}>{words[korean]}</a>')
    markdown = markdown.replace("<!-- workbench -->", workbench.place(korean))
    for name in FIGURE.findall(markdown):
        place = pages.figure(name, "ko" if korean else "en", page=up + TRY, model=up + MODEL)
        markdown = markdown.replace(f"<!-- figure {name} -->", place)
    if here.partition(".")[0] in ("articles", "articles/map"):
        markdown = ARTICLE.sub(
            lambda head: (
                f"{head[0]}\n\n{articles.links(head[1], here, 'ko' if korean else 'en')}\n"
            ),
            markdown,
        )
    markdown = pages.LINK.sub(inside, OTHER_LANGUAGE.sub("", markdown))
    for command, shown in SHOWN.items():
        markdown = markdown.replace(command, f"[{command}]({pages.relative(shown, here)})")
    return markdown


def found_as(path: str, korean: bool) -> str:
    """Return the end of a page: further words by which the search finds it."""
    words = SYNONYMS.get(path.replace(".ko.md", ".md"))
    if words is None:
        return ""
    head = "검색어" if korean else "Also searched for"
    return f'\n\n<p class="also" markdown="0">{head}: {words["ko" if korean else "en"]}</p>\n'


TRY, MODEL, LEARN = "view/try.html", "view/model.js", "view/learn.html"
"""Site paths of the pronunciation model's page, of the model, and of the page that trains."""


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search dialog, limit the search to one language, and add a link preview.

    The search index and its results are addressed relative to the base of the page, which for a
    Korean page is the Korean site.
    """
    korean = str(config.theme["language"]) == "ko"
    name = "검색" if korean else "Search"
    output = output.replace('role="dialog"', f'role="dialog" aria-label="{name}"', 1)
    about = str(page.meta.get("description") or config.site_description or "")
    tags = card(config, page.title or "", about, page.canonical_url or "")
    output = output.replace("</head>", f"{tags}</head>", 1)
    return BASE.sub(lambda found: found.group(1) or ".", output, count=1) if korean else output


def card(config: MkDocsConfig, title: str, description: str, url: str) -> str:
    """Return the Open Graph tags of a page, for link previews: title, description, picture.

    A picture needs an absolute address, so without `site_url` there is none.
    """
    about = {"type": "article", "site_name": config.site_name, "title": title}
    about["description"] = description
    if config.site_url:
        about |= {"url": url, "image": f"{config.site_url}{CARD}"}
    tags = [
        f'<meta property="og:{name}" content="{html.escape(text)}">' for name, text in about.items()
    ]
    return "".join([*tags, '<meta name="twitter:card" content="summary_large_image">'])


CARD = "view/try.png"
"""The picture of all link previews: the model in a page."""
CARDS = {
    TRY: ("A Transformer in eight screens", "Type a word, and see how a Transformer reads it."),
    LEARN: ("Watch a Transformer learn", "It trains in the page, and you look inside."),
}
"""Title and description of the pages that run a model, for link previews."""
BASE = re.compile(r'(?<="base": ")(?:\.\.|(\.\.(?:/\.\.)*)/\.\.)(?=")')
"""The base in a page's settings, and the part of it that leads to the Korean site."""


@event_priority(-200)  # after the plugins have written the index of all languages
def on_post_build(config: MkDocsConfig) -> None:
    """Write further files into the site, and a search index for each language.

    The index is also written as a script, because a page opened from the disk cannot read JSON.
    """
    if config.plugins["i18n"].building:  # type: ignore[attr-defined]
        return
    site = Path(config.site_dir)
    picture = view.attention(pellucid.load("g2p-en"), "attention", run=True)
    picture.save(site / TRY)
    runs = {TRY: (site / TRY).read_text(encoding="utf-8"), LEARN: template("learn.html")}
    for path, html_text in runs.items():
        tags = card(config, *CARDS[path], f"{config.site_url}{path}")
        shown = html_text.replace("</head>", f"{tags}</head>", 1)
        (site / path).write_text(shown, encoding="utf-8")
    (site / MODEL).write_text(f"pellucidModel = {json.dumps(picture.model)}", encoding="utf-8")
    articles.write(site)
    workbench.write(site)
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    parts: dict[str, list[dict[str, Any]]] = {"": [], "ko/": []}
    for entry in index["docs"]:
        prefix = "ko/" if entry["location"].startswith("ko/") else ""
        parts[prefix].append({**entry, "location": entry["location"].removeprefix(prefix)})
    for prefix, entries in parts.items():
        languages = ["en", "ko"] if prefix else ["en"]
        own = {**index, "config": {**index["config"], "lang": languages}, "docs": entries}
        text = json.dumps(own, ensure_ascii=False)
        folder = site / prefix / "search"
        folder.mkdir(exist_ok=True)
        (folder / "search_index.json").write_text(text, encoding="utf-8")
        (folder / "search_index.js").write_text(f"var __index = {text}", encoding="utf-8")
    # The theme's language menu asks for one in the folder of the page that it leads to.
    for folder in {page.parent for page in site.rglob("*.html")} - {site}:
        (folder / "sitemap.xml").write_text(EMPTY_SITEMAP, encoding="utf-8")
