"""Conformance suite of ledgers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from corral.ledger import ExecutionStatus, Ledger, Query, StoredCall, StoredDecision, StoredExecution, StoredSession
from corral.ledger.rows import CallStatus
from corral.testing.cases import Cases


def _execution(name: str, **changes: object) -> StoredExecution:
    row = StoredExecution(name, 'größer\n"', "ann", "running", 1.0, 1.0, 1, 100.0, b"head\0")
    return row._replace(**changes)  # type: ignore[arg-type]


def _call(name: str, sequence: int, status: CallStatus = "done", place: int | None = None) -> StoredCall:
    return StoredCall(name, sequence, status, place, b"body\0%d" % sequence)


class LedgerSuite(Cases):
    """Tests that every ledger must pass. Implement `ledger`. They are synchronous, as the methods of a ledger block."""

    def ledger(self) -> Ledger:
        """Makes a ledger. All ledgers of one test must use the same store."""
        raise NotImplementedError

    @contextmanager
    def _provide(self, names: Sequence[str]) -> Generator[Mapping[str, object]]:
        with ExitStack() as stack:
            yield {name: stack.enter_context(closing(self.ledger())) for name in names}

    def test_what_was_stored_comes_back(self, ledger: Ledger, other: Ledger) -> None:
        ledger.create(_execution("a"))
        ledger.write({"a": 1}, [_call("a", 2, place=0), _call("a", 1, "started")], durably=True)
        assert other.get("a") == _execution("a")
        assert other.get("b") is None
        assert [*other.calls("a")] == [_call("a", 1, "started"), _call("a", 2, place=0)]
        assert ledger.now() <= other.now()

    def test_an_id_is_taken_once(self, ledger: Ledger) -> None:
        ledger.create(_execution("a"))
        try:
            ledger.create(_execution("a", user_id="bob"))
        except Exception:
            assert ledger.get("a") == _execution("a")
        else:
            raise AssertionError("the second execution of that id was stored")

    def test_a_later_row_replaces_an_earlier_one(self, ledger: Ledger) -> None:
        ledger.create(_execution("a"))
        ledger.write({"a": 1}, [_call("a", 1, "started")], durably=False)
        ledger.write({"a": 1}, [_call("a", 1, "pending"), _call("a", 1, place=0)], durably=False)
        assert [*ledger.calls("a")] == [_call("a", 1, place=0)]

    def test_only_one_claims_what_is_free(self, ledger: Ledger, other: Ledger) -> None:
        ledger.create(_execution("a"))
        assert other.claim("a", now=50.0, lease=150.0) is None, "its lease is not over"
        assert other.claim("b", now=50.0, lease=150.0) is None
        assert other.claim("a", now=101.0, lease=131.0) == _execution("a", claim=2)
        assert ledger.claim("a", now=102.0, lease=132.0) is None
        assert ledger.end("a", 2, "paused", b"state", now=103.0)
        before = _execution("a", claim=3, status="paused", updated=103.0, lease=0.0, result=b"state")
        assert ledger.claim("a", now=104.0, lease=134.0) == before
        assert other.claim("a", now=105.0, lease=135.0) is None

    def test_what_has_ended_is_not_claimed(self, ledger: Ledger) -> None:
        ended: tuple[ExecutionStatus, ...] = ("succeeded", "failed", "timed_out", "cancelled", "rejected")
        for status in ended:
            ledger.create(_execution(status))
            assert ledger.end(status, 1, status, b"result", now=2.0)
            assert ledger.claim(status, now=200.0, lease=230.0) is None
            before = ledger.claim(status, now=200.0, lease=230.0, ended=True)
            assert before == _execution(status, status=status, updated=2.0, claim=2, lease=0.0, result=b"result")
            assert ledger.claim(status, now=201.0, lease=231.0, ended=True) is None, "it is held"

    def test_an_earlier_claim_writes_nothing_more(self, ledger: Ledger, other: Ledger) -> None:
        ledger.create(_execution("a"))
        ledger.create(_execution("b"))
        assert other.claim("a", now=101.0, lease=131.0)
        calls = [_call("a", 1, place=0), _call("b", 1, place=0)]
        assert {*ledger.write({"a": 1, "b": 1}, calls, durably=True)} == {"a"}
        assert not ledger.calls("a")
        assert len(ledger.calls("b")) == 1
        assert {*ledger.renew({"a": 1, "b": 1}, lease=500.0)} == {"a"}
        assert not ledger.end("a", 1, "succeeded", b"result", now=102.0)
        stored = ledger.get("a"), ledger.get("b")
        assert [each and (each.claim, each.lease, each.status) for each in stored] == [
            (2, 131.0, "running"),
            (1, 500.0, "running"),
        ]

    def test_the_end_of_a_claim_can_leave_the_result(self, ledger: Ledger) -> None:
        ledger.create(_execution("a"))
        assert ledger.end("a", 1, "paused", b"state", now=2.0)
        assert ledger.claim("a", now=3.0, lease=33.0)
        assert ledger.end("a", 2, "paused", None, now=4.0)
        assert ledger.get("a") == _execution("a", status="paused", claim=2, updated=4.0, lease=0.0, result=b"state")

    def test_the_first_decision_holds(self, ledger: Ledger, other: Ledger) -> None:
        ledger.create(_execution("a"))
        first = StoredDecision("a", 1, b"one", b"yes")
        again = StoredDecision("a", 1, b"two", b"yes")  # bound to other data
        assert ledger.decide(first, now=2.0)
        assert not other.decide(first._replace(body=b"no"), now=3.0)
        assert other.decide(again, now=4.0)
        assert {*ledger.decisions("a")} == {first, again}

    def test_lists_have_what_was_asked_for(self, ledger: Ledger) -> None:
        for number, name in enumerate("abcd"):
            ledger.create(_execution(name, updated=float(number), user_id="bob" if name == "c" else "ann"))
        ledger.end("b", 1, "paused", b"state", now=10.0)
        assert [each.execution_id for each in ledger.list(Query())] == ["a", "c", "d", "b"]
        assert [each.execution_id for each in ledger.list(Query(limit=2))] == ["d", "b"]
        assert [each.execution_id for each in ledger.list(Query("ann", statuses=["running"]))] == ["a", "d"]
        assert [each.execution_id for each in ledger.list(Query(since=3.0))] == ["d", "b"]
        assert not ledger.list(Query(organization_id="acme"))

    def test_calls_wait_as_long_as_their_execution_can_go_on(self, ledger: Ledger) -> None:
        for name in "abc":
            ledger.create(_execution(name, user_id="bob" if name == "c" else "ann"))
            ledger.write(
                {name: 1},
                [_call(name, 1, "pending"), _call(name, 2, "started"), _call(name, 3, "uncertain")],
                durably=True,
            )
        ledger.end("a", 1, "paused", b"state", now=10.0)
        ledger.end("b", 1, "failed", b"result", now=11.0)
        everyone = [(status, each.execution_id, each.sequence) for status, each in ledger.waiting(Query())]
        assert everyone == [("running", "c", 1), ("running", "c", 3), ("paused", "a", 1), ("paused", "a", 3)]
        assert {each.execution_id for _, each in ledger.waiting(Query("ann"))} == {"a"}
        assert len(ledger.waiting(Query(limit=3))) == 3

    def test_what_is_old_is_deleted_with_all_its_rows(self, ledger: Ledger) -> None:
        for name, status in {"a": "succeeded", "b": "paused", "c": "running", "d": "failed"}.items():
            ledger.create(_execution(name))
            ledger.write({name: 1}, [_call(name, 1, place=0)], durably=False)
            ledger.decide(StoredDecision(name, 1, b"one", b"yes"), now=2.0)
            if status != "running":
                ledger.end(name, 1, status, b"result", now=50.0 if name == "d" else 2.0)  # type: ignore[arg-type]
        assert ledger.prune(ended_before=10.0, paused_before=None) == 1
        assert ledger.get("a") is None
        assert not ledger.calls("a")
        assert not ledger.decisions("a")
        assert ledger.prune(ended_before=10.0, paused_before=10.0) == 1
        assert [each.execution_id for each in ledger.list(Query())] == ["c", "d"]

    def test_a_state_of_a_session_replaces_the_one_before(self, ledger: Ledger) -> None:
        assert ledger.session("a") is None
        assert ledger.put_session(StoredSession("a", False, 1, 5.0, b"one"))
        assert ledger.put_session(StoredSession("a", True, 2, 5.0, b"two"))
        assert not ledger.put_session(StoredSession("a", True, 2, 6.0, b"other"))
        assert not ledger.put_session(StoredSession("a", True, 4, 6.0, b"other"))
        assert ledger.put_session(StoredSession("b", False, 1, 5.0, b"clean"))
        assert ledger.put_session(StoredSession("c", True, 1, 50.0, b"new"))
        assert ledger.prune(ended_before=10.0, paused_before=None) == 0
        rows = [ledger.session(name) for name in "abc"]
        assert rows == [StoredSession("a", True, 2, 5.0, None), None, StoredSession("c", True, 1, 50.0, b"new")]

    def test_it_opens_again(self, ledger: Ledger) -> None:
        ledger.create(_execution("a"))
        ledger.close()
        assert ledger.get("a") == _execution("a")
