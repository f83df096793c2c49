"""Scenarios of the calls of scans, with what each server answers: a table that also lists all differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from engine_support import new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableInfo
from waiting import wait_until

FLUSS, FRONT, EMBEDDED = "fluss", "in front", "embedded"
ROWS: Final = 3_000
SIZE: Final = 1_000
MAX_BATCH: Final = 16 << 10
MORE, END, CLOSED = "more", "end", "closed"
EXPIRED, UNKNOWN, INVALID, TOO_MANY = (
    ErrorCode.SCANNER_EXPIRED,
    ErrorCode.UNKNOWN_SCANNER_ID,
    ErrorCode.INVALID_SCAN_REQUEST,
    ErrorCode.TOO_MANY_SCANNERS,
)


@dataclass(frozen=True)
class Answer:
    """What a server answered: `more`, `end`, `closed`, or the code of the error."""

    outcome: str
    scanner_id: bytes | None = None
    values: Sequence[bytes] = ()
    log_offset: int | None = None


@dataclass
class Scanning:
    """Calls of one scenario, to one server. Its clients make no mistake by themselves: each field is given."""

    client: TieringClient
    send: Callable[[Mapping[str, Any]], Answer]
    advance: Callable[[int], None]
    opened: list[bytes] = field(default_factory=list)
    tables: ClassVar[dict[str, TableInfo]] = {}

    def table(self, rows: int = ROWS, **options: Any) -> TableInfo:
        made = new_table(self.client, range(rows), **options)
        # A leader that was just elected answers this as soon as it knows.
        self.client.list_buckets([made.path])
        return made

    def kept(self, key: str, **options: Any) -> TableInfo:
        """A table that scenarios share."""
        name = f"{self.client._target} {key}"
        if name not in self.tables:
            self.tables[name] = self.table(**options)
        return self.tables[name]

    def ask(self, **fields: Any) -> Answer:
        answer = self.send(fields)
        if answer.scanner_id is not None and answer.scanner_id not in self.opened:
            self.opened.append(answer.scanner_id)
        return answer

    def open(self, table: TableInfo | None = None, bucket: int = 0, **fields: Any) -> Answer:
        request = {"table_id": (table or self.kept("rows")).table_id, "bucket_id": bucket}
        limit = fields.pop("limit", None)
        if limit is not None:
            request["limit"] = limit
        return self.ask(**{"bucket_scan_req": request, "call_seq_id": 0, "batch_size_bytes": SIZE, **fields})

    def go_on(self, opened: Answer, number: int | None, **fields: Any) -> Answer:
        numbered = {} if number is None else {"call_seq_id": number}
        return self.ask(**{"scanner_id": opened.scanner_id, **numbered, "batch_size_bytes": SIZE, **fields})

    def close(self, scanner_id: bytes | None) -> Answer:
        return self.ask(scanner_id=scanner_id, close_scanner=True)

    def idle(self, scanners: Callable[[], object] = lambda: None) -> None:
        """Let scanners of a bucket that is full expire; the function is called meanwhile."""
        for _ in range(10):
            scanners()
            self.advance(60_001)

        def room() -> bool:
            scanners()
            return self.open().outcome == MORE

        wait_until(room)

    def end(self) -> None:
        for scanner_id in self.opened:
            self.close(scanner_id)


def outcomes(*answers: Answer) -> list[str]:
    return [answer.outcome for answer in answers]


@dataclass(frozen=True)
class Rule:
    """A scenario with what each server answers; `all_of_them` holds for those that have no answer of their own."""

    number: str
    play: Callable[[Scanning], list]
    all_of_them: list
    answers: Mapping[str, list]

    @property
    def name(self) -> str:
        return f"{self.number}-{self.play.__name__}"

    def expected(self, server: str) -> list:
        return self.answers.get(server, self.all_of_them)


RULES: Final[list[Rule]] = []


def rule(number: str, *all_of_them: Any, fluss: list | None = None, front: list | None = None) -> Callable:
    def add(play: Callable[[Scanning], list]) -> Callable[[Scanning], list]:
        answers = {FLUSS: fluss, FRONT: front}
        RULES.append(Rule(number, play, list(all_of_them), {key: each for key, each in answers.items() if each}))
        return play

    return add


@rule("K2", MORE, MORE, MORE, TOO_MANY, CLOSED, MORE)
def a_bucket_has_so_many_scanners(on: Scanning) -> list:
    first, *others = [on.open() for _ in range(4)]
    return outcomes(first, *others, on.close(first.scanner_id), on.open())


@rule("K2", *[MORE] * 5, TOO_MANY)
def a_server_has_so_many_scanners(on: Scanning) -> list:
    table = on.kept("two buckets", num_buckets=2)
    return outcomes(*[on.open(table, number % 2) for number in range(6)])


@rule("K3", ErrorCode.TABLE_WITHOUT_PRIMARY_KEY)
def a_log_table_has_no_scans(on: Scanning) -> list:
    return outcomes(on.open(on.table(primary_key=False)))


@rule("K3", ErrorCode.INVALID_REQUEST, fluss=[ErrorCode.NOT_LEADER_OR_FOLLOWER])
def an_unknown_bucket_is_refused(on: Scanning) -> list:
    return outcomes(on.open(bucket=7))


@rule("K4", END, None, [], 0)
def an_empty_bucket_takes_no_scanner(on: Scanning) -> list:
    empty = on.open(on.table(rows=0))
    return [empty.outcome, empty.scanner_id, list(empty.values), empty.log_offset]


@rule("K4", END, fluss=[TOO_MANY])
def an_empty_bucket_of_a_full_server(on: Scanning) -> list:
    a_server_has_so_many_scanners(on)
    return outcomes(on.open(on.table(rows=0)))


@rule("K5", ROWS, None, None)
def only_the_first_answer_has_the_log_offset(on: Scanning) -> list:
    opened = on.open()
    return [each.log_offset for each in (opened, on.go_on(opened, 1), on.go_on(opened, 2))]


@rule("K6", MORE, INVALID, MORE, fluss=[MORE, INVALID, UNKNOWN])
def a_wrong_number_comes_before_the_right_one(on: Scanning) -> list:
    opened = on.open()
    return outcomes(opened, on.go_on(opened, 5), on.go_on(opened, 1))


@rule("K6", INVALID, MORE, MORE, MORE)
def opening_has_the_number_0_and_a_refused_one_holds_no_place(on: Scanning) -> list:
    return outcomes(on.open(call_seq_id=7), *[on.open() for _ in range(3)])


@rule("K7", [INVALID] * 3, MORE, [INVALID] * 2, MORE)
def the_size_of_a_batch_is_above_0(on: Scanning) -> list:
    sizes = [{"batch_size_bytes": size} for size in (None, 0, -1)]
    opening = outcomes(*[on.open(**size) for size in sizes])
    opened = on.open()
    return [
        opening,
        opened.outcome,
        outcomes(*[on.go_on(opened, 1, **size) for size in sizes[1:]]),
        *outcomes(on.go_on(opened, 1)),
    ]


@rule("K7", 1, 1, 1)
def a_batch_has_at_least_one_row(on: Scanning) -> list:
    opened = on.open(batch_size_bytes=1)
    rest = [on.go_on(opened, number, batch_size_bytes=1) for number in (1, 2)]
    return [len(each.values) for each in (opened, *rest)]


@rule("K7", [True, True], [True, True])
def a_batch_ends_at_the_size_asked_for_or_at_the_maximum(on: Scanning) -> list:
    answers = [on.open(), on.open(batch_size_bytes=1 << 30)]
    found = [sum(len(value) + 4 for value in each.values) for each in answers]
    # A server of Fluss counts the header, too, and ends a batch after the row that reaches the size.
    return [[size - 50 < each, each < size + 50] for each, size in zip(found, (SIZE, MAX_BATCH), strict=True)]


@rule("K8", [INVALID] * 3, MORE)
def a_call_names_a_scanner_or_a_bucket(on: Scanning) -> list:
    opened = on.open()
    both = on.open(scanner_id=opened.scanner_id)
    neither = on.ask(call_seq_id=0, batch_size_bytes=SIZE)
    return [outcomes(both, neither, on.open(close_scanner=True)), on.go_on(opened, 1).outcome]


@rule("K9", END, 3, UNKNOWN, MORE, MORE)
def a_limit_ends_the_scan(on: Scanning) -> list:
    limited = on.open(limit=3, batch_size_bytes=30)
    number, rows = 0, len(limited.values)
    last = limited
    while last.outcome == MORE:
        number += 1
        last = on.go_on(limited, number)
        rows += len(last.values)
    return [last.outcome, rows, on.go_on(limited, number + 1).outcome, *outcomes(on.open(limit=0), on.open(limit=-1))]


@rule("K10", MORE, EXPIRED, EXPIRED, UNKNOWN)
def an_idle_scanner_expires_and_is_forgotten(on: Scanning) -> list:
    opened, *_ = [on.open() for _ in range(3)]
    on.idle()
    expired = [on.go_on(opened, 1), on.go_on(opened, 1)]
    on.advance(20 * 60_000 + 1)
    forgotten = wait_until(lambda: (found := on.go_on(opened, 1)).outcome != EXPIRED and found)
    return outcomes(opened, *expired, forgotten)


@rule("K11", MORE, INVALID, EXPIRED)
def a_malformed_call_does_not_keep_a_scanner_alive(on: Scanning) -> list:
    # The first one is idle for longest, so it has expired once one of the others has.
    opened, *_ = [on.open() for _ in range(3)]
    malformed = on.go_on(opened, 1, batch_size_bytes=0)
    on.idle(lambda: on.go_on(opened, 1, batch_size_bytes=0))
    return outcomes(opened, malformed, on.go_on(opened, 1))


@rule("K12", EXPIRED)
def a_scanner_ends_with_its_table(on: Scanning) -> list:
    opened = on.open(table := on.table(), batch_size_bytes=1)
    on.client.drop_table(table.path, drop_untiered=True)
    numbers = iter(range(1, ROWS))
    return [
        wait_until(lambda: (found := on.go_on(opened, next(numbers), batch_size_bytes=1).outcome) != MORE and found)
    ]


@rule("K13", CLOSED, CLOSED, CLOSED, CLOSED, UNKNOWN)
def closing_succeeds_whatever_is_closed(on: Scanning) -> list:
    opened, ended = on.open(), on.open(limit=1)
    closed = [on.close(each) for each in (opened.scanner_id, opened.scanner_id, b"f" * 32, ended.scanner_id)]
    return outcomes(*closed, on.go_on(opened, 1))


@rule("K14", MORE, fluss=[UNKNOWN])
def calls_at_once_leave_the_scanner(on: Scanning) -> list:
    opened = on.open(batch_size_bytes=1)
    with ThreadPoolExecutor(6) as threads:
        at_once = list(threads.map(lambda _: on.go_on(opened, 1, batch_size_bytes=MAX_BATCH), range(6)))
    served = [each for each in at_once if each.outcome == MORE]
    assert all(each.values == served[0].values for each in served)
    assert {each.outcome for each in at_once} <= {MORE, INVALID, UNKNOWN}
    return outcomes(on.go_on(opened, 2))


@rule("K15", MORE, True, MORE, fluss=[INVALID, False, UNKNOWN])
def the_last_number_comes_again(on: Scanning) -> list:
    opened = on.open()
    first, again = on.go_on(opened, 1), on.go_on(opened, 1)
    return [again.outcome, again.values == first.values, on.go_on(opened, 2).outcome]


@rule("K17", MORE, MORE, MORE, TOO_MANY)
def scanners_that_were_closed_hold_nothing(on: Scanning) -> list:
    for _ in range(300):
        on.close(on.open(batch_size_bytes=1).scanner_id)
    return outcomes(*[on.open() for _ in range(4)])
