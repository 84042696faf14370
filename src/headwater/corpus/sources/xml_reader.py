"""Read untrusted XML as a stream, with bounded memory and without entity declarations.

Entities expand: a file of a hundred bytes can define a text of gigabytes. expat reports a declaration before it
expands anything, in any encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from xml.parsers import expat

_DEPTH = 1000  # elements inside each other


class Element(NamedTuple):
    """A complete element: its name without namespace, attributes, the text after its last child, and its depth."""

    name: str
    attributes: dict[str, str]
    text: str
    depth: int


class XmlError(ValueError):
    """A file that is not XML, or not accepted."""


def read_elements(blocks: Iterable[bytes], limit: int, *, whole: bool = True) -> Iterator[Element]:
    """Stream the elements of a document in the order of their ends.

    Raises XmlError for XML that is malformed, declares entities, or has a tag or text longer than `limit`; with
    `whole` also for a document that ends too early.
    """
    reader = _Reader(limit)
    for block in blocks:
        yield from reader.feed(block, final=False)
    if whole:
        yield from reader.feed(b"", final=True)


class _Reader:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: list[tuple[str, dict[str, str]]] = []
        self._texts: list[str] = []  # of the innermost open element
        self._size = 0  # of these texts
        self._ended: list[Element] = []
        self._silent = 0  # bytes since the parser last reported anything
        self._reported = False
        self._parser = expat.ParserCreate(namespace_separator="}")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.EntityDeclHandler = self._entity

    def feed(self, block: bytes, *, final: bool) -> Iterator[Element]:
        """Parse a block and yield the elements that end in it, also those before an error."""
        self._reported = False
        failure: XmlError | None = None
        try:
            self._parser.Parse(block, final)
        except expat.ExpatError as error:
            failure = XmlError(str(error))
        except XmlError as error:
            failure = error
        self._silent = 0 if self._reported else self._silent + len(block)
        if failure is None and self._silent > self._limit:
            failure = XmlError(f"a tag is longer than {self._limit:,} bytes")
        ended, self._ended = self._ended, []
        yield from ended
        if failure is not None:
            raise failure

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._reported = True
        if len(self._open) >= _DEPTH:
            raise XmlError(f"elements are nested more than {_DEPTH:,} deep")
        self._open.append((name.rpartition("}")[2], attributes))
        self._texts, self._size = [], 0

    def _text(self, text: str) -> None:
        self._reported = True
        self._size += len(text)
        if self._size > self._limit:
            raise XmlError(f"the text of an element is longer than {self._limit:,} characters")
        self._texts.append(text)

    def _end(self, name: str) -> None:
        self._reported = True
        label, attributes = self._open.pop()
        self._ended.append(Element(label, attributes, "".join(self._texts), len(self._open)))
        self._texts, self._size = [], 0

    def _entity(self, *unused: Any) -> None:
        raise XmlError("it declares entities")
