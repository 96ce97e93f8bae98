"""Korean verbs: the forms of a dictionary, every class, and a table that the recipe reads."""

from __future__ import annotations

import doctest
import unicodedata
from pathlib import Path

import pytest

import korean_verbs
from korean_verbs import ENDINGS, STEMS, conjugate, table
from pellucid.data.files import read_pairs

FORMS = {
    "가": "갑니다 가요 가면 갔다 가니까 가세요", "오": "옵니다 와요 오면 왔다 오니까 오세요",
    "주": "줍니다 줘요 주면 줬다 주니까 주세요",
    "마시": "마십니다 마셔요 마시면 마셨다 마시니까 마시세요",
    "되": "됩니다 돼요 되면 됐다 되니까 되세요", "쉬": "쉽니다 쉬어요 쉬면 쉬었다 쉬니까 쉬세요",
    "보내": "보냅니다 보내요 보내면 보냈다 보내니까 보내세요",
    "하": "합니다 해요 하면 했다 하니까 하세요", "쓰": "씁니다 써요 쓰면 썼다 쓰니까 쓰세요",
    "바쁘": "바쁩니다 바빠요 바쁘면 바빴다 바쁘니까 바쁘세요",
    "따르": "따릅니다 따라요 따르면 따랐다 따르니까 따르세요",
    "먹": "먹습니다 먹어요 먹으면 먹었다 먹으니까 먹으세요",
    "좋": "좋습니다 좋아요 좋으면 좋았다 좋으니까 좋으세요",
    "얇": "얇습니다 얇아요 얇으면 얇았다 얇으니까 얇으세요",
    "살": "삽니다 살아요 살면 살았다 사니까 사세요",
    "돕": "돕습니다 도와요 도우면 도왔다 도우니까 도우세요",
    "춥": "춥습니다 추워요 추우면 추웠다 추우니까 추우세요",
    "듣": "듣습니다 들어요 들으면 들었다 들으니까 들으세요",
    "깨닫": "깨닫습니다 깨달아요 깨달으면 깨달았다 깨달으니까 깨달으세요",
    "낫": "낫습니다 나아요 나으면 나았다 나으니까 나으세요",
    "빨갛": "빨갛습니다 빨개요 빨가면 빨갰다 빨가니까 빨가세요",
    "하얗": "하얗습니다 하얘요 하야면 하얬다 하야니까 하야세요",
    "누렇": "누렇습니다 누레요 누러면 누렜다 누러니까 누러세요",
    "모르": "모릅니다 몰라요 모르면 몰랐다 모르니까 모르세요",
    "부르": "부릅니다 불러요 부르면 불렀다 부르니까 부르세요",
    "푸르": "푸릅니다 푸르러요 푸르면 푸르렀다 푸르니까 푸르세요",
    "푸": "풉니다 퍼요 푸면 펐다 푸니까 푸세요",
}  # fmt: skip
KINDS = {stem: kind for kind, stems in STEMS.items() for stem in stems.split()}


@pytest.mark.parametrize("stem", FORMS)
def test_forms_are_those_of_a_dictionary(stem: str) -> None:
    endings = ("습니다", "어요", "으면", "었다", "으니까", "으세요")
    assert [conjugate(stem, KINDS[stem], ending) for ending in endings] == FORMS[stem].split()


def test_l_drops_before_n_s_and_l_alone() -> None:
    found = [
        conjugate("만들", "", ending) for ending in ("네요", "고", "을까요", "으십니다", "으면")
    ]
    assert found == ["만드네요", "만들고", "만들까요", "만드십니다", "만들면"]


def test_the_table_has_each_form_once_and_composed(tmp_path: Path) -> None:
    rows = table()
    assert len(rows) > 10_000
    assert len({(lemma, features) for lemma, _, features in rows}) == len(rows)
    assert len({lemma for lemma, *_ in rows}) * len(ENDINGS) == len(rows)
    assert all(unicodedata.is_normalized("NFC", form) for _, form, _ in rows)
    file = tmp_path / "verbs.tsv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["korean_verbs.py", str(file)])
        korean_verbs.main()
    pairs = read_pairs(file, ("1", "3", "2"))
    assert pairs[1].source == "가다\tV;POLITE"
    assert pairs[1].targets == ("가요",)


def test_the_examples_in_its_docstrings_hold() -> None:
    assert doctest.testmod(korean_verbs).failed == 0
