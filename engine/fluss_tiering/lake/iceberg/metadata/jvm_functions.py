"""Functions of the JVM that it applies to whole lists, so that a list takes no call for each of its elements.

A call into the JVM takes about a tenth of a millisecond, and much longer on a busy machine. Functions are method
handles (`java.lang.invoke`), which can be combined from here without code in Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class

Handle: TypeAlias = JavaObject
"""A `MethodHandle`."""
_ICEBERG: Final = "org.apache.iceberg."
_SEPARATOR: Final = "\0"
_ANSWER_BYTES: Final = 7_000
"""About how large an answer of the JVM may be. One above 8 kB is sent in several parts, and the JVM waits with the last
part until the others are acknowledged: 40 ms on Linux (Nagle's algorithm, and delayed acknowledgements)."""


@lru_cache(maxsize=2)
def functions_of(jvm: JVMView) -> JvmFunctions:
    """Return the functions of a JVM. They are found once."""
    return JvmFunctions(jvm)


class JvmFunctions:
    """Finds and combines functions. All errors are those of the JVM.

    Args:
        jvm: The JVM. Its class path has Iceberg.
    """

    def __init__(self, jvm: JVMView) -> None:
        self._loader = iceberg_class(jvm, "ContentFileParser")._java_lang_class.getClassLoader()  # noqa: SLF001
        # Each part of a name is a call into the JVM.
        self._new_list = jvm.java.util.ArrayList
        self._join = jvm.java.lang.String.join
        self._new_tokens = jvm.java.util.StringTokenizer
        self._list_of_tokens = jvm.java.util.Collections.list
        self._new_array = jvm.java.lang.reflect.Array.newInstance
        self._new_thread = jvm.java.lang.Thread
        concurrent = jvm.java.util.concurrent
        self._new_future = concurrent.FutureTask
        self._milliseconds = concurrent.TimeUnit.MILLISECONDS
        invoke = jvm.java.lang.invoke
        self._handles = invoke.MethodHandles
        self._method_type = invoke.MethodType.methodType
        self._as_interface = invoke.MethodHandleProxies.asInterfaceInstance
        self._lookup = self._handles.publicLookup()
        self._classes: dict[str, JavaObject] = {
            "byte[]": jvm.java.lang.Class.forName("[B"),
            "int": jvm.java.lang.Integer.TYPE,
            "void": jvm.java.lang.Void.TYPE,
        }
        self._found: dict[tuple[str, ...], Handle] = {}
        self._as_text = self.static("java.lang.String", "valueOf", "java.lang.String", "java.lang.Object")
        encoded = self.method("java.lang.String", "getBytes", "byte[]", "java.nio.charset.Charset")
        utf_8 = jvm.java.nio.charset.StandardCharsets.UTF_8
        self._size = self.chain(self.given(encoded, 1, utf_8), self._handles.arrayLength(self._class("byte[]")))

    def static(self, owner: str, name: str, returns: str, *takes: str) -> Handle:
        """Return a static method of a class. Classes are named in full, or below Iceberg's package."""
        return self._once("findStatic", owner, name, returns, *takes)

    def method(self, owner: str, name: str, returns: str, *takes: str) -> Handle:
        """Return a method of a class as a function of the object and its arguments."""
        return self._once("findVirtual", owner, name, returns, *takes)

    def constructor(self, owner: str, *takes: str) -> Handle:
        """Return a constructor of a class."""
        return self._lookup.findConstructor(self._class(owner), self._type("void", *takes))

    def _once(self, find: str, owner: str, name: str, *types: str) -> Handle:
        key = (find, owner, name, *types)
        if key not in self._found:
            self._found[key] = getattr(self._lookup, find)(self._class(owner), name, self._type(*types))
        return self._found[key]

    def chain(self, first: Handle, *others: Handle) -> Handle:
        """Return the function that gives the result of each function to the next one, which takes one argument."""
        for each in others:
            returned = first.type().returnType()
            first = self._handles.filterReturnValue(first, each.asType(each.type().changeParameterType(0, returned)))
        return first

    def given(self, function: Handle, position: int, value: object) -> Handle:
        """Return a function whose argument at a position is a certain value."""
        return self._handles.insertArguments(function, position, self._array([value]))

    def looked_up(self, function: Handle, key: Handle, values: JavaObject) -> Handle:
        """Return a function of one argument for a function of two: the second one is looked up in a map.

        Args:
            function: The function.
            key: The function that returns the key of an argument.
            values: The map.
        """
        first, second = function.type().parameterType(0), function.type().parameterType(1)
        swapped = self._method_type(function.type().returnType(), self._list([second, first]))
        order = self._new_array(self._class("int"), 2)
        order[0], order[1] = 1, 0
        get = self.method("java.util.Map", "get", "java.lang.Object", "java.lang.Object").bindTo(values)
        boxed = key.asType(key.type().changeReturnType(self._class("java.lang.Object")))
        found = self.chain(boxed, get)
        return self._handles.foldArguments(
            self._handles.permuteArguments(function, swapped, order),
            found.asType(self._method_type(second, self._list([first]))),
        )

    def numbering(self, numbers: JavaObject) -> Handle:
        """Return a function that numbers objects from 0 on, as it meets them, and notes them in a `LinkedHashMap`."""
        size = self.method("java.util.HashMap", "size", "int").bindTo(numbers)
        of_any = self._handles.dropArguments(
            size.asType(size.type().changeReturnType(self._class("java.lang.Object"))),
            0,
            self._list([self._class("java.lang.Object")]),
        )
        compute = self.method(
            "java.util.HashMap",
            "computeIfAbsent",
            "java.lang.Object",
            "java.lang.Object",
            "java.util.function.Function",
        ).bindTo(numbers)
        return self.given(compute, 1, self._as("java.util.function.Function", of_any))

    def replace_all(self, values: JavaObject, function: Handle) -> None:
        """Replace each element of a list by what a function returns for it."""
        values.replaceAll(self._operator(function))

    def replace_all_in_each(self, lists: JavaObject, function: Handle) -> None:
        """Replace each element of each list of a list by what a function returns for it."""
        replace = self.method("java.util.ArrayList", "replaceAll", "void", "java.util.function.UnaryOperator")
        each = self.given(replace, 1, self._operator(function))
        self.for_each(lists, each)

    def texts(self, values: JavaObject, function: Handle) -> list[str]:
        """Return the texts that a function returns for the elements of a list; "null" for null."""
        copy = self._new_list(values)
        if copy.isEmpty():
            return []
        self.replace_all(copy, self.chain(function, self._as_text))
        sizes = self._new_list(copy)
        self.replace_all(sizes, self._size)
        found: list[str] = []
        for start, end in _answers(json.loads(str(sizes.toString()))):
            found += str(self._join(_SEPARATOR, copy.subList(start, end))).split(_SEPARATOR)
        return found

    def list_of(self, texts: Sequence[str], function: Handle) -> JavaObject:
        """Return a list of what a function returns for texts, of which none is empty."""
        made = self.list_of_texts(texts)
        self.replace_all(made, function)
        return made

    def list_of_texts(self, texts: Sequence[str]) -> JavaObject:
        """Return a list of texts, of which none is empty."""
        return self._list_of_tokens(self._new_tokens(_SEPARATOR.join(texts), _SEPARATOR))

    def for_each(self, values: JavaObject, function: Handle) -> None:
        """Call a function with each element of a list."""
        values.forEach(self._as("java.util.function.Consumer", function))

    def in_background(self, function: Handle) -> JavaObject:
        """Call a function without arguments in a thread of the JVM, and return the future of its result."""
        future = self._new_future(self._as("java.util.concurrent.Callable", function))
        thread = self._new_thread(future)
        thread.setDaemon(True)
        thread.start()
        return future

    def result_within(self, future: JavaObject, timeout_ms: int) -> JavaObject:
        """Return the result of a future. Raises Java's TimeoutException if there is none within a time."""
        return future.get(timeout_ms, self._milliseconds)

    def _operator(self, function: Handle) -> JavaObject:
        return self._as("java.util.function.UnaryOperator", function)

    def _as(self, interface: str, function: Handle) -> JavaObject:
        return self._as_interface(self._class(interface), function)

    def _type(self, returns: str, *takes: str) -> JavaObject:
        classes = self._list([self._class(each) for each in takes])
        return self._method_type(self._class(returns), classes)

    def _class(self, name: str) -> JavaObject:
        if name not in self._classes:
            self._classes[name] = self._loader.loadClass(
                name if name.startswith(("java.", "org.")) else _ICEBERG + name
            )
        return self._classes[name]

    def _list(self, values: list[JavaObject]) -> JavaObject:
        made = self._new_list()
        for value in values:
            made.add(value)
        return made

    def _array(self, values: list[object]) -> JavaObject:
        return self._list(values).toArray()


def _answers(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of texts that are small enough for one answer of the JVM, each of at least one text."""
    start = filled = 0
    for number, size in enumerate(sizes):
        if start < number and filled + size > _ANSWER_BYTES:
            yield start, number
            start, filled = number, 0
        filled += size + len(_SEPARATOR)
    yield start, len(sizes)


def parser_of_files(jvm: JVMView, specs: JavaObject) -> Handle:
    """Return the function from the JSON of a data file or a delete file to Iceberg's own description of it.

    Args:
        jvm: The JVM.
        specs: The partition specs of the table by their ids.
    """
    functions = functions_of(jvm)
    mapper = iceberg_class(jvm, "util.JsonUtil").mapper()
    of_mapper = str(mapper.getClass().getName())
    node = of_mapper.replace("ObjectMapper", "JsonNode")
    read = functions.method(of_mapper, "readTree", node, "java.lang.String").bindTo(mapper)
    parse = functions.static("ContentFileParser", "fromJson", "ContentFile", node, "java.util.Map")
    return functions.chain(read, functions.given(parse, 1, specs))
