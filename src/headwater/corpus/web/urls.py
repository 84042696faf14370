"""The canonical form of URLs, and which URLs are the same page.

Canonical: an absolute http(s) URL with the host in lower case and ASCII, without default port, user, fragment, dot
segments and tracking parameters, with `&` for HTML's `&amp;` and escapes in upper case. URLs are the same page if
their canonical forms differ at most in the scheme, a leading `www.` and a final slash.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from headwater.errors import require_extra

# Parameters that identify where a visitor came from, not the page.
TRACKING = re.compile(
    r"^(utm_\w+|fbclid|gclid|dclid|msclkid|mc_[ce]id|igshid|yclid|_ga|ref_src|spm|cmpid|ocid|smid|CMP)$", re.I
)
PORTS = {"http": 80, "https": 443}
_AMPERSAND = re.compile("&(?:amp;)+")  # some pages escape it twice
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")
_HOST = re.compile(
    r"^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+$"
)
_NUMBER = re.compile(r"(^|\.)(\d+|0x[0-9a-f]*)$")
_MAXIMUM_CHARACTERS = 2048  # accepted by all common servers and browsers


def canonical_url(url: str) -> str:
    """Return the canonical form of `url`; empty if it is not an http(s) URL with a dotted host, or too long."""
    url = _AMPERSAND.sub("&", url.strip())
    if not url or len(url) > _MAXIMUM_CHARACTERS or re.search(r"[\x00-\x20\x7f<>\"\ufffd]", url):
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = _ascii_host((parts.hostname or "").rstrip(".")).lower()
        if _NUMBER.search(host):  # an address, in its usual spelling only (not 127.1, 0177.0.0.1)
            ipaddress.IPv4Address(host)
        path, query = _escaped(_without_dots(parts.path)), _query(parts.query)
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    if scheme not in PORTS or not _HOST.match(host):
        return ""
    location = host if port in {None, PORTS[scheme]} else f"{host}:{port}"
    canonical = urlunsplit(SplitResult(scheme, location, path, query, ""))
    return canonical if len(canonical) <= _MAXIMUM_CHARACTERS else ""


def _ascii_host(host: str) -> str:
    """Return a host in ASCII as browsers do (IDNA 2008, UTS 46; Python's own codec has the IDNA of 2003).

    Raises ValueError if it has no such form.
    """
    if host.isascii():
        return host
    with require_extra("corpus", f"the host {host}"):
        import idna
    return idna.encode(host, uts46=True).decode("ascii")


def page_key(url: str) -> str:
    """Return a key that is equal for canonical URLs of the same page."""
    return re.sub(r"^https?://(www\.)?", "", url).removesuffix("/")


def host_of(url: str) -> str:
    """Return the host of a canonical URL, with its port."""
    return url.split("/", 3)[2] if url.count("/") >= 2 else ""


def _without_dots(path: str) -> str:
    """Resolve `.` and `..` in a path (RFC 3986, section 5.2.4), also in their escaped forms."""
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
    """Escape non-ASCII characters as UTF-8, with all escapes in upper case.

    Raises UnicodeEncodeError for a surrogate, unless it encodes an undecodable byte.
    """
    text = quote(text, safe="!#$%&'()*+,/:;=?@[]~|{}^`\\", errors="surrogateescape")
    return _ESCAPE.sub(lambda escape: escape.group().upper(), text)
