"""Which language is spoken: PELLUCID_LANG, else the locale."""

from __future__ import annotations

import pytest

from pellucid.system.language import Text, language_of


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LC_ALL": "", "LC_MESSAGES": "ko"}, "ko"),
        ({"LC_ALL": "C.UTF-8", "LANG": "ko_KR.UTF-8"}, "en"),
        ({"PELLUCID_LANG": "ko", "LC_ALL": "C"}, "ko"),
        ({"PELLUCID_LANG": "en", "LANG": "ko_KR.UTF-8"}, "en"),
        ({"PELLUCID_LANG": "", "LANG": "ko_KR.UTF-8"}, "ko"),
    ],
)
def test_language_follows_the_variable_then_the_locale(
    environment: dict[str, str], expected: str
) -> None:
    assert language_of(environment) == expected
    assert Text("en", "ko").to(language_of(environment)) == expected
