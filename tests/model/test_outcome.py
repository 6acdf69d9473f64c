from __future__ import annotations

from interlock.model.outcome import FEEDBACK_CHARS, feedback_of


def test_feedback_is_what_was_said_or_its_end_with_a_word_on_the_rest() -> None:
    exact = "é" * FEEDBACK_CHARS
    assert feedback_of(f"\n {exact}\n".encode()) == exact
    longer = feedback_of(f"x{exact}".encode())
    assert longer == "[its beginning is left out]\n" + "é" * (FEEDBACK_CHARS - len("[its beginning is left out]\n"))
    assert feedback_of(b"\xff no text") == "� no text"
