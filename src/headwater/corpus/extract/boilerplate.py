"""Name what surrounds the main text of a page: elements by their class or id, and headings that end an article.

`SKIPPED` are CSS selectors of elements that are left out; `UNNAMED` are those of them that HTML defines as
not part of the content. A class or an id that contains one of `_WORDS` marks an element as boilerplate unless
it is large: a wrapper of the whole page often has such a name too. Large means that it has a main heading, an
article, or four sibling paragraphs. `CONTAINER` selects the element that usually has the whole article.
`ends_article` recognises the headings of related articles, comments and subscriptions.

The words and headings were chosen on halves of four annotated sets (`benchmarks/corpus.py`): a word is here if
leaving its elements out removed more unwanted text than wanted text.
"""

from __future__ import annotations

import re

_WORDS = """
    about-author about-the-author advert anzeige author-bio author-box author-desc author-info author-profile
    author_bio author_box authorbox banner breadcrumb caption captcha carousel comment-form commentform
    comments consent contact- cookie copyright credit cta- disclaimer disclosure email follow footer gallery
    gdpr kommentar latest linkbox masthead modal newsletter notice pagination popular popup privacy promo
    rating read-more readmore recent recommend related respond seitenfuss share signup site-branding
    site-description site-header social sponsor subscri swiper tagline werbung
"""
_SMALL = ":not(:has(h1, article, main, p ~ p ~ p ~ p)):not(body, html, article, main)"
_NAMED = ",".join(f'[{name}*="{word}" i]{_SMALL}' for word in _WORDS.split() for name in ("class", "id"))
UNNAMED = ["aside", "button", "footer", "nav"]
SKIPPED = [*UNNAMED, "fieldset", "legend", "label", f"form{_SMALL}", _NAMED]
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
    | leia\ (?:também|mais) | comentários
    | 관련\ ?(?:기사|글|뉴스) | 댓글 | 関連記事 | コメント | 相关 | читайте\ также | комментари
    """,
    re.IGNORECASE | re.VERBOSE,
)


def ends_article(line: str) -> bool:
    """Return whether a line reads like the heading of what follows an article."""
    line = line.strip()
    return len(line) < _HEADING_CHARACTERS and _HEADINGS.match(line) is not None
