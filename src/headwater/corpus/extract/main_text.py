"""Extract the main text of a web page, without navigation, notices and lists of other pages.

Resiliparse finds the main content by the names and positions of elements, and `SKIPPED` names more elements
to leave out. The result is checked and trimmed here. If it has almost none of the page's prose, since the page's
template is unknown, all visible text replaces it. If the page has an element that usually contains the article,
the text ends where that element ends. It also ends at a heading of related articles or comments near its end. A
line that is repeated is kept once, except a long paragraph. Everything before the first and after the last line
of prose is removed: mostly titles, dates, sharing buttons and links. A line that marks a copy of Wikipedia is
kept for the step that looks for it.

A line is prose if it is long, or shorter and ends like a sentence. Lengths are in UTF-8 bytes, since scripts of
wide characters have shorter sentences.

`SKIPPED` are CSS selectors of elements that are left out; `UNNAMED` are those of them that HTML defines as not
part of the content. A class or an id that contains one of `_WORDS` marks an element as boilerplate unless it is
large: a wrapper of the whole page often has such a name too. Large means that it has a main heading, an article,
or four sibling paragraphs. `CONTAINER` selects the element that usually has the whole article, `LEAD` its first
paragraph, which many templates put in the header, where Resiliparse expects none. `ends_article` recognises the
headings of related articles, comments and subscriptions, `is_notice` lines inside an article that are not part of
it: labels of advertisements, links to other articles, calls to follow or subscribe.

A reader without scripts sees the content of `<noscript>`: if it has an article, it is the article.

The words and headings were chosen on halves of four annotated sets (`benchmarks/corpus.py`): a word is here if
leaving its elements out removed more unwanted text than wanted text.

Code, verse and tables are repetitive by nature: lines of `<pre>`, lines next to `<br>` and rows of tables are kept
each time, and a block of code at either end stays.

| what | value | source |
|---|---|---|
| SENTENCE_BYTES | 40 | ours, like all here: chosen on the tuning halves of the sets in docs/corpus.md |
| LONG_BYTES | 80 | |
| LEAST_SHARE | 0.06 | minimum share of the page's prose for the main content to be used |
| ENOUGH_PROSE | 1,500 | characters of prose from which the main content is used without checking the share |
| LITTLE_PROSE | 300 | characters of prose below which the elements named in `_WORDS` are kept too |
| NAMED_SHARE | 0.4 | minimum share of the prose that leaving named elements out must keep |
| CONTAINER_SHARE | 0.4 | minimum share of the prose for the end of the article's element to be used |
| HEADING_SHARE | 0.7 | share of the prose before a heading that ends the article |
| REPEATED_CHARACTERS | 300 | a longer line is kept each time |
| EDGE_BYTES | 30 | of a sentence that may be the first or the last line |
| NOTICE_CHARACTERS | 200 | a longer line is not a notice |
| ARTICLE_PARAGRAPHS | 4 | in a `<noscript>` that has the article |
| LINK_SHARE | 0.5 | of the characters of a list that is not a menu may be in links |
| ITEM_CHARACTERS | 20 | mean length of an item of a list that is not next to a paragraph or in a list |
"""

from __future__ import annotations

import html
import re
from collections import Counter
from itertools import chain
from typing import Any

from headwater.corpus.filters.wikipedia import has_mark

SENTENCE_BYTES = 40
LONG_BYTES = 80
LEAST_SHARE = 0.06
ENOUGH_PROSE = 1500
LITTLE_PROSE = 300
NAMED_SHARE = 0.4
CONTAINER_SHARE = 0.4
HEADING_SHARE = 0.7
REPEATED_CHARACTERS = 300
EDGE_BYTES = 30
NOTICE_CHARACTERS = 200
ARTICLE_PARAGRAPHS = 4
LINK_SHARE = 0.5
ITEM_CHARACTERS = 20
_CELLS = "\t\t"  # between the cells of a row
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_SENTENCE_END = re.compile(r"""[.!?…:;。！？]["'”’»)\]]*$""")


