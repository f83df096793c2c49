"""docs/reference/airflow-arguments.md: what each public name of the provider takes, from its docstring.

The modules are read and not imported, so that the page can be made and checked without Airflow.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from markdown_text import table

_ROOT: Final = Path(__file__).resolve().parents[1]
_PACKAGE: Final = _ROOT / "airflow_provider_fluss"
_SOURCES: Final = (_ROOT, _ROOT / "engine")
_SECTION: Final = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):$", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
_INTRODUCTION: Final = """\
<!-- Made from the code by `make docs`. Change the docstrings instead. -->

# Arguments of the operators

Everything here is imported from `airflow_provider_fluss`. [Operators by example](../airflow/operators.md) shows how the
names are used together. An argument without a default must be given. *Templated* arguments may have Jinja templates. A
template that renders to nothing leaves a limit of the submit operator at its default. Each operator and sensor also
takes the arguments of Airflow's base class, such as `task_id` and `retries`.
"""

_WAYS: Final = """
## ways

The functions of `airflow_provider_fluss.ways` return a `Way`. Each takes `package`, `spark_version` and `conf` as a
`Way` does, and any argument of its operator by name.
"""

Definition = ast.ClassDef | ast.FunctionDef


def page() -> str:
    """Return the text of the page."""
    return _INTRODUCTION + "".join(_section(path, definition) for path, definition in _public()) + _ways()


@cache
def _module(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _public() -> Iterator[tuple[Path, Definition]]:
    """Yield the public names of the provider, each with its module, in the order in which it lists them."""
    face = _module(_PACKAGE / "__init__.py")
    modules = next(
        ast.literal_eval(node.value)
        for node in ast.walk(face)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES"
    )
    for name, module in modules.items():
        path = _PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
        for node in _module(path).body:
            if isinstance(node, Definition) and node.name == name:
                yield path, node


class _Constants(ast.NodeTransformer):
    """Puts values in the place of names of constants, wherever a module takes them from."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return _value(self._path, node.id) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return _value(self._path, ast.unparse(node)) or node


def _value(path: Path, name: str) -> ast.Constant | None:
    """Return the value of a constant of a module, or of a class in it; None if the name is something else.

    Args:
        path: The module that uses the name. Another module of the project may define it.
        name: The name, as in the code: `CONSTANT` or `Class.constant`.
    """
    first, _, rest = name.partition(".")
    for node in _module(path).body:
        if isinstance(node, ast.ImportFrom) and node.module and first in {each.name for each in node.names}:
            paths = [source.joinpath(*node.module.split(".")).with_suffix(".py") for source in _SOURCES]
            return next((_value(each, name) for each in paths if each.is_file()), None)
        # A method also sees the constants of its own class, by their plain names.
        is_class = isinstance(node, ast.ClassDef) and (not rest or node.name == first)
        for each in node.body if isinstance(node, ast.ClassDef) and is_class else [node]:
            targets = [each.target] if isinstance(each, ast.AnnAssign) else getattr(each, "targets", [])
            if (rest or first) in map(ast.unparse, targets) and isinstance(each, ast.Assign | ast.AnnAssign):
                return _computed(path, each.value)
    return None


def _computed(path: Path, value: ast.expr | None) -> ast.Constant | None:
    if isinstance(value, ast.Name):
        return _value(path, value.id)
    if isinstance(value, ast.BinOp) and all(
        isinstance(each, ast.Constant | ast.BinOp | ast.operator) for each in ast.walk(value)
    ):
        return ast.Constant(eval(ast.unparse(value)))
    return value if isinstance(value, ast.Constant) else None


def _ways() -> str:
    """Return the section about the functions that make a `Way`."""
    path = _PACKAGE / "ways.py"
    functions = {node.name: node for node in _module(path).body if isinstance(node, ast.FunctionDef)}
    package = _value(_PACKAGE / "operators" / "way_submit.py", "_PROVIDER")
    assert package is not None
    rows = []
    for name, function in functions.items():
        if name.startswith("_"):
            continue
        operator = next(ast.literal_eval(node.value) for node in function.body if isinstance(node, ast.Assign))
        (arguments,) = [
            node.value
            for node in functions[f"_{name}"].body
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict)
        ]
        given = [f"`{ast.literal_eval(key)}`" for key in arguments.keys if key is not None]
        found = re.match(str(package.value), operator)
        assert found
        distribution = f"apache-airflow-providers-{found[1].replace('.', '-')}"
        rows.append((f"`{name}`", f"`{operator.rpartition('.')[2]}`", ", ".join(given), f"`{distribution}`"))
    return _WAYS + table(("Way", "Operator", "Arguments that the way gives", "Package to install on workers"), rows)


def _section(path: Path, definition: Definition) -> str:
    docstring = ast.get_docstring(definition) or ""
    text, _, _ = docstring.partition(found.group()) if (found := _SECTION.search(docstring)) else (docstring, "", "")
    described = _part(docstring, "Args") or _part(docstring, "Attributes")
    meanings = {match[1]: match[2] for match in _ARGUMENT.finditer(described)}
    defaults = _defaults(path, definition)
    rows = [(f"`{argument}`", _shown(defaults.get(argument, "")), text) for argument, text in meanings.items()]
    return f"\n## {definition.name}\n\n{inspect.cleandoc(text).strip()}\n" + (
        table(("Argument", "Default", "What it is"), rows) if rows else ""
    )


def _shown(default: str) -> str:
    if default.startswith("conf."):
        return "a setting of Airflow"
    hours = re.fullmatch(r"timedelta\(milliseconds=(\d+)00000\)", default)
    if hours and int(hours[1]) % 36 == 0:
        default = f"timedelta(hours={int(hours[1]) // 36})"
    return f"`{default}`" if default else ""


def _part(docstring: str, heading: str) -> str:
    """Return a section of a docstring without its heading; empty if it has none."""
    _, _, behind = docstring.partition(f"{heading}:\n")
    end = _SECTION.search(behind)
    return behind[: end.start()] if end else behind


def _defaults(path: Path, definition: Definition) -> Mapping[str, str]:
    """Return the default of each argument by its name, in the words of the code; empty for one that must be given."""
    function = definition
    if isinstance(definition, ast.ClassDef):
        made = [node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        if not made:
            fields = [node for node in definition.body if isinstance(node, ast.AnnAssign) and node.value]
            return {ast.unparse(each.target): "{}" for each in fields if "default_factory=dict" in ast.unparse(each)}
        function = made[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(plain, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return {
        argument.arg: "" if default is None else ast.unparse(_Constants(path).visit(default))
        for argument, default in pairs
    }
