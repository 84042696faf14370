"""The source `python-docs`: the documentation in the Python packages installed on this machine.

Every machine that runs Headwater has several megabytes of real, labelled prose: the docstrings of the standard
library and of every distribution in site-packages, except Headwater, and the language reference that CPython has
for `help()`. The source files are parsed with `ast`; nothing is imported or executed. The corpus depends on the
installed packages.

Included are public modules, classes and functions whose docstring has at least MINIMUM_CHARACTERS, without tests
and vendored copies. A docstring is left out if it equals an earlier one (inherited methods, copied files), or if
more than REPEATED_SHARE of its runs of RUN_WORDS words occur in earlier ones (descriptions of parameters are often
copied). Without this rule, 29 % of the words of a held-out part are in such runs of the training part; with it,
9 %. A file that cannot be read or parsed is skipped and counted. The size of a package is not limited: with the
packages that Headwater needs, the largest (torch, sympy) have about a quarter of the text each.

Order: the language reference, then packages by name, including "python" (the standard library), then modules by
name, then objects as in the file.

A limit in bytes takes a sample of the modules: they are read in the order of a hash of their names until the limit
is reached, and yielded in the usual order.
"""

from __future__ import annotations

import ast
import inspect
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headwater.corpus.dedup.keys import text_fingerprint
from headwater.corpus.dedup.overlap import Grams
from headwater.corpus.folder import Document, Tally, make_id, rank
from headwater.reading import copy_key

SOURCE = "python-docs"
STANDARD_LIBRARY = "python"
TOPICS_MODULE = "pydoc_data.topics"
MINIMUM_CHARACTERS = 64
RUN_WORDS = 13  # as in GPT-3's decontamination (Brown et al. 2020, appendix C)
REPEATED_SHARE = 0.2
_TABLE_BYTES = 1 << 26  # two bits for each run: of 30 MB of documentation, one of 5,000 is known by chance
_SKIPPED_FOLDERS = {"__pycache__", "test", "tests", "testing", "idle_test", "externals", "extern"}
_OWN_PACKAGE = "headwater"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Roots(NamedTuple):
    """The folders of source files: the standard library, and site-packages (one folder or two)."""

    standard_library: Path
    site_packages: tuple[Path, ...]

    @classmethod
    def of_interpreter(cls) -> Roots:
        """Return the folders of the running interpreter."""
        paths = sysconfig.get_paths()
        site = dict.fromkeys((Path(paths["purelib"]), Path(paths["platlib"])))
        return cls(Path(paths["stdlib"]), tuple(site))


def read_python_docs(roots: Roots, left_out: Tally, limit: int | None = None) -> Iterator[Document]:
    """Stream the documents of this source; count in `left_out` the docstrings and files that are not used.

    With `limit`, yield the language reference and a sample of modules, about that many UTF-8 bytes in all.

    A document is a docstring, or a topic of the language reference; its label is the package.
    """
    known = _KnownTexts()
    size = 0
    topics = roots.standard_library / "pydoc_data" / "topics.py"
    if topics.is_file():
        for document in _file_documents((STANDARD_LIBRARY, TOPICS_MODULE, topics), known, left_out):
            size += len(document.text.encode())
            yield document
    files = _source_files(roots)
    if limit is None:
        for file in files:
            yield from _file_documents(file, known, left_out)
        return
    sample: dict[int, list[Document]] = {}
    for number in sorted(range(len(files)), key=lambda n: rank(files[n][1])):
        if size < limit:
            sample[number] = list(_file_documents(files[number], known, left_out))
            size += sum(len(document.text.encode()) for document in sample[number])
        else:
            left_out.add("source files beyond the sample", files[number][1])
    for number in sorted(sample):
        yield from sample[number]