_WORDS = """
    about-author about-the-author advert anzeige author-bio author-box author-desc author-info author-profile
    author-card author_bio author_box authorbox banner breadcrumb caption captcha carousel comment-form commentform
    comments consent contact- cookie copyright credit cta- disclaimer disclosure email follow footer gallery
    gdpr kommentar latest legend linkbox masthead modal newsletter notice pagination popular popup privacy promo
    rating read-more readmore recent recommend related respond seitenfuss share signup site-branding
    site-description site-header social sponsor subscri swiper tagline werbung
"""
_SMALL = ":not(:has(h1, article, main, p ~ p ~ p ~ p)):not(body, html, article, main)"
_NAMED = ",".join(f'[{name}*="{word}" i]{_SMALL}' for word in _WORDS.split() for name in ("class", "id"))
UNNAMED = ["aside", "button", "footer", "nav"]
SKIPPED = [*UNNAMED, "fieldset", "legend", "label", f"form{_SMALL}", _NAMED]
LEAD = ".lead, .article-teaser, .intro-text, .article-intro, .standfirst, .article-deck"
CONTAINER = (
    '[itemprop*="articleBody" i], .entry-content, .post-content, .article-body, .article-content, .article__body, '
    ".post-body, .story-body, .article__content, .td-post-content, .post__content, .single-content, "
    ".content-body, .article-text, .articletext, .node__content, .field-name-body, .entry"
)

_HEADING_CHARACTERS = 60
_HEADINGS = re.compile(
    r"""
    (?:related|more|other|further|similar|recommended|popular|latest|recent)\s+(?:\w+\s+)?
        (?:articles?|stories|posts?|news|reading|topics|content|links|on|from|about)\b
    | you\ (?:may|might)\ (?:also\ )?(?:like|be\ interested) | related\b | read\ (?:also|more|next|further)\b
    | see\ also\b | leave\ a\ (?:reply|comment) | post\ a\ comment | (?:\d+\ )?comments?\b | your\ email\ address
    | about\ the\ author | share\ this | sign\ up | subscribe | newsletter | references$ | sources?:?$
    | ähnliche | weitere | passende | verwandte | neueste | aktuelle | das\ könnte | auch\ interessant | mehr\b
    | lesen\ sie\ auch | zum\ weiterlesen | schreibe?\ (?:einen\ )?kommentar | (?:\d+\ )?kommentare?\b
    | (?:jetzt\ |artikel\ )?teilen\b | über\ den\ autor | quellen?(?:angaben|nachweise?)?:?$
    | à\ lire | lire\ (?:aussi|également) | articles?\ (?:liés|similaires|connexes) | commentaires? | partager
    | te\ puede\ interesar | lea\ también | noticias\ relacionadas | relacionad | comentarios | compartir
    | artículos\ relacionados | más\ (?:noticias|de)\b | leggi\ anche | articoli\ correlati | commenti\b
    | lees\ ook | zobacz\ (?:też|także) | czytaj\ (?:też|także|również) | komentarze
    | leia\ (?:também|mais) | comentários | keep\ reading | read\ further | what\ to\ read | support\ (?:us|our)\b
    | most\ (?:read|popular) | lust\ auf\ mehr | (?:artikel|beitrag)\ gefallen | vorschau\ auf | meist\ ?gelesen
    | auch\ spannend | unterstütze?n?\b | dowiedz\ się | vos\ réactions | réagir\b | síguenos | sigue\ leyendo
    | 관련\ ?(?:기사|글|뉴스) | 댓글 | 関連記事 | コメント | 相关 | читайте\ также | комментари
    """,
    re.IGNORECASE | re.VERBOSE,
)

