"""Korean verbs and adjectives in 24 forms, made by rule: a table to learn inflection from.

    python examples/korean_verbs.py verbs.tsv
    pellucid train inflect --run runs/verbs --data.train verbs.tsv --tokenizer.normalise nfd

A line has the dictionary form, the inflected form, and features; nothing is downloaded. The rules
are those of the standard language: vowel harmony, contraction (오 + 아 → 와), ㄹ and ㅡ that drop,
and the irregular classes. A dictionary states the class of a stem, since 듣다 (들어요) and 닫다
(닫아요) do not show it; here it is a feature, `IRR.T`. NFD lets a model read a syllable as letters.
"""

from __future__ import annotations

import sys
from pathlib import Path

VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = ["", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"]
N, S = 2, 9  # of the 19 initial consonants

CONTRACTED = dict(zip("ㅏㅓㅐㅔㅕㅗㅜㅣㅚ", "ㅏㅓㅐㅔㅕㅘㅝㅕㅙ", strict=True))
"""A stem's last vowel, and the vowel that it becomes together with 아 or 어."""

ENDINGS = {
    "FORMAL": "습니다", "POLITE": "어요", "EXCL": "네요", "AND": "고", "BUT": "지만",
    "OR": "거나", "ADV": "게", "GUESS": "겠다", "IF": "으면", "SINCE": "으니까",
    "MORE": "을수록", "BECAUSE": "어서", "THOUGH": "어도", "MUST": "어야",
    "PST": "었다", "PST;FORMAL": "었습니다", "PST;POLITE": "었어요", "PST;BUT": "었지만",
    "PST;SINCE": "었으니까", "FUT;POLITE": "을 거예요", "ASK;POLITE": "을까요",
    "HON;FORMAL": "으십니다", "HON;POLITE": "으세요", "HON;PST;POLITE": "으셨어요",
}  # fmt: skip
"""By features. 으 stands after a consonant alone; 어 is 아 after ㅏ and ㅗ."""

STEMS = {
    "": """가 자 사 타 싸 비싸 차 파 나 떠나 만나 일어나 나타나 끝나 빛나 화나 놀라 자라 바라
        모자라 서 건너 펴 켜 보내 내 지내 꺼내 끝내 깨 매 빼 재 캐 새 세 베 떼 메 오 보 쏘 꼬
        나오 들어오 돌아오 바라보 쳐다보 주 배우 외우 싸우 키우 지우 피우 나누 바꾸 가꾸 꿈꾸
        춤추 멈추 맞추 감추 갖추 낮추 늦추 두 태우 채우 비우 세우 깨우 재우 미루 이루 다루 치우
        마시 다니 가지 기다리 던지 만지 버리 그리 느끼 지키 가르치 다치 고치 마치 미치 지치 넘치
        외치 부딪치 치 지 이기 남기 숨기 맡기 웃기 즐기 옮기 벗기 생기 당기 튀기 죽이 보이 높이
        붙이 끓이 줄이 놓이 쌓이 먹이 속이 들리 걸리 빌리 달리 돌리 열리 팔리 살리 알리 올리
        내리 흘리 흐리 느리 어리 시 질기 드리 때리 꾸미 되 쇠 괴 쉬 뛰 뀌 바뀌 사귀 띄 희 쓰 크
        뜨 끄 트 모으 아프 바쁘 나쁘 고프 예쁘 기쁘 슬프 담그 잠그 따르 치르 들르 애쓰 힘쓰
        다다르 우러르 먹 읽 앉 입 벗 씻 웃 잡 찾 받 닫 믿 얻 쏟 뜯 파묻 돋 뻗 쫓 맞 잊 찢 짖 꽂
        맺 신 안 감 남 넘 참 담 닮 굶 삶 심 숨 뽑 집 씹 업 좁 넓 짧 얇 밟 밝 맑 늙 굵 붉 긁 낡
        옳 싫 잃 앓 끓 뚫 꿇 많 끊 괜찮 귀찮 점잖 좋 놓 넣 쌓 낳 닿 빻 땋 높 깊 갚 덮 엎 짚 같
        맡 붙 뱉 얕 짙 핥 훑 깎 닦 꺾 볶 묶 섞 낚 겪 없 있 재미있 맛있 멋있 맛없 작 적 녹 죽 속
        막 박 썩 식 찍 익 솟 빗 빼앗 늦 낮 잦 젖 굳 살 알 놀 울 걸 길 달 팔 열 들 만들 멀 밀 벌
        불 빌 풀 물 늘 줄 날 돌 갈 썰 쓸 떨 털 졸 힘들 잠들 떠들 흔들 시들 거칠 가늘 둥글 얼 헐
        끌 매달 받들 드물 베풀 까불 뒹굴 부풀 다물 저물 여물 이끌 하 공부하 일하 말하 생각하
        시작하 사랑하 운동하 요리하 노래하 청소하 좋아하 싫어하 따뜻하 시원하 깨끗하 조용하
        유명하 중요하 필요하 피곤하 행복하 건강하 친절하 복잡하 간단하 편하 강하 약하 급하 착하
        심하 안전하 위험하 똑똑하 부족하 비슷하 준비하 결혼하 도착하 출발하 여행하 전화하 질문하
        대답하 약속하 연습하 사용하 이해하 기억하 걱정하 축하하 부탁하""",
    "P": """돕 곱 눕 굽 줍 깁 춥 덥 쉽 어렵 가깝 고맙 무겁 가볍 무섭 뜨겁 차갑 귀엽 아름답 맵
        싱겁 두껍 어둡 더럽 부럽 반갑 즐겁 새롭 외롭 괴롭 해롭 부드럽 시끄럽 자연스럽 사랑스럽
        자랑스럽 갑작스럽 고통스럽 조심스럽 미끄럽 간지럽 어지럽 정답 아깝 안타깝 그립 밉 서럽
        가렵 두렵 우습 지겹 아쉽 손쉽 징그럽 번거롭 풍요롭 향기롭 날카롭 까다롭 여유롭 평화롭
        자유롭""",
    "T": "듣 걷 묻 싣 깨닫 긷 붇 일컫 눋",
    "S": "낫 짓 붓 잇 긋 젓",
    "H": "빨갛 파랗 노랗 까맣 하얗 커다랗 동그랗 말갛 퍼렇 뻘겋 누렇 꺼멓 허옇",
    "L": """모르 부르 흐르 서두르 다르 오르 고르 기르 누르 자르 지르 찌르 가르 나르 마르 바르
        빠르 게으르 구르 두르 문지르 저지르 어지르 머무르 서투르 조르 타오르 떠오르 거스르 무르
        벼르 주무르 타이르 어우르 아우르""",
    "R": "푸르 이르",
    "U": "푸",
}
"""By class: P ㅂ → 우, T ㄷ → ㄹ, S ㅅ drops, H ㅎ drops, L 르 → ㄹㄹ, R 르 → 르러, U ㅜ drops."""


def parts(syllable: str) -> tuple[int, int, int]:
    """Return the numbers of the initial consonant, the vowel and the final consonant.

    >>> parts("가"), parts("각"), parts("힣")
    ((0, 0, 0), (0, 0, 1), (18, 20, 27))
    """
    number = ord(syllable) - ord("가")
    return number // 588, number // 28 % 21, number % 28


def vowel(word: str) -> str:
    return VOWELS[parts(word[-1])[1]]


def final(word: str) -> str:
    return FINALS[parts(word[-1])[2]]


def altered(word: str, vowel: str | None = None, final: str | None = None) -> str:
    """Return a word whose last syllable has another vowel or final consonant, "" for none.

    >>> altered("돕", final=""), altered("오", vowel="ㅘ"), altered("가", final="ㄹ")
    ('도', '와', '갈')
    """
    first, middle, last = parts(word[-1])
    middle = middle if vowel is None else VOWELS.index(vowel)
    last = last if final is None else FINALS.index(final)
    return word[:-1] + chr(ord("가") + first * 588 + middle * 28 + last)


def is_bright(word: str) -> bool:
    return vowel(word) in "ㅏㅑㅗ"


def before_eu(stem: str, kind: str, rest: str) -> str:
    """Return a stem with 으 and the rest of an ending, without 으 after a vowel or ㄹ."""
    if kind == "P":
        stem = altered(stem, final="") + "우"
    elif kind == "H":
        stem = altered(stem, final="")
    elif kind in ("T", "S"):
        stem = altered(stem, final="ㄹ" if kind == "T" else "") + "으"
    elif final(stem) == "ㄹ":  # another ㄹ takes its place below
        stem = altered(stem, final="") if parts(rest[0])[0] in (N, S) else stem
    elif final(stem):
        stem += "으"
    return altered(stem, final="ㄹ") + rest[1:] if rest[0] == "ㄹ" else stem + rest


def before_eo(stem: str, kind: str) -> str:
    """Return a stem with 아 or 어."""
    if kind == "P":
        return altered(stem, final="") + ("와" if stem in ("돕", "곱") else "워")
    if kind == "H":
        fronted = dict(zip("ㅏㅓㅑㅕ", "ㅐㅔㅒㅖ", strict=True))
        return altered(stem, fronted[vowel(stem)], "")
    if kind == "L":
        stem = altered(stem[:-1], final="ㄹ")
        return stem + ("라" if is_bright(stem) else "러")
    if kind == "R":
        return stem + "러"
    if kind in ("T", "S"):
        stem = altered(stem, final="ㄹ" if kind == "T" else "")
    if kind == "S" or final(stem):
        return stem + ("아" if is_bright(stem) else "어")
    if stem[-1] == "하":
        return altered(stem, "ㅐ")
    if kind == "U" or vowel(stem) == "ㅡ":
        return altered(stem, "ㅏ" if stem[:-1] and is_bright(stem[:-1]) else "ㅓ")
    contracted = CONTRACTED.get(vowel(stem))
    return altered(stem, contracted) if contracted else stem + "어"


def conjugate(stem: str, kind: str, ending: str) -> str:
    """Return a stem with an ending.

    >>> [conjugate("듣", "T", e) for e in ("고", "으면", "어요")]
    ['듣고', '들으면', '들어요']
    >>> [conjugate("살", "", e) for e in ("습니다", "으니까", "을 거예요", "었다")]
    ['삽니다', '사니까', '살 거예요', '살았다']
    """
    if ending[0] == "으":
        return before_eu(stem, kind, ending[1:])
    if ending[0] == "을":
        return before_eu(stem, kind, "ㄹ" + ending[1:])
    if ending[0] == "어":
        return before_eo(stem, kind) + ending[1:]
    if ending[0] == "었":
        return altered(before_eo(stem, kind), final="ㅆ") + ending[1:]
    open_or_l = final(stem) in ("", "ㄹ")
    if ending == "습니다" and open_or_l:
        return altered(stem, final="ㅂ") + "니다"
    if final(stem) == "ㄹ" and parts(ending[0])[0] == N:
        stem = altered(stem, final="")
    return stem + ending


def table() -> list[tuple[str, str, str]]:
    """Return every (dictionary form, form, features)."""
    return [
        (stem + "다", conjugate(stem, kind, ending), f"V;{features}" + (kind and f";IRR.{kind}"))
        for kind, stems in STEMS.items()
        for stem in stems.split()
        for features, ending in ENDINGS.items()
    ]


def main() -> None:
    rows = table()
    Path(sys.argv[1]).write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows):,} forms of {len({row[0] for row in rows})} words in {sys.argv[1]}")


if __name__ == "__main__":
    main()
