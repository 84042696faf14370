"""A package imports only packages of lower layers, and no imports form a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "headwater"
LAYERS = [
    {"display", "intervals", "language"},
    {"errors"},
    {"plugins", "reading"},
    {"config", "device", "shipped", "storage"},
    {"native"},
    {"model", "tokenizer", "corpus", "report"},
    {"convert", "inference", "training"},
    {"finetuning", "pretraining"},
    {"evaluation", "serve"},
    {"quickstart"},
    {"cli"},
]
# Pairs in one layer of which the first imports the second: a tokenizer is trained on a corpus folder.
SAME_LAYER = {("shipped", "storage"), ("config", "storage"), ("tokenizer", "corpus")}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module, *, everywhere: bool) -> Iterator[str]:
    """Yield Headwater's modules that a module imports at its top, or `everywhere`, except under TYPE_CHECKING."""
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headwater":
            base = (node.module or "").removeprefix("headwater").removeprefix(".")
            for alias in node.names:
                yield f"{base}.{alias.name}".strip(".")
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("headwater.")
                for alias in node.names
                if alias.name.startswith("headwater.")
            )


def layer_of(module: str) -> int:
    package = module.split(".")[0]
    return next(number for number, packages in enumerate(LAYERS) if package in packages)


def test_a_package_imports_only_lower_layers() -> None:
    wrong = []
    for name, tree in modules():
        if not name or name == "__main__":  # the public names
            continue
        for target in imported(tree, everywhere=True):
            here, there = name.split(".")[0], target.split(".")[0]
            if here != there and layer_of(target) >= layer_of(name) and (here, there) not in SAME_LAYER:
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_no_imports_form_a_circle() -> None:
    names = {name for name, _ in modules()}
    graph = {}
    for name, tree in modules():
        targets = set()
        for target in imported(tree, everywhere=False):
            while target and target not in names:
                target = target.rpartition(".")[0]
            targets.add(target)
        graph[name] = targets - {name, ""}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_a_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for name, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {cls: found for cls, found in homes.items() if len(found) > 1} == {}


def test_commands_import_nothing_heavy_at_their_top() -> None:
    heavy = {"torch", "numpy", "pyarrow", "tokenizers", "transformers", "spacy", "matplotlib", "rich"}
    for name, tree in modules():
        if name.split(".")[0] != "cli":
            continue
        for node in tree.body:
            roots = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            roots += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not heavy & {root.split(".")[0] for root in roots}, name


ROOT = PACKAGE.parents[1]
USERS = [
    *PACKAGE.rglob("*.py"),
    *(
        p
        for f in ("papers/src", "papers/tools", "tools", "benchmarks", "examples")
        for p in (ROOT / f).rglob("*.py")
    ),
]


def public_names(package: str) -> list[str]:
    tree = ast.parse((PACKAGE / package / "__init__.pyi").read_text(encoding="utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return ast.literal_eval(values[-1])


def packages() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.pyi"))


def test_a_package_is_used_through_its_public_names() -> None:
    past = []
    for path in USERS:
        if path.name.startswith("test_"):  # an example of a test
            continue
        own = path.relative_to(PACKAGE).parts[0] if PACKAGE in path.parents else ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                parts = name.split(".")
                if parts[0] == "headwater" and len(parts) > 2 and parts[1] != own and path.name != "__main__.py":
                    past.append(f"{path.relative_to(ROOT)} imports {name}")
    assert [line for line in past if "headwater.cli.main" not in line] == []


def test_a_test_imports_a_public_name_through_its_package() -> None:
    past = []
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "papers" / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if len(parts) > 2 and parts[0] == "headwater" and parts[1] in packages():
                inside = (PACKAGE.parent / Path(*parts)).glob("*.py")  # a module that has the name of a function
                names = {alias.name for alias in node.names} - {module.stem for module in inside}
                past += [f"{path.relative_to(ROOT)}: {name}" for name in names & {*public_names(parts[1])}]
    assert past == []


def test_every_imported_public_name_exists() -> None:
    known = {f"headwater.{package}": {*public_names(package)} for package in packages()}
    absent = []
    for path in USERS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in known:
                modules = {child.stem for child in (PACKAGE / node.module.split(".")[1]).iterdir()}
                names = {alias.name for alias in node.names} - known[node.module] - modules
                absent += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in names]
    assert absent == []