_NOTICES = re.compile(
    r"""
    \W*(?:advertisement|advertorial|anzeige|werbung|publicidad|publicité|reklama|광고|広告)\b.{0,60}$
    | (?:à\ lire|lire\ (?:aussi|également)|lea\ también|puedes\ ver|leia\ também|read\ (?:also|more)|see\ also
        |lesen\ sie\ auch|lees\ ook|leggi\ anche|czytaj\ (?:też|także|również)|zobacz\ (?:też|także)
        |관련\ ?기사|関連記事)\s*(?:[:：]|$)
    | \W*(?:(?:please|and|jetzt|to\ [^.!?]{,40})[\s,]+)*
        (?:follow|subscribe|sign\ up|download|s[íi]gue|s[íi]guenos|[úu]nete|folgt?|abonniert?|suivez|obserwuj)\b
        .*\b(?:twitter|facebook|instagram|telegram|whatsapp|youtube|tiktok|newsletter|apps?|edition|us|our|uns)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NOSCRIPT = re.compile(r"<noscript\b[^<>]*>(.*?)</noscript\s*>", re.IGNORECASE | re.DOTALL)


def main_text(page: str, left_out: Counter[str] | None = None) -> str:
    """Return the main text of a page's HTML; empty if it has no text.

    left_out: counts the lines inside the text that are left out of it.
    """
    from resiliparse.parse.html import HTMLTree

    tree: Any = HTMLTree.parse(_NOSCRIPT.sub(_shown, page))
    _keep_lists(tree)
    lead = _lead(tree)
    code = _code_lines(tree)
    lines = _content_lines(tree)
    prose = _prose_characters(lines)
    if prose < ENOUGH_PROSE:
        with_named = _content_lines(tree, UNNAMED)
        if _prose_characters(with_named) >= ENOUGH_PROSE and prose < NAMED_SHARE * _prose_characters(with_named):
            lines = with_named
            prose = _prose_characters(lines)
    if prose < ENOUGH_PROSE:
        for skipped in (SKIPPED, ["button", "nav"]) if prose < LITTLE_PROSE else (SKIPPED,):
            everything = _lines(tree, main_content=False, skip_elements=skipped)
            if prose < LEAST_SHARE * _prose_characters(everything):
                lines = everything
                prose = _prose_characters(lines)
    lines = _to_end_of_container(lines, tree, code)
    every = _trimmed(_to_heading(lines, code), code)
    once = _once(every, code | _verse_lines(page))
    lines = [line for line in once if line.strip() in code or not is_notice(line)]
    if left_out is not None:
        left_out += Counter({"repeated lines": len(every) - len(once), "notices": len(once) - len(lines)})
    if lead and lead not in " ".join(" ".join(lines).split()):
        lines = [lead, "", *lines]
    return "\n".join(lines)


def _keep_lists(tree: Any) -> None:
    """Make `<ol>` of each `<ul>` that is text, not links: resiliparse takes a `<ul>` for a menu and drops it."""
    for old in tree.document.query_selector_all("ul"):
        text = len(old.text.strip())
        links = sum(len(link.text.strip()) for link in old.query_selector_all("a"))
        items = len(old.query_selector_all("li"))
        parent = old.parent
        inline = parent is not None and (parent.tag == "li" or any(node.tag == "p" for node in parent.child_nodes))
        if text and links < LINK_SHARE * text and (inline or text >= ITEM_CHARACTERS * items):
            new = tree.create_element("ol")
            for name in old.attrs:
                new.setattr(name, old.getattr(name))
            for child in list(old.child_nodes):
                new.append_child(child)
            parent.replace_child(new, old)


def _shown(noscript: re.Match[str]) -> str:
    """Return the content of a `<noscript>` that has an article, not a notice on scripts; else the element."""
    content = noscript[1].lower()
    is_article = content.count("<p") >= ARTICLE_PARAGRAPHS and "javascript" not in content
    return noscript[1] if is_article else noscript[0]


def _lead(tree: Any) -> str:
    """Return the first paragraph of the article, if the page marks one; several belong to other articles."""
    elements = tree.document.query_selector_all(LEAD)
    texts = {text for text in (" ".join(element.text.split()) for element in elements) if is_prose(text)}
    return texts.pop() if len(texts) == 1 else ""


def is_prose(line: str, sentence_bytes: int = SENTENCE_BYTES) -> bool:
    """Return whether a line reads like running text."""
    line = line.strip()
    size = len(line.encode("utf-8", "replace"))
    return size >= LONG_BYTES or (size >= sentence_bytes and _SENTENCE_END.search(line) is not None)


def ends_article(line: str) -> bool:
    """Return whether a line reads like the heading of what follows an article."""
    line = line.strip()
    return len(line) < _HEADING_CHARACTERS and _HEADINGS.match(line) is not None


def is_notice(line: str) -> bool:
    """Return whether a line is a label of an advertisement, a link to another article, or a call to subscribe."""
    line = line.strip()
    return len(line) < NOTICE_CHARACTERS and _NOTICES.match(line) is not None


def _content_lines(tree: Any, skipped: list[str] = SKIPPED) -> list[str]:
    return _lines(tree, main_content=True, comments=False, post_meta=False, skip_elements=skipped)


def _lines(tree: Any, **options: Any) -> list[str]:
    from resiliparse.extract.html2text import extract_plain_text

    text = extract_plain_text(tree, preserve_formatting=True, alt_texts=False, list_bullets=False, **options)
    return [line.rstrip() for line in text.split("\n")]


def _prose_characters(lines: list[str]) -> int:
    return sum(len(line) for line in lines if is_prose(line))


def _code_lines(tree: Any) -> set[str]:
    """Return the lines of all `<pre>`, without their indentation."""
    blocks = tree.body.get_elements_by_tag_name("pre") if tree.body is not None else ()
    return {line.strip() for block in blocks for line in block.text.split("\n")} - {""}


def _verse_lines(page: str) -> set[str]:
    """Return the lines before and after each `<br>`, as far as they have no markup."""
    pieces = _BREAK.split(page)
    before = (piece.rpartition(">")[2] for piece in pieces[:-1])
    after = (piece.partition("<")[0] for piece in pieces[1:])
    return {" ".join(html.unescape(line).split()) for line in chain(before, after)} - {""}


def _to_end_of_container(lines: list[str], tree: Any, code: set[str]) -> list[str]:
    """Return the lines to the last prose or code of the article's element; all if it has none. Changes `tree`."""
    container = tree.document.query_selector(CONTAINER)
    if container is None or tree.body is None:
        return lines
    tree.body.replace_children(container)
    contained = [line.strip() for line in _content_lines(tree) if is_prose(line) or line.strip() in code]
    if sum(map(len, contained)) < CONTAINER_SHARE * _prose_characters(lines) or not contained:
        return lines
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].strip() == contained[-1]:
            return lines[: number + 1]
    return lines


