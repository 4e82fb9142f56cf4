from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.tools.tool import Docstring, read_docstring

GOOGLE = """Fetches a page.

    With retries.

    Args:
        url (str): Where it is.
        **options: More.

    Returns:
        The page.
    """
NUMPY = """Fetches a page.

    With retries.

    Parameters
    ----------
    url : str
        Where it is.
    **options
        More.

    Returns
    -------
    str
        The page.
    """
SPHINX = """Fetches a page.

    With retries.

    :param url: Where it is.
    :param options: More.
    :returns: The page.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
def test_the_three_styles_say_the_same(text: str) -> None:
    found = read_docstring(text)
    assert found.description == "Fetches a page.\n\nWith retries."
    assert dict(found.parameters) == {"url": "Where it is.", "options": "More."}
    assert found.returns == "The page."


@pytest.mark.parametrize("text", [None, ""])
def test_no_docstring_says_nothing(text: str | None) -> None:
    assert read_docstring(text) == Docstring()


@pytest.mark.parametrize(
    ("returns", "told"),
    [
        ("current_directory_content: The names.", "current_directory_content: The names."),
        ("order_id: The id.\n    status: How it is.", "order_id: The id.\nstatus: How it is."),
        ("dict: The names.", "The names."),
        ("list[str]: The names.", "The names."),
        ("Order: It.", "It."),
        ("bool", "bool"),
        ("count", "count"),
    ],
)
def test_of_what_comes_back_members_are_told_and_types_are_not(returns: str, told: str) -> None:
    assert read_docstring(f"Looks.\n\nReturns:\n    {returns}\n").returns == told


def test_several_results_in_numpy_style_are_all_told() -> None:
    found = read_docstring("Looks.\n\nReturns\n-------\nnames : list\n    All.\ncount : int\n    How many.\n")
    assert found.returns == "names: All.\ncount: How many."


@given(st.text(alphabet=st.sampled_from("ab:\n -*@`Args()Returnsparam>|.\t"), max_size=60))
def test_an_odd_docstring_never_raises(text: str) -> None:
    read_docstring(text)
