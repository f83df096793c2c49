"""What a Spark driver runs, as a value that any way of submitting can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a Spark driver on any machine runs. It has no path and no secret of the machine that asks for it.

    Attributes:
        main_file: The address of the Python file.
        py_files: The addresses of the archives that it imports.
        conf: The settings of Spark, without packages.
        packages: The Maven packages that Spark loads.
        env: The variables of the driver's environment.
    """

    main_file: str
    py_files: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