def _to_heading(lines: list[str], code: set[str]) -> list[str]:
    """Return the lines before a heading of related articles or comments, if most of the prose is before it."""
    least, seen = HEADING_SHARE * _prose_characters(lines), 0
    for number, line in enumerate(lines):
        if is_prose(line):
            seen += len(line)
        elif seen and seen >= least and ends_article(line) and line.strip() not in code:
            return lines[:number]
    return lines


def _once(lines: list[str], repeated: set[str]) -> list[str]:
    """Return the lines without repetitions of sentences: captions and teasers are often repeated.

    Lines that are in `repeated`, and rows of a table, are kept each time.
    """
    seen: set[str] = set()
    unique = []
    for line in lines:
        key = line.strip()
        if SENTENCE_BYTES <= len(key) < REPEATED_CHARACTERS and key not in repeated and _CELLS not in key:
            if key in seen:
                continue
            seen.add(key)
        unique.append(line)
    return unique


def _trimmed(lines: list[str], code: set[str]) -> list[str]:
    """Return the lines from the first line of prose or code to the last; all if there is none (a poem, a list)."""
    numbers = [
        number
        for number, line in enumerate(lines)
        if is_prose(line, EDGE_BYTES) or line.strip() in code or has_mark(f"{line}\n")
    ]
    return lines[numbers[0] : numbers[-1] + 1] if numbers else lines
