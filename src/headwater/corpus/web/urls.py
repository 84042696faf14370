"""The canonical form of URLs, and which URLs are the same page.

Canonical: an absolute http(s) URL with the host in lower case and ASCII, without default port, user, fragment, dot
segments and tracking parameters, with `&` for HTML's `&amp;` and the escapes that aiohttp sends. URLs are the same
page if their canonical forms differ at most in the scheme, a leading `www.` and a final slash.
"""

from __future__ import annotations

import ipaddress
import re

from headwater.errors import require_extra

# Parameters that identify where a visitor came from, not the page.
TRACKING = re.compile(
    r"^(utm_\w+|fbclid|gclid|dclid|msclkid|mc_[ce]id|igshid|yclid|_ga|ref_src|spm|cmpid|ocid|smid|CMP)$", re.I
)
PORTS = {"http": 80, "https": 443}
_AMPERSAND = re.compile("&(?:amp;)+")  # some pages escape it twice
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f<>\"\ufffd\ud800-\udfff]")
_UNDECODED = re.compile("[\udc80-\udcff]")  # bytes of a header that were not UTF-8
_HOST = re.compile(
    r"^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+$"
)
_NUMBER = re.compile(r"(^|\.)(\d+|0x[0-9a-f]*)$")
_MAXIMUM_CHARACTERS = 2048  # accepted by all common servers and browsers


def canonical_url(url: str) -> str:
    """Return the canonical form of `url`; empty if it is not an http(s) URL with a dotted host, or too long."""
    with require_extra("corpus", "reading URLs"):
        from yarl import URL
    url = _AMPERSAND.sub("&", url.strip())
    url = _UNDECODED.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:X}", url)
    if not url or len(url) > _MAXIMUM_CHARACTERS or _NOT_IN_URLS.search(url):
        return ""
    try:
        parts = URL(url)
        host = (parts.raw_host or "").rstrip(".")
        if _NUMBER.search(host):  # an address, in its usual spelling only (not 127.1, 0177.0.0.1)
            ipaddress.IPv4Address(host)
    except ValueError:
        return ""
    if parts.scheme not in PORTS or not _HOST.match(host):
        return ""
    query = "&".join(
        part for part in parts.raw_query_string.split("&") if part and not TRACKING.match(part.partition("=")[0])
    )
    location = host if parts.port in {None, PORTS[parts.scheme]} else f"{host}:{parts.port}"
    canonical = f"{parts.scheme}://{location}{parts.raw_path}{'?' if query else ''}{query}"
    return canonical if len(canonical) <= _MAXIMUM_CHARACTERS else ""


def page_key(url: str) -> str:
    """Return a key that is equal for canonical URLs of the same page."""
    return re.sub(r"^https?://(www\.)?", "", url).removesuffix("/")


def host_of(url: str) -> str:
    """Return the host of a canonical URL, with its port."""
    return url.split("/", 3)[2] if url.count("/") >= 2 else ""
