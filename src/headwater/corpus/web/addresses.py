"""Allow only addresses of the public internet, checked when a name is resolved."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections import OrderedDict
from typing import Any

_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_UNICAST6 = ipaddress.ip_network("2000::/3")  # global unicast
# Special addresses that `is_global` of some version of Python calls global, and multicast.
_SPECIAL = [
    ipaddress.ip_network(block)
    for block in ("192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/3", "2001::/23", "3fff::/20")
]
_NAMES_KEPT = 100_000
_NAME_SECONDS = 300.0


class PrivateAddress(OSError):
    """DNS answered with an address that is not public."""


def is_public(text: str) -> bool:
    """Return whether an address is public; raise ValueError for text that is not an address.

    An IPv6 address that embeds an IPv4 address (mapped, 6to4, NAT64) is public if that is.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        translated = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        inner = address.ipv4_mapped or address.sixtofour or translated
        if inner is None and address not in _UNICAST6:
            return False
        address = inner or address
    return address.is_global and not any(address in block for block in _SPECIAL)


def make_resolver(aiohttp: Any, allow_private: bool) -> Any:
    """Return a caching resolver for aiohttp that accepts only public addresses, unless `allow_private`."""
    base: Any = aiohttp.ThreadedResolver

    class Public(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._kept: OrderedDict[tuple[str, int], tuple[float, Any]] = OrderedDict()

        async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_UNSPEC) -> Any:
            until, answers = self._kept.get((host, port), (0.0, None))
            if until <= time.monotonic():
                answers = await super().resolve(host, port, family)
                if not allow_private and not all(is_public(a["host"]) for a in answers):
                    raise PrivateAddress(f"{host} is at an address that is not public")
                self._kept[host, port] = time.monotonic() + _NAME_SECONDS, answers
                if len(self._kept) > _NAMES_KEPT:
                    self._kept.popitem(last=False)
            return answers

    return Public()
