"""V4A patches."""

from __future__ import annotations

import pytest

from corral.errors import ToolError
from corral.shells.integrations.operations import created, updated

TEXT = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"


def test_a_file_is_created_of_lines_with_a_plus() -> None:
    assert created("+a\n+\n+ b") == "a\n\n b\n"
    with pytest.raises(ToolError, match="line 2 of the patch"):
        created("+a\nb")


def test_hunks_are_applied_in_order() -> None:
    patched = updated("a\nb\nc\nd\n", "@@\n a\n-b\n+B\n@@\n-d\n+D\n+e\n")
    assert patched == "a\nB\nc\nD\ne\n"


def test_a_heading_tells_equal_lines_apart() -> None:
    patched = updated(TEXT, "@@ class B:\n     def f(self):\n-        return 1\n+        return 2\n")
    assert patched == TEXT[: TEXT.rindex("1")] + "2\n"
    nested = updated(TEXT, "@@ class B:\n@@ def f(self):\n-        return 1\n+        return 2\n")
    assert nested == patched


def test_lines_without_context_go_below_their_heading_or_to_the_end() -> None:
    assert updated("a\nb\n", "@@ a\n+x\n") == "a\nx\nb\n"
    assert updated("a\nb\n", "+x\n") == "a\nb\nx\n"


def test_the_end_of_the_file_is_a_place() -> None:
    assert updated("x\ny\nx\n", "@@\n-x\n+z\n*** End of File\n") == "x\ny\nz\n"


def test_blanks_at_the_ends_of_lines_do_not_matter() -> None:
    assert updated("a  \nb\n", "@@\n a\n-b\n+c\n").split("\n")[1] == "c"


def test_line_ends_and_the_end_of_the_text_stay() -> None:
    assert updated("a\r\nb\r\n", "@@\n-a\n+A\n") == "A\r\nb\r\n"
    assert updated("a\nb", "@@\n-b\n+B\n") == "a\nB"


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        ("@@\n-none\n+x\n", "hunk 1: these lines are not in the file"),
        ("@@\n-b\n+x\n@@\n-a\n+x\n", "hunk 2: these lines are not in the file after line 2"),
        ("@@ none\n-a\n+x\n", "there is no line 'none'"),
        ("@@\n*a\n", "line 2 of the patch"),
        ("", "changes nothing"),
        ("+" + "x" * 1_000_001, "larger than"),
        ("@@\n+x\n" * 1_001, "more than 1000 hunks"),
    ],
)
def test_a_patch_that_does_not_apply_says_why(diff: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        updated("a\nb\n", diff)


def test_comparisons_are_bounded() -> None:
    text = "a\n" * 10_000
    with pytest.raises(ToolError, match="too many comparisons"):
        updated(text, "@@\n" + " a\n" * 5_000 + "-b\n")