class _KnownTexts:
    """The texts that are included so far, which later ones may repeat."""

    def __init__(self) -> None:
        self._fingerprints: set[bytes] = set()
        self._grams = Grams(RUN_WORDS)
        self._known = np.zeros(_TABLE_BYTES, np.uint8)  # two bits for each run, chosen by its hash

    def add(self, text: str) -> bool:
        """Add a text and return True, or return False if it repeats earlier ones."""
        fingerprint, runs = text_fingerprint(copy_key(text)), self._grams.of(text)
        places = np.stack([runs, runs >> np.uint64(32)]) % np.uint64(_TABLE_BYTES)
        bits = np.uint8(1) << (runs >> np.uint64(61)).astype(np.uint8)
        repeated = np.count_nonzero((self._known[places] & bits).all(axis=0))
        if fingerprint in self._fingerprints or repeated > REPEATED_SHARE * len(runs):
            return False
        self._fingerprints.add(fingerprint)
        np.bitwise_or.at(self._known, places, bits)
        return True


def _file_documents(file: tuple[str, str, Path], known: _KnownTexts, left_out: Tally) -> Iterator[Document]:
    """Yield the documents of one source file whose text is long enough and does not repeat `kept` ones."""
    package, module, path = file
    try:
        source = path.read_bytes()
        if module != TOPICS_MODULE and b'"""' not in source and b"'''" not in source:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            tree = ast.parse(source)
        texts = list(_topics(tree) if module == TOPICS_MODULE else documented_objects(tree))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        left_out.add("source files that cannot be parsed", f"{module}: {type(error).__name__}")
        return
    for name, docstring in texts:
        if len(docstring) < MINIMUM_CHARACTERS:
            left_out.add("short docstrings", f"{module}: {name}")
        elif not known.add(docstring):
            left_out.add("docstrings that repeat earlier ones", f"{module}: {name}")
        else:
            identity = make_id(SOURCE, module, name, docstring)
            yield Document(identity, docstring, source=SOURCE, language="en", labels={"package": package})


def _source_files(roots: Roots) -> list[tuple[str, str, Path]]:
    """Return (package, module, path) of every source file, sorted by package, then module."""
    entries = [(STANDARD_LIBRARY, module, path) for module, path in _modules(roots.standard_library)]
    entries = [entry for entry in entries if entry[1] != TOPICS_MODULE]
    for root in roots.site_packages:
        for module, path in _modules(root):
            package = module.partition(".")[0]
            # Private packages: `_virtualenv` and `__editable___x` are an installer's, `_pytest` is internal.
            if package != _OWN_PACKAGE and not package.startswith("_") and module:
                entries.append((package, module, path))
    return sorted(entries, key=lambda entry: (entry[0].lower(), *entry[:2], str(entry[2])))


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each module in a folder, without tests."""
    for folder, folders, files in os.walk(root):
        # A name that is not an identifier cannot be imported: metadata, data, build leftovers, site-packages.
        names = (name for name in folders if name.isidentifier() and "vendor" not in name)
        folders[:] = sorted(name for name in names if name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith("test_") and name != "conftest.py":
                path = Path(folder, name)
                parts = path.relative_to(root).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def documented_objects(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, cleaned docstring) of the module, whose name is empty, and of its public objects."""
    if docstring := _docstring(tree):
        yield "", docstring
    yield from _members(tree.body, "")


def _members(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _members([*statement.body, *statement.orelse], prefix)
        elif isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from _members([*statement.body, *handlers, *statement.orelse], prefix)
        elif isinstance(statement, ast.ClassDef | _Function) and not statement.name.startswith("_"):
            name = prefix + statement.name
            if docstring := _docstring(statement):
                yield name, docstring
            if isinstance(statement, ast.ClassDef):
                yield from _members(statement.body, f"{name}.")


def _docstring(node: ast.Module | ast.ClassDef | _Function) -> str:
    docstring = ast.get_docstring(node, clean=False) or ""
    # A literal can contain a lone surrogate, which UTF-8 cannot encode.
    return inspect.cleandoc(docstring.encode("utf-8", "replace").decode("utf-8")).rstrip()


def _topics(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (topic, text) of the language reference, a module that assigns a dictionary of names to texts."""
    texts: dict[str, str] = {}
    for statement in tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Dict):
            texts |= ast.literal_eval(value)
    for topic in sorted(texts):
        yield topic, texts[topic].strip("\n").rstrip()
