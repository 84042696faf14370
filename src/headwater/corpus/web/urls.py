"""The canonical form of a URL, and what counts as the same page.

Canonical: an absolute http(s) URL with its host in lower case and ASCII, without default port, user, fragment,
dot segments and tracking parameters, HTML's `&amp;` undone, escapes in upper case. Two URLs are the same page when
their canonical forms agree but for the scheme, a leading `www.` and a final slash.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

# Parameters that say where a visitor came from, not what the page is.
TRACKING = re.compile(
    r"^(utm_\w+|fbclid|gclid|dclid|msclkid|mc_[ce]id|igshid|yclid|_ga|ref_src|spm|cmpid|ocid|smid|CMP)$", re.I
)
_PORTS = {"http": 80, "https": 443}
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")
_HOST = re.compile(
    r"^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+$"
)
_NUMBER = re.compile(r"(^|\.)(\d+|0x[0-9a-f]*)$")
_MAXIMUM_CHARACTERS = 2048  # what servers and browsers agree to read


def canonical_url(url: str) -> str:
    """The canonical form of `url`, or an empty text where it is no http(s) URL with a dotted host."""
    url = url.strip().replace("&amp;", "&")
    if not url or len(url) > _MAXIMUM_CHARACTERS or re.search(r"[\x00-\x20\x7f<>\"]", url):
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".").encode("idna").decode("ascii").lower()
        if _NUMBER.search(host):  # an address; other spellings of it (127.1, 0177.0.0.1) are nobody's name
            ipaddress.IPv4Address(host)
        path, query = _escaped(_without_dots(parts.path)), _query(parts.query)
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not _HOST.match(host):
        return ""
    location = host if port in {None, _PORTS[scheme]} else f"{host}:{port}"
    return urlunsplit(SplitResult(scheme, location, path, query, ""))


def page_key(url: str) -> str:
    """What is equal for two canonical URLs of the same page."""
    return re.sub(r"^https?://(www\.)?", "", url).removesuffix("/")


def host_of(url: str) -> str:
    """The host of a canonical URL, its port with it."""
    return url.split("/", 3)[2] if url.count("/") >= 2 else ""


def domain_name(url: str) -> str:
    """The name under which OpenAI's list counts a host: `nytimes` for www.nytimes.com, `bbc` for news.bbc.co.uk.

    The last label that is no public suffix, after the common second-level ones (co, com, org, net, ac, gov, edu
    before a country).
    """
    labels = host_of(url).partition(":")[0].split(".")
    if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL:
        return labels[-3]
    return labels[-2] if len(labels) > 1 else labels[0]


_SECOND_LEVEL = {"co", "com", "org", "net", "ac", "gov", "edu", "or", "go", "ne", "re", "gob"}


def _without_dots(path: str) -> str:
    """The path as it is asked for: `.` and `..` resolved (RFC 3986, section 5.2.4), their escaped forms too."""
    kept: list[str] = []
    plain = ""
    for segment in path.split("/")[1:]:
        plain = re.sub("%2e", ".", segment, flags=re.I)
        if plain == "..":
            del kept[-1:]
        elif plain != ".":
            kept.append(segment)
    return "/" + "/".join([*kept, ""] if plain in {".", ".."} else kept)


def _query(query: str) -> str:
    kept = [part for part in query.split("&") if part and not TRACKING.match(part.partition("=")[0])]
    return _escaped("&".join(kept))


def _escaped(text: str) -> str:
    """Non-ASCII as UTF-8 escapes, escapes in upper case, everything else as it is.

    Raises UnicodeEncodeError for a surrogate, but for one that stands for a byte that was no UTF-8.
    """
    text = quote(text, safe="!#$%&'()*+,/:;=?@[]~|{}^`\\", errors="surrogateescape")
    return _ESCAPE.sub(lambda found: found.group().upper(), text)
